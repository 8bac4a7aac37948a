"""The page by keyboard alone, on a projector, with its panel open, and in sight at every size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.page_browser import RACE_MS, UNREADABLE, open_tab, run_race, set_number

pytestmark = pytest.mark.browser

FOCUSED = """() => { const node = document.activeElement, style = getComputedStyle(node);
    const { width, height, left, right } = node.getBoundingClientRect();
    return { name: node.id || node.dataset.ref || node.dataset.tab || node.getAttribute('aria-label')
        || node.textContent.trim().slice(0, 30), tag: node.tagName,
      marked: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2) || node.type === 'range',
      there: width > 0 && height > 0 && right > 0 && left < innerWidth,
      panel: Boolean(node.closest('#page-panel')) }; }"""


@pytest.fixture(scope="module")
def tab(browser: Any, server: Any) -> Iterator[Any]:
    tab = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    open_tab(tab, server)
    set_number(tab, "Length", "48")
    tab.keyboard.press("Escape")
    run_race(tab)
    yield tab
    tab.close()


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
    names = [each["name"] for each in seen]
    assert now["tag"] == "BODY" or now == seen[0], f"a trap: {names[-5:]}"
    assert [each for each in seen if not (each["marked"] and each["there"]) or each["panel"]] == []
    for wanted in ("page-race-button", "page-settings-button", "open", "save", "pf-tab-text", "play", "scrub", "marks"):
        assert wanted in names, wanted
    assert "Prompt" in names or any(each["tag"] == "TEXTAREA" for each in seen)


def test_settings_take_the_focus_and_give_it_back(tab: Any) -> None:
    """A panel that opens without the keyboard in it, or that only a mouse can close."""
    tab.focus("#page-settings-button")
    for leave in ("Escape", "click"):
        tab.keyboard.press("Enter")
        tab.wait_for_function("document.activeElement.closest('#page-panel')", timeout=5_000)
        assert tab.evaluate(FOCUSED)["marked"]
        tab.keyboard.press("Escape") if leave == "Escape" else tab.click("#page-settings-button")
        tab.wait_for_selector(".sidebar.open", state="detached", timeout=5_000)
        tab.wait_for_function("document.activeElement.id === 'page-settings-button'", timeout=5_000)


def test_nothing_wraps_or_sticks_out_beside_the_open_panel(tab: Any) -> None:
    """At 1280 pixels the panel takes a third: a unit in two lines, a mark beyond its board."""
    tab.click("#page-settings-button")
    tab.wait_for_timeout(700)
    out = tab.evaluate(
        """() => [...document.querySelectorAll('.pf-lane-board')].flatMap(board => {
        const { left, right, bottom } = board.getBoundingClientRect();
        return [...board.querySelectorAll('dd, .pf-unit, .pf-num')].filter(node => {
          const range = document.createRange(); range.selectNodeContents(node);
          const box = range.getBoundingClientRect();
          return box.width && (box.left < left - 1 || box.right > right + 1 || box.bottom > bottom + 1
            || (node.matches('.pf-unit') && range.getClientRects().length > 1));
        }).map(node => node.textContent); })"""
    )
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".sidebar.open", state="detached", timeout=5_000)
    assert out == []


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
        tab.wait_for_timeout(200)
        assert tab.evaluate("place => document.activeElement === document.querySelector(place)", place), place


def test_an_empty_number_is_answered_in_words(tab: Any) -> None:
    """A seed that was wiped out gives "not None"."""
    tab.click("#page-settings-button")
    seed = tab.get_by_label("Seed", exact=True)
    seed.fill("")
    tab.keyboard.press("Escape")
    tab.click("#page-race-button")
    tab.wait_for_selector("text=seed is empty; give it a number", timeout=10_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_letter_can_be_read(browser: Any, server: Any, scheme: str) -> None:
    """Letters below 14 pixels on a projector, or with less than 4.5:1 (3:1 for large ones) against what is behind."""
    tab = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
    tab.goto(f"{server.url}?__theme={scheme}")
    tab.wait_for_selector('.pf[data-state="finished"]', timeout=20_000)
    tab.wait_for_timeout(500)
    for name in ("text", "steps", "onestep", "why", "charts", "timing"):
        tab.click(f"[role=tab][data-tab={name}]")
        tab.wait_for_timeout(1500 if name in ("why", "charts") else 200)
        for switch in tab.locator("[data-cheat]").all() if name == "why" else ():
            switch.check()
        assert tab.evaluate(UNREADABLE) == [], name
    tab.click("#page-settings-button")
    tab.wait_for_timeout(700)
    assert tab.evaluate(UNREADABLE) == [], "settings"
    tab.close()


SHIFTS = """() => { window.shifts = []; new PerformanceObserver(list => list.getEntries().forEach(entry =>
    window.shifts.push([entry.startTime, entry.value]))).observe({ type: 'layout-shift' }); }"""
ROWS = """() => [...document.querySelectorAll('.pf-text')].map(box => {
    const { top, bottom } = box.getBoundingClientRect();
    return (Math.min(bottom, innerHeight) - Math.max(top, 0)) / parseFloat(getComputedStyle(box).lineHeight); })"""
FULL = "() => [...document.querySelectorAll('.pf-text')].map(box => box.scrollHeight / box.clientHeight)"


def windows(shifts: list[list[float]]) -> float:
    """Cumulative layout shift as browsers report it: the worst burst, of shifts less than 1 s apart, 5 s at most."""
    worst = burst = first = last = 0.0
    for at, value in shifts:
        if at - last > 1000 or at - first > 5000:
            first, burst = at, 0.0
        burst, last = burst + value, at
        worst = max(worst, burst)
    return worst


@pytest.fixture(scope="module")
def moving(browser, server) -> Iterator[Any]:
    """A tab for any size, with motion; its shifts are recorded."""
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    open_tab(tab, server)
    tab.evaluate(SHIFTS)
    yield tab
    tab.close()


@pytest.mark.parametrize("size", [(1280, 800), (1440, 900), (1920, 1080)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_everything_is_in_sight_and_nothing_moves(moving, size) -> None:
    """Prompt, board, verdict and six lines of both texts: before the race, in it and after it; and what one looks at
    stays where it is."""
    tab = moving
    tab.set_viewport_size({"width": size[0], "height": size[1]})
    tab.click("#page-presets button:has-text('CSV to JSON')")
    tab.wait_for_function("window.photofinish.state.race.startsWith('recorded')")
    tab.wait_for_timeout(700)
    tab.evaluate("window.shifts.length = 0")
    for moment in ("before", "running", "finished"):
        if moment == "running":
            run_race(tab, "running")
        elif moment == "finished":
            tab.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)
            assert min(tab.evaluate(FULL)) > 1, "texts that fit into their boxes push nothing: this has seen nothing"
            tab.wait_for_timeout(1200)
        assert min(tab.evaluate(ROWS)) >= 6, moment
        for selector in ("#page-prompt textarea", ".pf-board", ".pf-verdict"):
            box = tab.locator(selector).bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= size[1], (moment, selector)
    shifted = windows(tab.evaluate("window.shifts"))
    print(f"layout shift {shifted:.4f}")
    assert shifted <= 0.02
