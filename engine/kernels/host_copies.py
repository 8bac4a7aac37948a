"""Small numbers between host and device: copies that nobody waits for but their reader. On the CPU plain copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class HostWrite:
    """Sends int64 numbers to `device`, one copy a time, without waiting where the memory they are sent from is pinned.
    The next `send` must come after something that the copy had to precede was waited for: a HostRead of what was
    computed from it."""

    def __init__(self, size: int, device: torch.device, pinned: bool = False) -> None:
        self.values = torch.zeros(size, dtype=torch.long, device=device)
        """Where the numbers arrive; it stays in place."""
        self._staged = torch.zeros(size, dtype=torch.long, pin_memory=pinned)
        self._numbers = self._staged.numpy()
        self._here = self.values.numpy() if device.type == "cpu" else None

    def send(self, numbers: Sequence[int]) -> None:
        """At most `size` of them; the rest becomes 0."""
        self._numbers[: len(numbers)] = numbers
        self._numbers[len(numbers) :] = 0
        self.values.copy_(self._staged, non_blocking=True)

    def put(self, start: int, numbers: Sequence[int]) -> None:
        """Set `numbers` alone, from place `start` on. The host waits for it."""
        if self._here is None:
            self.values[start : start + len(numbers)] = torch.tensor(numbers)
        else:
            self._here[start : start + len(numbers)] = numbers


class HostRead:
    """Reads up to `size` int64 numbers off a device: one copy, which `wait` waits for, and with it everything queued
    before it."""

    def __init__(self, size: int, wait: Callable[[], None] | None = None, pinned: bool = False) -> None:
        self._arrived = torch.empty(size, dtype=torch.long, pin_memory=pinned)
        self._wait = wait

    def __call__(self, values: Tensor) -> list[int]:
        """`values` [n] -> n integers."""
        arrived = self._arrived[: len(values)]
        arrived.copy_(values, non_blocking=self._wait is not None)
        if self._wait is not None:
            self._wait()
        return arrived.tolist()
