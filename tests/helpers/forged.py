"""Recordings whose times somebody changed, as well as a text editor or a short script can."""

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any

from engine.analysis.costs import verify_costs
from engine.core.events import Event
from engine.core.race import race
from engine.recordings.recording import Recording
from tests.helpers.races import events_of


def forged(
    recorded: Mapping[str, Any],
    change: Callable[[float], float],
    lanes: Collection[str],
    times: Collection[str] = ("draft_s", "verify_s"),
    steps: Callable[[int], bool] = lambda index: True,
) -> dict[str, Any]:
    """The recording with these times of these steps changed, and all sums and oracles in accord with them."""
    out, clocks = copy.deepcopy(dict(recorded)), dict[str, float]()
    for event in out["events"]:
        lane = event["lane"]
        for name in times:
            if lane in lanes and name in event and (name == "prefill_s" or steps(event["index"])):
                event[name] = change(event[name])
        if event["type"] == "step":
            clocks[lane] = clocks.get(lane, 0.0) + event["draft_s"] + event["verify_s"]
        event["clock_s"] = clocks.get(lane, 0.0)
        if event["type"] == "finished":
            event["decode_s"] = event["clock_s"]
    for lane, oracle in out.get("oracles", {}).items():
        oracle["seconds"] = oracle["share"] * clocks[lane]
    return out


def in_turns(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The recording with its events in the order of the fair clock."""
    played: dict[str, list[Event]] = {lane["name"]: [] for lane in recorded["spec"]["lanes"]}
    rows: dict[str, list[Any]] = {name: [] for name in played}
    for event, row in zip(events_of(recorded), recorded["events"], strict=True):
        played[event.lane].append(event.event)
        rows[event.lane].append(row)
    order = race({name: iter(events) for name, events in played.items()}, recorded["spec"]["solo"])
    return {**recorded, "events": [rows[event.lane].pop(0) for event in order]}


def with_costs(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The recording with the costs of its steps."""
    widths, steps = recorded["widths"], [e.event for e in Recording.of(recorded).events if hasattr(e.event, "width")]
    table = {width: widths["step_s"][str(width)] for width in widths["step_widths"]}
    return {**recorded, "costs": {**recorded["costs"], "verify_s": list(verify_costs(steps, table))}}
