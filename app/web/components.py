"""What the page draws in the browser, as components of Gradio: the race view and the dialogs. Their arguments go to
gr.HTML (elem_id, visible, ...)."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from engine.doctor.defaults import NUM_PROMPTS
from engine.recordings.words import ROUNDING
from engine.studies.load.data import WARM_UP
from engine.studies.load.pays_under_load import NOISE, ROUGH
from engine.studies.prompts.prompts import MAX_PROMPTS

from ..catalogue.limits import MAX_FILE_CHARS
from ..catalogue.load_request import MAX_REQUESTS, MAX_WORDS
from . import CONSTANTS, RACE_VIEW_JS, RACE_VIEW_TEMPLATE
from .bundle import FOLDER, bundle
from .colours import variables

DIALOGS = FOLDER / "dialogs"
_SHEETS = {name: (DIALOGS / f"{name}.css").read_text(encoding="utf-8") for name in ("dialogs", "results", "report")}
DIALOGS_CSS = _SHEETS["dialogs"] + _SHEETS["results"]
# The style sheet of a result that is saved as a page.
REPORT_CSS = variables(":root", "light") + _SHEETS["results"] + _SHEETS["report"]
# Gradio compiles a component's template again at every frame, so it gets an empty one, and the program puts the real
# one in place, once.
EMPTY = "<div></div>"
IN_PLACE = '"use strict";\nelement.replaceChildren(document.createRange().createContextualFragment({}));\n'


def race_view(value: str, **arguments: Any) -> gr.HTML:
    """A race view that begins with the frame `value`."""
    return _component(RACE_VIEW_TEMPLATE, RACE_VIEW_JS, value=value, **arguments)


def study_view(max_new_tokens: int, **arguments: Any) -> gr.HTML:
    """The dialog for a study of prompts, closed. Its frames are those of `app.jobs.studies`. max_new_tokens: the page's
    limit on an answer."""
    limits = {"MAX_NEW_TOKENS": max_new_tokens, "MAX_PROMPTS": MAX_PROMPTS}
    return _dialog("study_view", arguments, **limits, REPORT_CSS=REPORT_CSS)


def checkup_view(**arguments: Any) -> gr.HTML:
    """The dialog for a check-up of a pair, closed. Its frames are those of `app.jobs.checkups`."""
    return _dialog("checkup_view", arguments, NUM_PROMPTS=NUM_PROMPTS, ROUNDING=ROUNDING, REPORT_CSS=REPORT_CSS)


def load_view(separate: bool | None, max_new_tokens: int, **arguments: Any) -> gr.HTML:
    """The dialog for a study of servers, closed. Its frames are those of `app.jobs.load`. separate: whether the servers
    are asked at the same time; None: not known yet. max_new_tokens: the page's limit on an answer."""
    constants: dict[str, Any] = {"MAX_NEW_TOKENS": max_new_tokens, "MAX_REQUESTS": MAX_REQUESTS, "ROUGH": ROUGH}
    constants |= {"MAX_WORDS": MAX_WORDS, "SEPARATE": separate, "WARM_UP": WARM_UP}
    return _dialog("load_view", arguments, **constants, NOISE=NOISE, REPORT_CSS=REPORT_CSS)


def door_view(name: str, own: bool, **arguments: Any) -> gr.HTML:
    """The dialog "your-model" or "your-servers", closed. own: its owner can use it; others get a command."""
    return _dialog(name.replace("-", "_"), arguments, OWN=own)


def _dialog(name: str, arguments: dict[str, Any], **constants: Any) -> gr.HTML:
    template = (DIALOGS / f"{name}.html").read_text(encoding="utf-8")
    known = CONSTANTS | {"MAX_FILE_CHARS": MAX_FILE_CHARS} | constants
    return _component(template, bundle(f"dialogs/{name}.js", constants=known), **arguments)


def _component(template: str, program: str, **arguments: Any) -> gr.HTML:
    script = IN_PLACE.format(json.dumps(template)) + program
    return gr.HTML(html_template=EMPTY, js_on_load=script, apply_default_css=False, **arguments)
