"""A race with several lanes that guess: each has its row, all are ranked, and each can be looked at."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from engine.metrics import lane_metrics, race_speedups
from engine.recordings.recording import build, events_of, spec_of
from engine.session import TorchRace
from engine.spec import RaceSpec, SamplingParams, lanes_of
from engine.text import encode_prompt
from engine.what_if.ask import members
from tests.helpers.race_pages import SETTLED, STATE, TOKENS, words
from tests.helpers.trained import text_of, trained

pytestmark = pytest.mark.browser
DRAFTERS = {name: text_of(name) for name in ("ngram", "draft_model", "eagle3")}
ROWS = """() => [...document.querySelectorAll('.pf-track-right, .pf-track-more')].map(row =>
    [row.querySelector('.pf-track-name').textContent, row.querySelector('.pf-track-count').textContent])"""


@pytest.fixture(scope="module")
def recording() -> dict[str, Any]:
    """A real race of three drafters, with tables."""
    loaded = trained()
    lanes = lanes_of([("speculative", DRAFTERS["ngram"], 4), *((d, DRAFTERS[d], 3) for d in ("draft_model", "eagle3"))])
    spec = RaceSpec(lanes, SamplingParams(max_new_tokens=60), audit=True)
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, "def add(a, b):\n    return a + b\n\ndef "))
    events = list(race.events())
    return build(race.header(), events, {**race.result(), **members(race)})


def test_all_are_ranked_and_each_can_be_looked_at(page: Any, recording: dict[str, Any]) -> None:
    """A rank that the times do not give, another lane's ratio beside a name, or texts, figures and tables of one lane
    under the name of another."""
    assert page.evaluate("text => window.photofinish.open(text, 'race.json')", json.dumps(recording))
    page.evaluate(SETTLED)
    events = events_of(recording)
    lanes = {lane["name"]: lane for lane in recording["spec"]["lanes"][2:]}
    gains = race_speedups(events, spec_of(recording).lanes)
    speeds = {name: lane_metrics(events, name).tokens_per_s or 0.0 for name in lanes}
    rows = page.evaluate(ROWS)
    assert len(rows) == 3
    places = {}
    for (title, count), (name, lane) in zip(rows, lanes.items(), strict=True):
        place, shown = re.fullmatch(r"(\d)\. (.*), at most \d+", title).groups()
        places[name] = int(place)
        assert lane["drafter"].startswith(shown[:70])
        assert count.split() == ["≡", "60", f"{gains[name]:.2f}×"]
    ordered = sorted(lanes, key=lambda name: -speeds[name])
    assert places[ordered[0]] == 1 and [places[name] for name in ordered] == sorted(places.values())
    for name in ("eagle3", "speculative", "draft_model"):
        page.locator(".pf-track-more", has_text=lanes[name]["drafter"][:40]).click()
        page.evaluate(SETTLED)
        right = [step for step in page.evaluate(TOKENS) if step[0] != "baseline"]
        done = [e for e in recording["events"] if e["type"] == "step" and e["lane"] == name]
        assert {step[0] for step in right} == {name} and len(right) == len(done)
        assert words(page, "rightFigure") == f"{speeds[name]:.1f}"
        assert float(words(page, "ratio")[:-1]) == pytest.approx(gains[name], rel=0.01)
        assert len(page.evaluate(ROWS)) == 3 and page.evaluate(STATE)["lanes"][1] == name
    page.click("[data-tab=whatif]")
    page.evaluate(SETTLED)
    chosen = page.evaluate("document.querySelector('[data-ref=whatIfDrafter]').value")
    assert chosen == lanes["draft_model"]["drafter"] and words(page, "whatIfShown") == "as raced"
