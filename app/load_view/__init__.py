"""The dialog "Under load": servers asked by 1 to 200 users at once. Its frames are those of `app.load_study`; it shares
the look of the dialog "Your prompts"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr

from ..limits import MAX_NEW_TOKENS, MAX_STUDY_CHARS
from ..load_request import MAX_REQUESTS, MAX_WORDS
from ..race_view import FOLDER as SHARED
from ..race_view.component import EMPTY_TEMPLATE, PLACE_TEMPLATE

FOLDER = Path(__file__).parent
LOAD_VIEW_CSS = (FOLDER / "load_view.css").read_text(encoding="utf-8")
PROGRAMS = ((SHARED, "text.js"), (FOLDER, "curves.js"), (FOLDER, "load_view.js"))
NUMBERS = {
    "MAX_REQUESTS": MAX_REQUESTS,
    "MAX_WORDS": MAX_WORDS,
    "MAX_NEW_TOKENS": MAX_NEW_TOKENS,
    "MAX_STUDY_CHARS": MAX_STUDY_CHARS,
}


def load_view(separate: bool, **arguments: Any) -> gr.HTML:
    """The dialog, closed. separate: whether the servers are asked at the same time. `arguments` go to gr.HTML."""
    template = (FOLDER / "template.html").read_text(encoding="utf-8")
    numbers = "".join(
        f"const {name} = {json.dumps(value)};\n" for name, value in {**NUMBERS, "SEPARATE": separate}.items()
    )
    programs = [(folder / name).read_text(encoding="utf-8") for folder, name in PROGRAMS]
    program = PLACE_TEMPLATE.format(json.dumps(template)) + numbers + "\n".join(programs)
    return gr.HTML(html_template=EMPTY_TEMPLATE, js_on_load=program, apply_default_css=False, **arguments)
