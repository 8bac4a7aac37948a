"""The dialog "Under load": servers asked by 1 to 200 users at once. Its frames are those of `app.load_study`; it shares
the look of the dialog "Your prompts"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from ..dialog import dialog
from ..limits import MAX_NEW_TOKENS, MAX_STUDY_CHARS
from ..load_request import MAX_REQUESTS, MAX_WORDS

FOLDER = Path(__file__).parent
LOAD_VIEW_CSS = (FOLDER / "load_view.css").read_text(encoding="utf-8")
CONSTANTS = {
    "MAX_REQUESTS": MAX_REQUESTS,
    "MAX_WORDS": MAX_WORDS,
    "MAX_NEW_TOKENS": MAX_NEW_TOKENS,
    "MAX_STUDY_CHARS": MAX_STUDY_CHARS,
}


def load_view(separate: bool, **arguments: Any) -> gr.HTML:
    """The dialog, closed. separate: whether the servers are asked at the same time. `arguments` go to gr.HTML."""
    return dialog(FOLDER, ("curves.js", "load_view.js"), {**CONSTANTS, "SEPARATE": separate}, **arguments)
