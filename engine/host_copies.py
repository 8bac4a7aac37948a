"""Small numbers between host and device: copies through pinned memory that nobody waits for but their reader. On the CPU plain copies."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class HostWrite:
    """Sends int64 numbers to `device`, one copy a time, on its current stream, without waiting. The next `send` must come after something that the
    copy had to precede was waited for: a HostRead of what was computed from it."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.values = torch.zeros(size, dtype=torch.long, device=device)
        """Where the numbers arrive; it stays in place."""
        self._staged = torch.zeros(size, dtype=torch.long, pin_memory=device.type == "cuda")
        self._numbers = self._staged.numpy()

    def send(self, numbers: Sequence[int]) -> None:
        """At most `size` of them; the rest becomes 0."""
        self._numbers[: len(numbers)] = numbers
        self._numbers[len(numbers) :] = 0
        self.values.copy_(self._staged, non_blocking=True)


class HostRead:
    """Reads up to `size` int64 numbers off `device`: an asynchronous copy, waited for once, and with it everything queued before it."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._device = device
        self._arrived = torch.empty(size, dtype=torch.long, pin_memory=device.type == "cuda")
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    def __call__(self, values: Tensor) -> list[int]:
        """`values` [n] -> n integers."""
        arrived = self._arrived[: len(values)]
        arrived.copy_(values, non_blocking=True)
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(self._device))
            self._event.synchronize()
        return arrived.tolist()
