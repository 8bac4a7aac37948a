"""Times that somebody changed in a file contradict something else in it; those of no race that was run do."""

import copy
import html
import json
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.jobs.recorded import RACES
from app.page.exported import exported
from app.web.player.player import describe
from engine.analysis.costs import verify_costs
from engine.core import race as fair_clock
from engine.core.errors import UsageError
from engine.core.events import Event, Step
from engine.recordings.recording import checked, read, summary
from tests.helpers import CHAINS, FIXTURES, trained
from tests.helpers.races import events_of, fixed_race
from tests.helpers.trained import race, text_of

SHIPPED = {path.stem: json.loads(path.read_bytes()) for path in sorted(RACES.glob("*.json"))}
OLDER = [json.loads(path.read_bytes()) for path in sorted(CHAINS.glob("*.json"))]
CSV, STORY = OLDER
SERVERS = json.loads((FIXTURES / "streams" / "race_vllm_eagle3.json").read_bytes())
TICK = 2.0**-37  # of the clock that timed the older ones
BOTH, ALL = ("plain", "baseline"), ("plain", "baseline", "speculative")
ORDER, CLOCK, COSTS, PACE = "contradict the order of its events", "one clock cannot", "its costs are not", " took over "


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
    order = fair_clock.race({name: iter(events) for name, events in played.items()}, recorded["spec"]["solo"])
    return {**recorded, "events": [rows[event.lane].pop(0) for event in order]}


def with_costs(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The recording with the costs of its steps."""
    widths, steps = recorded["widths"], [e.event for e in events_of(recorded) if isinstance(e.event, Step)]
    table = {width: widths["step_s"][str(width)] for width in widths["step_widths"]}
    return {**recorded, "costs": {**recorded["costs"], "verify_s": list(verify_costs(steps, table))}}


def said(recorded: Mapping[str, Any]) -> str:
    """The refusal or the doubt that a reader of this file sees."""
    try:
        cautions = checked(json.dumps(recorded).encode())["cautions"]
        return " ".join(caution["sentence"] for caution in cautions if caution["kind"] == "times")
    except UsageError as error:
        return str(error)


def test_nothing_is_said_of_honest_races() -> None:
    """Who shares a race would be called a forger: of older versions, of servers. (What ships: test_judged.py.)"""
    assert [said(recorded) for recorded in (*OLDER, SERVERS, fixed_race())] == ["", "", "", ""]


def test_examples_are_of_one_machine_and_one_version() -> None:
    """Two numbers next to each other would be compared, though two machines made them."""
    origins = {
        (*race["device"].values(), race["versions"]["torch"], race["versions"].get("kernels"), race["commit"])
        for race in SHIPPED.values()
    }
    assert len(origins) == 1, "record them again: python -m tools.record_examples"


@pytest.mark.parametrize("solo", [False, True])
def test_nothing_is_said_of_a_race_on_a_busy_machine_however_it_ends(solo: bool) -> None:
    """The same of races that this machine runs, beside the other tests, and of those that were stopped anywhere."""
    for drafter in ("hybrid", "none"):
        made = race(text_of(drafter), 32, solo=solo)
        events = list(made.events())
        whole = trained.recorded(made, events)
        for end in (len(events), *random.Random(3).sample(range(len(events)), 6)):
            stopped = {**whole.fields, "events": whole["events"][:end], "stopped": True, "verdicts": {}}
            assert said(stopped) == ""


@given(st.sampled_from(OLDER), st.floats(0.3, 3), st.sets(st.sampled_from(ALL), min_size=1, max_size=2))
@settings(max_examples=15)
def test_a_factor_on_some_lanes_is_seen(recorded: dict[str, Any], factor: float, lanes: set[str]) -> None:
    """Doubling plain's times would double the headline. The order of events gives it away; sorted by a script that
    knows the fair clock, the digits of the times do. Rewritten costs do not help."""
    changed = forged(recorded, times(factor), lanes)
    if not 0.9 < factor < 1.1:
        assert ORDER in said(changed)
    if factor.as_integer_ratio()[1] > 2**20:
        assert CLOCK in said(in_turns(changed)) and CLOCK in said(with_costs(in_turns(changed)))


def times(factor: float, tick: float = 0.0) -> Callable[[float], float]:
    """tick: of the clock that the product is rounded to."""
    return lambda seconds: round(factor * seconds / tick) * tick if tick else factor * seconds


VERIFY, DRAFT, PREFILL = ("verify_s",), ("draft_s",), ("prefill_s",)
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "plain twice": (forged(STORY, times(2), ["plain"]), ORDER),
    "and sorted": (in_turns(forged(STORY, times(2), ["plain"])), CLOCK),
    "both plain lanes": (with_costs(in_turns(forged(CSV, times(2), BOTH))), CLOCK),
    "on the clock's ticks": (with_costs(in_turns(forged(STORY, times(1.6, TICK), BOTH))), PACE),
    "verification alone": (in_turns(forged(STORY, times(0.5), ["speculative"], VERIFY)), CLOCK),
    "drafts alone": (in_turns(forged(CSV, times(0.5), ["speculative"], DRAFT)), CLOCK),
    "drafts alone, not sorted": (forged(STORY, times(0.5), ["speculative"], DRAFT), ORDER),
    "some steps": (in_turns(forged(STORY, times(0.5), ["speculative"], steps=lambda index: index % 7 == 6)), CLOCK),
    "all lanes": (forged(CSV, times(2), ALL), COSTS),
    "prefill": (forged(CSV, times(1.37), ["plain"], PREFILL), CLOCK),
    "costs": (CSV | {"costs": {**CSV["costs"], "verify_s": [0.01] * 12}}, COSTS),
    "widths": (CSV | {"widths": {**CSV["widths"], "step_s": {str(w): w / 9 for w in (1, 2, 4, 6, 8, 12)}}}, COSTS),
    "called one after the other": (CSV | {"spec": {**CSV["spec"], "solo": True}}, ORDER),
    "a server's lane": (forged(SERVERS, times(2), ["speculative"]), "by the wall clock"),
    "a server's steps": (
        forged(SERVERS, times(0.5), ["baseline"], steps=lambda index: index % 5 == 4),
        "by the wall clock",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_contradicts_a_change_is_named(name: str) -> None:
    """Without the sentence a reader would quote the ratio, or not know why he must not."""
    changed, words = CHANGES[name]
    assert words in said(changed)


@pytest.mark.parametrize(("change", "lanes"), [(times(2), ALL), (times(1.1, TICK), ["plain"])])
def test_a_file_made_up_in_accord_is_believed(change: Any, lanes: Any) -> None:
    """The documentation would promise more than is so: only `verify` contradicts these."""
    assert said(with_costs(in_turns(forged(STORY, change, lanes)))) == ""


def test_what_a_file_does_not_have_is_not_compared() -> None:
    """Rounded times and older files without a table are no contradictions. A stranger's fields end no reader."""
    lacking = copy.deepcopy({name: value for name, value in STORY.items() if name not in ("costs", "tables")})
    del lacking["widths"]["step_s"]
    assert (said(lacking), said(in_turns(forged(lacking, lambda seconds: round(seconds, 7), ALL)))) == ("", "")
    for table in (None, [], {"1": "x"}, {"x": 1.0}, {"\u00b2": 1.0}, {"1": -1.0}, {"1": True}, {"1" * 99: 1.0}):
        for widths in (None, [], [1], ["1"], [[1]]):
            lacking["widths"] |= {"step_s": table, "step_widths": widths}
            assert said({**lacking, "costs": {"verify_s": [1.0], "draft_s": {}}}) == ""


def test_the_doubt_is_seen_wherever_the_race_is(tmp_path: Any, capsys: Any) -> None:
    """A ratio of changed times stands uncommented in a terminal, `--json` or a page; or a file vouches for itself."""
    from engine.cli.main import main

    changed, _ = CHANGES["on the clock's ticks"]
    path = tmp_path / "race.json"
    path.write_text(json.dumps({**changed, "cautions": []}))
    [caution] = read(path)["cautions"]
    doubt = caution["sentence"]
    assert doubt.startswith("The times of this file contradict each other: lane plain took over 1.")
    assert doubt.endswith(", so do not quote its ratio.") and summary(read(path))["cautions"] == [caution]
    assert main(["replay", str(path)]) == 0
    assert doubt in " ".join(capsys.readouterr().out.split())
    assert caution["short"] in describe(read(path))[1] and caution["short"] in html.unescape(exported(read(path)))
    path.write_text(json.dumps({**STORY, "cautions": [caution]}))
    assert read(path)["cautions"] == []
