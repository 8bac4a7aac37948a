"""A server with a stopwatch (timed_page.py), a Chromium, and pages that record when each frame was painted."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.cache import cache_dir
from tests.helpers.page_browser import CHROMIUM, FLAGS, SEEN
from tests.helpers.pageserver import Server, served

WAIT_MS = 240_000
NOTES = """
window.notes = { painted: [], clicks: [] };
document.addEventListener("photofinish:painted", ({ detail }) => {
  const { left, right } = window.photofinish.state.counts;
  const seen = { race: detail.race, seq: detail.seq, baseline: left, speculative: right };
  requestAnimationFrame((now) => window.notes.painted.push({ ...seen, at: now / 1000 }));
});
document.addEventListener("click", (event) => {
  window.notes.clicks.push({ on: event.target.closest("button")?.id, at: performance.now() / 1000 });
}, true);
"""


class Session:
    """A server with its log, a browser, and ways to run races in it."""

    def __init__(self, server: Server, log: Path, browser: Any) -> None:
        self.server, self.log, self.browser = server, log, browser

    def page(self, **settings: int) -> Any:
        """A new visitor, with the model ready and these settings."""
        tab = self.browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
        tab.add_init_script(SEEN + NOTES)
        self.visit(tab, **settings)
        return tab

    def visit(self, tab: Any, **settings: int) -> None:
        tab.goto(self.server.url)
        tab.wait_for_selector('.page-model[data-state="ready"]', timeout=WAIT_MS)
        tab.click("#page-settings-button")
        tab.wait_for_selector(".sidebar.open")
        for label, value in settings.items():
            field = tab.get_by_label(f"number input for {label.replace('_', ' ')}", exact=True)
            field.fill(str(value))
            field.press("Tab")
        tab.keyboard.press("Escape")

    def race(self, tab: Any, state: str = "finished") -> None:
        tab.click("#page-race-button")
        self.until(tab, "running")
        self.until(tab, state)

    def until(self, tab: Any, *states: str) -> None:
        tab.wait_for_function(
            "states => states.includes(window.photofinish.state.state) && window.photofinish.state.race?.length === 16",
            arg=list(states),
            timeout=WAIT_MS,
        )

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def record_after(self, count: int) -> dict[str, Any]:
        """Wait for the first race that is logged after `count` others."""
        ends = time.monotonic() + WAIT_MS / 1000
        while len(found := self.records()) <= count:
            assert time.monotonic() < ends, "the race was never logged"
            time.sleep(0.05)
        return found[count]

    def unwatched(self) -> dict[str, Any]:
        """The last race again, with nobody watching."""
        count = len(self.records())
        self.server.process.stdin.write("again\n")
        self.server.process.stdin.flush()
        return self.record_after(count)


@contextmanager
def session(arguments: list[str]) -> Iterator[Session]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "races.jsonl")
        script = ("-m", "tools.page_bars.timed_page", str(log))
        with (
            served(cache_dir(), *arguments, script=script, log=Path(folder, "output")) as server,
            sync_playwright() as driver,
        ):
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            yield Session(server, log, browser)
            browser.close()


def offset(tab: Any) -> float:
    """What to add to the page's performance.now() to get CLOCK_MONOTONIC. Taken from the fastest of many pings, and
    accurate to half of it."""
    pings = []
    for _ in range(60):
        before = time.monotonic()
        there = tab.evaluate("performance.now() / 1000")
        after = time.monotonic()
        pings.append((after - before, (before + after) / 2 - there))
    return min(pings)[1]
