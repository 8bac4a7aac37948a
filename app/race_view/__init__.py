"""The one live component of the page: two lanes, their numbers, verdict, chart and replay, drawn in the browser from
JSON frames.

Frames are JSON strings (see `frame_json`); the files beside this one hold the template, the style and the program. The
program gets at text through `textContent` only, and the template holds nothing that Handlebars or a template literal
would evaluate. `component.py` makes a gr.HTML of it, `app/player.py` a page that needs no server: nothing here needs
gradio.
"""

from __future__ import annotations

import json
from pathlib import Path

from engine.drafters import words_of_all

from ..colours import variables
from ..view import frame_json as frame_json

FOLDER = Path(__file__).parent
SCRIPTS = (
    "text.js",
    "model.js",
    "whatif.js",
    "caveats.js",
    "money.js",
    "production.js",
    "shapes.js",
    "check_beside.js",
    "check.js",
    "lanes.js",
    "chart.js",
    "replay.js",
    "board.js",
    "step.js",
    "dice.js",
    "step_view.js",
    "race_view.js",
    "card.js",
    "whatif_tab.js",
    "more_lanes.js",
    "cheats.js",
    "step_tab.js",
    "guess.js",
    "guess_tab.js",
    "decide_tab.js",
    "tabs.js",
    "page.js",
    "share.js",
    "picture.js",
    "export.js",
    "remote.js",
    "opening.js",
    "story_cards.js",
    "story.js",
    "stage.js",
    "files.js",
)
"""In the order in which they are concatenated: later ones use earlier ones."""
SHEETS = (
    "frame.css",
    "texts.css",
    "panels.css",
    "onestep.css",
    "opening.css",
    "story.css",
    "decide.css",
    "guess.css",
    "stage.css",
)


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


RACE_VIEW_TEMPLATE = _read("template.html").replace("  <!-- decide.html -->\n", _read("decide.html"))
RACE_VIEW_CSS = variables(".pf") + "".join(map(_read, SHEETS))
"""For `launch(css=...)`. Gradio drops @container, @supports and @layer rules there, and splits selectors at every
comma."""
RACE_VIEW_JS = "\n".join(
    ['"use strict";', f"const DRAFTER_WORDS = {json.dumps(words_of_all())};", *map(_read, SCRIPTS)]
)
