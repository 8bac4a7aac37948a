"""What all Triton kernels share. Import only where they may run: it needs triton, which comes with a CUDA build of
torch.

With TRITON_INTERPRET=1, set before this is imported, kernels run on CPU tensors by Triton's interpreter, as in
tests."""

import triton
import triton.language as tl
from triton import knobs

from .available import MOST_ROWS as MOST_ROWS

INTERPRETED = bool(knobs.runtime.interpret)
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter multiplies the bit patterns of bfloat16 as if they were numbers


@triton.jit
def dot(a, b, total):
    """a [m, k] @ b [k, n] + total [m, n], float32."""
    if UPCAST:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total)


@triton.jit
def stored(x, like):
    """x, float32, as a number behind the pointer `like`, rounded to the nearest: the interpreter would cut bits off for
    bfloat16."""
    if UPCAST and like.dtype.element_ty == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        x = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).to(tl.float32, bitcast=True)
    return x.to(like.dtype.element_ty)


@triton.jit
def rounded(x, like):
    """x, float32, as it would be read again from there."""
    return stored(x, like).to(tl.float32)
