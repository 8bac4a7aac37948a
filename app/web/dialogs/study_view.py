"""The dialog "Your prompts": a file of prompts raced, and whether guessing pays for them. Its frames are those of
`app.jobs.study`; like the race view it is drawn in the browser, through `textContent` only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from engine.studies.prompts.prompts import MAX_PROMPTS
from engine.studies.prompts.verdict import THRESHOLD

from ...catalogue.limits import MAX_FILE_CHARS, MAX_NEW_TOKENS
from . import dialog

FOLDER = Path(__file__).parent
STUDY_VIEW_CSS = (FOLDER / "study_view.css").read_text(encoding="utf-8")
CONSTANTS = {
    "MAX_PROMPTS": MAX_PROMPTS,
    "MAX_NEW_TOKENS": MAX_NEW_TOKENS,
    "MAX_FILE_CHARS": MAX_FILE_CHARS,
    "THRESHOLD": THRESHOLD,
}


def study_view(**arguments: Any) -> gr.HTML:
    """The dialog, closed. `arguments` go to gr.HTML."""
    return dialog("study_view", CONSTANTS, **arguments)
