"""A dialog of the page as a component: a folder's template and programs, with what all dialogs share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from ..race_view import FOLDER as SHARED
from ..race_view.component import EMPTY_TEMPLATE, PLACE_TEMPLATE

DIALOG_JS = Path(__file__).parent / "dialog.js"


def dialog(folder: Path, programs: Sequence[str], constants: Mapping[str, Any], **arguments: Any) -> gr.HTML:
    """The dialog of `template.html`, closed. programs: files of the folder, in their order. constants: what they know
    by these names. `arguments` go to gr.HTML."""
    template = (folder / "template.html").read_text(encoding="utf-8")
    known = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in constants.items())
    files = [SHARED / "text.js", DIALOG_JS, *(folder / name for name in programs)]
    texts = [PLACE_TEMPLATE.format(json.dumps(template)) + known, *(each.read_text(encoding="utf-8") for each in files)]
    return gr.HTML(html_template=EMPTY_TEMPLATE, js_on_load="\n".join(texts), apply_default_css=False, **arguments)
