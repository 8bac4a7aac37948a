"""Attention of a step's rows by `attention.h` alone, for probes; a NativeDecoder does it inside its call."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from .build import INT, NUMBER, POINTER, fields, library

TOGETHER, LANES = 4, 16


class AttentionArguments(ctypes.Structure):
    """`Attention` of attention.h."""

    _fields_ = (
        *fields(POINTER, "keys", "values"),
        *fields(NUMBER, "heads", "kv", "dim", "S", "window", "num", "at"),
        ("scale", ctypes.c_float),
        *fields(POINTER, "tree"),
    )


def attend_rows(
    query: Tensor, keys: Tensor, values: Tensor, at: Tensor, window: int | None, scaling: float | None
) -> Tensor:
    """See `layers.step.Attend`; rows beyond the cache's end are left out."""
    first = int(at[0])
    block = query[0].transpose(0, 1)[: keys.shape[2] - first].contiguous()
    return attend_natively(block, keys, values, first, window, block.shape[-1] ** -0.5 if scaling is None else scaling)[
        None
    ]


def attend_natively(query: Tensor, keys: Tensor, values: Tensor, at: int, window: int | None, scale: float) -> Tensor:
    """query [n, heads, dim] at positions from `at` on, keys and values [1, kv_heads, S, dim], all bfloat16 and
    contiguous -> [n, heads, dim]. A row sees the columns up to its own, at most `window` of them. dim is a multiple of
    32."""
    num, heads, dim = query.shape
    _, kv, length, _ = keys.shape
    assert (
        dim % 32 == 0
        and at + num <= length
        and all(t.dtype == torch.bfloat16 and t.is_contiguous() for t in (query, keys, values))
    )
    threads = torch.get_num_threads()
    out, scores = torch.empty_like(query), torch.empty(threads, TOGETHER, length + LANES)
    arguments = AttentionArguments(
        keys.data_ptr(), values.data_ptr(), heads, kv, dim, length, window or 0, num, at, scale, None
    )
    pointers = (POINTER(t.data_ptr()) for t in (query, out, scores))
    library().photofinish_attention(ctypes.byref(arguments), *pointers, INT(threads))
    return out
