"""Attention of a step's rows by `attention.h` alone: for decoders of others, and for probes; a NativeDecoder does it
inside its call."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from .build import INT, NUMBER, POINTER, fields, library
from .tensors import MOST_DIM, address, check_heads

TOGETHER, LANES = 4, 16


class AttentionArguments(ctypes.Structure):
    """`Attention` of attention.h."""

    _fields_ = (
        *fields(POINTER, "keys", "values"),
        *fields(NUMBER, "heads", "kv", "dim", "S", "window", "num", "at"),
        ("scale", ctypes.c_float),
        *fields(POINTER, "tree"),
        *fields(NUMBER, "base"),
        *fields(POINTER, "sinks"),
    )


def is_for(model: Any) -> bool:
    """Whether it can be the attention of that model."""
    config = model.config.get_text_config()
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return model.dtype == torch.bfloat16 and dim % (2 * LANES) == 0 and dim <= MOST_DIM


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    at: Tensor,
    window: int | None,
    scaling: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """See `layers.step.Attend`. All bfloat16; keys and values contiguous; dim a multiple of 32. Raises ValueError
    otherwise, and for rows beyond the cache."""
    num, heads, dim = query.shape
    _, kv, length, _ = keys.shape
    check_heads(heads, kv, dim)
    first, query = int(at[0]), query.contiguous()
    if not 0 <= first <= length - num:
        raise ValueError(f"{num} rows from position {first} on do not fit a cache of {length}")
    threads = torch.get_num_threads()
    out, scores = torch.empty_like(query), torch.empty(threads, TOGETHER, length + LANES)
    sides = (address(side, torch.bfloat16, 1, kv, length, dim) for side in (keys, values))
    of_heads = None if sinks is None else sinks.float().contiguous()
    sinks_at = None if of_heads is None else address(of_heads, torch.float32, heads)
    arguments = AttentionArguments(*sides, heads, kv, dim, length, window or 0, num, first, scaling, None, 0, sinks_at)
    rows = (POINTER(address(tensor, torch.bfloat16, num, heads, dim)) for tensor in (query, out))
    library().photofinish_attention(ctypes.byref(arguments), *rows, POINTER(scores.data_ptr()), INT(threads))
    return out
