"""A dialog of the page as a component: its template and its program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from ..bundle import bundle
from ..component import EMPTY_TEMPLATE, PLACE_TEMPLATE

FOLDER = Path(__file__).parent


def dialog(name: str, constants: Mapping[str, Any], **arguments: Any) -> gr.HTML:
    """The dialog of `NAME.html` and `NAME.js`, closed. constants: what its program knows by these names. `arguments` go
    to gr.HTML."""
    template = (FOLDER / f"{name}.html").read_text(encoding="utf-8")
    program = PLACE_TEMPLATE.format(json.dumps(template)) + bundle(f"dialogs/{name}.js", constants=constants)
    return gr.HTML(html_template=EMPTY_TEMPLATE, js_on_load=program, apply_default_css=False, **arguments)
