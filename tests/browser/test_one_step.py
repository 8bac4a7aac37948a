"""The tab "One step" in a page: what it draws of a recording, keys, the way in from a token, strangers'
texts. What a step did is computed, and tested, without a page: tests/app/test_steps.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.recordings.recording import read
from tests.helpers import CHAINS, race_pages
from tests.helpers.race_pages import SETTLED, STATE, TEXT, feed, race_over, words, words_of
from tests.helpers.races import known_in_part
from tests.helpers.steps_apart import steps_of, taken_apart, verdicts_of

pytestmark = pytest.mark.browser
GREEDY = taken_apart(read(CHAINS / "csv_to_json.json").fields)
SAMPLED = taken_apart(read(CHAINS / "story.json").fields)
VERDICTS = "() => [...document.querySelectorAll('.pf-one-place')].map(place => place.dataset.verdict)"
DICE = """() => [...document.querySelectorAll('.pf-dice-lane')].map(lane =>
    [...lane.querySelectorAll('.pf-dice-score')].map(score => [+score.dataset.tokenId,
      score.querySelector('.pf-dice-end').textContent]))"""
HELD = "() => [document.activeElement.className.split(' ')[0], document.activeElement.dataset.place ?? null]"
ABOVE = """() => ['.pf-title', '.pf-board', '.pf-verdict', '.pf-bar'].map(name => {
    const { x, y, width, height } = document.querySelector(name).getBoundingClientRect();
    return [name, x, y, width, height]; })"""


def opened(page: Any, recording: dict[str, Any], tab: str = "onestep") -> list[dict[str, Any]]:
    """Open the recording at its first step. Returns the steps of the lane that guesses."""
    race_pages.opened(page, recording, tab)
    return steps_of(recording)


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
        page.evaluate(SETTLED)


def click(page: Any, what: str) -> None:
    page.click(what)
    page.evaluate(SETTLED)


def reach(page: Any, name: str) -> None:
    while page.evaluate(HELD)[0] != name:
        page.keyboard.press("Tab")


def says(page: Any) -> str:
    return str(page.text_content(".pf-dice-says"))


def step(page: Any) -> int:
    return int(words(page, "stepHead").split()[1])


def test_a_click_looks_at_a_place(page: Any) -> None:
    """Another step than tests/app/test_steps.py checks; one lane drawn twice, or dropped places with dice."""
    one = opened(page, SAMPLED)[0]
    assert page.evaluate(VERDICTS) == verdicts_of(one)
    click(page, ".pf-unused summary")
    click(page, ".pf-dice summary")
    click(page, f".pf-one-verdict[data-place='{len(one['token_ids'])}']")
    assert "was discarded" in says(page) and not page.evaluate(DICE)
    click(page, ".pf-one-verdict[data-place='0']")
    assert "the scores are equal" in says(page)
    lanes = SAMPLED["candidates"]["lanes"]
    for shown, name in zip(page.evaluate(DICE), ("baseline", "speculative"), strict=True):
        assert [token for token, _ in shown] == lanes[name][0][0]["ids"]
        assert [token for token, end in shown if end == "wins"] == one["token_ids"][:1]


def test_a_race_that_keeps_no_answers_says_why(page: Any) -> None:
    """An empty picture, or chances that nobody recorded; drafts of which only the number is known."""
    bare = {key: value for key, value in GREEDY.items() if key != "candidates"}
    unaudited = race_over(words_of(TEXT)[:30], audit=False)
    in_part = known_in_part(race_over(words_of(TEXT)[:60], seed=5), random.Random(2))
    del in_part["candidates"]
    for race in (bare, unaudited, in_part):
        said = "only audited races keep them" if race is unaudited else "recorded without them"
        opened(page, race)
        for _ in range(2):
            assert said in page.text_content(".pf-one-row:nth-of-type(2) .pf-note")
            assert page.locator(".pf-one-row").count() == 4
            assert not page.locator(".pf-one-answer, .pf-dice").count()
            click(page, "[data-ref=stepNext]")
    feed(page, race_over(words_of(TEXT)[:9]), race_id="live", state="running")
    assert "Each step is shown after the race." in words(page, "stepSays") and page.is_disabled("[data-ref=stepNext]")


def test_by_keys_alone(page: Any) -> None:
    """A step or a place that only a mouse reaches; focus that is lost when the picture is drawn anew."""
    total = len(opened(page, GREEDY))
    page.focus("#pf-tab-onestep")
    reach(page, "pf-one-guess")
    forth, back = "ArrowRight", "ArrowLeft"
    for key, at in ((forth, 2), (forth, 3), (back, 2), ("End", total), ("Home", 1), (back, 1)):
        press(page, key)
        assert step(page) == at and page.evaluate(HELD)[0] == "pf-one-guess"
    reach(page, "pf-one-verdict")
    place = int(page.evaluate(HELD)[1])
    press(page, "ArrowUp", "ArrowUp", "ArrowDown")
    assert page.evaluate(HELD) == ["pf-one-verdict", str(place - 1)]
    assert page.locator(".pf-one-verdict[aria-pressed=true]").get_attribute("data-place") == str(place - 1)
    assert page.text_content(".pf-dice-says").startswith(f"Token {place} ")
    assert page.evaluate(STATE)["t"] == page.evaluate(STATE)["duration"]
    opened(page, SAMPLED)
    page.click("[data-ref=stepSays]", position={"x": 3, "y": 3})
    press(page, "ArrowRight")
    assert step(page) == 2


def test_the_way_in_from_a_token_and_back(page: Any) -> None:
    """Another step explained than the one that was pressed; a place in the walk that is lost with the tab."""
    opened(page, GREEDY, "text")
    page.click(".pf-lane[data-side=right] .pf-step >> nth=4")
    click(page, "text=Explain this step")
    assert step(page) == 5 and page.get_attribute(".pf", "data-tab") == "onestep"
    assert page.evaluate("document.activeElement.dataset.ref") == "stepHead"
    for name in ("text", "onestep"):
        click(page, f"#pf-tab-{name}")
    assert step(page) == 5
    page.click("#pf-tab-text")
    page.focus(".pf-lane[data-side=right] .pf-step >> nth=2")
    press(page, "Enter")
    assert step(page) == 3
    page.click("#pf-tab-text")
    page.click(".pf-lane[data-side=left] .pf-step >> nth=2")
    assert page.is_visible("[data-ref=pop]") and not page.locator("text=Explain this step").count()
    opened(page, SAMPLED)
    assert step(page) == 1


def test_nothing_above_moves_and_the_replay_stops(open_page: Any) -> None:
    """A board that jumps when one looks at a step; a tab bar that wraps; a race that plays on behind it."""
    page = open_page(1280, 800)
    opened(page, GREEDY, "text")
    page.wait_for_function("window.photofinish.state.playing")
    before = page.evaluate(ABOVE)
    click(page, "#pf-tab-onestep")
    assert not page.evaluate(STATE)["playing"] and page.evaluate(ABOVE) == before
    assert (
        len({round(tab["y"]) for tab in (each.bounding_box() for each in page.locator(".pf-tab:visible").all())}) == 1
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280 and page.problems == []
