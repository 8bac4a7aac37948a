"""The one live component of the page: two lanes, their numbers, verdict, chart and replay, drawn in the browser from JSON frames.

Frames are JSON strings (see `frame_json`); the files beside this one hold the template, the style and the program. The program gets at text through
`textContent` only, and the template holds nothing that Handlebars or a template literal would evaluate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

FOLDER = Path(__file__).parent
SCRIPTS = ("text.js", "model.js", "check.js", "lanes.js", "chart.js", "replay.js", "board.js", "race_view.js", "files.js")
"""In the order in which they are concatenated: later ones use earlier ones."""


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


RACE_VIEW_TEMPLATE = _read("template.html")
RACE_VIEW_CSS = _read("race_view.css")
"""For `launch(css=...)`. Gradio drops @container, @supports and @layer rules there, and splits selectors at every comma."""
RACE_VIEW_JS = '"use strict";\n' + "\n".join(map(_read, SCRIPTS))


def race_view(value: str | None = None, **arguments: Any) -> gr.HTML:
    """A new race view. `value` is a frame to begin with; `arguments` go to gr.HTML (elem_id, visible, ...). Its style is RACE_VIEW_CSS."""
    return gr.HTML(value=value, html_template=RACE_VIEW_TEMPLATE, js_on_load=RACE_VIEW_JS, apply_default_css=False, **arguments)


def frame_json(frame: Mapping[str, Any]) -> str:
    """A frame as the component takes it: one JSON string, finite numbers only, with `<` escaped (gr.HTML warns of script tags in its values)."""
    return json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
