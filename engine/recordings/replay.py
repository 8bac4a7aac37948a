"""Plays a recorded race at its original pace. Standard library only: needs neither torch nor a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from heapq import merge

from ..core.events import LaneEvent
from ..core.values import Shape
from .recording import Recording

MIN_SPEED, MAX_SPEED = 0.001, 1_000_000.0
MAX_SLEEP_S = 1e6
SPEED = Shape(
    f"a number from {MIN_SPEED} to {MAX_SPEED:.0f}, or 0 for as fast as possible",
    lambda value: type(value) in (int, float) and (value in (0, math.inf) or MIN_SPEED <= value <= MAX_SPEED),
)


def replay(
    recording: Recording,
    speed: float = 1.0,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[LaneEvent]:
    """Yield the events of a checked recording in the order of their lanes' own clocks, so that all lanes are at the
    same lane time even if they were recorded one after another. An event comes `clock_s / speed` seconds after the
    first; delays by the consumer or a coarse `sleep` are caught up, not added. Raises UsageError for a speed that
    cannot be played."""
    speed = float(SPEED.check("speed", speed))
    lanes: dict[str, list[LaneEvent]] = {}
    for event in recording.events:
        lanes.setdefault(event.lane, []).append(event)
    return _play(merge(*lanes.values(), key=lambda event: event.clock_s), speed, sleep, clock)


def _play(
    events: Iterable[LaneEvent], speed: float, sleep: Callable[[float], object], clock: Callable[[], float]
) -> Iterator[LaneEvent]:
    paced = 0 < speed < math.inf
    started = clock()
    for event in events:
        if paced and (wait := started + event.clock_s / speed - clock()) > 0:
            sleep(min(wait, MAX_SLEEP_S))
        yield event
