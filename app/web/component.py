"""The race view as a component of a Gradio page."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from . import RACE_VIEW_JS, RACE_VIEW_TEMPLATE

EMPTY_TEMPLATE = "<div></div>"
"""Gradio compiles its template again at every frame, so it gets an empty one, and the program puts the real one in
place, once."""
PLACE_TEMPLATE = '"use strict";\nelement.replaceChildren(document.createRange().createContextualFragment({}));\n'


def race_view(value: str | None = None, **arguments: Any) -> gr.HTML:
    """A new race view. `value` is a frame to begin with; `arguments` go to gr.HTML (elem_id, visible, ...). Its style
    is RACE_VIEW_CSS."""
    program = PLACE_TEMPLATE.format(json.dumps(RACE_VIEW_TEMPLATE)) + RACE_VIEW_JS
    return gr.HTML(value=value, html_template=EMPTY_TEMPLATE, js_on_load=program, apply_default_css=False, **arguments)
