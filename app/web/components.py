"""What the page draws in the browser, as a component of Gradio: the race view, with "Try it on yours"."""

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr

from engine.doctor import NUM_PROMPTS
from engine.recordings.words import ROUNDING
from engine.studies.load.data import WARM_UP
from engine.studies.load.pays_under_load import NOISE
from engine.studies.prompts.pays_words import LEAST
from engine.studies.prompts.prompts import MAX_PROMPTS

from ..catalogue.limits import MAX_FILE_CHARS
from ..catalogue.request import MAX_REQUESTS, MAX_WORDS
from . import CONSTANTS, RACE_VIEW_TEMPLATE, read
from .bundle import bundle
from .colours import variables

YOURS_CSS = read("yours/yours.css") + read("yours/results.css")
REPORT_CSS = "".join(map(read, ("board/panels.css", "yours/results.css", "yours/report.css")))
LIMITS = {
    "LEAST": LEAST, "MAX_FILE_CHARS": MAX_FILE_CHARS, "MAX_PROMPTS": MAX_PROMPTS, "MAX_REQUESTS": MAX_REQUESTS,
    "MAX_WORDS": MAX_WORDS, "NOISE": NOISE, "NUM_PROMPTS": NUM_PROMPTS, "BY_ROUNDING": ROUNDING, "WARM_UP": WARM_UP,
    "REPORT_CSS": variables(":root", "light") + REPORT_CSS,  # of a result saved as a page
}  # fmt: skip
# Gradio compiles a component's template again at every frame, so it gets an empty one, and the program puts the real
# one in place, once.
EMPTY = "<div></div>"
IN_PLACE = '"use strict";\nelement.replaceChildren(document.createRange().createContextualFragment({}));\n'


def race_view(value: str, max_new_tokens: int, allowed: Mapping[str, bool], **arguments: Any) -> gr.HTML:
    """A race view that begins with the frame `value`. Further arguments go to gr.HTML.

    max_new_tokens: the page's limit on an answer.
    allowed: whether its visitors may name a model and servers of their `own`, and ask for `studies`."""
    template = RACE_VIEW_TEMPLATE + read("yours/yours.html")
    constants = {"MAX_NEW_TOKENS": max_new_tokens, "ALLOWED": dict(allowed)}
    program = bundle("page.js", constants=CONSTANTS | LIMITS | constants)
    script = IN_PLACE.format(json.dumps(template)) + program
    return gr.HTML(value=value, html_template=EMPTY, js_on_load=script, apply_default_css=False, **arguments)
