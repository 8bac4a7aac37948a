"""What C takes from Python: the one check of every tensor whose address it gets. C itself cannot tell, and a wrong one
would end the process or be read as other numbers."""

import torch
from torch import Tensor

MOST_DIM = 4096  # numbers in a head: sixteen keys are on the stack


def address(tensor: Tensor, dtype: torch.dtype, *shape: int | None) -> int:
    """The address of a tensor's first number, in memory in the order of its dimensions.

    dtype, shape: what C reads or writes there; None: a dimension of any size.

    Raises ValueError for another dtype or shape, for gaps or another order, and for a tensor of another device."""
    sizes = tensor.shape
    fits = len(sizes) == len(shape) and all(due in (None, size) for due, size in zip(shape, sizes, strict=True))
    if not fits or tensor.dtype != dtype or not tensor.is_cpu or not tensor.is_contiguous():
        due = ", ".join("any" if size is None else str(size) for size in shape)
        order = "" if tensor.is_contiguous() else ", not contiguous"
        raise ValueError(
            f"a compiled kernel takes a contiguous {dtype} tensor of ({due}) on the CPU, not {tensor.dtype} of "
            f"({', '.join(map(str, sizes))}) on {tensor.device.type}{order}"
        )
    return tensor.data_ptr()


def check_heads(heads: int, kv: int, dim: int) -> None:
    """Raises ValueError where attention cannot have so many heads of queries, of keys, and numbers in each."""
    if kv < 1 or heads < 1 or heads % kv or dim % 32 or not 32 <= dim <= MOST_DIM:
        raise ValueError(
            f"compiled attention takes heads of queries in equal groups, of 32, 64, ... {MOST_DIM} numbers each, not "
            f"{heads} of queries for {kv} of keys, of {dim}"
        )
