"""The page finds its lanes by role: two of any number are shown, and every good file opens in it as in the engine."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from engine.errors import UsageError
from engine.metrics import race_speedups
from engine.recordings.recording import events_of, loads, spec_of
from tests.helpers import ROOT
from tests.helpers.race_pages import SETTLED, STATE, TEXT, TOKENS, expected, feed, race_over, words, words_of
from tests.helpers.races import BESIDE, OF_EVENTS, fixed_race, in_schema_1, known_in_part

SHORT = race_over(words_of(TEXT)[:60], seed=5)
OPEN = "text => window.photofinish.open(text)"


TIMES = ("clock_s", "prefill_s", "draft_s", "verify_s", "decode_s")


def with_more_lanes(names: list[str], first: int = 0, of: dict[str, Any] = SHORT) -> dict[str, Any]:
    """A race with copies of its speculative lane, each slower than the last, from place `first` on."""
    recorded = copy.deepcopy(of)
    lanes, events, verdict = recorded["spec"]["lanes"], recorded["events"], recorded["verdicts"].pop("speculative")
    drafting = lanes.pop()
    lanes[first:first] = [{**drafting, "name": name} for name in names]
    mine = [e for e in events if e["lane"] == "speculative"]
    recorded["events"] = [e for e in events if e["lane"] != "speculative"]
    for times, name in enumerate(names, 1):
        recorded["events"] += [
            {**e, "lane": name, **{key: times * value for key, value in e.items() if key in TIMES}} for e in mine
        ]
    told = [{**verdict, "sentence": f"identical tokens: baseline and {name}"} for name in names]
    recorded["verdicts"].update(zip(names, told, strict=True))
    return recorded


@pytest.mark.browser
@pytest.mark.parametrize("live", [True, False], ids=["live", "file"])
@pytest.mark.parametrize("names", [["a"], ["a", "b", "c", "d", "e"], ["__proto__", "toString"], ["constructor"]])
def test_the_page_shows_the_baseline_and_the_first_that_drafts(page: Any, names: list[str], live: bool) -> None:
    """The last lane, or the one called speculative, would be shown, with another lane's verdict or ratio."""
    recorded = with_more_lanes(names, first=1)
    if live:
        feed(page, recorded)
    else:
        assert page.evaluate(OPEN, json.dumps(recorded)) is True
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.evaluate(SETTLED)
    state = page.evaluate(STATE)
    assert state["lanes"] == ["baseline", names[0]]
    assert page.evaluate(TOKENS) == expected(recorded, lanes=("baseline", names[0]))
    assert words(page, "verdictSentence") == f"Identical tokens: baseline and {names[0]}."
    assert words(page, "plainVerdict").startswith("The plain lane that is not shown: ")
    gains = race_speedups(events_of(recorded), spec_of(recorded).lanes)
    assert state["speedup"] == pytest.approx(gains[names[0]])
    clocks = {e["lane"]: e["clock_s"] for e in recorded["events"]}
    shown = max(clocks[name] for name in ("plain", "baseline", names[0]))
    page.wait_for_function("!window.photofinish.state.live")
    assert page.evaluate(STATE)["duration"] == pytest.approx(shown), "the replay would go on after both lanes' ends"


@pytest.mark.browser
def test_roles_and_not_names_say_which_lane_is_which(page: Any) -> None:
    """A baseline of another name would be shown as the lane that drafts."""
    text = json.dumps(SHORT).replace('"plain"', '"p"').replace('"baseline"', '"b"').replace('"speculative"', '"s"')
    recorded = json.loads(text)
    for lane, role in zip(recorded["spec"]["lanes"], ("plain", "baseline", "speculative"), strict=True):
        lane["role"] = role
    assert loads(json.dumps(recorded).encode()) == recorded
    assert page.evaluate(OPEN, json.dumps(recorded)) is True
    page.evaluate(SETTLED)
    assert page.evaluate(STATE)["lanes"] == ["b", "s"]
    assert page.evaluate(TOKENS) == expected(recorded, lanes=("b", "s"))


@pytest.mark.browser
def test_the_shipped_races_open_as_they_are(page: Any) -> None:
    """Files of schema 1 that people have would be refused, or shown with another verdict."""
    for path in sorted((ROOT / "assets/races").glob("*.json")):
        text = path.read_text(encoding="utf-8")
        assert page.evaluate(OPEN, text) is True, path.name
        page.evaluate(SETTLED)
        assert page.evaluate(TOKENS) == expected(json.loads(text)), path.name
        assert words(page, "verdictWord") == "Identical, bit for bit" and words(page, "plainVerdict")


VALUES = [
    None,
    True,
    0,
    1,
    -1,
    2.5,
    2**31,
    10**9,
    "",
    "auto",
    "plain",
    "baseline",
    "speculative",
    "x" * 50,
    [],
    [1],
    {},
    [[1, 2], []],
    {"plain": "x"},
    {"plain": [[1]]},
    [{"lane": "plain", "position": 0, "ids": [1], "logits": [0.5], "noise": [2]}],
]


def mutated(recorded: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The recording with one value somewhere replaced, removed or added."""
    at: Any = recorded
    if rng.random() < 0.25:
        key = rng.choice(OF_EVENTS + BESIDE)
        (recorded if key in BESIDE else rng.choice(recorded["events"]))[key] = rng.choice(VALUES)
        return recorded
    while True:
        key = rng.choice(sorted(at) if isinstance(at, dict) else range(len(at)))
        if not at[key] or not isinstance(at[key], (dict, list)) or rng.random() < 0.2:
            break
        at = at[key]
    if rng.random() < 0.7:
        at[key] = rng.choice(VALUES)
    else:
        del at[key]
    return recorded


@pytest.mark.browser
@pytest.mark.parametrize("schema", [1, 2])
def test_the_page_takes_what_the_engine_takes_whatever_is_broken(page: Any, schema: int) -> None:
    """The two readers are twins: a file of either schema would open in one and not in the other, or break the page."""
    rng = random.Random(schema)
    wholes = [race_over(words_of(TEXT)[:12], seed=7), fixed_race()]
    wholes += [known_in_part(whole, random.Random(schema)) for whole in wholes]
    wholes += [with_more_lanes(["a", "b"], of=wholes[0])] if schema == 2 else []
    files, taken = [], []
    for i in range(1200):
        whole = wholes[i % len(wholes)]
        base = in_schema_1(whole) if schema == 1 else copy.deepcopy(whole)
        files.append(json.dumps(mutated(base, rng)))
        try:
            loads(files[-1].encode())
            taken.append("")
        except UsageError as error:
            taken.append(str(error))
    opened = page.evaluate("texts => texts.map(text => window.photofinish.open(text))", files)
    assert all(value in (True, False) for value in opened)
    apart = [(bool(yes), why, text) for yes, why, text in zip(opened, taken, files, strict=True) if yes == bool(why)]
    assert [(yes, why[:200]) for yes, why, _ in apart] == []
    assert 100 < sum(not why for why in taken) < 600
    for field in ("num_drafted", "wall_s", "copied", *(("table", "candidates", "promise") if schema == 2 else ())):
        assert sum(field in why for why in taken) > 10, f"{field} was hardly ever broken"
