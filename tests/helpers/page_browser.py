"""The page in a real Chromium: what its tests do in a tab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.helpers.pageserver import Server

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
RACE_MS = 90_000
SEEN = "try { localStorage.setItem('photofinish.opening', 'seen') } catch {}"
"""For `add_init_script`: a visitor who has seen the page's opening. A page without an address has no storage."""


def open_tab(tab: Any, server: Server) -> None:
    """The page, ready, for a visitor who has been here before."""
    tab.add_init_script(SEEN)
    tab.goto(server.url)
    tab.wait_for_selector("#page-race-button")
    tab.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)


def set_number(tab: Any, label: str, value: str) -> None:
    """Fill the number beside a slider of the side panel."""
    if not tab.locator(".sidebar.open").count():
        tab.click("#page-settings-button")
        tab.wait_for_selector(".sidebar.open")
    field = tab.get_by_label(f"number input for {label}", exact=True)
    field.fill(value)
    field.press("Tab")


def run_race(tab: Any, state: str = "finished") -> None:
    """Race, and wait for a race that was not there before (the recorded one on the page has ended too) to be in
    `state`."""
    before = tab.evaluate("window.photofinish.state.race")
    tab.click("#page-race-button")
    tab.wait_for_function("before => window.photofinish.state.race !== before", arg=before, timeout=RACE_MS)
    tab.wait_for_selector(f'.pf[data-state="{state}"]', timeout=RACE_MS)
