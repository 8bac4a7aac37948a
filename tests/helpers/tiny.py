"""Tiny random checkpoints made in memory, one of each architecture that the engine promises, and the trained fixture.

`stock(name, dtype)` is the untouched transformers model, `prepared(name, dtype)` the same weights ready for fixed
steps; both are made once a run. Weights are drawn large enough that logits spread and greedy text does not settle.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from engine.core.decode import decode
from engine.core.events import Event
from engine.core.sampling.accept import Coupled
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.kernels.cpu.kernels import CpuKernels
from engine.kernels.torch import Kernels
from engine.runner.prepare import prepare
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from tests.helpers import FIXTURES
from tests.helpers.fakes import Ends

TRAINED = FIXTURES / "trained" / "target"
WINDOW = 16
LENGTH = 256
DTYPES = (torch.float32, torch.bfloat16)
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
BASE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "initializer_range": 0.15,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
MIXED = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
ROPES = {"sliding_attention": ROPE, "full_attention": {**ROPE, "rope_theta": 1_000_000.0}}
GEMMA = {
    **BASE, "num_hidden_layers": 4, "num_key_value_heads": 1, "vocab_size": 320, "sliding_window": WINDOW,
    "layer_types": MIXED, "query_pre_attn_scalar": 16, "rope_parameters": ROPES,
}  # fmt: skip
UNTIED = {**BASE, "tie_word_embeddings": False}
Model = tuple[type[PreTrainedModel], Any]
CONFIGS: dict[str, Model] = {
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig(**GEMMA, tie_word_embeddings=True)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**UNTIED, vocab_size=256)),
    "llama": (LlamaForCausalLM, LlamaConfig(**UNTIED, vocab_size=200)),
    "mistral": (MistralForCausalLM, MistralConfig(**UNTIED, vocab_size=288, sliding_window=WINDOW)),
}
NAMES = tuple(CONFIGS)
HYBRID = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
# As many words as the trained fixture has, whose tokenizer the races borrow.
DELTA = {**BASE, **LINEAR, "num_hidden_layers": 4, "layer_types": HYBRID, "vocab_size": 2048}
HYBRIDS: dict[str, Model] = {
    "qwen3_5": (Qwen3_5ForCausalLM, Qwen3_5TextConfig(**DELTA, tie_word_embeddings=False)),
    "qwen3_next": (
        Qwen3NextForCausalLM,
        Qwen3NextConfig(**DELTA, tie_word_embeddings=False, mlp_only_layers=[0, 1, 2, 3]),
    ),
}  # models with linear attention


def changed(model: Model, **settings: Any) -> Model:
    return model[0], type(model[1])(**{**model[1].to_dict(), **settings})


def build(
    model_class: type[PreTrainedModel], config: Any, dtype: torch.dtype = torch.float32, seed: int = 0
) -> PreTrainedModel:
    """A random model from a copy of `config` (two models of one config object would share its attention setting)."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model: Any = model_class(copy.deepcopy(config))
        for name, weight in model.named_parameters():
            # norms: random too, and layers that outweigh the embedding, which a tied head would only repeat
            if weight.ndim == 1:
                weight += 0.2 * torch.randn_like(weight) + (2 if "post_" in name else 0)
    return model.to(dtype).eval()


def fresh(name: str, dtype: torch.dtype = torch.float32, **settings: Any) -> PreTrainedModel:
    """A new copy of the named model with these settings, always with the same weights; `trained` is the fixture. The
    states of a hybrid remember: its heads forget a few tenths a token at most, as a random one's would not."""
    if name == "trained":
        return AutoModelForCausalLM.from_pretrained(TRAINED, dtype=dtype).eval()
    model = build(*changed({**CONFIGS, **HYBRIDS}[name], **settings), dtype)
    for key, weight in model.named_parameters():
        if key.endswith("A_log"):
            weight.data = torch.linspace(0.002, 0.3, len(weight)).log().to(dtype)
    return model


@cache
def stock(name: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The model as transformers runs it."""
    return fresh(name, dtype)


CPU = torch.device("cpu")
TORCH, PACKED = Kernels(CPU), CpuKernels(CPU)


@cache
def prepared(name: str, dtype: torch.dtype = torch.float32, packed: bool = True) -> Prepared:
    """The same weights under the engine's attention; packed: by the CPU's kernels, else by torch's own."""
    return prepare(fresh(name, dtype), PACKED if packed else TORCH)


def random_ids(num: int, vocab_size: int, seed: int = 0) -> list[int]:
    """`num` token ids, always the same for a seed."""
    return torch.randint(0, vocab_size, (num,), generator=torch.Generator().manual_seed(seed)).tolist()


def rows_of(target: StaticTarget, ids: Sequence[int], width: int) -> torch.Tensor:
    """Logits of these ids, `width` a step."""
    parts = [ids[i : i + width] for i in range(0, len(ids), width)]
    return torch.cat([target.extend(part, len(part))[0].clone() for part in parts])


def lane(
    model: Prepared,
    drafter: Any,
    prompt: Sequence[int],
    widths: Sequence[int],
    params: SamplingParams,
    k: int = 0,
    target: Any = None,
    sample: Any = None,
) -> list[Event]:
    """One whole lane on a real model, audited: its events. `target`, `sample`: faulty ones for the real."""
    target = target or StaticTarget(model, LENGTH, widths)
    rule = Coupled(sample or Sampler(params, model.vocab_size, model.kernels))
    num = params.max_new_tokens
    return list(decode(target, drafter, rule, prompt, Ends(num), num, k, audit=True))


@contextmanager
def threads(num: int) -> Iterator[None]:
    """Run with `num` threads: other classes than with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        yield
    finally:
        torch.set_num_threads(before)
