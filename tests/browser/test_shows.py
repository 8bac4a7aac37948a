"""The opening, the story and the stage: each walked from its beginning to its end, against the recording it shows."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.jobs.recorded import RACES
from engine.analysis.metrics import lane_metrics, race_speedup
from engine.recordings.recording import read
from engine.what_if.read import what_if_of
from tests.helpers import ROOT
from tests.helpers.page_browser import LOAD_MS, RACE_MS, end, reload, run_race, settings
from tests.helpers.race_pages import SETTLED, TEXT, TOKENS, expected, feed, race_over, show, words, words_of
from tests.helpers.races import events_of, with_tables
from tests.helpers.steps_apart import steps_of

pytestmark = pytest.mark.browser
STATE = "window.photofinish.state"
SHORT = race_over(words_of(TEXT)[:60], seed=5)
GLYPHS = """() => ["left", "right"].map(side => {
    const box = document.querySelector(`[data-ref=${side}Text]`), nodes = [], places = [];
    const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) nodes.push(walker.currentNode);
    for (const node of nodes) for (let i = 0; i < node.length; i++) {
        if (!node.parentElement.closest("[data-step]")) continue;
        const range = document.createRange();
        range.setStart(node, i); range.setEnd(node, i + 1);
        const rect = range.getBoundingClientRect();
        if (rect.width) places.push([node.data[i], rect.x, rect.y, rect.width, rect.height]);
    }
    return places; })"""
FINISH = (
    "() => document.getAnimations().forEach(each => each.effect.getTiming().iterations < Infinity && each.finish())"
)


def act(tab: Any) -> str | None:
    return tab.get_attribute(".pf", "data-opening")


def until(tab: Any, name: str) -> None:
    """Let the page's clock run on until that act."""
    for _ in range(100):
        if act(tab) == name:
            return
        tab.clock.fast_forward(100)
    raise AssertionError(f"never {name}: {act(tab)}, {tab.evaluate(STATE)}")


def shown(tab: Any, name: str) -> bool:
    look = "node => node.checkVisibility({ visibilityProperty: true, opacityProperty: true })"
    return tab.locator(f"[data-ref={name}]").evaluate(look)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_opening_from_its_first_act_to_its_last(open_page: Any, width: int) -> None:
    """Results would show too early: the ratio before both lanes are done, the verdict before the texts meet; a wrong
    ratio; texts that do not align letter by letter; a page that differs afterwards from one without an opening."""
    page, recording = open_page(width, 700), read(RACES / "csv_to_json.json")
    page.clock.install()
    feed(page, recording.fields, race_id="recorded-any", ribbon="RECORDED", every=40)
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 0.1"))
    assert act(page) == "write" and page.evaluate(STATE)["t"] == 0
    until(page, "behind")
    state = page.evaluate(STATE)
    assert state["counts"]["right"] == state["totals"][1] and state["counts"]["left"] < state["totals"][0] / 2
    assert not shown(page, "ratio")
    until(page, "whole")
    ratio = race_speedup(events_of(recording), "speculative")
    assert shown(page, "ratio") and float(words(page, "ratio")[:-1]) == pytest.approx(ratio, rel=0.01, abs=0.006)
    assert page.get_attribute(".pf-verdict", "data-kind") == "none"
    until(page, "meet")
    page.evaluate(FINISH)
    left, right = page.evaluate(GLYPHS)
    assert len(left) > 50
    for (letter, *at), (other, *there) in zip(left, right, strict=True):
        assert letter == other and at == pytest.approx(there, abs=0.05)
    page.clock.fast_forward(1300)
    assert words(page, "verdictWord") == "Identical, bit for bit"
    until(page, "done")
    page.clock.fast_forward(100)
    assert page.evaluate(STATE)["speed"] == 1 and not page.evaluate(STATE)["playing"]
    assert page.evaluate(TOKENS) == expected(recording) and not page.query_selector(".pf-opens, .pf-guess")
    assert page.problems == []


def test_what_has_no_opening(open_page: Any, page: Any) -> None:
    """Texts that differ laid upon each other as if they were one; a live race as an opening, or one that does not end
    it; an animation despite reduced motion."""
    feed(page, SHORT, race_id="recorded-any", ribbon="RECORDED")
    assert act(page) is None and page.evaluate(TOKENS) == expected(SHORT) and shown(page, "ratio")
    differs = copy.deepcopy(SHORT)
    differs["verdicts"]["speculative"]["kind"] = "different"
    for recording, opens in ((differs, None), (SHORT, "write")):
        moving = open_page()
        feed(moving, recording, race_id="recorded-any")
        assert act(moving) == opens
        feed(moving, SHORT, race_id="0123456789abcdef")
        assert act(moving) is None and not moving.query_selector(".pf-opens") and moving.problems == []


def test_the_first_visit_and_the_second(visit: Any) -> None:
    """The first thing on the page is a race with its ribbon, before any model is loaded. A key that only closes the
    opening is a key lost; an opening or an offer of the story that comes again after a no; a story that begins by
    itself, or instead of the race that a link brings."""
    tab = visit(seen=False, until="race", reduced_motion="no-preference")
    tab.wait_for_function(f"{STATE}.playing", timeout=LOAD_MS)
    assert act(tab) == "write" and tab.is_hidden("[data-ref=offer]") and "RECORDED" in words(tab, "ribbon")
    tab.evaluate("document.querySelector('#page-prompt textarea').focus()")
    tab.keyboard.type("Zebra")
    assert "Zebra" in tab.input_value("#page-prompt textarea") and act(tab) is None
    state = tab.evaluate(STATE)
    assert state["t"] == state["duration"] and not state["playing"]
    assert tab.is_visible("[data-ref=offer]") and tab.is_hidden("[data-ref=story]")
    tab.click("[data-ref=offerNo]")
    reload(tab, "race")
    tab.wait_for_function(f"{STATE}.playing", timeout=LOAD_MS)  # as on every later visit, at real speed
    assert act(tab) is None and tab.is_hidden("[data-ref=offer]") and tab.is_hidden("[data-ref=story]")

    tab = visit("/?prompt=Once%20upon", seen=False, until="model", reduced_motion="no-preference")
    tab.wait_for_function("document.querySelector('#page-prompt textarea').value === 'Once upon'")
    assert act(tab) is None and tab.is_hidden("[data-ref=offer]") and tab.is_hidden("[data-ref=story]")
    begin(tab)
    assert tab.evaluate(STATE)["race"] == "recorded-csv-to-json" and len(list(cards(tab))) == 7
    tab.keyboard.press("Escape")
    assert tab.evaluate(STATE)["race"] is None and words(tab, "titleName").startswith("From a link")


# ---- the story

LIT = """() => {
  const box = node => { const { left, top, right, bottom } = node.getBoundingClientRect();
    return { left, top, right, bottom }; };
  const [card, spot] = ["story", "spot"].map(name => document.querySelector(`[data-ref=${name}]`));
  return { card: box(card), lit: spot.hidden ? null : box(spot), inside: card.contains(document.activeElement),
    tops: [...document.querySelectorAll("#page-prompt, .pf-board, .pf-verdict, .pf-tabs")].map(node =>
      node.getBoundingClientRect().bottom + scrollY),
    wide: document.documentElement.scrollWidth - innerWidth, moves: document.getAnimations().length }; }"""


def begin(tab: Any) -> None:
    tab.focus("#page-story-button")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[data-ref=story]", timeout=LOAD_MS)


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
    recording = read(RACES / f"{name}.json")
    tab.set_viewport_size({"width": width, "height": height})
    tab.evaluate("localStorage.removeItem('photofinish.story')")
    tab.set_input_files("[data-ref=file]", RACES / f"{name}.json")
    tab.wait_for_function(f"name => {STATE}.race === `file:${{name}}.json`", arg=name)
    tab.evaluate(SETTLED)
    tops = tab.evaluate(LIT)["tops"]
    begin(tab)
    told = []
    for number, said in enumerate(cards(tab), start=1):
        tab.evaluate(SETTLED)
        look = tab.evaluate(LIT)
        card, lit = look["card"], look["lit"]
        assert words(tab, "storyPlace") == f"Card {number} of 7" and shown(tab, "story")
        assert look["inside"] and look["wide"] <= 0 and look["moves"] == 0, number
        assert look["tops"] == pytest.approx(tops, abs=0.5), number
        assert lit is not None and lit["right"] - lit["left"] > 10 and lit["bottom"] - lit["top"] > 10, number
        for box in (card, lit):
            assert box["top"] >= 0 and box["bottom"] <= height + 1, (number, box)
            assert box["left"] >= 0 and box["right"] <= width + 1, (number, box)
        beside = card["right"] <= lit["left"] or lit["right"] <= card["left"]
        assert beside or card["bottom"] <= lit["top"] or lit["bottom"] <= card["top"], (number, card, lit)
        assert len(said.split()) <= 40, said
        told.append(said)
    assert len(told) == 7
    numbers_are_the_recordings(recording, told)
    tab.keyboard.press("ArrowLeft")
    assert words(tab, "storyPlace") == "Card 6 of 7"
    for _ in range(2):
        tab.keyboard.press("Enter")
    assert tab.is_hidden("[data-ref=story]") and tab.is_hidden("[data-ref=spot]")
    assert tab.evaluate("document.activeElement.id") == "page-story-button"
    state = tab.evaluate(STATE)
    assert state["t"] == state["duration"] and tab.get_attribute(".pf", "data-tab") == "text"
    assert tab.locator(".pf-guess").count() == 0


def numbers_are_the_recordings(recording: Any, told: list[str]) -> None:
    own, plain = steps_of(recording), steps_of(recording, "baseline")
    alone, draft, check, same, _, loses, length = told
    tokens = sum(len(e["token_ids"]) for e in plain)
    assert f"{len(plain)} passes for {tokens} tokens" in alone and f"the same {tokens} tokens" in same
    assert any(
        f"proposes {len(e['drafted'])} token" in draft
        and f"checks all {len(e['drafted'])} guesses" in check
        and f"{e['num_accepted']} kept, {len(e['token_ids'])} new token" in check
        and f"in {milliseconds(e['draft_s'] + e['verify_s'])}, drafting included" in check
        for e in own
    ), "of no one step are all these true"
    fewest = min(e["num_accepted"] for e in own if e["drafted"])
    assert any(f"kept {fewest} of {len(e['drafted'])}: {len(e['token_ids'])} token" in loses for e in own)
    (ratio,) = re.findall(r"was ([\d.]+)× as fast", loses)
    assert float(ratio) == pytest.approx(race_speedup(events_of(recording), "speculative"), rel=0.01, abs=0.006)
    found = what_if_of(recording)
    assert found is not None
    events = events_of(recording)
    fastest = max(lane_metrics(events, lane).tokens_per_s or 0.0 for lane in ("plain", "baseline"))
    times = {
        k: tokens / sum(step.seconds for step in found.steps("eagle3", k)) / fastest
        for k in range(1, len(found.costs.verify_s))
    }
    lengths = {int(k): float(x) for x, k in re.findall(r"([\d.]+)× at (?:k = )?(\d+)", length)}
    (best,) = (int(k) for k in re.findall(r"at (?:k = )?(\d+) \(best\)", length))
    assert {1, best, max(times)} == set(lengths) and times[best] == max(times.values())
    assert lengths == pytest.approx({k: times[k] for k in lengths}, abs=0.006)


def test_the_story_leaves_the_page_as_it_was(visit: Any) -> None:
    """Who comes back begins anew; who skips finds another tab, moment or marks than before; a card over a race that
    runs; or an own race that is gone because the story needed another one."""
    tab = visit()
    tab.focus("[data-ref=scrub]")
    for _ in range(5):
        tab.keyboard.press("ArrowLeft")
    tab.click("[data-ref=marks]")
    tab.evaluate(SETTLED)
    before = tab.evaluate(STATE)
    begin(tab)
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Escape")
    tab.evaluate(SETTLED)
    after = tab.evaluate(STATE)
    assert tab.is_hidden("[data-ref=story]") and (after["t"], after["counts"]) == (before["t"], before["counts"])
    assert tab.get_attribute(".pf", "data-view") == "plain" and tab.locator(".pf-guess").count() == 0
    reload(tab)
    begin(tab)
    assert words(tab, "storyPlace") == "Card 4 of 7"
    tab.keyboard.press("Escape")
    settings(tab, Maximum_length="1000")
    begin(tab)
    run_race(tab, "running")
    assert tab.is_hidden("[data-ref=story]") and tab.is_disabled("#page-story-button")
    assert end(tab) == "stopped"
    race, title = tab.evaluate(STATE)["race"], words(tab, "titleName")
    begin(tab)
    assert tab.evaluate(STATE)["race"] == "recorded-csv-to-json"
    tab.keyboard.press("Escape")
    state = tab.evaluate(STATE)
    assert (state["race"], words(tab, "titleName"), state["state"]) == (race, title, "stopped")


# ---- the stage

KEYS = {"→": "ArrowRight", "←": "ArrowLeft", "↑": "ArrowUp", "↓": "ArrowDown", "Esc": "Escape"}
BUTTON = "document.body.insertAdjacentHTML('beforeend', '<button id=\"page-stage-button\">Stage</button>')"
HALL = {"width": 1920, "height": 1080}
UNSEEN = """() => {
  const pf = document.querySelector(".pf"), found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement, range = document.createRange();
    range.selectNodeContents(text);
    const { left, right, top, bottom, width } = range.getBoundingClientRect();
    const seen = node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    if (!text.data.trim() || node.closest("script, style, .pf-sr") || !seen || width < 1) continue;
    const above = document.elementsFromPoint((left + right) / 2, (top + bottom) / 2);
    if (!pf.contains(node)) {
      if (!above.some(each => pf.contains(each)) && top < innerHeight && bottom > 0) found.push(["beside", text.data]);
      continue; }
    if (parseFloat(getComputedStyle(node).fontSize) < 28) found.push(["small", text.data]);
    if (node.closest(".pf-text")) continue;
    if (left < 0 || right > innerWidth || top < 0 || bottom > innerHeight) found.push(["off the screen", text.data]);
    for (let box = node; box !== pf; box = box.parentElement)
      if (getComputedStyle(box).overflowX !== "visible" && box.scrollWidth > box.clientWidth + 1)
        found.push(["cut off", box.className, text.data]);
    const part = node.closest(".pf-ratio-words, .pf-lane-kind, .pf-verdict, .pf-card");
    if (part && bottom > part.getBoundingClientRect().bottom + 1) found.push(["cut off below", text.data]);
  }
  for (const box of [document.documentElement, pf])
    if (box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1) found.push(["scrolls"]);
  return found; }"""
SHOWN = """() => ['.pf-title', '.pf-board', '.pf-verdict'].map(name =>
  document.querySelector(name).innerText).join('\\n')"""
PAGE = """() => ({ root: { ...document.querySelector(".pf").dataset }, focus: document.activeElement.id,
  prompt: document.querySelector("#page-prompt textarea")?.value, at: [scrollX, scrollY],
  words: document.querySelector(".pf").innerText.split("\\n").filter(line =>
    line !== document.querySelector("[data-ref=announce]").textContent.trim()),
  tops: [...document.querySelectorAll(".pf-text")].map(box => box.scrollTop),
  state: (({ race, t, speed, state }) => ({ race, t, speed, state }))(window.photofinish.state) })"""


def script(title: str) -> list[tuple[list[str], list[str], str]]:
    """For each row of a script in docs/stage.md: its keys, what is on the screen, and what is said."""
    part = (ROOT / "docs" / "stage.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if re.match(r"\| \d", line)]
    return [(re.findall("`(.+?)`", keys), re.findall("`(.+?)`", shown), said) for _, keys, shown, said in rows]


def press(page: Any, key: str) -> None:
    page.keyboard.press(KEYS.get(key, key.lower() if len(key) == 1 else key))
    page.evaluate(SETTLED)


def fits(page: Any, where: str) -> None:
    assert page.evaluate(UNSEEN) == [], where


def test_a_script_by_keyboard_alone(tab: Any) -> None:
    """A key that does nothing, a sentence that is not true of the race on the screen, or letters that the back row
    cannot read."""
    tab.set_viewport_size(HALL)
    for name, race in (("SQL", "recorded-sql"), ("CSV to JSON", "recorded-csv-to-json")):
        tab.click(f"#page-presets button:has-text('{name}')")
        tab.wait_for_function(f"race => {STATE}.race === race", arg=race)
    tab.focus("#page-stage-button")
    press(tab, "Enter")
    raced = False
    listed = set(tab.locator("[data-ref=stageList] kbd").all_text_contents())
    for keys, expected_there, said in script("Ten minutes with a customer"):
        assert set(keys) <= listed, keys
        for key in keys:
            race = tab.evaluate(STATE)["race"]
            press(tab, key)
            if key in ("N", "P", "Enter"):
                tab.wait_for_function("race => window.photofinish.state.race !== race", arg=race, timeout=RACE_MS)
            if key == "Enter":
                tab.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)
                raced = True
        if "Esc" in keys:
            break
        if "real speed" not in " ".join(expected_there):
            tab.wait_for_function(f"!{STATE}.playing", timeout=LOAD_MS)
        tab.evaluate(SETTLED)
        seen = tab.evaluate(SHOWN)
        assert [part for part in expected_there if part not in seen] == [], (keys, seen)
        numbers = re.findall(r"\d+(?:\.\d+)?", said)
        assert set(numbers) <= set(re.findall(r"\d+(?:\.\d+)?", seen)), (keys, said, seen)
        assert ("RECORDED" in seen) != raced
        if not raced:  # how long the words of the fixture's race are, and whether they loop, is chance
            fits(tab, str(keys))
    assert raced and not tab.locator(".pf[data-stage]").count()
    assert not tab.evaluate(STATE)["race"].startswith("recorded"), "the race that was run here stays"


def test_every_key_on_an_own_race_and_the_page_as_it_was(open_page: Any) -> None:
    """A key of the list without effect, or one that works off the stage; a moment, hidden marks or a scrolled text that
    the stage forgets."""
    race = with_tables(race_over(words_of(TEXT, 2), k=5), random.Random(3))
    page = open_page(1920, 1080, reduced_motion="reduce")
    page.evaluate(BUTTON)
    feed(page, race, every=90)
    page.click("[data-ref=marks]")
    page.focus("[data-ref=scrub]")
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    page.click("[data-speed='0.25']")
    page.evaluate("document.querySelector('.pf-text').scrollTop = 40")
    page.focus("#page-stage-button")
    page.evaluate(SETTLED)
    before = page.evaluate(PAGE)
    press(page, "Enter")
    fits(page, "as it begins")

    def look() -> Any:
        return page.evaluate(SHOWN), page.evaluate(PAGE)["root"], page.evaluate(STATE), page.inner_text(".pf")

    for key in ("→", "←", "S", "F", "↑", "↓", "↓", "0", "M", "V", "?"):
        was = look()
        press(page, key)
        assert look() != was, key
        fits(page, key)
    press(page, "Escape")
    assert page.locator(".pf[data-stage]").count(), "the first one closes the list of keys alone"
    for playing in (True, False):
        press(page, "Space")
        assert page.evaluate(STATE)["playing"] == playing
    press(page, "Escape")
    page.evaluate(SETTLED)
    assert page.evaluate(PAGE) == before
    for key in ("s", "m", "v", "n", "Escape"):
        press(page, key)
    assert page.evaluate(PAGE) == before, "off the stage its keys do nothing"
    page.click("#page-stage-button")
    waits = {"text": "2 races ahead of you. The current race is taking longer than usual.", "share": None, "left_s": 45}
    show(page, [{"race": "own", "seq": 0, "state": "waiting", "status": waits, "ribbon": "", "recording": None}])
    fits(page, "while another race has the device")
    assert page.is_visible("[data-ref=card]")
    page.mouse.click(900, 500)
    page.click("[data-ref=stageLeave]")
    assert not page.locator(".pf[data-stage]").count(), "no way out without a keyboard"
    assert page.problems == []
