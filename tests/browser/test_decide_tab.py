"""The tab "Decide" in a real page; what it computes is tested in tests/app/test_decide.py."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from app.jobs.recorded import RACES
from engine.analysis.metrics import cost_per_million, lane_metrics
from engine.recordings.recording import read
from tests.helpers.made_races import a_race
from tests.helpers.page_browser import UNREADABLE, reload
from tests.helpers.race_pages import SETTLED, feed, words
from tests.helpers.races import events_of

pytestmark = pytest.mark.browser


def table(page: Any, ref: str = "decideRows") -> dict[str, list[str]]:
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator(f"[data-ref={ref}] tr").all()]
    return {row[0]: row[1:] for row in rows}


def test_the_tab_of_a_recorded_race(visit: Any) -> None:
    """Figures of another race; dollars without a price; a price that is forgotten; a button that copies nothing; a tab
    that sends the race away, scrolls sideways, or cannot be read or reached."""
    tab = visit()
    tab.set_input_files("[data-ref=file]", RACES / "csv_to_json.json")
    tab.wait_for_function("window.photofinish.state.race === 'file:csv_to_json.json'")
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(request.url))
    tab.focus("#pf-tab-charts")
    tab.keyboard.press("ArrowRight")
    assert tab.get_attribute("#pf-tab-decide", "aria-selected") == "true"
    sent.clear()  # what the tab of charts, passed on the way, asked for
    race = read(RACES / "csv_to_json.json")
    speeds = {name: lane_metrics(events_of(race), name).tokens_per_s for name in ("plain", "baseline", "speculative")}
    plain, fast = max(speeds["plain"], speeds["baseline"]), speeds["speculative"]
    told = table(tab)
    assert told["tokens per second"] == [f"{plain:.1f}", f"{fast:.1f}", f"{fast / plain:.2f}×"]
    assert told["1,000,000 tokens"][:2] == ["enter a price"] * 2 and "$" not in words(tab, "decideSays")
    assert tab.input_value("[data-decide=dollars]") == "" and tab.is_visible("[data-ref=ribbon]")
    tab.fill("[data-decide=hours]", "30")
    assert "30 must be above 0 and at most 24; using 24." in words(tab, "decideCaution")
    tab.fill("[data-decide=hours]", "24")
    tab.fill("[data-decide=dollars]", "41.62")
    cost = [f"${cost_per_million(speed, 41.62):.2f}" for speed in (plain, fast)]
    assert table(tab)["1,000,000 tokens"] == [*cost, f"{100 * (1 - plain / fast):.1f} %"]
    assert f"{plain:.1f} tok/s × $41.62 / 3,600 = {cost[0]}" in words(tab, "decideFormula")
    its, num_tokens = race["drafter_bytes"]["speculative"], len(race["prompt"]["token_ids"]) + 160
    memory = table(tab, "memoryRows")
    assert memory["weights"][0] == f"{its['weights'] / 1e6:.3g} MB"
    assert memory[f"cache of {num_tokens} tokens"][0] == f"{its['cache_per_token'] * num_tokens / 1e3:.3g} kB"
    assert memory["cache of 8,192 tokens"][0] == f"{its['cache_per_token'] * 8192 / 1e6:.3g} MB"
    assert words(tab, "memoryUsers").split()[0] == told["users at 30 tok/s each"][1]
    for button in tab.locator("[data-ref=serve] button").all():
        button.click()
        shown = button.locator("xpath=ancestor::section[1]//pre").text_content()
        assert tab.evaluate("navigator.clipboard.readText()") == shown and shown
    tab.click("[data-ref=client] summary")
    tab.click(".pf-decide-sources summary")
    assert tab.locator("[data-ref=sources] tr").count() == 8
    for size in ((1280, 800), (390, 844)):
        tab.set_viewport_size({"width": size[0], "height": size[1]})
        tab.evaluate(SETTLED)
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        assert tab.evaluate(UNREADABLE) == []
    assert [url for url in sent if "queue/join" in url or "/run/" in url] == []
    reload(tab)
    tab.click("#pf-tab-decide")
    assert tab.input_value("[data-decide=dollars]") == "41.62" and words(tab, "priceSource") == "your price"


def test_what_is_not_to_be_quoted_is_said_beside_the_money(open_page: Any) -> None:
    """A saving from a text that loops, from noise, or from drafts that are made up; markup from a stranger's names; and
    figures of a race that still runs."""
    page = open_page(reduced_motion="reduce")
    page.click("#pf-tab-decide")
    assert page.is_hidden("[data-ref=decide]")
    gpu = {"type": "cuda", "name": "NVIDIA H100 80GB HBM3", "threads": None}
    feed(page, a_race([(3, 3)] * 12, token_ids=[1, 2, 3, 50] * 12, header={"device": gpu}), race_id="loop")
    assert "repeats itself" in words(page, "decideCaution")
    assert page.input_value("[data-decide=dollars]") == "3.99" and words(page, "priceSource").startswith("about")
    even, rng = a_race([(1, 0)] * 30, plain_s=0.01, step_s=0.01), random.Random(2)
    for event in (event for event in even["events"] if event["type"] == "step"):
        event["verify_s"] *= rng.uniform(0.7, 1.3)
    feed(page, even, race_id="even")
    assert "within the noise" in words(page, "decideCaution")
    feed(page, a_race([(3, 2)] * 8, drafter="eagle3:a/b"), race_id="of before")
    assert "not in this recording" in words(page, "serveNotes")
    assert page.is_hidden("[data-ref=memory]") and words(page, "memoryWords") == ""
    name = "<img src=x onerror=window.ran=1>"
    stranger = a_race([(3, 2)] * 8, drafter="synthetic:0.8", header={"synthetic": ["speculative"]})
    feed(page, json.loads(json.dumps(stranger).replace('"a-model"', json.dumps(name))), race_id="made up")
    assert "made up" in words(page, "decideCaution") and "made up" in words(page, "serveNotes")
    assert page.locator("[data-ref=serve] pre").count() == 0
    hostile = a_race([(3, 2)] * 8, drafter="draft_model:<img src=x onerror=window.ran=1>")
    feed(page, json.loads(json.dumps(hostile).replace('"a-model"', json.dumps(name))), race_id="hostile")
    assert name in page.text_content("[data-ref=serve] pre >> nth=0")
    assert page.locator("#pf-panel-decide img").count() == 0 and page.evaluate("window.ran") is None
    assert page.problems == []
