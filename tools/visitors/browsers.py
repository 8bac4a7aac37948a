"""Visitors with a real Chromium: they race by clicks, and do what must cost the server nothing."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers import ROOT
from tests.helpers.page_browser import CHROMIUM, FLAGS, LOAD_MS, SEEN, loaded, settings, to_end, watched
from tests.helpers.race_pages import SETTLED, SLIDE

RACE_MS = 300_000
RACE = ROOT / "assets" / "races" / "csv_to_json.json"
OF_ITS_OWN = "/recordings/recorded-"
"""What the page fetches in the background, once: the examples' races."""
FREE = "open", "replay", "slider", "story", "export", "save"
"""Phases that may not reach the queue; the first opens a file, and the fifth fetches one."""


@dataclass
class Tours:
    """races: by how they ended. requests: by phase, method and path, of a call to the queue the function's name.
    problems: errors of scripts or in the console, and phases that failed."""

    num: int = 0
    races: Counter[str] = field(default_factory=Counter)
    requests: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def queued(self) -> int:
        """Calls to the queue in phases that must have none."""
        return sum(num for phase in FREE for what, num in self.requests.get(phase, {}).items() if "queue" in what)


class Browser:
    """One visitor, in a thread of its own."""

    def __init__(self, url: str, number: int, seed: int, until: float, tours: Tours):
        self._url, self._rng, self._until, self._tours = url, random.Random(f"browser {seed} {number}"), until, tours
        self._phase, self._functions = "load", dict[int, str]()

    def run(self) -> None:
        from playwright.sync_api import Error, sync_playwright

        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
            while time.time() < self._until:
                context = browser.new_context(viewport={"width": 1280, "height": 800})
                tab = watched(context.new_page(), self._url)
                tab.on("request", self._note)
                tab.add_init_script(SEEN)
                try:
                    self._tour(tab)
                    self._tours.num += 1
                except (Error, AssertionError) as error:
                    self._tours.problems.append(f"{self._phase}: {str(error)[:300]}")
                self._tours.problems += tab.problems
                context.close()
            browser.close()

    def _note(self, request: Any) -> None:
        path = request.url.removeprefix(self._url).partition("?")[0]
        if path.startswith(("data:", "blob:", "/assets", "/static", OF_ITS_OWN)):
            return
        if path.endswith("/queue/join"):
            path += " " + self._functions.get(json.loads(request.post_data or "{}").get("fn_index"), "")
        elif path.startswith("/recordings/"):
            path = "/recordings/KEY" + Path(path).suffix
        self._tours.requests.setdefault(self._phase, Counter())[f"{request.method} {path}"] += 1

    def _tour(self, tab: Any) -> None:
        self._phase = "load"
        tab.goto(self._url)
        loaded(tab)
        config = tab.evaluate("fetch('config').then(answer => answer.json())")
        self._functions = {each["id"]: str(each["api_name"]) for each in config["dependencies"]}
        self._phase = "race"
        settings(tab, Maximum_length=str(self._rng.choice((16, 32, 48))))
        for _ in range(2):
            before = tab.evaluate("window.photofinish.state.race")
            tab.click("#page-race-button")
            tab.wait_for_function(
                "before => { const { race, state } = window.photofinish.state; return race !== before"
                " && ['finished', 'stopped', 'failed'].includes(state); }",
                arg=before,
                timeout=RACE_MS,
            )
            self._tours.races[tab.evaluate("window.photofinish.state.state")] += 1
            tab.wait_for_selector("#page-race-button:enabled", timeout=LOAD_MS)
            tab.wait_for_timeout(1_500)  # its extras
        acts = self._open, self._replay, self._slide, self._story, self._export, self._save
        for self._phase, act in zip(FREE, acts, strict=True):
            act(tab)
            tab.wait_for_timeout(self._rng.uniform(300, 2_000))
        self._phase = "leave"

    def _open(self, tab: Any) -> None:
        tab.set_input_files("[data-ref=file]", RACE)
        tab.wait_for_function("name => window.photofinish.state.race === `file:${name}`", arg=RACE.name)

    def _replay(self, tab: Any) -> None:
        to_end(tab)
        tab.click("[data-ref=play]")
        tab.wait_for_timeout(2_000)
        to_end(tab)

    def _slide(self, tab: Any) -> None:
        tab.click("[data-tab=whatif]")
        tab.wait_for_selector("[data-ref=whatIfK]:enabled", timeout=LOAD_MS)
        for place in range(6):
            tab.evaluate(SLIDE, str(place))
            tab.evaluate(SETTLED)

    def _story(self, tab: Any) -> None:
        tab.focus("#page-story-button")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("[data-ref=story]", timeout=LOAD_MS)
        for _ in range(12):
            if tab.text_content("[data-ref=storyNext]") == "Done":
                break
            tab.keyboard.press("ArrowRight")
            tab.wait_for_timeout(200)
        tab.keyboard.press("Escape")
        tab.wait_for_selector("[data-ref=story]", state="hidden", timeout=LOAD_MS)

    def _export(self, tab: Any) -> None:
        tab.evaluate("document.querySelector('[data-ref=share]').open = true")
        self._save(tab, "savePage")
        tab.evaluate("document.querySelector('[data-ref=share]').open = false")

    def _save(self, tab: Any, button: str = "save") -> None:
        with tab.expect_download(timeout=LOAD_MS) as download:
            tab.click(f"[data-ref={button}]")
        assert Path(download.value.path()).stat().st_size > 10_000
