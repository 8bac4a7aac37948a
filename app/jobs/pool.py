"""Slow work other than races: reading files from browsers, drawing figures. It runs in one thread, one job at a time,
so that races and requests compete for the interpreter with at most one job."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from engine.core.errors import UsageError

T = TypeVar("T")
PER_ADDRESS, MAX_JOBS = 4, 40  # limits on jobs that run or wait


class Jobs:
    """The jobs of all visitors. Not thread-safe: to be used from one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "job")
        self._callers: Counter[str] = Counter()

    async def run(self, address: str, work: Callable[..., T], *arguments: object) -> T:
        """What `work(*arguments)` returns or raises. If the awaiting task is cancelled, a job that has not started is
        dropped. Raises UsageError if the address, or the page, has too many jobs."""
        if self._callers[address] >= PER_ADDRESS:
            raise UsageError(f"{PER_ADDRESS} files from your address are already being read, the limit; try again")
        if self._callers.total() >= MAX_JOBS:
            raise UsageError(f"{MAX_JOBS} files are already being read here, the limit; try again later")
        self._callers[address] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        finally:
            self._callers[address] -= 1
            self._callers += Counter()  # drops zero counts
