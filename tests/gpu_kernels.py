"""Import this before anything of engine.gpu: its kernels then run on CPU tensors, by Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def _dot(self, a, b, total, *more):
    """numpy's product of matrices sums rows of some places in another order, which tensor cores do not: add in the order of the columns."""
    out = total.data + numpy.add.reduce(a.data[:, :, None] * b.data[None], axis=1)
    return TensorHandle(out, total.dtype.scalar)


InterpreterBuilder.create_dot = _dot
