"""The page in a real Chromium: what its tests do in a tab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.helpers.pageserver import Server

SHELL, BROWSER = Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium")
CHROMIUM = Path(os.environ.get("CHROMIUM") or (SHELL if SHELL.exists() else BROWSER))
"""The shell is the same browser without windows of its own: a tab opens in 0.7 s instead of 1.2."""
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
UNREADABLE = """() => {
    const number = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
      return { rgb: [r, g, b], a }; };
    const light = ({ rgb }) => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = node => { for (; node; node = node.parentElement) {
      const style = getComputedStyle(node), colour = number(style.backgroundColor);
      if (style.backgroundImage !== 'none') return null;
      if (colour.a > 0.99) return colour; } return number('rgb(255, 255, 255)'); };
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, parent = node.parentElement, style = getComputedStyle(parent);
      const range = document.createRange(); range.selectNodeContents(node);
      const { width, height } = range.getBoundingClientRect();
      if (!node.textContent.trim() || width < 2 || height < 2 || style.visibility === 'hidden'
          || parent.closest('button:disabled, .pf-sr, script, style, [hidden], .pf-unseen, .pf-newline')) continue;
      const size = parseFloat(style.fontSize), back = behind(parent), ink = number(style.color);
      const [high, low] = back ? [light(ink), light(back)].sort((a, b) => b - a) : [1, 0];
      const contrast = (high + 0.05) / (low + 0.05), large = size >= 24 || (size >= 18.5 && style.fontWeight >= 700);
      if (size < 14 || contrast < (large ? 3 : 4.5))
        found.push([node.textContent.trim().slice(0, 40), size, +contrast.toFixed(2), parent.className]);
    }
    return found; }"""
"""Texts of a page below 14 px, or below the contrast of 4.5:1 (3:1 of large letters)."""


def open_tab(tab: Any, server: Server, ready: bool = True) -> None:
    """The page, ready, for a visitor who has been here before."""
    tab.add_init_script(SEEN)
    tab.goto(server.url)
    tab.wait_for_selector("#page-race-button")
    if not ready:
        return
    tab.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)


def set_number(tab: Any, label: str, value: str) -> None:
    """Fill the number beside a slider of the side panel."""
    if not tab.locator(".sidebar.open").count():
        tab.click("#page-settings-button")
        tab.wait_for_selector(".sidebar.open")
    field = tab.get_by_label(f"number input for {label}", exact=True)
    field.fill(value)
    field.press("Tab")


def run_race(tab: Any, state: str = "finished", button: str = "#page-race-button") -> None:
    """Race, and wait for a race that was not there before (the recorded one on the page has ended too) to be in
    `state`."""
    before = tab.evaluate("window.photofinish.state.race")
    tab.click(button)
    tab.wait_for_function("before => window.photofinish.state.race !== before", arg=before, timeout=RACE_MS)
    tab.wait_for_selector(f'.pf[data-state="{state}"]', timeout=RACE_MS)
