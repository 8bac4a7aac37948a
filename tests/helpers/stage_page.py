"""The stage in a browser: what an audience cannot read, its keys, and the scripts of docs/stage.md."""

from __future__ import annotations

import re
from typing import Any

from tests.helpers import ROOT
from tests.helpers.race_pages import SETTLED

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


def script(title: str) -> list[tuple[list[str], list[str], str]]:
    """For each row of a script in docs/stage.md: its keys, what is on the screen, and what is said."""
    part = (ROOT / "docs" / "stage.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if re.match(r"\| \d", line)]
    return [(re.findall("`(.+?)`", keys), re.findall("`(.+?)`", shown), said) for _, keys, shown, said in rows]


def press(page: Any, key: str) -> None:
    page.keyboard.press(KEYS.get(key, key.lower() if len(key) == 1 else key))
    page.evaluate(SETTLED)


def fits(page: Any, where: str) -> None:
    assert not (found := page.evaluate(UNSEEN)), (where, found)
