"""Small copies between host and device for which only their reader waits. On the CPU plain copies."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class HostWrite:
    """Sends int64 numbers to `device`, one copy at a time, without waiting if the source is pinned. Before the next
    `send`, something that depends on the copy must have been waited for: a HostRead computed from it."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.values = torch.zeros(size, dtype=torch.long, device=device)  # the destination; it stays in place
        self._staged = torch.zeros(size, dtype=torch.long, pin_memory=device.type == "cuda")
        self._numbers = self._staged.numpy()
        self._here = self.values.numpy() if device.type == "cpu" else None

    def send(self, numbers: Sequence[int]) -> None:
        """At most `size` numbers; the rest becomes 0."""
        self._numbers[: len(numbers)] = numbers
        self._numbers[len(numbers) :] = 0
        self.values.copy_(self._staged, non_blocking=True)

    def put(self, start: int, numbers: Sequence[int]) -> None:
        """Set only `numbers`, from index `start` on. The host waits for it."""
        if self._here is None:
            self.values[start : start + len(numbers)] = torch.tensor(numbers)
        else:
            self._here[start : start + len(numbers)] = numbers


class HostRead:
    """Reads up to `size` int64 numbers from a device: one copy, which `wait` waits for, with everything queued before
    it."""

    def __init__(self, size: int, wait: Callable[[], None] | None = None) -> None:
        self._arrived = torch.empty(size, dtype=torch.long, pin_memory=wait is not None)
        self._wait = wait

    def __call__(self, values: Tensor) -> list[int]:
        """`values` [n] -> n integers."""
        arrived = self._arrived[: len(values)]
        arrived.copy_(values, non_blocking=self._wait is not None)
        if self._wait is not None:
            self._wait()
        return arrived.tolist()
