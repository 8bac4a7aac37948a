"""The dialog "Your prompts": a file of prompts raced, and whether guessing pays for them. Its frames are those of
`app.study`; like the race view it is drawn in the browser, through `textContent` only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr

from engine.traffic.prompts import MAX_PROMPTS
from engine.traffic.verdict import THRESHOLD

from ..limits import MAX_NEW_TOKENS, MAX_STUDY_CHARS
from ..race_view import FOLDER as SHARED
from ..race_view.component import EMPTY_TEMPLATE, PLACE_TEMPLATE

FOLDER = Path(__file__).parent
STUDY_VIEW_CSS = (FOLDER / "study_view.css").read_text(encoding="utf-8")
PROGRAMS = ((SHARED, "text.js"), (FOLDER, "results.js"), (FOLDER, "study_view.js"))
NUMBERS = {
    "MAX_PROMPTS": MAX_PROMPTS,
    "MAX_NEW_TOKENS": MAX_NEW_TOKENS,
    "MAX_STUDY_CHARS": MAX_STUDY_CHARS,
    "THRESHOLD": THRESHOLD,
}


def study_view(**arguments: Any) -> gr.HTML:
    """The dialog, closed. `arguments` go to gr.HTML."""
    template = (FOLDER / "template.html").read_text(encoding="utf-8")
    numbers = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in NUMBERS.items())
    programs = [(folder / name).read_text(encoding="utf-8") for folder, name in PROGRAMS]
    program = PLACE_TEMPLATE.format(json.dumps(template)) + numbers + "\n".join(programs)
    return gr.HTML(html_template=EMPTY_TEMPLATE, js_on_load=program, apply_default_css=False, **arguments)
