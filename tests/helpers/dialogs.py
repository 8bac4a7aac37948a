"""The dialog "Try it on yours" in a real Chromium."""

import json
from pathlib import Path
from typing import Any

from tests.helpers.page_browser import UNREADABLE


class Dialog:
    """The dialog by the names of its parts. kind: of the result whose parts come first."""

    def __init__(self, tab: Any, kind: str = "") -> None:
        self.tab, self.kind = tab, kind
        self._own = set[str]()

    def open(self, **choices: str) -> None:
        """Open it, and choose in its steps: what, prompts, question."""
        self.tab.click("#page-yours-button")
        for step, value in choices.items():
            self.tab.check(f"#page-yours [name={step}][value={value}]")

    def __getitem__(self, name: str) -> str:
        if self.kind and not self._own:
            parts = f"#page-yours [data-kind={self.kind}] [data-ref]"
            self._own = set(self.tab.locator(parts).evaluate_all("all => all.map(part => part.dataset.ref)"))
        if name == "result":
            return f"#page-yours [data-kind={self.kind}]"
        if name in self._own:
            return f"#page-yours [data-kind={self.kind}] [data-ref={name}]"
        return f"#page-yours [data-ref={name}]:not([data-kind] *)"

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
        holds = "([part, words]) => document.querySelector(part).textContent.includes(words)"
        self.tab.wait_for_function(holds, arg=[self[name], words])

    def saved(self) -> Any:
        with self.tab.expect_download() as download:
            self.tab.click(self["save"])
        return json.loads(Path(download.value.path()).read_text(encoding="utf-8"))

    def can_be_read(self) -> None:
        """Also on a phone."""
        for width, height in ((1280, 800), (390, 844)):
            self.tab.set_viewport_size({"width": width, "height": height})
            assert self.tab.evaluate("document.querySelector('#page-yours').scrollWidth <= innerWidth")
            assert self.tab.evaluate(UNREADABLE) == []
