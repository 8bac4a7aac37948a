"""Attention of a step's rows over the static cache in Triton, after `qkv_rope_cache.py` has filled it.

The columns are split at fixed places, whatever the pointer, and a split is read block by block: first sums of every
split that a row sees, then a second launch adds a row's splits in order. Columns that a row does not see change none of
its sums (weights of exactly 0), and those that no row of a tile sees are not read; so a row's bits are its own."""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .runtime import MOST_ROWS, dot, rounded, stored

TILE = tl.constexpr(MOST_ROWS)  # rows of a tile: positions times the heads that share keys
CHUNK = tl.constexpr(64)  # splits added at a time
STAGES = tl.constexpr(3)  # one more than the blocks loaded ahead
NO_WINDOW = 2**30
BLOCK = 8192  # values of keys that a program reads at a time at most, and as many of values: 16 kB each
MOST_COLUMNS = 64
# Splits are as long as so many programs allow when all columns are seen: one per multiprocessor of an H200.
PROGRAMS = 128
MOST_BLOCKS = 16
# The unit of strides: the compiler then knows that rows are aligned, without a binary for every stride.
UNIT = tl.constexpr(16)
LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def _gated(out, gates, mask, result):
    """Rows of attention times the sigmoids of what lies at `gates`, rounded wherever GatedAttention rounds."""
    gate = tl.load(gates, mask=mask, other=0.0).to(tl.float32)
    return rounded(out, result) * rounded(1.0 / (1.0 + tl.exp(-gate)), result)


@triton.jit(do_not_specialize=["at", "num_rows", "length", "window", "row_stride", "head_stride"])
def _attend(
    query, keys, values, at, outs, peaks, sums, num_rows, length, window, row_stride, head_stride, scaling,
    GROUPS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, SLOTS: tl.constexpr, CAUSAL: tl.constexpr, FROM_ROW: tl.constexpr,
):  # fmt: skip
    """One program: a tile of rows over one split. The largest score, the sum of weights and the weighted sum of values
    go to the split's slot; with counters [tiles, kv_heads] of programs that have arrived, the last of a tile adds its
    splits."""
    kv_head = tl.program_id(0)
    tile = tl.program_id(1)
    members = tile * TILE + tl.arange(0, TILE)
    rows = members // GROUPS
    exists = rows < num_rows
    first_at = tl.load(at).to(tl.int32)
    positions = (first_at + rows)[:, None]
    newest = positions
    if not CAUSAL:
        newest = first_at + num_rows - 1
    # rows of the tile see columns low .. high - 1
    low = first_at - window + 1
    high = first_at + num_rows
    if FROM_ROW:
        low += tile * TILE // GROUPS
    else:
        positions = first_at
    low = tl.maximum(low, 0)
    if CAUSAL:
        high = tl.minimum(first_at + (tile * TILE + TILE - 1) // GROUPS + 1, high)
    split = low // (COLUMNS * BLOCKS) + tl.program_id(2)
    start = split * (COLUMNS * BLOCKS)
    if start >= high:
        return
    dims = tl.arange(0, PADDED)
    inside = dims < DIM
    heads = kv_head * GROUPS + members % GROUPS
    its_queries = (rows * (row_stride * UNIT) + heads * (head_stride * UNIT))[:, None] + dims[None, :]
    q = tl.load(query + its_queries, mask=exists[:, None] & inside[None, :], other=0.0)
    before = kv_head.to(tl.int64) * length * DIM
    its_keys = keys + before
    its_values = values + before
    peak = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    out = tl.zeros((TILE, PADDED), tl.float32)
    for block in tl.range(0, BLOCKS, num_stages=STAGES):
        columns = start + block * COLUMNS + tl.arange(0, COLUMNS)
        live = (columns >= low) & (columns < high)
        k = tl.load(its_keys + columns[None, :] * DIM + dims[:, None], mask=live[None, :] & inside[:, None], other=0.0)
        v = tl.load(
            its_values + columns[:, None] * DIM + dims[None, :], mask=live[:, None] & inside[None, :], other=0.0
        )
        scores = dot(q, k, tl.zeros((TILE, COLUMNS), tl.float32)) * scaling
        seen = (columns[None, :] <= newest) & (columns[None, :] > positions - window)
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - base[:, None])
        decay = tl.exp2(peak - base)
        total = total * decay + tl.sum(weights, 1)
        out = dot(stored(weights, values), v, out * decay[:, None])
        peak = higher
    pairs = rows * HEADS + heads
    slots = pairs * SLOTS + split % SLOTS
    tl.store(peaks + slots, peak, mask=exists)
    tl.store(sums + slots, total, mask=exists)
    tl.store(outs + slots[:, None].to(tl.int64) * DIM + dims[None, :], out, mask=exists[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["at", "window"])
def _combine(
    outs, peaks, sums, at, result, qkv, sinks, window,
    HEADS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, QKV_ROW: tl.constexpr, SPLIT: tl.constexpr,
    SLOTS: tl.constexpr, PADDED_SLOTS: tl.constexpr, CAUSAL: tl.constexpr, FROM_ROW: tl.constexpr,
):  # fmt: skip
    """One program: a row of one head, over the splits that it sees."""
    pair = tl.program_id(0)
    first_at = tl.load(at).to(tl.int32)
    newest = first_at + (pair if CAUSAL else tl.num_programs(0) - 1) // HEADS
    lowest = tl.maximum(first_at + (pair // HEADS if FROM_ROW else 0) - window + 1, 0) // SPLIT
    num_live = newest // SPLIT - lowest + 1
    dims = tl.arange(0, PADDED)
    inside = dims < DIM
    every = tl.arange(0, PADDED_SLOTS)
    peak = tl.max(
        tl.load(peaks + pair * SLOTS + (lowest + every) % SLOTS, mask=every < num_live, other=float("-inf")), 0
    )
    total = 0.0
    if sinks is not None:
        sink = tl.load(sinks + pair % HEADS).to(tl.float32) * LOG2_E
        peak = tl.maximum(peak, sink)
        total += tl.exp2(sink - peak)
    out = tl.zeros((PADDED,), tl.float32)
    for first in range(0, SLOTS, CHUNK):
        some = first + tl.arange(0, CHUNK)
        live = some < num_live
        slots = pair * SLOTS + (lowest + some) % SLOTS
        weights = tl.exp2(tl.load(peaks + slots, mask=live, other=float("-inf")) - peak)
        total += tl.sum(weights * tl.load(sums + slots, mask=live, other=0.0), 0)
        parts = tl.load(
            outs + slots[:, None].to(tl.int64) * DIM + dims[None, :], mask=live[:, None] & inside[None, :], other=0.0
        )
        out += tl.sum(weights[:, None] * parts, 0)
    out = out / total
    if qkv is not None:
        out = _gated(out, qkv + (pair // HEADS) * QKV_ROW + (2 * (pair % HEADS) + 1) * DIM + dims, inside, result)
    tl.store(result + pair * DIM + dims, stored(out, result), mask=inside)


@dataclass(frozen=True, slots=True)
class Splits:
    """How a cache's columns are split, by its shape and the window alone."""

    columns: int
    blocks: int
    slots: int  # the most splits that rows of one tile can see


def splits_of(length: int, kv_heads: int, dim: int, window: int | None) -> Splits:
    """Splits of a power of two blocks, as long as possible with enough programs over all visible columns."""
    columns = min(MOST_COLUMNS, BLOCK // triton.next_power_of_2(dim))
    extent = length if window is None else min(length, window)
    blocks = 1
    while blocks < MOST_BLOCKS and kv_heads * math.ceil(extent / (2 * blocks * columns)) >= PROGRAMS:
        blocks *= 2
    num_splits = math.ceil(length / (columns * blocks))
    most_seen = num_splits if window is None else (window + MOST_ROWS - 3) // (columns * blocks) + 2
    return Splits(columns, blocks, min(num_splits, most_seen))


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
    window: int | None,
    scaling: float,
    sinks: Tensor | None = None,
    gated: Tensor | None = None,
    causal: bool = True,
    from_row: bool = True,
) -> Tensor:
    """query [m, heads, dim] over keys, values [1, kv_heads, S, dim] -> [m, heads * dim]. Row r, at position at[0] + r,
    sees columns up to its own, with a window the last `window` of them. keys, values and at are contiguous, as is the
    last dimension of query; dim and query's strides are multiples of 16. Any m, in memory that grows with it.

    causal False: every row sees what the last one does. from_row False: no row's window begins after the first's. Both
    for at most MOST_ROWS rows.

    Two launches. gated: a qkv with gates, contiguous, as for `place`: the result is multiplied by their sigmoids. sinks
    [heads], contiguous: see `layers.attention.attend_rows`."""
    rows, heads, dim = query.shape
    _, kv_heads, length, _ = keys.shape
    groups, unit = heads // kv_heads, UNIT.value
    row_stride = query.stride(0) if rows > 1 else 0  # a single row's stride may be anything
    head_stride = query.stride(1)
    assert (
        keys.shape[-1] == dim
        and dim % unit == row_stride % unit == head_stride % unit == 0
        and query.stride(-1) == 1
        and heads == groups * kv_heads
    )
    assert (
        keys.is_contiguous()
        and values.is_contiguous()
        and values.shape == keys.shape
        and query.dtype == keys.dtype == values.dtype
    )
    assert (window is None or window > 0) and ((causal and from_row) or rows <= MOST_ROWS)
    qkv_row = 0 if gated is None else (2 * heads + 2 * kv_heads) * dim
    assert gated is None or (gated.shape == (rows, qkv_row) and gated.is_contiguous() and gated.dtype == query.dtype)
    assert sinks is None or (sinks.shape == (heads,) and sinks.is_contiguous())
    splits, padded = splits_of(length, kv_heads, dim, window), triton.next_power_of_2(dim)
    reach = NO_WINDOW if window is None else window
    outs = torch.empty(rows, heads, splits.slots, dim, dtype=torch.float32, device=query.device)
    peaks, sums = outs.new_empty(rows, heads, splits.slots), outs.new_empty(rows, heads, splits.slots)
    result = query.new_empty(rows, heads * dim)
    _attend[(kv_heads, triton.cdiv(rows * groups, MOST_ROWS), splits.slots)](
        query, keys, values, at, outs, peaks, sums, rows, length, reach, row_stride // unit, head_stride // unit,
        scaling * LOG2_E.value,
        GROUPS=groups, HEADS=heads, DIM=dim, PADDED=padded, COLUMNS=splits.columns, BLOCKS=splits.blocks,
        SLOTS=splits.slots, CAUSAL=causal, FROM_ROW=from_row, num_warps=max(4, padded // 32),
    )  # fmt: skip
    _combine[(rows * heads,)](
        outs, peaks, sums, at, result, gated, sinks, reach,
        HEADS=heads, DIM=dim, PADDED=padded, QKV_ROW=qkv_row, SPLIT=splits.columns * splits.blocks,
        SLOTS=splits.slots, PADDED_SLOTS=triton.next_power_of_2(splits.slots), CAUSAL=causal, FROM_ROW=from_row,
        num_warps=8,
    )  # fmt: skip
    return result
