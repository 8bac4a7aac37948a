"""The story: seven cards beside what they light, on the race that is on the screen."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.recorded import RACES
from engine.metrics import lane_metrics
from engine.recordings.recording import events_of, read
from engine.what_if.read import what_if_of
from tests.helpers.page_browser import RACE_MS, SEEN, open_tab, run_race, set_number
from tests.helpers.race_pages import SETTLED, words

pytestmark = pytest.mark.browser
STATE = "window.photofinish.state"
WORDS_A_CARD, WORDS_A_MINUTE, MINUTES = 40, 200, 1.5
TOLD = sorted(path.stem for path in RACES.glob("*.json") if path.stem != "summary")
"""The shipped races that have the story: the summary's guesses are all right."""
LOOK = """() => {
  const box = node => { const { left, top, right, bottom } = node.getBoundingClientRect();
    return { left, top, right, bottom }; };
  const [card, spot] = ["story", "spot"].map(name => document.querySelector(`[data-ref=${name}]`));
  return { card: box(card), lit: spot.hidden ? null : box(spot), inside: card.contains(document.activeElement),
    seen: card.checkVisibility({ visibilityProperty: true, opacityProperty: true }),
    above: [...document.querySelectorAll("#page-prompt, .pf-board, .pf-verdict, .pf-tabs")].map(node =>
      box(node).top + scrollY + node.getBoundingClientRect().height),
    wide: document.documentElement.scrollWidth - innerWidth, high: innerHeight, across: innerWidth }; }"""
SHIFTS = """() => { window.moved = []; new PerformanceObserver(list => list.getEntries().forEach(entry => {
    const above = entry.sources.filter(({ node }) => (node?.nodeType === 1 ? node : node?.parentElement)
      ?.closest("#page-top, #page-go, #page-presets, .pf-title, .pf-board, .pf-verdict, .pf-tabs"));
    if (above.length) window.moved.push([entry.value, ...above.map(({ node }) => node.className)]);
  })).observe({ type: "layout-shift" }); }"""


@pytest.fixture
def visit(browser: Any, server: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page, at its recorded race; no script may fail. seen: whether somebody was here before."""
    contexts, errors = [], []

    def make(address: str = "", seen: bool = True, width: int = 1280, height: int = 800, **options: Any) -> Any:
        options = {"reduced_motion": "reduce", **options}
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        if seen:
            tab.add_init_script(SEEN)
        tab.goto(server.url + address)
        tab.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)
        if not address:
            tab.wait_for_function(f"window.photofinish && {STATE}.duration > 0")
        return tab

    yield make
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="module")
def open_file(browser: Any, server: Any) -> Iterator[Callable[[str], Any]]:
    """Opens a shipped race as a file, in one tab for all: the story is told on the race that is on the screen."""
    tab = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    open_tab(tab, server)
    tab.evaluate(SHIFTS)

    def make(name: str) -> Any:
        tab.evaluate("localStorage.removeItem('photofinish.story')")
        tab.set_input_files("[data-ref=file]", RACES / f"{name}.json")
        tab.wait_for_function(f"name => {STATE}.race === `file:${{name}}.json`", arg=name)
        return tab

    yield make
    tab.close()
    assert errors == []


def begin(tab: Any) -> None:
    tab.focus("#page-story-button")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[data-ref=story]", timeout=5_000)


def cards(tab: Any) -> Iterator[str]:
    """The words of each card, from the one that is there to the last."""
    while True:
        yield words(tab, "storyWords")
        if words(tab, "storyNext") == "Done":
            return
        tab.keyboard.press("ArrowRight")


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.{1 if seconds < 0.1 else 0}f} ms"


@pytest.mark.parametrize("size", [(1280, 800), (360, 740), (1920, 1080)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_all_cards_by_keyboard_beside_what_they_light(open_file, size) -> None:
    """A card that covers what it speaks of, or speaks of what is out of sight; that nobody has the time to read, or
    that no key reaches; a page that jumps under it, and is another one afterwards."""
    tab = open_file("csv_to_json")
    tab.set_viewport_size({"width": size[0], "height": size[1]})
    tab.wait_for_timeout(700)
    before = tab.evaluate(LOOK)["above"]
    tab.evaluate("window.moved = []")
    begin(tab)
    read_ = []
    for number, said in enumerate(cards(tab), start=1):
        tab.wait_for_timeout(100)
        look = tab.evaluate(LOOK)
        card, lit = look["card"], look["lit"]
        assert look["seen"] and look["inside"] and look["wide"] <= 0, number
        assert words(tab, "storyPlace") == f"Card {number} of 7"
        assert lit is not None and lit["right"] - lit["left"] > 10 and lit["bottom"] - lit["top"] > 10, number
        for box in (card, lit):
            assert box["top"] >= 0 and box["bottom"] <= look["high"] + 1, (number, box)
            assert box["left"] >= 0 and box["right"] <= look["across"] + 1, (number, box)
        apart = card["right"] <= lit["left"] or lit["right"] <= card["left"]
        assert apart or card["bottom"] <= lit["top"] or lit["bottom"] <= card["top"], (number, card, lit)
        if number in (2, 3) and size[0] == 1280:
            begins = tab.evaluate("document.querySelector('[data-ref=rightText]').getBoundingClientRect().left")
            assert card["right"] <= begins or card["top"] >= lit["bottom"] or card["bottom"] <= lit["top"], number
        assert len(said.split()) <= WORDS_A_CARD, said
        read_.append(f"{words(tab, 'storyTitle')} {said}")
        assert look["above"] == pytest.approx(before, abs=0.5), number
    assert len(read_) == len(set(read_)) == 7
    assert len(" ".join(read_).split()) <= WORDS_A_MINUTE * MINUTES
    tab.keyboard.press("ArrowRight")
    assert words(tab, "storyPlace") == "Card 7 of 7", "an arrow too many ends nothing"
    for number in range(6, 0, -1):
        tab.keyboard.press("ArrowLeft")
        assert words(tab, "storyPlace") == f"Card {number} of 7" and tab.evaluate(LOOK)["inside"]
    assert tab.is_disabled("[data-ref=storyBack]")
    for _ in range(7):
        tab.keyboard.press("Enter")
    assert tab.is_hidden("[data-ref=story]") and tab.is_hidden("[data-ref=spot]")
    assert tab.evaluate("document.activeElement.id") == "page-story-button"
    state = tab.evaluate(STATE)
    assert state["t"] == state["duration"] and tab.get_attribute(".pf", "data-tab") == "text"
    assert tab.locator(".pf-guess").count() == 0
    assert tab.evaluate("window.moved") == []


def test_no_popover_opens_under_a_mouse_that_rests(visit) -> None:
    """The card goes from under the mouse, and what lies there opens and stays; or nothing opens any more."""
    tab = visit()
    begin(tab)
    for _ in range(6):
        tab.keyboard.press("ArrowRight")
    tab.click("[data-ref=storyNext]")
    tab.mouse.move(0, 0)
    tab.wait_for_timeout(300)
    x, y = tab.evaluate("""() => [...document.querySelectorAll('[data-ref=rightText] .pf-step')]
        .flatMap(step => [...step.getClientRects()]).map(({ x, y, width, height }) => [x + width / 2, y + height / 2])
        .find(([x, y]) => document.elementFromPoint(x, y)?.closest('.pf-step'))""")
    begin(tab)
    for _ in range(6):
        tab.keyboard.press("ArrowRight")
    done = tab.locator("[data-ref=storyNext]").bounding_box()
    tab.evaluate(
        """([x, y]) => { document.querySelector('[data-ref=story]').style.translate = `${x}px ${y}px`; }""",
        [x - done["x"] - done["width"] / 2, y - done["y"] - done["height"] / 2],
    )
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.up()
    assert tab.is_hidden("[data-ref=story]")
    tab.wait_for_timeout(300)
    assert tab.evaluate("([x, y]) => document.elementFromPoint(x, y).closest('.pf-step') !== null", [x, y])
    assert tab.is_hidden("[data-ref=pop]")
    tab.mouse.move(x + 3, y)
    tab.wait_for_selector("[data-ref=pop]", timeout=2_000)


@pytest.mark.parametrize("name", TOLD)
def test_its_numbers_are_the_recordings(open_file, name: str) -> None:
    """A number of another race, or one that fits none of its steps."""
    recording = read(RACES / f"{name}.json")
    steps = [e for e in recording["events"] if e["type"] == "step" and e["lane"] == "speculative"]
    plain = [e for e in recording["events"] if e["type"] == "step" and e["lane"] == "baseline"]
    usual = milliseconds(statistics.median(e["draft_s"] + e["verify_s"] for e in plain))
    tokens = sum(len(e["token_ids"]) for e in plain)
    tab = open_file(name)
    begin(tab)
    alone, draft, check, same, struck, loses, length = cards(tab)
    tab.keyboard.press("Enter")
    assert f"{len(plain)} runs for {tokens} tokens, about {usual} each" in alone
    said = re.findall("“(.*?)”", struck)
    assert any(
        f"checks all {len(e['drafted'])} guesses" in check
        and f"Kept: {e['num_accepted']}. New tokens: {len(e['token_ids'])}, in " in check
        and f"in {milliseconds(e['draft_s'] + e['verify_s'])}, guessing included" in check
        and f"{len(e['drafted'])} pale token" in draft
        and f"It took {milliseconds(e['draft_s'])}" in draft
        and said[0].strip("↵ ") in e["drafted_pieces"][e["num_accepted"]]
        and said[1].strip("↵ ") in e["pieces"][-1]
        for e in steps
        if 0 < e["num_accepted"] < len(e["drafted"])
    ), "of no one step are all these true"
    assert f"the same {tokens} tokens" in same
    params = recording["spec"]["params"]
    assert (f"(seed {params['seed']})" in same) == (params["temperature"] > 0)
    assert any(
        f"kept {e['num_accepted']} of {len(e['drafted'])}: {len(e['token_ids'])} token" in loses
        and f"in {milliseconds(e['draft_s'] + e['verify_s'])}. Plain takes" in loses
        for e in steps
        if e["num_accepted"] == min(each["num_accepted"] for each in steps if each["drafted"])
    )
    events = events_of(recording)
    fastest = max(lane_metrics(events, lane).tokens_per_s or 0.0 for lane in ("plain", "baseline"))
    whole = lane_metrics(events, "speculative").tokens_per_s or 0.0
    (ratio,) = re.findall(r"was ([\d.]+)× as fast", loses)
    assert float(ratio) == pytest.approx(whole / fastest, rel=0.01)
    found = what_if_of(recording)
    assert found is not None
    drafter = "eagle3" if "eagle3" in recording["tables"] else "ngram"
    times = {
        k: tokens / sum(step.seconds for step in found.steps(drafter, k)) / fastest
        for k in range(1, len(found.costs.verify_s))
    }
    told = {int(k): float(x) for x, k in re.findall(r"([\d.]+)× at (?:k = )?(\d+)", length)}
    best = int(re.findall(r"at (?:k = )?(\d+) \(best\)", length)[0])
    assert {1, best, max(times)} == set(told) and times[best] == max(times.values())
    assert told == pytest.approx({k: times[k] for k in told}, abs=0.006)


def test_it_is_offered_once_and_never_begins_by_itself(visit) -> None:
    """A story that is forced on a first visit, that comes again after a no, or that nobody is told of."""
    tab = visit(seen=False)
    tab.wait_for_selector("[data-ref=offer]", timeout=5_000)
    assert tab.is_hidden("[data-ref=story]")
    tab.click("[data-ref=offerNo]")
    assert tab.is_hidden("[data-ref=offer]")
    tab.reload()
    tab.wait_for_function(f"window.photofinish && {STATE}.duration > 0")
    tab.wait_for_timeout(500)
    assert tab.is_hidden("[data-ref=offer]") and tab.is_hidden("[data-ref=story]")
    other = visit(seen=False, reduced_motion="no-preference")
    other.wait_for_function(f"{STATE}.playing", timeout=15_000)
    assert other.is_hidden("[data-ref=offer]"), "while the opening plays"
    other.keyboard.press("Shift")
    other.click("[data-ref=offerYes]")
    assert words(other, "storyPlace") == "Card 1 of 7" and not other.evaluate(f"{STATE}.playing")


def test_it_goes_on_where_it_was_left_and_leaves_the_page_as_it_was(visit) -> None:
    """Who comes back begins anew; or who skips finds another tab, another moment and other marks than before."""
    tab = visit()
    tab.click("[data-tab=steps]")
    tab.focus("[data-ref=scrub]")
    for _ in range(5):
        tab.keyboard.press("ArrowLeft")
    tab.evaluate(SETTLED)
    before = tab.evaluate(STATE)
    tab.click("[data-tab=text]")
    tab.click("[data-ref=marks]")
    begin(tab)
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Escape")
    assert tab.is_hidden("[data-ref=story]") and tab.evaluate("document.activeElement.id") == "page-story-button"
    tab.evaluate(SETTLED)
    after = tab.evaluate(STATE)
    assert (after["t"], after["counts"]) == (before["t"], before["counts"])
    assert tab.get_attribute(".pf", "data-view") == "plain" and tab.locator(".pf-guess").count() == 0
    tab.reload()
    tab.wait_for_function(f"window.photofinish && {STATE}.duration > 0")
    begin(tab)
    assert words(tab, "storyPlace") == "Card 4 of 7"
    list(cards(tab))
    tab.keyboard.press("Enter")
    begin(tab)
    assert words(tab, "storyPlace") == "Card 1 of 7"


def test_a_link_begins_nothing_and_keeps_its_place(visit) -> None:
    """Who follows a link came for that race: no story by itself; and after the story no other prompt's race stands
    there."""
    tab = visit("/?prompt=Once%20upon", seen=False)
    tab.wait_for_function("document.querySelector('#page-prompt textarea').value === 'Once upon'")
    tab.wait_for_timeout(500)
    assert tab.is_hidden("[data-ref=story]") and tab.is_hidden("[data-ref=offer]")
    begin(tab)
    assert tab.evaluate(STATE)["race"] == "recorded-csv-to-json" and len(list(cards(tab))) == 7
    tab.keyboard.press("Escape")
    assert tab.evaluate(STATE)["race"] is None and words(tab, "titleName").startswith("From a link")
    assert tab.input_value("#page-prompt textarea") == "Once upon"


def test_a_race_ends_it_and_a_race_without_it_comes_back(browser, server) -> None:
    """A card over a race that runs; or an own race that is gone because the story was told on another one."""
    tab = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    open_tab(tab, server)
    set_number(tab, "Length", "600")
    tab.keyboard.press("Escape")
    begin(tab)
    run_race(tab, "running")
    assert tab.is_hidden("[data-ref=story]") and tab.is_hidden("[data-ref=spot]")
    assert tab.is_disabled("#page-story-button")
    tab.click("#page-stop-button")
    tab.wait_for_selector('.pf[data-state="stopped"]', timeout=5_000)
    race, title = tab.evaluate(STATE)["race"], words(tab, "titleName")
    begin(tab)
    assert tab.evaluate(STATE)["race"] == "recorded-csv-to-json" and len(list(cards(tab))) == 7
    tab.keyboard.press("Escape")
    tab.evaluate(SETTLED)
    state = tab.evaluate(STATE)
    assert (state["race"], words(tab, "titleName"), state["state"]) == (race, title, "stopped")
    assert state["counts"]["right"] == state["totals"][1] > 0
    tab.close()


def test_stillness_and_motion(visit) -> None:
    """Who asks for no motion gets none; for the others the light moves, and the page is still when it has arrived."""
    tab = visit(reduced_motion="no-preference")
    for motion, moves in (("no-preference", True), ("reduce", False)):
        tab.emulate_media(reduced_motion=motion)
        begin(tab)
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.getAnimations().some(each => each.effect.target.dataset.ref === 'spot')") == moves
        tab.wait_for_timeout(600)
        assert not tab.evaluate(f"{STATE}.playing || document.getAnimations().length")
        tab.keyboard.press("Escape")
