"""From a projection to queries, keys and values in the cache, as one Triton kernel: a program takes one head of one
row, so a row's bits are its own."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .runtime import rounded, stored


@triton.jit
def _turned(source, cos, sin, scales, dims, inside, eps, DIM: tl.constexpr, TURNED: tl.constexpr):
    """A head [DIM] at `source`, normed by its scales [DIM] if they are given, the first TURNED of it turned by its
    angles, rounded wherever FusedAttention rounds."""
    partners = tl.where(dims < TURNED // 2, dims + TURNED // 2, dims - TURNED // 2)
    first = dims < TURNED
    x = tl.load(source + dims, mask=inside, other=0.0).to(tl.float32)
    partner = tl.load(source + partners, mask=inside, other=0.0).to(tl.float32)
    if scales is not None:
        factor = tl.rsqrt(tl.sum(x * x, 0) / DIM + eps)
        x = rounded(rounded(x * factor, source) * tl.load(scales + dims, mask=inside, other=0.0), source)
        partner = rounded(
            rounded(partner * factor, source) * tl.load(scales + partners, mask=inside, other=0.0), source
        )
    along = rounded(x * tl.load(cos + dims, mask=first, other=0.0).to(tl.float32), source)
    across = rounded(partner * tl.load(sin + dims, mask=first, other=0.0).to(tl.float32), source)
    if TURNED < DIM:
        x = tl.where(first, along + across, x)
    else:
        x = along + across
    return stored(x, source)


@triton.jit(do_not_specialize=["at", "length"])
def _place(
    qkv, cos, sin, scales, eps, keys, values, at, query, length,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, QUERY_PARTS: tl.constexpr, DIM: tl.constexpr, TURNED: tl.constexpr,
    PADDED: tl.constexpr, TABLE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    head = tl.program_id(1)
    dims = tl.arange(0, PADDED)
    inside = dims < DIM
    part = tl.where(head < HEADS, head * QUERY_PARTS, head + (QUERY_PARTS - 1) * HEADS)
    source = qkv + (row * (HEADS * QUERY_PARTS + 2 * KV_HEADS) + part) * DIM
    column = tl.load(at + row)
    if head < HEADS + KV_HEADS:
        its_scales = scales
        if scales is not None:
            its_scales = scales + head * DIM
        angles = (column if TABLE else row) * TURNED
        turned = _turned(source, cos + angles, sin + angles, its_scales, dims, inside, eps, DIM, TURNED)
        if head < HEADS:
            tl.store(query + (row * HEADS + head) * DIM + dims, turned, mask=inside)
        else:
            tl.store(keys + ((head - HEADS).to(tl.int64) * length + column) * DIM + dims, turned, mask=inside)
    else:
        value = tl.load(source + dims, mask=inside, other=0.0)
        tl.store(values + ((head - HEADS - KV_HEADS).to(tl.int64) * length + column) * DIM + dims, value, mask=inside)


def place(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    scales: Tensor | None,
    eps: float,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
    heads: int,
    table: bool = False,
) -> Tensor:
    """Norm, turn and place queries, keys and values.

    qkv: [m, (heads + 2 kv_heads) * dim], or with a gate after every query (ignored) [m, (2 heads + 2 kv_heads) * dim].
    cos, sin: [m, d], d even: angles of the first d values of a head; the first half of the sines is negated. With
        `table` [any, d], of which row at[r] is that of row r.
    scales: [heads + kv_heads, dim] float32, for norms of queries and keys by head, or None.
    heads: of queries; may be 0.
    keys, values: [1, kv_heads, S, dim]; row r is written at column at[r].
    at: [m] int64.

    All contiguous and, except scales and at, of one 16-bit dtype. Returns query [m, heads, dim]. One launch; any m."""
    _, kv_heads, length, dim = keys.shape
    rows, turned = len(at), cos.shape[1]
    query_parts = 1 + (qkv.shape[1] > (heads + 2 * kv_heads) * dim)
    assert (
        qkv.shape == (rows, (query_parts * heads + 2 * kv_heads) * dim)
        and sin.shape == cos.shape
        and at.dim() == 1
        and (table or len(cos) == rows)
        and values.shape == keys.shape
    )
    assert turned <= dim and turned % 2 == 0
    assert all(x.is_contiguous() and x.dtype == keys.dtype for x in (qkv, cos, sin, keys, values))
    assert scales is None or (
        scales.shape == (heads + kv_heads, dim) and scales.dtype == torch.float32 and scales.is_contiguous()
    )
    query = qkv.new_empty(rows, heads, dim)
    padded = triton.next_power_of_2(dim)
    _place[(rows, heads + 2 * kv_heads)](
        qkv, cos, sin, scales, eps, keys, values, at, query, length,
        HEADS=heads, KV_HEADS=kv_heads, QUERY_PARTS=query_parts, DIM=dim, TURNED=turned, PADDED=padded, TABLE=table,
        num_warps=1,
    )  # fmt: skip
    return query
