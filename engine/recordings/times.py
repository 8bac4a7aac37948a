"""Whether a recording's times can be those of one race. Standard library only.

A file states the same times in several places. `check_times` refuses what no race can have done; `doubt` names what no
single clock has read, and what one machine would hardly have measured. Neither proves a time: only a race on the same
machine (the command verify) contradicts someone who makes them all up consistently. What a file lacks is not compared.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from ..analysis.costs import verify_costs
from ..analysis.metrics import percentile
from ..core.errors import UsageError, short
from ..core.events import Failed, Finished, LaneEvent, Started, Step
from ..core.spec import SERVER, RaceSpec
from .event_json import MAX_SECONDS

TIE_S = 1e-6  # clocks this close are level; two ways to the same sum of times may differ by as much
NUM_TICKS = 8
# Half of all times have the last binary digit of their clock after the point, so n of them all lack the last m by a
# chance of 2^-(n m), which has to be below 2^-CHANCE. Fewer than NUM_TICKS different times may be made up.
CHANCE = 32
MAX_DIGITS = 48  # A clock that has run for 16 s has no more. Times that were rounded or made up do.
NUM_STEPS = 5
# Nine in ten steps of a lane may take this many times as long as nine in ten of another that took turns with it, at the
# same width or a wider one. A busy machine slows both, and makes their times overlap: in 196 races on a busy one and
# the ten that ship it was at most 1.02.
PACE = 1.3


def check_times(spec: RaceSpec, events: Sequence[LaneEvent]) -> None:
    """Raise UsageError if the events cannot have happened in this order, or a server's lane not within its wall time.

    On one device the lane whose clock is behind takes the next step (`race.py`), or lanes run one after another."""
    clocks = {lane.name: 0.0 for lane in spec.lanes if lane.drafter != SERVER}
    there: dict[str, tuple[float, float, float]] = {}
    for e in events:
        if e.lane not in clocks:
            _check_wall(e, there)
            continue
        behind = next(iter(clocks)) if spec.solo else min(clocks, key=clocks.__getitem__)
        is_level = clocks[e.lane] <= clocks[behind] + TIE_S or isinstance(e.event, Started)
        if e.lane != behind if spec.solo else not is_level:
            raise UsageError(
                f"its times contradict the order of its events: lane {short(e.lane)}, at {clocks[e.lane]:.6f} s of its "
                f"clock, took a turn of lane {short(behind)}, at {clocks[behind]:.6f} s"
            )
        clocks[e.lane] = e.clock_s
        if isinstance(e.event, (Finished, Failed)):
            del clocks[e.lane]


def _check_wall(e: LaneEvent, there: dict[str, tuple[float, float, float]]) -> None:
    """there: by lane, the wall clock at its start, that of its last step, and its own clock then."""
    if e.wall_s is None:
        there.pop(e.lane, None)
    elif isinstance(e.event, Started):
        there[e.lane] = e.wall_s, e.wall_s, 0.0
    elif e.lane in there:
        began, last, clock_s = there[e.lane]
        if isinstance(e.event, Step) and e.wall_s <= last:
            there[e.lane] = began, last, e.clock_s
        elif not math.isclose(clock_s, last - began, rel_tol=TIE_S, abs_tol=TIE_S):
            raise UsageError(
                f"its times contradict each other: lane {short(e.lane)} had come {clock_s!r} s far by its steps, but "
                f"{last - began!r} s by the wall clock"
            )
        elif isinstance(e.event, Step):
            there[e.lane] = began, e.wall_s, e.clock_s


def doubt(recording: Mapping[str, Any], spec: RaceSpec, events: Sequence[LaneEvent]) -> str:
    """Why the times of a checked recording cannot be believed, as a sentence for its readers; "" if nothing speaks
    against them."""
    if recording["device"]["type"] == SERVER:
        return ""
    pace = "" if spec.solo else _other_pace(recording, events)
    why = _other_clock(events) or _other_costs(recording, events) or pace
    return f"The times of this file contradict each other: {why}, so do not quote its ratio." if why else ""


@dataclass
class _Ticks:
    """The different times of a kind, and how many binary digits they have at most after the point."""

    values: set[float] = field(default_factory=set)
    digits: int = 0

    def add(self, seconds: float) -> None:
        self.values.add(seconds)
        self.digits = max(self.digits, _digits(seconds))

    def lack(self, digits: int) -> bool:
        """Whether their clock has fewer digits than this."""
        num = len(self.values)
        return num >= NUM_TICKS and self.digits <= MAX_DIGITS and num * (digits - self.digits) >= CHANCE


def _digits(seconds: float) -> int:
    return seconds.as_integer_ratio()[1].bit_length() - 1


def _other_clock(events: Sequence[LaneEvent]) -> str:
    """Times are differences between readings of one clock, so they have its digits and no more, which become fewer as
    it runs. Times multiplied by anything have more or fewer."""
    times, ticks = list(_times(events)), defaultdict[str, _Ticks](_Ticks)
    last = {_digits(seconds): i for i, (_, _, seconds) in enumerate(times)}
    for i, (lane, what, seconds) in enumerate(times):
        names = f"{what} of lane {lane}", f"the times of lane {lane}"
        if last[_digits(seconds)] == i:
            for earlier in ticks:
                if earlier not in names[1:] and ticks[earlier].lack(_digits(seconds)):
                    return f"one clock cannot have measured both {earlier} and {names[0]}"
        for name in names:
            ticks[name].add(seconds)
    for e in events:
        if isinstance(e.event, Started):
            for earlier in ticks:
                if ticks[earlier].lack(_digits(e.event.prefill_s) - 2):  # it was read before all others
                    return f"one clock cannot have measured both {earlier} and prefill_s of lane {e.lane}"
    return ""


def _times(events: Sequence[LaneEvent]) -> Iterator[tuple[str, str, float]]:
    for e in events:
        if isinstance(e.event, Step):
            for what, seconds in (("draft_s", e.event.draft_s), ("verify_s", e.event.verify_s)):
                if seconds:
                    yield e.lane, what, seconds


def _table(recording: Mapping[str, Any]) -> dict[int, float]:
    """The seconds of a step at each width, measured before the race; {} if they are not known."""
    table = recording["widths"].get("step_s")
    if not isinstance(table, dict) or not all(
        re.fullmatch("[0-9]{1,2}", width) and type(seconds) is float and 0 < seconds < MAX_SECONDS
        for width, seconds in table.items()
    ):
        return {}
    return {int(width): seconds for width, seconds in table.items()}


def _other_costs(recording: Mapping[str, Any], events: Sequence[LaneEvent]) -> str:
    """Costs are computed from the steps."""
    said, table, widths = recording.get("costs"), _table(recording), recording["widths"].get("step_widths")
    if not said or not isinstance(widths, list) or not widths or not all(type(w) is int and w in table for w in widths):
        return ""
    steps = (e.event for e in events if isinstance(e.event, Step))
    costs = verify_costs(steps, {width: table[width] for width in widths})
    same = len(costs) == len(said["verify_s"]) and all(
        math.isclose(a, b, rel_tol=TIE_S) for a, b in zip(costs, said["verify_s"], strict=True)
    )
    return "" if same else "its costs are not those of its steps"


def _other_pace(recording: Mapping[str, Any], events: Sequence[LaneEvent]) -> str:
    """Compares lanes at their commonest widths, while they took turns. A step takes no longer than a wider one, unless
    the file's table of widths says so; what disturbs the measuring of a width adds to its time."""
    table = _table(recording)
    groups: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for e in events:
        if isinstance(e.event, Step) and e.event.width is not None:
            groups[e.lane][e.event.width].append((e.clock_s, e.event.verify_s))
    commonest = [(lane, *max(by_width.items(), key=lambda item: len(item[1]))) for lane, by_width in groups.items()]
    for (slow, width, mine), (fast, wider, theirs) in permutations(commonest, 2):
        longer, shorter = _meanwhile(mine, theirs)
        if min(len(longer), len(shorter)) < NUM_STEPS or width > wider:
            continue
        most = PACE
        if width < wider:
            least = min((table[measured] for measured in table if measured >= wider), default=0.0)
            most *= max(1.0, table.get(width, math.inf) / least) if least else math.inf
        ratio = (percentile(longer, 0.1) or 0.0) / (percentile(shorter, 0.9) or math.inf)
        if ratio > most:
            return (
                f"lane {slow} took over {ratio:.2f} times as long for its steps of width {width} as lane {fast} for "
                f"those of width {wider} between them"
            )
    return ""


def _meanwhile(*groups: Sequence[tuple[float, float]]) -> list[list[float]]:
    """The times of each group while the others ran too, by their clocks."""
    began, ended = max(group[0][0] for group in groups), min(group[-1][0] for group in groups)
    return [[seconds for clock_s, seconds in group if began <= clock_s <= ended] for group in groups]
