"""The page finds its lanes by role: two of any number are shown, and every good file opens in it as in the engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.analysis.metrics import race_speedups
from engine.errors import UsageError
from engine.recordings.recording import loads
from tests.helpers import ROOT
from tests.helpers.broken_races import SHORT, mutants, with_more_lanes
from tests.helpers.race_pages import SETTLED, STATE, TOKENS, expected, feed, words
from tests.helpers.races import events_of, spec_of

OPEN = "text => window.photofinish.open(text)"


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
    assert words(page, "plainVerdict").startswith("The plain lane not shown: ")
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
    """Races that people have would be shown with another verdict."""
    for path in sorted((ROOT / "assets/races").glob("*.json")):
        text = path.read_text(encoding="utf-8")
        assert page.evaluate(OPEN, text) is True, path.name
        page.evaluate(SETTLED)
        assert page.evaluate(TOKENS) == expected(json.loads(text)), path.name
        assert words(page, "verdictWord") == "Identical, bit for bit" and words(page, "plainVerdict")


@pytest.mark.browser
def test_whatever_the_check_accepts_can_be_shown(page: Any) -> None:
    """An odd file that the server accepts would stop the program."""
    good = [*filter(is_good, mutants(300))]
    page.evaluate("texts => texts.forEach(text => window.photofinish.open(text))", good)
    page.evaluate(SETTLED)
    assert 20 < len(good) < 250


def is_good(text: str) -> bool:
    try:
        return bool(loads(text.encode()))
    except UsageError:
        return False
