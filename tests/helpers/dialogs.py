"""A dialog of the page in a real Chromium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.helpers.page_browser import UNREADABLE


class Dialog:
    """A dialog by the names of its parts. component: selector of what it is in."""

    def __init__(self, tab: Any, component: str) -> None:
        self.tab, self.component = tab, component

    def __getitem__(self, name: str) -> str:
        return f"{self.component} [data-ref={name}]"

    def text(self, name: str) -> str:
        return str(self.tab.inner_text(self[name]))

    def fill(self, **values: str) -> None:
        for name, value in values.items():
            self.tab.fill(self[name], value)

    def choose(self, text: str, name: str = "mine.jsonl") -> None:
        buffer = text.encode("utf-8", "surrogateescape")
        self.tab.set_input_files(self["file"], {"name": name, "mimeType": "text/plain", "buffer": buffer})

    def says(self, name: str, words: str) -> None:
        """Wait until a part says this."""
        self.tab.wait_for_function(
            "([part, words]) => document.querySelector(part).textContent.includes(words)",
            arg=[self[name], words],
        )

    def saved(self) -> Any:
        with self.tab.expect_download() as download:
            self.tab.click(self["save"])
        return json.loads(Path(download.value.path()).read_text(encoding="utf-8"))

    def can_be_read(self) -> None:
        """Also on a phone."""
        for width, height in ((1280, 800), (390, 844)):
            self.tab.set_viewport_size({"width": width, "height": height})
            assert self.tab.evaluate(f"document.querySelector('{self.component} dialog').scrollWidth <= innerWidth")
            assert self.tab.evaluate(UNREADABLE) == []
