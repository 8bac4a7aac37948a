"""The dialog "Your prompts": a file of prompts raced, and whether guessing pays for them. Its frames are those of
`app.study`; like the race view it is drawn in the browser, through `textContent` only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from engine.traffic.prompts import MAX_PROMPTS
from engine.traffic.verdict import THRESHOLD

from ..dialog import dialog
from ..limits import MAX_NEW_TOKENS, MAX_STUDY_CHARS

FOLDER = Path(__file__).parent
STUDY_VIEW_CSS = (FOLDER / "study_view.css").read_text(encoding="utf-8")
CONSTANTS = {
    "MAX_PROMPTS": MAX_PROMPTS,
    "MAX_NEW_TOKENS": MAX_NEW_TOKENS,
    "MAX_STUDY_CHARS": MAX_STUDY_CHARS,
    "THRESHOLD": THRESHOLD,
}


def study_view(**arguments: Any) -> gr.HTML:
    """The dialog, closed. `arguments` go to gr.HTML."""
    return dialog(FOLDER, ("results.js", "study_view.js"), CONSTANTS, **arguments)
