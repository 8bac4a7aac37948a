"""The dialog "Under load": servers asked by 1 to 200 users at once. Its frames are those of `app.jobs.load`; it shares
the look of the dialog "Your prompts"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from ...catalogue.limits import MAX_FILE_CHARS, MAX_NEW_TOKENS
from ...catalogue.load_request import MAX_REQUESTS, MAX_WORDS
from . import dialog

FOLDER = Path(__file__).parent
LOAD_VIEW_CSS = (FOLDER / "load_view.css").read_text(encoding="utf-8")
CONSTANTS = {
    "MAX_REQUESTS": MAX_REQUESTS,
    "MAX_WORDS": MAX_WORDS,
    "MAX_NEW_TOKENS": MAX_NEW_TOKENS,
    "MAX_FILE_CHARS": MAX_FILE_CHARS,
}


def load_view(separate: bool, **arguments: Any) -> gr.HTML:
    """The dialog, closed. separate: whether the servers are asked at the same time. `arguments` go to gr.HTML."""
    return dialog("load_view", {**CONSTANTS, "SEPARATE": separate}, **arguments)
