"""The compiled kernels as this machine runs them, and as one with AVX-512 alone (no AMX, BF16 or VNNI) or without it
would: for tests that must hold of all; and small models that they fit."""

import ctypes
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GraniteSWAConfig, GraniteSWAForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from engine.kernels.cpu import attention, decoder, eagle3, linear
from engine.kernels.cpu import build as build_module
from engine.runner.prepare import prepare
from engine.runner.prepared import Prepared
from tests.helpers.tiny import BASE, PACKED, TORCH, Model, build, changed
from tests.helpers.tiny import CONFIGS as ALL

needs_byte_kernels = pytest.mark.skipif(
    not build_module.has("photofinish_pack_bytes"), reason="there are no compiled kernels for weights of 8 bits here"
)
needs_kernels = pytest.mark.skipif(not build_module.has_kernels(), reason="there are no compiled kernels here")
WITHOUT = {
    "AVX-512 alone": (("-mno-amx-tile", "-mno-avx512bf16", "-mno-avx512vnni"), ("step.c", "bytes.c")),
    "AVX2": (("-mno-amx-tile", "-mno-avx512f"), ("*.c",)),
}  # other machines' kernels: what the compiler is to do without, and what is compiled: that takes seconds
VARIANTS = ("this machine's", *WITHOUT)
BYTE_VARIANTS = VARIANTS[:2]  # that multiply by weights of 8 bits
SIZES: dict[str, Any] = {"intermediate_size": 112, "vocab_size": 250, "head_dim": 32}
QWEN2 = {key: value for key, value in {**BASE, **SIZES, "hidden_size": 128}.items() if key != "head_dim"}
CONFIGS: dict[str, Model] = {
    "gemma3": changed(ALL["gemma3"], **{**SIZES, "head_dim": 64}, query_pre_attn_scalar=24),
    "llama": changed(ALL["llama"], **SIZES, num_key_value_heads=4),
    "mistral": changed(ALL["mistral"], **{**SIZES, "head_dim": 64}, hidden_size=80),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**QWEN2)),
    "qwen3": changed(ALL["qwen3"], **{**SIZES, "head_dim": 96}, tie_word_embeddings=True),
}
NAMES = tuple(CONFIGS)
SINKS = {**BASE, **SIZES, "sliding_window": 16}
STOCK: dict[str, Model] = {"granite with sinks": (GraniteSWAForCausalLM, GraniteSWAConfig(**SINKS))}  # no NativeDecoder


@cache
def _of(variant: str) -> ctypes.CDLL:
    if variant == VARIANTS[0]:
        return build_module.library()
    flags, wanted = WITHOUT[variant]
    sources = Path(tempfile.mkdtemp())  # what is compiled of them is kept
    for path in (path for pattern in ("*.h", *wanted) for path in build_module.FOLDER.glob(pattern)):
        shutil.copy(path, sources)
    command = [shutil.which("cc") or "gcc", *flags]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "FOLDER", sources)
        path, _ = build_module._kept(command)
    shutil.rmtree(sources)
    return ctypes.CDLL(str(path))


@contextmanager
def on(variant: str) -> Iterator[None]:
    """All that is made inside finds the functions of that variant, and no others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "library", lambda: _of(variant))
        with compiled(variant):
            yield


@contextmanager
def compiled(variant: str) -> Iterator[None]:
    """Linears, attention, decoders and rows of heads made inside use that variant, for ever."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (linear, attention, decoder, eagle3):
            patch.setattr(module, "library", lambda: _of(variant))
        yield


def random(*size: int, seed: int = 0, spread: float = 1.0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Normal numbers, always the same for a seed."""
    return (torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)


def made(name: str, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    """Weights that are bfloat16 numbers, biases too, in any dtype."""
    model: Any = build(*{**CONFIGS, **STOCK}[name], torch.bfloat16)
    for i, module in enumerate(m for m in model.modules() if isinstance(m, nn.Linear) and m.bias is not None):
        nn.init.normal_(module.bias.data, generator=torch.Generator().manual_seed(i))
    return model.to(dtype)


@cache
def prepared(name: str, variant: str = VARIANTS[0], packed: bool = True) -> Prepared:
    with compiled(variant):
        return prepare(made(name), PACKED if packed else TORCH)


# gelu's tanh form as a sigmoid: 1 + tanh is no longer exact where it is nearly 0.
ACTS = {0: F.silu, 1: lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))}


def linear_of(num: int, k: int, bias: bool = False, seed: int = 0, spread: float = 1.0) -> nn.Linear:
    made = nn.Linear(k, num, bias, dtype=torch.bfloat16).requires_grad_(False)
    made.weight.copy_(random(num, k, seed=seed, spread=spread))
    if made.bias is not None:
        made.bias.copy_(random(num, seed=seed + 1, spread=spread))
    return made
