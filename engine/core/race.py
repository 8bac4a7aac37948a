"""The fair clock: lanes on one device take turns, one step at a time, and the next step goes to the lane whose own
clock is behind.

Two decoders at once would slow each other down, and strict alternation would hide speed. This way each step has the
device to itself, and the clocks of running lanes agree to within one step: a true race with any number of lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from .events import Event, Failed, Finished, LaneEvent, Step


def race(lanes: Mapping[str, Iterator[Event]], solo: bool = False) -> Iterator[LaneEvent]:
    """Interleave lanes by their own clocks; with `solo` run each to its end, in the given order.

    A lane's clock counts its steps, not its prefill. Ties go to the lane named first. A lane that yields Failed leaves
    the others running. Closing this generator closes every lane, even if closing one raises."""
    clocks = dict.fromkeys(lanes, 0.0)
    running = list(lanes)
    fresh = list(lanes)
    with ExitStack() as stack:
        for lane in lanes.values():
            if hasattr(lane, "close"):
                stack.callback(lane.close)
        while running:
            if solo:
                name = running[0]
            elif fresh:
                name = fresh.pop(0)
            else:
                name = min(running, key=clocks.__getitem__)
            event = next(lanes[name])
            if isinstance(event, Step):
                clocks[name] += event.seconds
            elif isinstance(event, (Finished, Failed)):
                running.remove(name)
            yield LaneEvent(name, clocks[name], event)
