"""The first ten seconds of the page: a recorded race that plays slowly, once in a browser."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.recorded import RACES
from engine.metrics import race_speedup
from engine.recordings.recording import events_of, read
from tests.helpers.page_browser import RACE_MS
from tests.helpers.pageserver import Server
from tests.helpers.race_pages import TEXT, TOKENS, expected, feed, race_over, words, words_of

pytestmark = pytest.mark.browser
STATE = "window.photofinish.state"
RACE = race_over(words_of(TEXT)[:90], seed=5)
WATCH = """
window.shifts = []; window.said = []; window.guesses = window.fallen = 0;
new PerformanceObserver(list => list.getEntries().forEach(entry => window.shifts.push(entry.value)))
    .observe({type: "layout-shift"});
const spoken = document.querySelector("[data-ref=announce]"), text = document.querySelector("[data-ref=rightText]");
new MutationObserver(() => window.said.push(spoken.textContent)).observe(spoken,
    {childList: true, characterData: true, subtree: true});
new MutationObserver(changes => changes.flatMap(change => [...change.addedNodes]).forEach(node => {
    window.guesses += node.classList.contains("pf-guess"); window.fallen += node.classList.contains("pf-fallen");
})).observe(text, {childList: true});
"""
GLYPHS = """() => ["left", "right"].map(side => {
    const box = document.querySelector(`[data-ref=${side}Text]`), nodes = [], places = [];
    const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) nodes.push(walker.currentNode);
    for (const node of nodes) for (let i = 0; i < node.length; i++) {
        if (!node.parentElement.closest("[data-step]")) continue;
        const range = document.createRange();
        range.setStart(node, i); range.setEnd(node, i + 1);
        const rect = range.getBoundingClientRect();
        if (rect.width) places.push([node.data[i], ...[rect.x, rect.y, rect.width, rect.height].map(Math.fround)]);
    }
    return places; })"""
SETTLE = (
    "() => document.getAnimations().forEach(each => each.effect.getTiming().iterations < Infinity && each.finish())"
)


AWAY = """window.away = true;
Object.defineProperty(document, "hidden", { get: () => window.away, configurable: true });"""
BACK = "window.away = false; document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:
    """Opens the page as somebody does who was never here and does not look yet; no script may fail."""
    contexts, errors = [], []

    def make(address: str = "", clock: bool = False, loaded: str = f"{STATE}.duration > 0") -> Any:
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 800}))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.add_init_script(AWAY)
        if clock:
            tab.clock.install()
        tab.goto(server.url + address)
        tab.wait_for_selector("#page-race-button")
        tab.wait_for_function(f"window.photofinish && {loaded}")
        return tab

    yield make
    for context in contexts:
        context.close()
    assert errors == []


def act(tab: Any) -> str | None:
    return tab.get_attribute(".pf", "data-opening")


def until(tab: Any, name: str) -> None:
    """Let the page's clock run on until that act."""
    for _ in range(100):
        if act(tab) == name:
            return
        tab.clock.fast_forward(100)
    raise AssertionError(f"never {name}: {act(tab)}, {tab.evaluate(STATE)}")


def shown(tab: Any, selector: str) -> bool:
    """Whether somebody who looks sees it."""
    return tab.evaluate(
        "selector => document.querySelector(selector)"
        ".checkVisibility({visibilityProperty: true, opacityProperty: true})",
        selector,
    )


def met(tab: Any) -> None:
    """Every letter of one text lies on the same letter of the other one."""
    tab.evaluate(SETTLE)
    left, right = tab.evaluate(GLYPHS)
    assert len(left) > 50 and [letter for letter, *_ in left] == [letter for letter, *_ in right]
    apart = max(
        abs(a - b) for one, other in zip(left, right, strict=True) for a, b in zip(one[1:], other[1:], strict=True)
    )
    assert apart < 0.05, f"{apart} px apart"


def test_the_opening_from_its_first_frame_to_its_last(visit) -> None:
    """The shipped race: two texts written, guesses kept and dropped, one done first, both the same, letter upon letter;
    what is not yet earned is not shown, nothing moves, and it is not seen a second time."""
    tab = visit(clock=True)
    recording = read(RACES / "csv_to_json.json")
    ends = {event["lane"]: event["clock_s"] for event in recording["events"]}
    tab.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)
    tab.evaluate("document.fonts.ready.then(() => null)")
    tab.clock.pause_at(tab.evaluate("Date.now() + 100"))
    tab.evaluate(WATCH)
    tab.clock.fast_forward(1000)
    state = tab.evaluate(STATE)
    assert act(tab) == "write" and state["race"] == "recorded-csv-to-json"
    assert state["t"] == 0 and tab.evaluate("localStorage.getItem('photofinish.opening')") is None
    tab.evaluate(BACK)
    for _ in range(30):
        tab.clock.fast_forward(100)
    state, clock, deck = tab.evaluate(
        f"[{STATE}, document.querySelector('.pf-ratio-board').dataset.clock, "
        "document.querySelector('[data-ref=deckTime]').textContent]"
    )
    assert act(tab) == "write" and state["counts"]["left"] > 0 and state["t"] < ends["speculative"]
    assert clock == deck.replace(f" / {state['duration']:.3f}", "")
    assert not shown(tab, "[data-ref=ratio]") and tab.get_attribute(".pf-verdict", "data-kind") == "none"
    until(tab, "behind")
    state = tab.evaluate(STATE)
    assert state["counts"]["right"] == state["totals"][1] and state["counts"]["left"] < state["totals"][0] / 2
    assert words(tab, "rightPlace") == f"finish {ends['speculative']:.3f} s" and words(tab, "leftPlace") == ""
    assert tab.evaluate("window.guesses") > state["totals"][1] / 2 and tab.evaluate("window.fallen") > 0
    assert not shown(tab, "[data-ref=ratio]")
    until(tab, "whole")
    ratio = float(words(tab, "ratio").rstrip("×"))
    assert shown(tab, "[data-ref=ratio]") and tab.get_attribute(".pf-verdict", "data-kind") == "none"
    assert ratio == pytest.approx(race_speedup(events_of(recording), "speculative"), rel=0.01)
    until(tab, "meet")
    met(tab)
    tab.clock.fast_forward(1300)
    assert words(tab, "verdictWord") == "Identical, bit for bit"
    until(tab, "done")
    tab.clock.fast_forward(100)
    state = tab.evaluate(STATE)
    assert not state["playing"] and state["t"] == state["duration"] and state["speed"] == 1
    assert tab.evaluate(TOKENS) == expected(recording)
    assert tab.get_attribute(".pf", "data-view") == "reading" and not tab.query_selector(".pf-opens, .pf-guess")
    assert tab.evaluate("document.activeElement === document.body")
    assert [sentence for sentence in tab.evaluate("window.said") if sentence] == [words(tab, "announce")]
    tab.evaluate(SETTLE)
    tab.wait_for_timeout(300)
    shifted = sum(tab.evaluate("window.shifts"))
    print(f"layout shift {shifted:.4f}")
    assert shifted <= 0.02
    tab.reload()
    tab.wait_for_function(f"window.photofinish && {STATE}.duration > 0")
    assert act(tab) is None


@pytest.mark.parametrize("does", ["race", "preset", "key"])
def test_what_ends_it_does_what_it_was_for(visit, does: str) -> None:
    """A click that only closes an opening is a click lost: the race does not start, the letter is not typed."""
    tab = visit()
    tab.evaluate(BACK)
    tab.wait_for_function(f"{STATE}.t > 0 && {STATE}.playing")
    if does == "race":
        tab.click("#page-race-button")
        tab.wait_for_function(f"!{STATE}.race.startsWith('recorded-')", timeout=RACE_MS)
    elif does == "preset":
        tab.click("#page-presets button:has-text('SQL')")
        tab.wait_for_function(f"{STATE}.race === 'recorded-sql' && {STATE}.playing && {STATE}.speed === 1")
    else:
        tab.evaluate("document.querySelector('#page-prompt textarea').focus()")
        assert tab.query_selector(".pf-opens")
        tab.keyboard.type("Zebra")
        assert "Zebra" in tab.input_value("#page-prompt textarea")
        state = tab.evaluate(STATE)
        assert state["t"] == state["duration"] and not state["playing"] and shown(tab, "[data-ref=ratio]")
    assert act(tab) is None and not tab.query_selector(".pf-opens")


def test_a_link_with_settings_has_no_opening(visit) -> None:
    """Who follows a link to a race came for that race: no opening, and no other prompt's race over the one that the
    link brought."""
    tab = visit("/?prompt=Once%20upon", loaded="document.querySelector('#page-prompt textarea').value === 'Once upon'")
    tab.wait_for_timeout(500)
    assert act(tab) is None and tab.evaluate("localStorage.getItem('photofinish.opening')") is None
    assert tab.evaluate(STATE)["race"] is None and words(tab, "titleName").startswith("From a link")


# ---- the race view alone, with races of its own; its page has no address and so no storage


@pytest.mark.parametrize("width", [390, 1280])
def test_the_texts_meet_at_any_width(open_page, width: int) -> None:
    """Whatever was recorded and however its lines break; a phone has one place for both texts. A browser that forbids
    storage sees it as well."""
    page = open_page(width, 700)
    page.clock.install()
    feed(page, RACE, race_id="recorded-any", ribbon="RECORDED")
    page.clock.pause_at(page.evaluate("Date.now() + 100"))
    assert act(page) == "write"
    for name in ("behind", "meet"):
        until(page, name)
    met(page)
    until(page, "done")
    page.clock.fast_forward(100)
    assert page.evaluate(TOKENS) == expected(RACE) and page.problems == []


def test_what_does_not_open(open_page) -> None:
    """Texts that differ must not be laid upon each other as if they were one; a live race is no opening; and another
    race's frame ends it."""
    differs = copy.deepcopy(RACE)
    differs["verdicts"]["speculative"]["kind"] = "different"
    for recorded, name in ((differs, "recorded-any"), (RACE, "0123456789abcdef")):
        page = open_page()
        feed(page, recorded, race_id=name)
        assert act(page) is None
    page = open_page()
    feed(page, RACE, race_id="recorded-any")
    assert act(page) == "write"
    feed(page, RACE, race_id="0123456789abcdef")
    assert act(page) is None and not page.query_selector(".pf-opens") and page.evaluate(f"{STATE}.speed") == 1


def test_stillness_gets_the_last_frame(page) -> None:
    """Who asks for no motion gets the end of the film: both texts whole, ratio and verdict."""
    feed(page, RACE, race_id="recorded-any", ribbon="RECORDED")
    state = page.evaluate(STATE)
    assert act(page) is None and not state["playing"] and state["t"] == state["duration"]
    assert page.evaluate(TOKENS) == expected(RACE)
    assert shown(page, "[data-ref=ratio]") and shown(page, "[data-ref=verdictWord]")
