"""The kernel of `linear.py`: a program takes some outputs and all rows and walks along the inputs, so every output has
one fixed order of sums."""

import triton
import triton.language as tl

from .runtime import MOST_ROWS, dot, stored

ROWS = tl.constexpr(MOST_ROWS)


@triton.jit
def load_rows(x, rows, inputs, num_rows, K: tl.constexpr, EVEN_K: tl.constexpr):
    """x [num_rows, K] at rows and inputs; zeros beyond its edges."""
    exists = (rows < num_rows)[:, None]
    if not EVEN_K:
        exists = exists & (inputs < K)[None, :]
    return tl.load(x + rows[:, None] * K + inputs[None, :], mask=exists, other=0.0)


@triton.jit
def load_weights(
    weight, outputs, inputs, NUM: tl.constexpr, K: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr
):
    """weight [NUM, K] at outputs and inputs; zeros beyond its edges."""
    places = weight + outputs.to(tl.int64)[:, None] * K + inputs[None, :]
    if EVEN_N and EVEN_K:
        return tl.load(places)
    else:  # noqa: RET505 a return under a condition known at compile time must have its other branch
        return tl.load(places, mask=(outputs < NUM)[:, None] & (inputs < K)[None, :], other=0.0)


@triton.jit
def activated(gate, up, ACT: tl.constexpr):
    """act(gate) * up. tanh GELU is x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))."""
    if ACT == "silu":
        inner = gate
    else:
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    return gate / (1.0 + tl.exp(-inner)) * up


@triton.jit(do_not_specialize=["num_rows"])
def linear_rows(
    x,  # [num_rows, K]
    weight,  # [NUM, K]; with ACT [2 * NUM, K]
    bias,  # as many as weights, or None
    out,  # [num_rows, NUM]
    residual,  # [num_rows, NUM], to be added; or None, and then the next three too
    scale,  # [NUM] float32
    scaled,  # [num_rows, NUM]: out * scale
    squares,  # [16, programs] float32: sums over a program's outputs of out ** 2
    parts,  # [16, PARTS] float32: sums of the inputs' squares, or None for inputs that are not to be normed
    num_rows,
    eps,
    NUM: tl.constexpr,
    K: tl.constexpr,
    ACT: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One of the tiles of outputs. There are two sums, so that a multiplication need not wait for the one before: gate
    and up, or those of the two halves of every block of inputs."""
    EVEN_N: tl.constexpr = NUM % BLOCK_N == 0
    EVEN_K: tl.constexpr = K % BLOCK_K == 0
    TAKEN: tl.constexpr = BLOCK_K // 2 if ACT is None else BLOCK_K  # inputs of one multiplication

    tile = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    outputs = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    exists = (rows < num_rows)[:, None]
    if not EVEN_N:
        exists = exists & (outputs < NUM)[None, :]

    if parts is not None:  # loaded early, added late: meanwhile the weights arrive
        columns = tl.arange(0, PARTS_BLOCK)
        sums = tl.load(
            parts + rows[:, None] * PARTS + columns[None, :],
            mask=(rows < num_rows)[:, None] & (columns < PARTS)[None, :],
            other=0.0,
        )

    first = tl.zeros((ROWS, BLOCK_N), tl.float32)
    second = tl.zeros_like(first)
    inputs = tl.arange(0, TAKEN)
    second_weight = weight
    if ACT is not None:
        second_weight = weight + tl.full((), NUM, tl.int64) * K
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        for_first, for_second = k + inputs, k + BLOCK_K - TAKEN + inputs
        rows_first = load_rows(x, rows, for_first, num_rows, K, EVEN_K)
        rows_second = rows_first
        if ACT is None:
            rows_second = load_rows(x, rows, for_second, num_rows, K, EVEN_K)
        first = dot(rows_first, load_weights(weight, outputs, for_first, NUM, K, EVEN_N, EVEN_K).trans(), first)
        second = dot(
            rows_second, load_weights(second_weight, outputs, for_second, NUM, K, EVEN_N, EVEN_K).trans(), second
        )
    if ACT is None:
        first += second

    if parts is not None:
        factor = tl.math.rsqrt(tl.sum(sums, axis=1) / K + eps)[:, None]
        first = first * factor
        second = second * factor
    if bias is not None:
        first += tl.load(bias + outputs, mask=outputs < NUM, other=0.0).to(tl.float32)[None, :]
    if ACT is not None:
        if bias is not None:
            second += tl.load(bias + NUM + outputs, mask=outputs < NUM, other=0.0).to(tl.float32)[None, :]
        first = activated(first, second, ACT)
    result = stored(first, out)

    at = rows[:, None] * NUM + outputs[None, :]
    if residual is not None:
        result = stored(result.to(tl.float32) + tl.load(residual + at, mask=exists, other=0.0).to(tl.float32), out)
        exact = result.to(tl.float32)
        tl.store(
            scaled + at,
            stored(exact * tl.load(scale + outputs, mask=outputs < NUM, other=0.0)[None, :], scaled),
            mask=exists,
        )
        tl.store(squares + rows * tl.num_programs(0) + tile, tl.sum(exact * exact, axis=1), mask=rows < num_rows)
    tl.store(out + at, result, mask=exists)
