"""The fair clock: lanes on one device take turns, one step at a time, and the next step goes to the lane whose own
clock is behind.

Two decoders at once would slow each other down, and strict alternation would hide speed. This way each step has the
device to itself, and the clocks of running lanes agree to within one step, however many there are."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from .events import Event, Failed, Finished, LaneEvent, Step


def race(lanes: Mapping[str, Iterator[Event]], solo: bool = False) -> Iterator[LaneEvent]:
    """Interleave lanes by their own clocks; with `solo` run each to its end, in the given order.

    A lane's clock counts its steps, not its prefill. Ties go to the lane named first. A lane that yields Failed leaves
    the others running; any other error ends all. A lane is closed once it has ended, so that a failed one keeps no
    memory, and every lane when this generator is, even if closing one raises."""
    clocks = dict.fromkeys(lanes, 0.0)
    running = list(lanes)
    fresh = list(lanes)
    closing = {name: lane.close for name, lane in lanes.items() if hasattr(lane, "close")}
    with ExitStack() as stack:
        for close in closing.values():
            stack.callback(close)
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
                if name in closing:
                    closing[name]()
            yield LaneEvent(name, clocks[name], event)
