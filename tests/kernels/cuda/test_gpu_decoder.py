"""Whole models on the Triton kernels: the same model as transformers', and a row's bits its own at any width. Run by
Triton's interpreter, on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.events import Step
from engine.exactness import operators
from engine.exactness import probe as exactness
from engine.exactness.operators import same_bits
from engine.exactness.probe import probe
from engine.kernels.cuda import install as put
from engine.kernels.cuda.decoder import GpuDecoder
from engine.kernels.cuda.linear import GpuLinear
from engine.spec import SamplingParams
from engine.target.prepare import prepare
from engine.target.target import StaticTarget
from tests.helpers.fakes import Empty, Oracle, Random
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.gpu_models import LAYERS, config_of, prepared
from tests.helpers.tiny import LENGTH, WINDOW, build, lane, random_ids

pytestmark = pytest.mark.slow
WIDTHS = (1, 2, 8, 16)
HIDDEN = (0, 1)


@cache
@torch.inference_mode()
def stock(name: str, dtype: torch.dtype, num: int) -> tuple[Tensor, Tensor]:
    model = build(*config_of(name), dtype)
    out = model(
        input_ids=torch.tensor([random_ids(num, model.config.vocab_size, 3)]),
        use_cache=False,
        output_hidden_states=True,
    )
    return out.logits[0].float(), torch.cat([out.hidden_states[layer][0] for layer in HIDDEN], -1).float()


def written(name: str, num: int, num_prefill: int, cuts: list[int]) -> tuple[Tensor, Tensor]:
    """Logits and hidden states of `num` tokens behind a prefill, put in by steps of those sizes."""
    target = StaticTarget(prepared(name), LENGTH, WIDTHS, HIDDEN)
    ids = random_ids(num, target.vocab_size, 3)
    target.extend(ids[:num_prefill], 0)
    found = []
    for size in cuts:
        rows, hidden = target.extend(ids[target.length : target.length + size], size)
        assert hidden is not None
        found.append((rows.clone(), hidden.clone()))
    assert target.length == num
    rows, hidden = zip(*found, strict=True)
    return torch.cat(rows), torch.cat(hidden)


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_on_the_kernels_is_the_same_model_with_bits_of_its_own(name: str) -> None:
    """Another model than transformers', or a row whose bits hang on the width of its step, or on what stands
    beside it."""
    num_prefill, num = WINDOW + 3, WINDOW + 3 + 11
    rows, hidden = written(name, num, num_prefill, [1, 2, 8])
    others, other_hidden = written(name, num, num_prefill, [8, 1, 2])
    assert same_bits(rows, others) and same_bits(hidden, other_hidden)
    exact, rounded = stock(name, torch.float32, num), stock(name, torch.bfloat16, num)
    for ours, theirs, right in zip((rows, hidden), rounded, exact, strict=True):
        right = right[num_prefill:]
        assert float((ours.float() - right).abs().mean()) < 2 * float((theirs[num_prefill:] - right).abs().mean())


def test_the_probe_finds_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths 1 to 16 run one binary: plain decoding and the exact baseline are the same there. The probe must see what
    steps run, not what prefills do."""
    for module, name, value in (
        (exactness, "MIN_ROWS", 3),
        (exactness, "EARLY_ROWS", 2),
        (operators, "LINEAR_ROWS", (6, 6)),
        (operators, "ATTENTION_ROUNDS", (1, 1)),
        (operators, "ATTENTION_ROWS", 6),
    ):
        monkeypatch.setattr(module, name, value)
    found = probe(StaticTarget(prepared("qwen3"), 64, (1, 3)))
    assert found.classes == ((1, 3),) and not found.unstable


def test_where_kernels_fail_torch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that a kernel does not fit would leave its engineer with nothing; one whose kernels are wrong, with another
    model."""

    def wrong(self: GpuLinear, x: Tensor) -> Tensor:
        return torch.zeros(*x.shape[:-1], self.out_features, dtype=x.dtype)

    monkeypatch.setattr(GpuLinear, "forward", wrong)
    assert not prepare(build(*config_of("qwen3"), torch.bfloat16), TRITON).kernels.triton

    def broken(linears: list) -> None:
        raise RuntimeError("no kernel image")

    monkeypatch.undo()
    monkeypatch.setattr(put, "put_tiles", broken)
    made = prepare(build(*config_of("qwen3"), torch.bfloat16), TRITON)
    assert not made.kernels.triton and not any(
        isinstance(module, GpuLinear | GpuDecoder) for module in made.model.modules()
    )


def test_attention_in_one_launch_is_the_same_attention() -> None:
    """Counters that are too few, or not back at zero, give a row to nobody or to two."""
    apart = written("qwen3", 9, 4, [2, 3])
    decoder = prepared("qwen3").model.get_decoder()
    decoder.merge()
    try:
        merged = written("qwen3", 9, 4, [2, 3])
        assert same_bits(merged[0], written("qwen3", 9, 4, [1, 4])[0])
    finally:
        decoder.merge(False)
    torch.testing.assert_close(apart[0], merged[0], rtol=2e-2, atol=2e-2)


def test_whole_steps_on_the_kernels_write_the_same_tokens_whatever_is_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes of a race on CUDA, chosen tokens and accepted counts included, would part; or a lane whose kernels are
    torch's would be another race."""
    monkeypatch.setenv("PHOTOFINISH_TRITON", "1")
    params = SamplingParams(temperature=0.8, seed=5, max_new_tokens=3)
    prompt = random_ids(6, prepared("qwen3").vocab_size, 1)

    def written_by(drafter: Any, width: int, k: int, whole: bool) -> tuple[list[int], list[int]]:
        target = StaticTarget(prepared("qwen3"), LENGTH, (width,), whole_steps=whole)
        steps = [
            event
            for event in lane(prepared("qwen3"), drafter, prompt, (width,), params, k, target=target)
            if isinstance(event, Step)
        ]
        return [token for step in steps for token in step.token_ids], [row for step in steps for row in step.checksums]

    tokens, rows = written_by(Empty(), 1, 0, True)
    assert (
        (tokens, rows)
        == written_by(Random(3, tokens, prepared("qwen3").vocab_size), 3, 2, True)
        == written_by(Oracle(tokens), 4, 3, True)
    )
    assert (tokens, rows) == written_by(Empty(), 1, 0, False)
