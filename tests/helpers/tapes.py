"""What a CUDA graph does to a fixed call, on any device: its operations are recorded once, with their arguments, and
done again. Whatever else Python says in between is not heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from engine.kernels.torch import TorchKernels


class Tape(TorchDispatchMode):
    """Records while it is entered; `replay(result)` does it again and gives what `result`, recorded, has become."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self, result: Any) -> Any:
        now: dict[int, Any] = {}

        def current(x: Any) -> Any:
            return now.get(id(x), x) if isinstance(x, torch.Tensor) else x

        for func, args, kwargs, out in self.calls:
            made = func(*tree_map(current, args), **tree_map(current, kwargs))
            now.update(
                (id(old), new)
                for old, new in zip(tree_leaves(out), tree_leaves(made), strict=True)
                if isinstance(old, torch.Tensor)
            )
        return tree_map(current, result)


def record_fixed_calls(patch: pytest.MonkeyPatch) -> list[Tape]:
    """From now on every fixed call that is made runs its function once and is replayed from then on. Returns the tapes,
    as they are made."""
    tapes: list[Tape] = []

    def fixed(self: TorchKernels, function: Callable[[], Any], pool: Any = None, name: str = "") -> Callable[[], Any]:
        recorded: list[tuple[Tape, Any]] = []

        def call() -> Any:
            if not recorded:
                tape = Tape()
                with tape:
                    result = function()
                recorded.append((tape, result))
                tapes.append(tape)
            tape, result = recorded[0]
            return tape.replay(result)

        return call

    patch.setattr(TorchKernels, "fixed", fixed)
    return tapes
