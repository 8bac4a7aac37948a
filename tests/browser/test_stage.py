"""The stage, by its keys: against the scripts in the docs, on a race of its own, and with all that can go wrong."""

import random
import re
import socket
import threading
import time
from contextlib import closing, suppress
from typing import Any

import pytest

from app.catalogue.catalogue import load_presets
from tests.helpers import ROOT
from tests.helpers.page_browser import (
    REPORTS,
    close_settings,
    end,
    example,
    loaded,
    new_race,
    open_settings,
    run_race,
    settings,
    slowness,
)
from tests.helpers.race_pages import SETTLED, TEXT, feed, race_over, show, words, words_of
from tests.helpers.races import with_tables

pytestmark = pytest.mark.browser
STATE = "window.photofinish.state"
BUTTON = "document.body.insertAdjacentHTML('beforeend', '<button id=\"page-stage-button\">Stage</button>')"
RUSSIAN = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'ь', code: 'KeyM', bubbles: true})), 0"
HALL = {"width": 1920, "height": 1080}
PAGE = """() => ({ root: { ...document.querySelector(".pf").dataset }, focus: document.activeElement.id,
  prompt: document.querySelector("#page-prompt textarea")?.value,
  words: document.querySelector(".pf").innerText.split("\\n").filter(line =>
    line !== document.querySelector("[data-ref=announce]").textContent.trim()),
  state: (({ race, t, speed, state }) => ({ race, t, speed, state }))(window.photofinish.state) })"""
KEYS = {"→": "ArrowRight", "←": "ArrowLeft", "↑": "ArrowUp", "↓": "ArrowDown", "Esc": "Escape"}
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
      if (!above.some(node => pf.contains(node)) && top < innerHeight && bottom > 0) found.push(["beside", text.data]);
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


def script(title: str) -> list[tuple[list[str], list[str], str]]:
    """For each row of a script in docs/stage.md: its keys, what is on the screen, and what is said."""
    part = (ROOT / "docs" / "stage.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if re.match(r"\| \d", line)]
    return [(re.findall("`(.+?)`", keys), re.findall("`(.+?)`", shown), said) for _, keys, shown, said in rows]


def press(page: Any, key: str) -> None:
    page.keyboard.press(KEYS.get(key, key.lower() if len(key) == 1 else key))
    page.evaluate(SETTLED)


def fits(page: Any, where: str) -> None:
    assert not (faults := page.evaluate(UNSEEN)), (where, faults)


def test_a_script_by_keyboard_alone(tab: Any) -> None:
    """A key that does nothing, an example that shows its result before the audience has bet, a sentence that is not
    true of the race on the screen, or letters that the back row cannot read."""
    tab.set_viewport_size(HALL)
    for name, race in (("SQL", "recorded-sql"), ("CSV to JSON", "recorded-csv-to-json")):
        example(tab, name)
        tab.wait_for_function(f"race => {STATE}.race === race", arg=race)
    tab.focus("#page-stage-button")
    tab.clock.install()
    press(tab, "Enter")
    raced = False
    listed = set(tab.locator("[data-ref=stageList] kbd").all_text_contents())
    for keys, expected_there, said in script("Ten minutes with a customer"):
        assert set(keys) <= listed, keys
        for key in keys:
            race = tab.evaluate(STATE)["race"]
            press(tab, key)
            if key in ("N", "P"):
                tab.wait_for_function("race => window.photofinish.state.race !== race", arg=race)
                tab.evaluate(SETTLED)
                assert tab.evaluate(STATE)["t"] == 0 and "Raise hands" in words(tab, "stageSays")
                assert not re.search(r"Identical|\d×|\d %", tab.evaluate(SHOWN))
            if key == "Enter":
                new_race(tab, race)
                raced = True
        if "Esc" in keys:
            break
        if "real speed" not in " ".join(expected_there):
            tab.clock.fast_forward(60_000)
            tab.wait_for_function(f"!{STATE}.playing")
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


def test_a_prompt_from_the_audience(tab: Any) -> None:
    """Letters of the prompt that work as keys, another prompt in the race, also by the bar's button, or no way back;
    prose that loops, as it does at temperature 0; fingers whose Return races or whose bar goes; texts that are the same
    but look different, and no proof."""
    tab.evaluate("AbortSignal.timeout = () => new AbortController().signal")  # a busy machine is not a lost one
    tab.evaluate("window.media = matchMedia; window.matchMedia = () => ({ matches: true })")  # only touch
    tab.route("**/tokens", lambda route: route.fulfill(headers={"Photofinish": "1"}, json={"count": 3, "chat": False}))
    with tab.expect_response("**/tokens"):
        tab.click("#page-presets button:has-text('Python class')")
    tab.focus("#page-stage-button")
    press(tab, "Enter")
    for by_bar in (False, True):
        before = tab.evaluate(STATE)["race"]
        if not by_bar:
            for view in ("verdict", "texts"):
                assert words(tab, "stageView") == f"the {view}"
                tab.click("[data-ref=stageView]")
        press(tab, "T")
        assert tab.is_visible("[data-ref=stagePrompt]")
        assert words(tab, "stageWarns") == "", "an example's own prompt"
        tab.keyboard.type("nvx?")
        tab.wait_for_selector("[data-ref=stageWarns]:has-text('Sampled at temperature 0.8'):has-text('Answer:')")
        assert tab.evaluate(STATE)["race"] == before
        if by_bar:
            tab.keyboard.press("Enter")
            assert tab.input_value("[data-ref=stageTyped]") == "nvx?\n"
            tab.mouse.move(200, 300)
            tab.mouse.move(400, 300, steps=20)
            tab.click("[data-ref=stageLiveKey]")
        else:
            press(tab, "Escape")
        assert tab.locator(".pf[data-stage]").count() and tab.is_hidden("[data-ref=stagePrompt]")
    new_race(tab, before)
    assert words(tab, "titleName") == "Your prompt" and tab.input_value("#page-prompt textarea") == "nvx?\n\nAnswer:"
    tab.unroute("**/tokens")
    tab.click("[data-ref=proofOpen]")
    assert tab.is_visible("[data-ref=proof]") and tab.is_hidden("[data-ref=stageKeys]")
    tab.keyboard.press("Escape")
    assert tab.is_hidden("[data-ref=proof]") and tab.locator(".pf[data-stage]").count()
    tab.evaluate("document.querySelector('.pf').dataset.size = 'narrow'")
    assert "temperature 0.8, seed 0" in tab.inner_text("[data-ref=titleFacts]")
    for key, view in (("V", "plain"), ("M", "reading"), ("V", "reading"), ("V", "plain"), ("Home", "reading")):
        tab.evaluate(RUSSIAN) if key == "M" else press(tab, key)
        assert tab.get_attribute(".pf", "data-view") == view and tab.is_visible("[data-ref=stageHint]"), key
    press(tab, "Q")
    assert "QR code" in tab.inner_text("[data-ref=stageAddress]") and tab.is_hidden("[data-ref=stageList]")
    press(tab, "Q")
    assert tab.is_hidden("[data-ref=stageKeys]")
    tab.evaluate("window.matchMedia = window.media")
    press(tab, "Escape")


def test_every_key_on_an_own_race_and_the_page_as_it_was(open_page: Any) -> None:
    """A key without effect, or with one off the stage; hidden marks that it forgets."""
    race = with_tables(race_over(words_of(TEXT, 2), k=5), random.Random(3))
    page = open_page(1920, 1080, reduced_motion="reduce")
    page.evaluate(BUTTON)
    feed(page, race, every=90)
    page.click("[data-ref=marks]")
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
    page.evaluate("document.body.dispatchEvent(new Event('keydown', { bubbles: true }))")  # a form is filled in
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
    page.click("[data-ref=stageKeys] [data-leave]")
    assert not page.locator(".pf[data-stage]").count(), "no way out without a keyboard"
    assert page.problems == []


# ---- what can go wrong

SHOWN_INSTEAD = f"""() => {STATE}.race?.startsWith('recorded-') && document.querySelector('.pf[data-stage]')
  && document.querySelector('[data-ref=ribbon]').textContent.includes('RECORDED')
  && !document.querySelector('[data-ref=stageNote]').hidden"""
AIM_S = 3 * 2.0  # three times what it must be on a quiet machine: other tests run meanwhile
LONG = "/?prompt=Once&max_new_tokens=1000&temperature=0.9"


def on_stage(tab: Any) -> Any:
    """The tab, on the stage, with all recordings fetched."""
    tab.click("#page-stage-button")
    tab.wait_for_function(
        "num => new Set(performance.getEntriesByType('resource').map(entry => entry.name).filter(name =>"
        " name.includes('/recordings/recorded-'))).size === num",
        arg=len(load_presets()),
    )
    return tab


def instead(tab: Any, since: float) -> None:
    """The recorded race of the same example must be on the stage now, as what it is, and nothing else."""
    tab.wait_for_function(SHOWN_INSTEAD)
    assert time.monotonic() - since < AIM_S * slowness()
    assert tab.evaluate(STATE)["race"] == "recorded-csv-to-json"
    note = words(tab, "stageNote")
    assert re.fullmatch(r"Live race not possible\. Recorded race: CSV to JSON, .+, \d{4}-\d\d-\d\d", note), note
    assert not tab.locator(".toast-wrap:visible, .pf-alert:visible").count()


def live(tab: Any) -> None:
    before = tab.evaluate(STATE)["race"]
    press(tab, "Enter")
    assert new_race(tab, before, "running")


class Cable:
    """A cable to a server of this machine, to be cut and mended: a browser's own "offline" leaves streams as they are.

    url: leads to the server on that port."""

    def __init__(self, port: int) -> None:
        self._port, self._flows, self._sockets = port, threading.Event(), list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._flows.set()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self, silent: bool = False) -> None:
        """silent: nothing arrives any more, and nobody says so; else connections end and new ones are refused."""
        self._flows.clear()
        if not silent:
            self._listener.shutdown(socket.SHUT_RDWR)  # or the port stays in use until `accept` returns
            self._listener.close()
            self._end()

    def mend(self) -> None:
        self._end()
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(("127.0.0.1", int(self.url.rsplit(":", 1)[1])))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._flows.set()

    def _end(self) -> None:
        while self._sockets:
            with suppress(OSError):
                self._sockets.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here = listener.accept()[0]
                there = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while part := one.recv(65536):
                self._flows.wait()
                other.sendall(part)
        for side in (one, other):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    close = cut


def test_a_lost_connection(context: Any, server: Any) -> None:
    """ "Connection errored out" before an audience; a page that reloads with the connection; keys dead without it."""
    with closing(Cable(int(server.url.rsplit(":", 1)[1]))) as wire:
        tab = context.new_page()
        tab.set_viewport_size(HALL)
        tab.add_init_script(REPORTS)
        tab.goto(wire.url)
        loaded(tab)
        tab.evaluate("window.loadedOnce = true")
        settings(tab, Maximum_length="16")
        for cut, silent in (("after", False), ("during", False), ("during", True)):
            on_stage(tab)
            if cut == "during":
                live(tab)
            else:
                before = tab.evaluate(STATE)["race"]
                press(tab, "Enter")
                new_race(tab, before)
            wire.cut(silent)
            if cut == "after":
                tab.wait_for_timeout(1000)
                assert tab.get_attribute(".pf", "data-stage") == "verdict" and "RECORDED" not in words(tab, "ribbon")
            since = time.monotonic()
            if cut == "after":
                press(tab, "Enter")
            instead(tab, since)
            press(tab, "N")
            tab.wait_for_function(f"{STATE}.race === 'recorded-capitals'", timeout=1000 * slowness())
            assert tab.is_hidden("[data-ref=stageNote]")
            press(tab, "Enter")  # a recorded race is on the stage already
            tab.wait_for_selector("[data-ref=stageNote]:has-text('Recorded race: Capitals')")
            wire.mend()
            press(tab, "Escape")
            tab.wait_for_selector("[data-ref=alert] >> text=the connection to the server was lost")
            tab.click("[data-ref=alertClose]")
            example(tab, "CSV to JSON")
            settings(tab, Maximum_length="1000", Temperature="0.9")
        on_stage(tab)
        tab.wait_for_timeout(2500)  # Gradio looks every two seconds, and would load the page again
        assert tab.evaluate("window.loadedOnce") and tab.locator(".pf[data-stage]").count()


def test_a_race_that_is_refused_and_keys_in_a_live_one(visit: Any) -> None:
    """A refusal in Gradio's words; a live race that cannot be left for the recorded one, returns, or runs unseen."""
    tab = on_stage(visit("/?prompt=Once&seed=-5", until="model"))
    since = time.monotonic()
    press(tab, "Enter")
    instead(tab, since)
    press(tab, "Escape")
    assert "seed must be" in words(tab, "alertText")
    tab.click("[data-ref=alertClose]")
    open_settings(tab)
    tab.get_by_label("Seed", exact=True).fill("0")
    close_settings(tab)
    run_race(tab)  # a race of the page is none of the stage's
    tab.problems.clear()

    tab = on_stage(visit(LONG, until="model"))
    live(tab)
    press(tab, "R")
    tab.wait_for_function(f"{STATE}.race === 'recorded-csv-to-json'", timeout=2000 * slowness())
    assert tab.is_hidden("[data-ref=stageNote]")
    tab.wait_for_timeout(1000)
    assert tab.evaluate(STATE)["race"] == "recorded-csv-to-json", "the live race is back"
    live(tab)
    press(tab, "X")
    tab.wait_for_selector('.pf[data-stage][data-state="stopped"]')
    live(tab)
    press(tab, "Escape")
    state, stops = tab.evaluate("""() => [document.querySelector('.pf').dataset.state,
        !document.getElementById('page-stop-button').disabled]""")
    assert (state, stops) in (("running", True), ("finished", False)), "a busy machine may have let it end"
    assert not tab.locator(".pf[data-stage]").count() and end(tab)
