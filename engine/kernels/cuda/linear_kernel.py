"""The kernel of `linear.py`: a program takes some outputs and all rows, and walks along the inputs, which gives every
output one fixed order of sums.

With EARLY a launch may begin before the one before it has ended (programmatic dependent launch, compute capability 9.0
and later), so that memory need not stand idle between two of them. A program then has its first weights brought into
the L2 cache, and waits until the launch before has ended and all that it wrote is there to be read. Before that it
writes nothing, and what it read counts for nothing: weights are read again from the cache. Every program waits, so
whoever waits for the end of this launch has waited for all before it. No sum changes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .runtime import INTERPRETED, MOST_ROWS, dot, stored

ROWS = tl.constexpr(MOST_ROWS)
ON_DEVICE = tl.constexpr(not INTERPRETED)
"""The interpreter runs one launch after another, and knows no instructions to begin and to wait."""
SECTOR = tl.constexpr(16)
"""Weights of 16 bits in 32 bytes, the least that the L2 cache fetches."""
AHEAD = tl.constexpr(2)
"""Blocks of weights that a program fetches before it waits: 32 kB or so, and an SM, which takes in 36 kB a microsecond,
has one to three programs."""


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
def fetch_weights(weight, outputs, start, NUM: tl.constexpr, K: tl.constexpr, SPAN: tl.constexpr, INPUTS: tl.constexpr):
    """Into the L2 cache: the first INPUTS of the span of weight [NUM, K] that begins at start, by a number of every
    sector; volatile, for nobody uses them."""
    inputs = start + tl.arange(0, INPUTS // SECTOR) * SECTOR
    exists = (outputs < NUM)[:, None] & (inputs < tl.minimum(start + SPAN, K))[None, :]
    tl.load(weight + outputs.to(tl.int64)[:, None] * K + inputs[None, :], mask=exists, other=0.0, volatile=True)


@triton.jit
def let_next_begin(k, LAST: tl.constexpr, EARLY: tl.constexpr):
    """In the round, at k = LAST, that asks for a program's last weights: earlier, and what the next launch fetches
    would be driven out of the cache again."""
    if EARLY and ON_DEVICE:  # noqa: SIM102 one is known at compile time, the other is not
        if k == LAST:
            gdc_launch_dependents()


@triton.jit
def product(rows, weights, total, WEIGHTS_FIRST: tl.constexpr):
    """rows [16, k] times weights [n, k], added to total [16, n], or, with WEIGHTS_FIRST, to total [n, 16]."""
    if WEIGHTS_FIRST:
        total = dot(weights, rows.trans(), total)
    else:
        total = dot(rows, weights.trans(), total)
    return total


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
    partial,  # [SPLIT, 16, NUM or 2 * NUM] float32, or None if SPLIT is 1
    arrivals,  # [programs] int32, zeros before and after; or None
    num_rows,
    eps,
    NUM: tl.constexpr,
    K: tl.constexpr,
    ACT: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One of the tiles of outputs, over one of SPLIT spans of the inputs. There are two sums, so that a multiplication
    need not wait for the one before: gate and up, or those of the two halves of every block of inputs."""
    SPAN: tl.constexpr = (K + SPLIT * BLOCK_K - 1) // (SPLIT * BLOCK_K) * BLOCK_K
    EVEN_N: tl.constexpr = NUM % BLOCK_N == 0
    EVEN_K: tl.constexpr = SPAN * SPLIT == K
    TAKEN: tl.constexpr = BLOCK_K // 2 if ACT is None else BLOCK_K  # inputs of one multiplication
    LAST: tl.constexpr = max(SPAN - STAGES * BLOCK_K, 0)

    tile, split = tl.program_id(0), tl.program_id(1)
    rows = tl.arange(0, ROWS)
    outputs = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    exists = (rows < num_rows)[:, None]
    if not EVEN_N:
        exists = exists & (outputs < NUM)[None, :]

    up_weight = weight + tl.full((), NUM, tl.int64) * K
    if EARLY:
        fetch_weights(weight, outputs, split * SPAN, NUM, K, SPAN, AHEAD * BLOCK_K)
        if ACT is not None:
            fetch_weights(up_weight, outputs, split * SPAN, NUM, K, SPAN, AHEAD * BLOCK_K)
        if ON_DEVICE:
            gdc_wait()

    if parts is not None:  # asked for early, added up late: meanwhile the weights come
        columns = tl.arange(0, PARTS_BLOCK)
        sums = tl.load(
            parts + rows[:, None] * PARTS + columns[None, :],
            mask=(rows < num_rows)[:, None] & (columns < PARTS)[None, :],
            other=0.0,
        )

    first = tl.zeros((BLOCK_N, ROWS) if WEIGHTS_FIRST else (ROWS, BLOCK_N), tl.float32)
    second = tl.zeros_like(first)
    inputs = split * SPAN + tl.arange(0, TAKEN)
    second_weight = weight
    if ACT is not None:
        second_weight = up_weight
    for k in tl.range(0, SPAN, BLOCK_K, num_stages=STAGES):
        let_next_begin(k, LAST, EARLY)
        for_first, for_second = k + inputs, k + BLOCK_K - TAKEN + inputs
        rows_first = load_rows(x, rows, for_first, num_rows, K, EVEN_K)
        rows_second = rows_first
        if ACT is None:
            rows_second = load_rows(x, rows, for_second, num_rows, K, EVEN_K)
        first = product(
            rows_first, load_weights(weight, outputs, for_first, NUM, K, EVEN_N, EVEN_K), first, WEIGHTS_FIRST
        )
        second = product(
            rows_second, load_weights(second_weight, outputs, for_second, NUM, K, EVEN_N, EVEN_K), second, WEIGHTS_FIRST
        )
    if ACT is None:
        first += second
    if WEIGHTS_FIRST:
        first, second = first.trans(), second.trans()

    is_last = True
    if SPLIT > 1:
        SUMS: tl.constexpr = NUM if ACT is None else 2 * NUM
        places = rows[:, None] * SUMS + outputs[None, :]
        tl.store(partial + split * ROWS * SUMS + places, first, mask=exists)
        if ACT is not None:
            tl.store(partial + split * ROWS * SUMS + places + NUM, second, mask=exists)
        tl.debug_barrier()  # all threads have written before one of them says so
        is_last = tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == SPLIT - 1

    if is_last:
        if SPLIT > 1:
            first = tl.load(partial + places, mask=exists, other=0.0, cache_modifier=".cg")
            if ACT is not None:
                second = tl.load(partial + places + NUM, mask=exists, other=0.0, cache_modifier=".cg")
            for other in tl.static_range(1, SPLIT):
                first += tl.load(partial + other * ROWS * SUMS + places, mask=exists, other=0.0, cache_modifier=".cg")
                if ACT is not None:
                    second += tl.load(
                        partial + other * ROWS * SUMS + places + NUM, mask=exists, other=0.0, cache_modifier=".cg"
                    )
            tl.store(arrivals + tile, 0)

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
