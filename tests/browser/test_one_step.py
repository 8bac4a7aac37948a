"""The tab "One step" in a page: what it draws of a recording, keys, the way in from a token, strangers'
texts. What a step did is computed, and tested, without a page: tests/app/test_steps.py."""

import random
from typing import Any

import pytest

from app.jobs.recorded import RACES
from engine.core.events import steps
from engine.recordings.recording import read
from tests.helpers import CHAINS, race_pages
from tests.helpers.race_pages import SETTLED, STATE, TEXT, feed, race_over, words, words_of
from tests.helpers.races import events_of, known_in_part, steps_of

pytestmark = pytest.mark.browser
GREEDY, SAMPLED = (read(CHAINS / f"{name}.json").fields for name in ("csv_to_json", "story"))
TREES = read(RACES / "history.json").fields
BRANCHED = [step for step in steps(events_of(TREES), "speculative") if step.parents]
NODES = """() => [...document.querySelectorAll('.pf-one-guess')].map(node => {
    const { x, y, width } = node.getBoundingClientRect();
    return { r: +node.dataset.place, x, y, width, text: node.querySelector('.pf-one-word').textContent,
      kept: node.closest('li').dataset.kept, chance: node.querySelector('.pf-one-sure').textContent }; })"""
COLUMNS = """() => [...document.querySelectorAll('.pf-one-place')].map(column => ({
    r: +column.querySelector('button').dataset.place,
    pressed: column.querySelector('button').getAttribute('aria-pressed') === 'true',
    guessed: [...column.querySelectorAll('.pf-one-guessed')].map(node => +node.dataset.tokenId) }))"""
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


def number(page: Any) -> int:
    return int(words(page, "stepHead").split()[1])


def test_a_click_looks_at_a_place(page: Any) -> None:
    """Another step than tests/app/test_steps.py checks; one lane drawn twice, or dropped places with dice."""
    one = opened(page, SAMPLED)[0]
    num_right, num_wrong = one["num_accepted"], len(one["drafted"]) - one["num_accepted"]
    assert page.evaluate(VERDICTS) == [*["ok"] * num_right, "no", *["unused"] * num_wrong]
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
        assert number(page) == at and page.evaluate(HELD)[0] == "pf-one-guess"
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
    assert number(page) == 2


def test_the_way_in_from_a_token_and_back(page: Any) -> None:
    """Another step explained than the one that was pressed; a place in the walk that is lost with the tab."""
    opened(page, GREEDY, "text")
    page.click(".pf-lane[data-side=right] .pf-step >> nth=4")
    click(page, "text=Explain this step")
    assert number(page) == 5 and page.get_attribute(".pf", "data-tab") == "onestep"
    assert page.evaluate("document.activeElement.dataset.ref") == "stepHead"
    for name in ("text", "onestep"):
        click(page, f"#pf-tab-{name}")
    assert number(page) == 5
    page.click("#pf-tab-text")
    page.focus(".pf-lane[data-side=right] .pf-step >> nth=2")
    press(page, "Enter")
    assert number(page) == 3
    page.click("#pf-tab-text")
    page.click(".pf-lane[data-side=left] .pf-step >> nth=2")
    assert page.is_visible("[data-ref=pop]") and not page.locator("text=Explain this step").count()
    opened(page, SAMPLED)
    assert number(page) == 1


def test_nothing_above_moves_and_the_replay_stops(open_page: Any) -> None:
    """A board that jumps when one looks at a step; a tab bar that wraps; a race that plays on behind it."""
    page = open_page(1280, 800)
    opened(page, GREEDY, "text")
    page.wait_for_function("window.photofinish.state.playing")
    before = page.evaluate(ABOVE)
    click(page, "#pf-tab-onestep")
    assert not page.evaluate(STATE)["playing"] and page.evaluate(ABOVE) == before
    tabs = [node.bounding_box() for node in page.locator(".pf-tab:visible").all()]
    assert len({round(tab["y"]) for tab in tabs}) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280 and page.problems == []


def test_a_tree_is_drawn_as_it_branches(page: Any) -> None:
    """A guess after the wrong one; the kept path on two lines, or unmarked; the answers of another row."""
    opened(page, TREES)
    page.focus("[data-ref=stepHead]")
    for step in BRANCHED[:3]:
        press(page, "Home", *["ArrowRight"] * step.index)
        nodes = {node["r"]: node for node in page.evaluate(NODES)}
        assert [nodes[r]["text"] for r in range(len(step.drafted))] == list(step.drafted_pieces)
        assert len({(node["x"], node["y"]) for node in nodes.values()}) == len(nodes)
        for r, row in enumerate(step.parents):
            node, before = nodes[r], nodes[row - 1] if row else None
            assert node["kept"] == str(r in step.kept).lower() and node["chance"].endswith("%")
            if before:
                assert node["x"] >= before["x"] + before["width"] and node["y"] >= before["y"]
        assert len({nodes[r]["y"] for r in step.kept}) <= 1
        assert len({nodes[r]["x"] for r, row in enumerate(step.parents) if row == 0}) == 1
        columns = page.evaluate(COLUMNS)
        assert {step.parents[column["r"]] for column in columns if column["r"] < len(nodes)} >= {*step.parents}
        r = len(step.drafted) - 1
        click(page, f".pf-one-guess[data-place='{r}']")
        (pressed,) = (place for place in page.evaluate(COLUMNS) if place["pressed"])
        follow = {token for token, at in zip(step.drafted, step.parents, strict=True) if at == step.parents[r]}
        assert {*pressed["guessed"]} == follow
