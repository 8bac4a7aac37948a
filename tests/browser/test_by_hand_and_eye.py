"""The page by keyboard alone, with its panel open, in every look, and in sight at every size."""

from collections.abc import Callable
from typing import Any

import pytest

from app.catalogue.catalogue import load_presets
from tests.helpers.page_browser import (
    CUT,
    PANELS,
    UNREADABLE,
    choose,
    close_settings,
    figures,
    new_race,
    open_settings,
    run_race,
    settings,
    unfold,
)
from tests.helpers.race_pages import SETTLED

pytestmark = pytest.mark.browser

FOCUSED = """() => { const node = document.activeElement, style = getComputedStyle(node);
    const { width, height, left, right } = node.getBoundingClientRect();
    return { name: node.id || node.dataset.ref || node.dataset.tab || node.getAttribute('aria-label')
        || node.textContent.trim().slice(0, 30), tag: node.tagName,
      marked: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2) || node.type === 'range',
      there: width > 0 && height > 0 && right > 0 && left < innerWidth,
      panel: Boolean(node.closest('#page-panel')) }; }"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Where the sentence of an example leaves the window, or lies below something; "" if it does not.
HINT = """expect => { const hint = document.querySelector(".page-expect"), range = document.createRange();
    const before = hint.textContent;
    hint.textContent = `Temperature 0.8. ${expect}`;
    range.selectNodeContents(hint);
    const unseen = [...range.getClientRects()].filter(({ left, right, top, bottom }) => [left + 2, right - 2].some(x =>
      [top + 3, bottom - 3].some(y => document.elementFromPoint(x, y) !== hint)));
    const found = range.getClientRects().length === 0 ? "no room" : JSON.stringify(unseen);
    hint.textContent = before;
    return found === "[]" ? "" : found; }"""
MOVING = "document.getAnimations().some(motion => motion.effect.getTiming().iterations < Infinity)"
# 640 is 1280 at twice the size.
LOOKS = [(1280, 800, "light"), (1440, 900, "dark"), (640, 512, "light"), (360, 740, "dark"), (3840, 2160, "light")]


@pytest.fixture(scope="module")
def shared_tab(visitor: Callable[..., Any]) -> Any:
    tab = visitor()
    settings(tab, Maximum_length="48")
    run_race(tab)
    return tab


def test_the_keyboard_reaches_all_and_says_where_it_is(tab: Any) -> None:
    """Focus that cannot be seen, tab stops in a panel that is closed, a place that one cannot leave."""
    seen: list[dict[str, Any]] = []
    tab.evaluate("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    for _ in range(80):
        tab.keyboard.press("Tab")
        now = tab.evaluate(FOCUSED)
        if now["tag"] == "BODY" or (len(seen) > 5 and now == seen[0]):
            break
        seen.append(now)
    names = [stop["name"] for stop in seen]
    assert now["tag"] == "BODY" or now == seen[0], f"a trap: {names[-5:]}"
    assert [stop for stop in seen if not (stop["marked"] and stop["there"]) or stop["panel"]] == []
    reached = ["page-race-button", "page-settings-button", "Share", "pf-tab-text", "play", "next", "scrub", "marks"]
    assert [name for name in reached if name not in names] == []
    assert "Prompt" in names or any(stop["tag"] == "TEXTAREA" for stop in seen)


def test_settings_take_the_focus_and_give_it_back(tab: Any) -> None:
    """A panel that opens without the keyboard in it, or that only a mouse can close; Back that leaves the page instead
    of closing what was opened last, or that closes more than that."""
    leaves = {
        "Escape": lambda: tab.keyboard.press("Escape"),
        "click": lambda: tab.click("#page-settings-button"),
        "Back": lambda: tab.go_back(),
    }
    choose(tab, "timing")
    tab.focus("#page-settings-button")
    for leave in leaves.values():
        tab.keyboard.press("Enter")
        tab.wait_for_function("document.activeElement.closest('#page-panel')")
        assert tab.evaluate(FOCUSED)["marked"]
        leave()
        tab.wait_for_selector(".sidebar.open", state="detached")
        tab.wait_for_function("document.activeElement.id === 'page-settings-button'")
    assert tab.get_attribute(".pf", "data-tab") == "timing"
    tab.go_back()
    tab.wait_for_selector(".pf[data-tab=text]")


def test_the_panel_takes_no_keys_from_who_went_on(tab: Any) -> None:
    """The panel's first box emptied instead of the one that was clicked; Enter on a button that was left."""
    for does, place in (
        (lambda: tab.evaluate("document.getElementById('page-settings-button').click()"), "[aria-label=Seed]"),
        (lambda: tab.keyboard.press("Escape"), "#page-story-button"),
    ):
        does()
        tab.evaluate(
            """async place => { const node = document.querySelector(place);
            while (document.activeElement !== node) { node.focus(); await new Promise(go => setTimeout(go, 5)); } }""",
            place,
        )
        tab.wait_for_timeout(200)  # the panel moves the focus 60 ms after it opens
        assert tab.evaluate("place => document.activeElement === document.querySelector(place)", place), place
    tab.wait_for_selector(".sidebar.open", state="detached")


@pytest.mark.parametrize(("width", "height", "scheme"), LOOKS)
def test_every_look_can_be_read(tab: Any, width: int, height: int, scheme: str) -> None:
    """Letters below 14 px, or with less contrast than 4.5:1 (3:1 for large ones); text that is cut off or lies below
    something else; a page that scrolls sideways; tabs that push the replay into a second line; next to the open panel,
    a unit in two lines or a mark outside its board."""
    tab.set_viewport_size({"width": width, "height": height})
    tab.emulate_media(color_scheme=scheme)
    tab.wait_for_selector("body.dark", state="attached" if scheme == "dark" else "detached")
    assert scheme in tab.evaluate("getComputedStyle(document.body).colorScheme || 'light'").replace("normal", "light")

    def look(where: str) -> None:
        tab.wait_for_function(f"!{MOVING}")
        assert tab.evaluate(OVERFLOW) <= 0, where
        assert tab.evaluate(UNREADABLE) == [], where
        assert tab.evaluate(CUT) == [], where

    unfold(tab)
    assert tab.evaluate(HINT, max((preset.expect for preset in load_presets()), key=len)) == "", "an example's sentence"
    for name in tab.locator(PANELS).evaluate_all("tabs => tabs.map(tab => tab.dataset.tab)"):
        figures(tab, name) if name in ("why", "charts") else choose(tab, name)
        tab.evaluate(SETTLED)
        for switch in tab.locator("[data-cheat]").all() if name == "why" else ():
            switch.check()
        for _ in range(2 * (name == "onestep")):
            tab.click("[data-ref=stepNext]")
            look(tab.text_content("[data-ref=stepHead]"))
        look(name)
    tab.click("[role=tab][data-tab=text]")
    open_settings(tab)
    look("settings")
    close_settings(tab)
    if width >= 1280:
        tabs, deck = (tab.locator(name).first.bounding_box() for name in (".pf-tabs", ".pf-deck"))
        assert tabs["x"] + tabs["width"] <= deck["x"] and deck["y"] < tabs["y"] + tabs["height"]


def test_race_and_stop_stay_in_sight(tab: Any) -> None:
    """On a projector a race scrolled the buttons away; a box, or its frame, that is cut off where one types."""
    tab.set_viewport_size({"width": 1280, "height": 720})
    tab.evaluate("scrollTo(0, 0)")
    run_race(tab)
    assert tab.evaluate("scrollY") == 0
    tab.fill("#page-prompt textarea", "one line\n" * 8)
    box = tab.locator("#page-prompt textarea").bounding_box()
    for x, y in ((box["x"] + 20, box["y"] + box["height"] - 4), (box["x"] + box["width"] - 20, box["y"] + 4)):
        shown = tab.evaluate("([x, y]) => document.elementFromPoint(x, y).closest('#page-prompt') !== null", [x, y])
        assert shown, (x, y)
    tab.click("#page-presets button:has-text('CSV to JSON')", force=True)


# What a person opens a tab for.
ANSWERS = {"onestep": ".pf-one-row >> nth=1", "whatif": ".pf-whatif", "why": ".pf-why-says"}


def test_on_a_low_screen_a_tabs_answer_is_in_sight(tab: Any) -> None:
    """On a projector's screen one scrolled at every step; a higher screen, or Text, must stay where it is."""
    for height, names in ((720, ANSWERS), (800, ANSWERS), (720, ["steps"])):
        tab.set_viewport_size({"width": 1280, "height": height})
        for name in names:
            choose(tab, name)  # so that "Details" opens it at once
            tab.click("[role=tab][data-tab=text]")
            tab.evaluate("scrollTo(0, 0)")
            choose(tab, name)
            tab.evaluate(SETTLED)
            assert (tab.evaluate("scrollY") > 0) == (height < 800 and name in ANSWERS), (height, name)
            if height == 720 and name in ANSWERS:
                box = tab.locator(ANSWERS[name]).bounding_box()
                assert box["y"] >= 0 and box["y"] + box["height"] <= height, (name, box)
    tab.click("[role=tab][data-tab=text]")


SHIFTS = """() => { window.shifts = []; new PerformanceObserver(list => list.getEntries().forEach(entry =>
    window.shifts.push([entry.startTime, entry.value]))).observe({ type: 'layout-shift', buffered: true }); }"""
ROWS = """() => [...document.querySelectorAll('.pf-lane .pf-text')].map(box => {
    const { top, bottom } = box.getBoundingClientRect();
    return (Math.min(bottom, innerHeight) - Math.max(top, 0)) / parseFloat(getComputedStyle(box).lineHeight); })"""
FULL = "() => [...document.querySelectorAll('.pf-lane .pf-text')].map(box => box.scrollHeight / box.clientHeight)"


def test_everything_is_in_sight_and_nothing_moves(visit: Any) -> None:
    """Prompt, board, verdict and six lines of both texts: before the race, in it and after it; and what one looks at
    stays where it is, also while the page loads."""
    tab = visit(reduced_motion="no-preference")
    tab.evaluate(SHIFTS)
    tab.evaluate(SETTLED)
    assert sum(value for _, value in tab.evaluate("window.shifts")) <= 0.011
    for width, height in ((1280, 800), (1920, 1080)):
        tab.set_viewport_size({"width": width, "height": height})
        with tab.expect_response(lambda answer: "/run/" in answer.url):  # the example's own length comes first
            tab.click("#page-presets button:has-text('CSV to JSON')")
        tab.wait_for_function("window.photofinish.state.race.startsWith('recorded') && window.photofinish.state.t > 0")
        settings(tab, Maximum_length="200")  # so that it can be seen running
        tab.wait_for_function(f"!{MOVING}")
        tab.evaluate(SETTLED)
        since = tab.evaluate("performance.now()")  # what moved before may be reported later
        for moment in ("before", "running", "finished"):
            if moment == "running":
                run_race(tab, "running")
            elif moment == "finished":
                new_race(tab, None)
                assert min(tab.evaluate(FULL)) > 1, "texts that fit into their boxes push nothing"
                tab.wait_for_function("(s => s.playing || s.t >= s.duration)(window.photofinish.state)")
                tab.evaluate(SETTLED)
            assert min(tab.evaluate(ROWS)) >= 6, moment
            for selector in ("#page-prompt textarea", ".pf-board", ".pf-verdict"):
                box = tab.locator(selector).bounding_box()
                assert box["y"] >= 0 and box["y"] + box["height"] <= height, (moment, selector)
        shifted = sum(value for at, value in tab.evaluate("window.shifts") if at > since)
        assert shifted <= 0.011, (width, shifted)


FIRST_SCREEN = """() => {
    const isSeen = node => { const { width, height, top, bottom } = node.getBoundingClientRect();
      return width > 2 && height > 2 && top < innerHeight && bottom > 0 && !node.closest(".pf-sr, .pf-unseen")
        && node.checkVisibility({ visibilityProperty: true, opacityProperty: true }); };
    const isText = node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    const all = [...document.body.querySelectorAll("*")].filter(isSeen);
    return { controls: all.filter(node => node.matches("button, a[href], summary, input, select, textarea"))
        .map(node => node.textContent || node.dataset.ref),
      sizes: [...new Set(all.filter(isText).map(node => getComputedStyle(node).fontSize))] }; }"""
GONE = "name => (it => it.disabled && !it.checkVisibility())(document.getElementById(`page-${name}-button`))"


def test_the_first_screen_is_ranked(visit: Any) -> None:
    """Fifty controls of equal weight in fourteen sizes of letters; Stop next to Race, or under a double click on it; no
    race by keyboard from the prompt. A status tracker left pending, which requests animation frames for ever, while
    nobody touches the page: it would slow a race on the same cores."""
    tab = visit()
    tab.set_viewport_size({"width": 1440, "height": 900})
    tab.mouse.move(5, 5)
    tab.wait_for_function("!document.getAnimations().length && !document.querySelector('.generating, .pending')")
    shown = tab.evaluate(FIRST_SCREEN)
    assert len(shown["controls"]) <= 24 and len(shown["sizes"]) <= 6, shown
    before = tab.evaluate("window.photofinish.state.race")
    settings(tab, Maximum_length="150")  # so that it can be seen running
    tab.press("#page-prompt textarea", "Control+Enter")
    tab.wait_for_function(GONE, arg="race")
    tab.dispatch_event("#page-stop-button:enabled", "click", {"detail": 2})
    new_race(tab, before)
    tab.wait_for_function(GONE, arg="stop")
    tab.wait_for_selector("#page-race-button:enabled")
    tab.click("#page-more-button")
    assert tab.locator("[id^=page-example-]:visible").count() == len(load_presets())


SMALL = """() => [...document.querySelectorAll("button, a[href], summary, input, select, textarea")].flatMap(node => {
    const option = ["checkbox", "radio"].includes(node.type) && node.closest("label");
    const { width, height } = (option || node).getBoundingClientRect(), seen = { visibilityProperty: true };
    const skipped = ".pf-sr, .pf-text, .wrap-inner, .js-plotly-plot, footer[aria-label]";      // or inside a larger one
    const letters = node.matches("input, select, textarea") ? parseFloat(getComputedStyle(node).fontSize) : 16;
    return !node.checkVisibility(seen) || node.closest(skipped) || width < 2
      || (width >= 44 && height >= 43.9 && letters >= 16) ? [] :
      [[node.outerHTML.slice(0, 60), width, height, letters]]; })"""
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def test_fingers(visit: Any) -> None:
    """A button that a thumb misses, letters at which an iPhone zooms, a sideways scroll, a stage that asks for keys."""
    tab = visit(until="race", **PHONE)

    def look(where: str) -> None:
        tab.evaluate(SETTLED)
        assert (tab.evaluate(SMALL), tab.evaluate(OVERFLOW)) == ([], 0), where

    look("the page")
    for name in tab.locator(PANELS).evaluate_all("tabs => tabs.map(tab => tab.dataset.tab)"):
        tab.evaluate("name => document.getElementById(`pf-tab-${name}`).click()", name)
        look(name)
    tab.evaluate("document.querySelector('[data-ref=share]').open = true")
    look("share")
    open_settings(tab)
    tab.evaluate("document.querySelector('#page-advanced > button').click()")
    look("settings")
    close_settings(tab)
    look("the menu")
    tab.tap("#page-stage-button")
    look("the stage")
    tab.keyboard.press("ArrowRight")
    look("the race on the stage")
    assert all(tab.is_visible(f"[data-side={side}] .pf-lane-head") for side in ("left", "right")), "which text is whose"
    assert tab.locator(".pf-stage-hint kbd:visible").count() == 0 and "Esc" not in tab.inner_text(".pf-stage-hint")
    before = tab.evaluate("window.photofinish.state.race")
    tab.tap("[data-key=n]")
    tab.wait_for_function("race => window.photofinish.state.race !== race", arg=before)
    tab.tap("[data-key='?']")
    look("what else the stage can do")
