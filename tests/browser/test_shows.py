"""The first visit, and the story, walked from its beginning to its end against the recording it shows."""

import re
from collections.abc import Iterator
from statistics import mean
from typing import Any

import pytest

from engine.analysis.metrics import race_speedup
from engine.recordings.recording import read
from tests.helpers import CHAINS
from tests.helpers.page_browser import end, reload, run_race, settings, unfold
from tests.helpers.race_pages import SETTLED, words
from tests.helpers.races import events_of, steps_of

pytestmark = pytest.mark.browser
STATE = "window.photofinish.state"


def test_the_first_visit_and_one_by_a_link(visit: Any) -> None:
    """The first thing on the page is a race with its ribbon, before any model is loaded, that plays by itself and ends
    with its verdict, whatever is typed meanwhile. A story that begins by itself, or with another race than is there."""
    tab = visit(until="race", reduced_motion="no-preference")
    tab.wait_for_function(f"{STATE}.playing")
    assert tab.evaluate(STATE)["speed"] == 1 and "RECORDED" in words(tab, "ribbon")
    assert "fast" not in words(tab, "announce"), "a screen reader hears the end first"
    tab.locator("#page-prompt textarea").press_sequentially("Zebra")
    assert "Zebra" in tab.input_value("#page-prompt textarea")
    tab.wait_for_function(f"!{STATE}.playing")
    assert tab.evaluate(STATE)["t"] == tab.evaluate(STATE)["duration"]
    assert "The race is over." in words(tab, "announce")
    assert tab.get_attribute(".pf-verdict", "data-kind") == "identical_bits"
    assert tab.is_hidden("[data-ref=story]")

    tab = visit("/?prompt=Once%20upon", until="model", reduced_motion="no-preference")
    tab.wait_for_function("document.querySelector('#page-prompt textarea').value === 'Once upon'")
    begin(tab)
    assert tab.evaluate(STATE)["race"] == "recorded-capitals", "a chain before a tree"
    texts = list(cards(tab))
    assert len(texts) == 10 and "proposes 4 tokens, shown pale" in texts[1] and "is a tree of" in texts[9]
    assert tab.evaluate(STATE)["race"] == "recorded-history"
    tab.wait_for_selector(".pf-one-row")
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate(STATE)["race"] == "recorded-capitals"
    tab.keyboard.press("Escape")
    assert tab.evaluate(STATE)["race"] is None and words(tab, "titleName").startswith("From a link")
    tab.evaluate("localStorage.setItem('photofinish.story', '8')")
    begin(tab)
    tab.click("[data-ref=storyLoss]")
    tab.wait_for_function(f"{STATE}.race === 'recorded-hungarian'")
    assert tab.is_hidden("[data-ref=story]")


# ---- the story

LIT = """() => {
  const box = node => { const { left, top, right, bottom } = node.getBoundingClientRect();
    return { left, top, right, bottom }; };
  const [card, spot] = ["story", "spot"].map(name => document.querySelector(`[data-ref=${name}]`));
  return { card: box(card), lit: spot.hidden ? null : box(spot), inside: card.contains(document.activeElement),
    tops: [...document.querySelectorAll("#page-prompt, .pf-board, .pf-verdict, .pf-bar .pf-tabs")].map(node =>
      node.getBoundingClientRect().bottom + scrollY),
    wide: document.documentElement.scrollWidth - innerWidth, moves: document.getAnimations().length }; }"""


def begin(tab: Any) -> None:
    unfold(tab)
    tab.press("#page-story-button", "Enter")
    tab.wait_for_selector("[data-ref=story]")


def cards(tab: Any) -> Iterator[str]:
    """The words of each card, from the current one to the last."""
    while True:
        yield words(tab, "storyWords")
        if words(tab, "storyNext") == "Done":
            return
        tab.keyboard.press("ArrowRight")


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.{1 if seconds < 0.1 else 0}f} ms"


@pytest.mark.parametrize(("name", "width", "height"), [("csv_to_json", 1280, 800), ("story", 360, 740)])
def test_the_story_by_keyboard_alone(tab: Any, name: str, width: int, height: int) -> None:
    """A number that is not the recording's; a card that covers its subject, describes something out of sight or is too
    long to read; a dead key; motion despite reduced motion; a page that jumps or stays changed."""
    recording = read(CHAINS / f"{name}.json")
    tab.set_viewport_size({"width": width, "height": height})
    tab.evaluate("localStorage.removeItem('photofinish.story')")
    tab.set_input_files("[data-ref=file]", CHAINS / f"{name}.json")
    tab.wait_for_function(f"name => {STATE}.race === `file:${{name}}.json`", arg=name)
    tab.wait_for_selector("text=is not on offer here")  # the drafter; said above the board
    tab.evaluate(SETTLED)
    tops = tab.evaluate(LIT)["tops"]
    begin(tab)
    texts = []
    for number, said in enumerate(cards(tab), start=1):
        tab.evaluate(SETTLED)
        look = tab.evaluate(LIT)
        card, lit = look["card"], look["lit"]
        assert words(tab, "storyPlace") == f"Card {number} of 10" and tab.is_visible("[data-ref=story]")
        assert look["inside"] and look["wide"] <= 0 and look["moves"] == 0, number
        assert number == 10 or look["tops"] == pytest.approx(tops, abs=0.5), number  # the last one has another race
        assert lit is not None and lit["right"] - lit["left"] > 10 and lit["bottom"] - lit["top"] > 10, number
        for box in (card, lit):
            assert box["top"] >= 0 and box["bottom"] <= height + 1, (number, box)
            assert box["left"] >= 0 and box["right"] <= width + 1, (number, box)
        is_beside = card["right"] <= lit["left"] or lit["right"] <= card["left"]
        assert is_beside or card["bottom"] <= lit["top"] or lit["bottom"] <= card["top"], (number, card, lit)
        assert len(said.split()) <= 40, said
        if number == 2 and width < 760:  # where it may need the rest of a lower window
            tab.hover("[data-ref=storyTitle]")
            top = tab.evaluate("scrollY")
            tab.mouse.wheel(0, -40)
            tab.wait_for_function("top => scrollY < top", arg=top, timeout=5_000)
        texts.append(said)
    assert len(texts) == 10
    numbers_are_the_recordings(recording, texts)
    tab.keyboard.press("ArrowLeft")
    assert words(tab, "storyPlace") == "Card 9 of 10"
    for _ in range(2):
        tab.keyboard.press("Enter")
    assert tab.is_hidden("[data-ref=story]") and tab.is_hidden("[data-ref=spot]")
    assert tab.evaluate("document.activeElement.id") == ("page-menu-button" if width < 760 else "page-story-button")
    state = tab.evaluate(STATE)
    assert state["t"] == state["duration"] and tab.get_attribute(".pf", "data-tab") == "text"
    assert tab.locator(".pf-guess").count() == 0


def numbers_are_the_recordings(recording: Any, texts: list[str]) -> None:
    own, plain = steps_of(recording), steps_of(recording, "baseline")
    _, draft, check, why, *_ = texts
    one = mean(e["verify_s"] for e in plain)
    read_s = recording["roofline"]["bytes_per_step"] / recording["roofline"]["bandwidth_bytes_per_s"]
    assert f"takes at least {milliseconds(read_s)} of a plain step's {milliseconds(one)}." in why
    assert any(
        f"proposes {len(e['drafted'])} token" in draft
        and f"checks all {len(e['drafted'])} guesses" in check
        and f"{e['num_accepted']} kept, {len(e['token_ids'])} new token" in check
        and f"in {milliseconds(e['draft_s'] + e['verify_s'])}, drafting included" in check
        for e in own
    ), "of no one step are all these true"
    (ratio,) = re.findall(r"was ([\d.]+)× as fast", " ".join(texts))
    assert float(ratio) == pytest.approx(race_speedup(events_of(recording), "speculative"), rel=0.01, abs=0.006)


def test_the_story_leaves_the_page_as_it_was(visit: Any) -> None:
    """Who comes back begins anew; who skips finds another tab, moment or marks than before; a card over a race that
    runs; or an own race that is gone because the story needed another one."""
    tab = visit()
    tab.focus("[data-ref=scrub]")
    tab.keyboard.press("ArrowLeft")
    tab.click("[data-ref=marks]")
    tab.evaluate(SETTLED)
    before = tab.evaluate(STATE)
    begin(tab)
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    tab.go_back()  # the browser's Back closes it, and does not leave the page
    tab.wait_for_selector("[data-ref=story]", state="hidden")
    tab.evaluate(SETTLED)
    after = tab.evaluate(STATE)
    assert (after["t"], after["counts"]) == (before["t"], before["counts"])
    assert tab.get_attribute(".pf", "data-view") == "plain" and tab.locator(".pf-guess").count() == 0
    reload(tab)
    begin(tab)
    assert words(tab, "storyPlace") == "Card 4 of 10"
    tab.keyboard.press("Escape")
    settings(tab, Maximum_length="1000")
    begin(tab)
    run_race(tab, "running")
    tab.wait_for_selector("#page-story-button:disabled")
    assert tab.is_hidden("[data-ref=story]")
    assert end(tab) == "stopped"
    race, title = tab.evaluate(STATE)["race"], words(tab, "titleName")
    begin(tab)
    assert tab.evaluate(STATE)["race"] == "recorded-capitals"
    tab.keyboard.press("Escape")
    state = tab.evaluate(STATE)
    assert (state["race"], words(tab, "titleName"), state["state"]) == (race, title, "stopped")
