"""A recorded race, played again at the pace at which it happened. Standard library only: neither torch nor a GPU is
needed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from typing import Any

from ..errors import UsageError
from ..events import LaneEvent
from .recording import events_of

MIN_SPEED, MAX_SPEED = 0.001, 1_000_000.0
MAX_SLEEP_S = 1e6


def check_speed(speed: float) -> float:
    """The same speed, if it can be played. 0 and infinity both mean: as fast as possible. Raises UsageError."""
    if type(speed) not in (int, float) or not (speed in (0, math.inf) or MIN_SPEED <= speed <= MAX_SPEED):
        raise UsageError(
            f"speed must be from {MIN_SPEED} to {MAX_SPEED:.0f}, or 0 for as fast as possible, not {speed!r}"
        )
    return float(speed)


def replay(
    recording: Mapping[str, Any],
    speed: float = 1.0,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[LaneEvent]:
    """Yield the events of a checked recording in the order of their lanes' own clocks, so that all lanes stand at the
    same lane time, also where they were recorded one after the other. An event comes `clock_s / speed` seconds after
    the first; time that the consumer or a coarse `sleep` takes is made up for, not added. Raises UsageError for a speed
    that cannot be played."""
    lanes: dict[str, list[LaneEvent]] = {}
    for event in events_of(recording):
        lanes.setdefault(event.lane, []).append(event)
    return _play(merge(*lanes.values(), key=lambda event: event.clock_s), check_speed(speed), sleep, clock)


def _play(
    events: Iterable[LaneEvent], speed: float, sleep: Callable[[float], object], clock: Callable[[], float]
) -> Iterator[LaneEvent]:
    paced = 0 < speed < math.inf
    started = clock()
    for event in events:
        if paced and (wait := started + event.clock_s / speed - clock()) > 0:
            sleep(min(wait, MAX_SLEEP_S))
        yield event
