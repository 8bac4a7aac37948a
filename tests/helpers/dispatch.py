"""What torch is asked to do: operations watched, and a tensor's bits."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32)


class Watch(TorchDispatchMode):
    """Records every operation with the shapes it sees; refuses what would make a device wait for the host."""

    HOST = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")[1]
        assert name not in self.HOST, f"{name} asks the host in the middle of a step"
        self.seen.append((str(func), tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))))
        return func(*args, **(kwargs or {}))
