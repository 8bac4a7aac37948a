"""Stage mode: the race alone, for the back row, by keys; and the scripts of docs/stage.md, key by key."""

from __future__ import annotations

import difflib
import json
import random
import re
from typing import Any

import pytest

from app.recorded import RACES
from tests.helpers import ROOT
from tests.helpers.page_browser import RACE_MS, open_tab
from tests.helpers.race_pages import SETTLED, TEXT, race_over, words, words_of
from tests.helpers.races import with_tables

pytestmark = pytest.mark.browser
LEAST_PX = 28
STATE = "window.photofinish.state"
BROWSERS_NAMES = {"→": "ArrowRight", "←": "ArrowLeft", "↑": "ArrowUp", "↓": "ArrowDown", "Esc": "Escape"}
LOOK = """() => {
  const pf = document.querySelector(".pf"), small = [], out = [];
  const seen = node => node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement, range = document.createRange();
    range.selectNodeContents(text);
    const { left, right, top, bottom, width } = range.getBoundingClientRect();
    if (!text.data.trim() || node.closest("script, style, .pf-sr") || !seen(node) || width < 1) continue;
    const above = document.elementsFromPoint((left + right) / 2, (top + bottom) / 2);
    if (!pf.contains(node) && !above.some(each => pf.contains(each)) && top < innerHeight && bottom > 0)
      out.push(["beside the stage", text.data]);
    if (!pf.contains(node)) continue;
    if (parseFloat(getComputedStyle(node).fontSize) < LEAST) small.push(text.data);
    if (node.closest(".pf-text")) continue;
    if (left < 0 || right > innerWidth || top < 0 || bottom > innerHeight) out.push(["off the screen", text.data]);
    for (let box = node; box !== pf; box = box.parentElement)
      if (getComputedStyle(box).overflowX !== "visible" && box.scrollWidth > box.clientWidth + 1)
        out.push(["cut off", box.className, text.data]);
    const ratio = node.closest(".pf-ratio-words, .pf-lane-kind, .pf-verdict, .pf-card");
    if (ratio && bottom > ratio.getBoundingClientRect().bottom + 1) out.push(["cut off below", text.data]);
  }
  for (const node of pf.querySelectorAll(".pf-newline, .pf-unseen, .pf-empty"))
    if (seen(node) && parseFloat(getComputedStyle(node, "::before").fontSize) < LEAST) small.push(node.outerHTML);
  const scrolls = [document.documentElement, pf].some(box => box.scrollHeight > box.clientHeight + 1
    || box.scrollWidth > box.clientWidth + 1);
  return { small, out, scrolls, bars: document.querySelectorAll(".pf-text").length
    && [...document.querySelectorAll(".pf-text")].some(box => box.offsetWidth - box.clientWidth > 2) }; }""".replace(
    "LEAST", str(LEAST_PX)
)
SHOWN = """() => ['.pf-title', '.pf-board', '.pf-verdict'].map(name =>
  document.querySelector(name).innerText).join('\\n')"""
PAGE = """() => ({ prompt: document.querySelector("#page-prompt textarea")?.value,
  settings: [...document.querySelectorAll("#page-panel input")].map(each => [each.value, each.checked]),
  root: { ...document.querySelector(".pf").dataset }, focus: document.activeElement.dataset.ref
    ?? document.activeElement.id,
  words: document.querySelector(".pf").innerText.split("\\n").filter(line =>
    line !== document.querySelector("[data-ref=announce]").textContent.trim()), at: [scrollX, scrollY],
  tops: [...document.querySelectorAll(".pf-text")].map(box => box.scrollTop),
  state: (({ race, t, speed, state }) => ({ race, t, speed, state }))(window.photofinish.state) })"""


def script(title: str) -> list[tuple[list[str], list[str], str]]:
    """Of each row of a script in docs/stage.md: its keys, what it says is on the screen, and what is said."""
    part = (ROOT / "docs" / "stage.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if re.match(r"\| \d", line)]
    return [(re.findall("`(.+?)`", keys), re.findall("`(.+?)`", shown), said) for _, keys, shown, said in rows]


def listed(page: Any) -> list[str]:
    return page.locator("[data-ref=stageList] kbd").all_text_contents()


def press(page: Any, key: str) -> None:
    page.keyboard.press(BROWSERS_NAMES.get(key, key.lower() if len(key) == 1 else key))
    page.evaluate(SETTLED)


def fits(page: Any, where: str) -> None:
    look = page.evaluate(LOOK)
    assert look == {"small": [], "out": [], "scrolls": False, "bars": False}, where


def same(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert list(difflib.unified_diff(before.pop("words"), after.pop("words"), n=0)) == []
    assert after == before


@pytest.mark.parametrize("title, dark", [("Ten minutes with a customer", False), ("A lesson of 45 minutes", True)])
def test_a_script_by_keyboard_alone(browser, server, title: str, dark: bool) -> None:
    """A key that does nothing, a sentence that is not true of the race on the screen, letters that the back row cannot
    read, or a page that is another one when the talk is over."""
    scheme = "dark" if dark else "light"
    tab = browser.new_page(viewport={"width": 1920, "height": 1080}, reduced_motion="reduce", color_scheme=scheme)
    open_tab(tab, server)
    tab.wait_for_function(f"{STATE}.duration > 0")
    tab.click("[data-tab=steps]")
    tab.focus("#page-stage-button")
    tab.wait_for_selector("[data-ref=liveHere]")  # the page's buttons may come later than the race
    before = tab.evaluate(PAGE)
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".pf[data-stage]")
    raced = False
    for keys, shown, said in script(title):
        assert set(keys) <= set(listed(tab)), keys
        for key in keys:
            race = tab.evaluate(STATE)["race"]
            press(tab, key)
            if key in ("N", "P", "Enter"):
                tab.wait_for_function("race => window.photofinish.state.race !== race", arg=race, timeout=RACE_MS)
            if key == "Enter":
                tab.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)
                raced = True
        if "real speed" not in " ".join(shown):
            tab.wait_for_function(f"!{STATE}.playing", timeout=10_000)
        tab.evaluate(SETTLED)
        if "Esc" in keys:
            break
        seen = tab.evaluate(SHOWN)
        assert [part for part in shown if part not in seen] == [], (keys, seen)
        numbers = re.findall(r"\d+(?:\.\d+)?", said)
        assert set(numbers) <= set(re.findall(r"\d+(?:\.\d+)?", seen)), (keys, said, seen)
        assert ("RECORDED" in seen) != raced
        if not raced:  # how long the words of the fixture's race are, and whether they loop, is chance
            fits(tab, f"{title}: {keys}")
    assert not tab.locator(".pf[data-stage]").count()
    after = tab.evaluate(PAGE)
    if raced:
        assert after["state"]["state"] == "finished" and not after["state"]["race"].startswith("recorded")
    else:
        same(before, after)
    tab.close()


def test_every_key_on_an_own_race_and_the_page_as_it_was(open_page: Any) -> None:
    """A key of the list without effect, or one that a text box would take; a told length, a moment, hidden marks or
    a scrolled text that the stage forgets."""
    race = with_tables(race_over(words_of(TEXT, 2), k=5), random.Random(3))
    page = open_page(1920, 1080, reduced_motion="reduce")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<button id=\"page-stage-button\">Stage</button>')")
    assert page.evaluate("text => window.photofinish.open(text, 'race.json')", json.dumps(race))
    page.click("[data-ref=marks]")
    page.click("[data-tab=whatif]")
    page.focus("[data-ref=whatIfK]")
    page.keyboard.press("ArrowLeft")
    page.click("[data-speed='0.25']")
    page.focus("[data-ref=scrub]")
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    page.evaluate(SETTLED)
    page.evaluate("document.querySelector('.pf-text').scrollTop = 40")
    page.evaluate(SETTLED)
    before = page.evaluate(PAGE)
    page.evaluate("document.querySelector('#page-stage-button').click()")
    page.evaluate(SETTLED)
    fits(page, "as it begins")

    def look() -> Any:
        return page.evaluate(SHOWN), page.evaluate(PAGE)["root"], page.evaluate(STATE), page.inner_text(".pf")

    for key in ("→", "←", "S", "F", "↑", "↓", "0", "M", "V", "?"):
        was = look()
        press(page, key)
        assert look() != was, key
        fits(page, key)
    press(page, "Escape")
    assert page.locator(".pf[data-stage]").count(), "the first one closes the list of keys alone"
    press(page, "Space")
    assert page.evaluate(STATE)["playing"]
    press(page, "Space")
    assert not page.evaluate(STATE)["playing"]
    press(page, "N")  # no examples here
    press(page, "Enter")
    press(page, "Tab")
    press(page, "Escape")
    page.evaluate(SETTLED)
    same(before, page.evaluate(PAGE))
    for key in ("s", "m", "v", "n", "Escape"):
        press(page, key)
    assert page.evaluate(PAGE)["state"]["speed"] == before["state"]["speed"], "off the stage its keys do nothing"
    page.evaluate("document.querySelector('#page-stage-button').click()")
    page.mouse.click(900, 500)
    page.click("[data-ref=stageLeave]")
    assert not page.locator(".pf[data-stage]").count(), "no way out without a keyboard"
    assert page.problems == []


@pytest.mark.parametrize("path", sorted(RACES.glob("*.json")), ids=lambda path: path.stem)
def test_every_shipped_race_fits(page: Any, path: Any) -> None:
    """A verdict, a ratio's words or a drafter's name that is cut off on the screen that one points at; an empty stage
    while the device is busy."""
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<button id=\"page-stage-button\">Stage</button>')")
    recording = path.read_text(encoding="utf-8")
    frame = {
        "race": "recorded-x",
        "seq": 0,
        "state": "finished",
        "name": path.stem,
        "ribbon": "RECORDED",
        "status": {"text": "Recorded on AMD EPYC, 2 cores.", "share": None},
        "recording": json.loads(recording),
    }
    page.evaluate("frame => window.photofinish.frame(frame)", json.dumps(frame))
    page.evaluate("document.querySelector('#page-stage-button').click()")
    for key in ("M", "↓", "0", "V", "V", "?", "M"):
        press(page, key)
        fits(page, key)
    waits = {"text": "2 races before yours. The first takes longer than usual.", "share": None, "left_s": 45}
    page.evaluate(
        "frame => window.photofinish.frame(frame)",
        json.dumps({"race": "own", "seq": 0, "state": "waiting", "status": waits, "ribbon": "", "recording": None}),
    )
    page.evaluate(SETTLED)
    fits(page, "while another race has the device")
    assert page.is_visible("[data-ref=card]") and "RECORDED" in words(page, "ribbon")
    assert page.evaluate(STATE)["race"] == "recorded-x", "the recorded race stands ready"
