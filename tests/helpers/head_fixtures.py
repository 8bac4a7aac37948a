"""Targets, contexts and lanes for tests of draft heads, and where the heads among the fixtures are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import drafters
from engine.core.events import Prompt, Step
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.drafters import DrafterContext
from engine.loading.loading import LoadedModel, ModelInfo, load
from engine.progress import silent
from engine.runner.target import StaticTarget
from tests.helpers.tiny import PACKED, TRAINED, lane

FIXTURES = TRAINED.parent.parent
FORMATS = FIXTURES / "formats"
HEADS = {"eagle3": TRAINED.parent / "eagle3", "dflash": TRAINED.parent / "dflash"}
NUM_LAYERS, SIZE, VOCAB = 6, 64, 512  # of formats/target
LENGTH = 256


@cache
def formats_target(dtype: str = "float32") -> LoadedModel:
    model = (
        AutoModelForCausalLM.from_pretrained(FORMATS / "target", dtype=getattr(torch, dtype))
        .eval()
        .requires_grad_(False)
    )
    return LoadedModel(model, None, ModelInfo("formats/target", "", "", dtype, "cpu", ""))


@cache
def trained_target(dtype: str = "float32") -> LoadedModel:
    return load(str(TRAINED), dtype, "cpu")


@cache
def stock_target() -> Any:
    """formats/target as transformers runs it."""
    return AutoModelForCausalLM.from_pretrained(FORMATS / "target", dtype=torch.float32).eval()


@torch.inference_mode()
def features(tokens: Sequence[int], layers: Sequence[int]) -> Tensor:
    """The stock target's hidden states [len(tokens), len(layers) * SIZE]."""
    states = stock_target()(input_ids=torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states
    return torch.cat([states[i][0] for i in layers], -1)


def context(
    loaded: LoadedModel,
    k: int,
    prompt: Sequence[int] = (1, 2, 3),
    temperature: float = 0.0,
    num_new: int = 48,
    **more: Any,
) -> DrafterContext:
    params = SamplingParams(temperature=temperature, seed=5, max_new_tokens=num_new)
    sample = Sampler(params, loaded.prepared.vocab_size, PACKED)
    return DrafterContext(
        loaded=loaded,
        params=params,
        k=k,
        length=LENGTH,
        sample=sample,
        prompt=Prompt("", tuple(prompt)),
        reference=None,
        progress=silent,
        **more,
    )


def made(text: str, loaded: LoadedModel, k: int, **more: Any) -> Any:
    return drafters.make(text, context(loaded, k, **more))


def raced(
    loaded: LoadedModel,
    drafter: Any,
    prompt: Sequence[int],
    k: int,
    temperature: float = 0.0,
    num_new: int = 48,
    widths: Sequence[int] = (8,),
) -> list[Step]:
    """A whole audited lane: its steps."""
    here = context(loaded, k, prompt, temperature, num_new)
    target = StaticTarget(loaded.prepared, LENGTH, widths, drafter.hidden_layers)
    events = lane(loaded.prepared, drafter, prompt, widths, here.params, k, target=target)
    assert events[-1].reason == "length", events[-1]
    return [e for e in events if isinstance(e, Step)]


def written(steps: Sequence[Step]) -> tuple[list[int], list[int]]:
    """(tokens, checksums of the logit rows) of a lane."""
    return [t for s in steps for t in s.token_ids], [c for s in steps for c in s.checksums]


def hidden_rows(drafter: Any, tokens: Sequence[int], size: int) -> Tensor | None:
    """Rows of hidden states that some target of that hidden size might have for `tokens`, if the drafter asks
    for any."""
    if not drafter.hidden_layers:
        return None
    return torch.randn(
        len(tokens), len(drafter.hidden_layers) * size, generator=torch.Generator().manual_seed(sum(tokens))
    )


def spoil(rows: Tensor | None) -> None:
    """What the target's next step may do to the rows that it handed out."""
    if rows is not None:
        rows.fill_(torch.nan)
