"""What Gradio prints of calls that fail, so that a caller who sends nonsense cannot fill the disk: an engineer finds
the whole traceback of each kind of error, and of the same kind again one line at most."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import SimpleNamespace

import gradio

AGAIN_S = 60.0
"""A kind of error is told again after so many seconds, with the number of times it came meanwhile."""
MAX_KINDS = 100
"""Kinds remembered: an error's class, and the line of code that raised it."""


class Errors:
    """Stands for `traceback` where Gradio prints what a call raised."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str, int], list[float]] = {}
        """When each kind was told last, and how often it came since."""

    def print_exc(self) -> None:
        """The exception that is being handled: whole the first time, then one line every AGAIN_S seconds."""
        error = sys.exc_info()[1]
        if error is None:
            return
        frames = traceback.extract_tb(error.__traceback__)
        kind = (type(error).__name__, *((frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)))
        with self._lock:
            now, known = self._clock(), self._told.get(kind)
            if known is not None and now - known[0] < AGAIN_S:
                known[1] += 1
                return
            if known is None and len(self._told) >= MAX_KINDS:
                del self._told[next(iter(self._told))]
            self._told[kind] = [now, 0]
        if known is None:
            traceback.print_exc()
        else:
            line = " ".join(f"{kind[0]}: {error}".split())[:300]
            print(f"again, {int(known[1]) + 1} times since it was printed last: {line}", file=sys.stderr)


def shorten_gradios() -> None:
    """Let Gradio's queue and routes print tracebacks through `Errors`, for all pages of this process."""
    errors = Errors()
    for module in (gradio.queueing, gradio.routes):
        module.traceback = SimpleNamespace(print_exc=errors.print_exc)
