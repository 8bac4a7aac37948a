"""Import this before anything of engine.kernels.cuda: its kernels then run on CPU tensors, by Triton's interpreter,
unless TRITON_INTERPRET says otherwise (as it must where tests marked `gpu` are to run)."""

import os

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy
import torch
from triton import knobs
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from engine.kernels.cuda.kernels import TritonKernels
from engine.target import agreement as agree

if not knobs.runtime.interpret:
    pytest.skip("Triton's kernels are not interpreted", allow_module_level=True)


def _dot(self, a, b, total, *more):
    """numpy's product of matrices sums rows of some places in another order, which tensor cores do not: add in the
    order of the columns."""
    out = total.data + numpy.add.reduce(a.data[:, :, None] * b.data[None], axis=1)
    return TensorHandle(out, total.dtype.scalar)


InterpreterBuilder.create_dot = _dot

TRITON = TritonKernels(torch.device("cpu"), torch.bfloat16, against="")
agree.DEPTHS, agree.WIDTHS = (18,), (2,)  # a load would take the interpreter minutes; test_gpu_agree.py goes deep
