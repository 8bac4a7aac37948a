"""Import this before anything of engine.kernels.cuda: its kernels then run on CPU tensors, by Triton's interpreter,
unless TRITON_INTERPRET says otherwise (as it must where tests marked `gpu` are to run)."""

import os
from dataclasses import replace
from functools import cache

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy
import torch
import triton.language as tl
from torch import nn
from triton import knobs
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from engine.kernels.cuda.kernels import TritonKernels
from engine.kernels.cuda.linear import GpuLinear
from engine.kernels.cuda.tiles import Config
from engine.runner import agreement as agree
from engine.runner import prepare as faithful

if not knobs.runtime.interpret:
    pytest.skip("Triton's kernels are not interpreted", allow_module_level=True)


def _dot(self, a, b, total, *more):
    """numpy's product sums some rows in another order, which tensor cores do not: add in the order of the columns."""
    out = total.data + numpy.add.reduce(a.data[:, :, None] * b.data[None], axis=1)
    return TensorHandle(out, total.dtype.scalar)


InterpreterBuilder.create_dot = _dot

_patch, _patched = interpreter._patch_lang, set()


def _patch_once(fn):
    """The interpreter looks through all of triton.language again at each call of one kernel's function by another, a
    third of its time: a launch needs that once."""
    seen = frozenset(id(value) for value in fn.__globals__.values() if value is tl or value is tl.core)
    if seen in _patched:
        return None  # a call within a launch has nothing to put back
    scope = _patch(fn)
    if scope is not None:  # Triton 3.5 puts nothing back
        restore = scope.restore
        scope.restore = lambda: (_patched.clear(), restore())
        _patched.add(seen)
    return scope


interpreter._patch_lang = _patch_once
_np_dtype, _np_dtype_once = interpreter._get_np_dtype, cache(interpreter._get_np_dtype)


def _np_dtype_of(type):
    """A table of all types is made at each call otherwise. Those of pointers and blocks have no hash."""
    element = type.element_ty if isinstance(type, tl.block_type) else type
    return _np_dtype(element) if isinstance(element, tl.pointer_type) else _np_dtype_once(element)


interpreter._get_np_dtype = _np_dtype_of
# Half of what is left of its time, and no index of these shapes comes near 31 bits.
_builder = interpreter.interpreter_builder
_builder.options = replace(_builder.options, sanitize_overflow=False)

TRITON = TritonKernels(torch.device("cpu"), torch.bfloat16, against="")
agree.DEPTHS, agree.WIDTHS = (18,), (2,)  # a load would take the interpreter minutes; test_gpu_agree.py goes deep
faithful.FAITHFUL_TOKENS, faithful.ROWS = 6, 4

LINEARS = [  # n, k, act, bias, config
    (64, 128, None, False, Config(32, 64, 4, 3)),
    (70, 48, None, True, Config(32, 64, 4, 3)),
    (33, 208, None, True, Config(16, 64, 2, 3)),
    (96, 256, None, False, Config(32, 64, 4, 3)),
    (48, 144, "silu", False, Config(32, 64, 4, 3)),
    (40, 288, "gelu_tanh", True, Config(16, 64, 2, 3)),
    (24, 80, "silu", True, Config(16, 64, 2, 3)),
]


def gpu_linear(shape: tuple, dtype: torch.dtype = torch.bfloat16) -> GpuLinear:
    """A linear of one of LINEARS with random weights."""
    n, k, act, bias, config = shape
    torch.manual_seed(n)
    linear = GpuLinear(nn.Linear(k, n if act is None else 2 * n, bias).to(dtype).requires_grad_(False), act)
    linear.config = config
    return linear
