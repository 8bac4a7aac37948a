"""The one live component of the page: two lanes, their numbers, verdict and replay, drawn in the browser from
JSON frames.

Frames are JSON strings (see `frame_json`). The folders hold the template, the style and the program, from the ground
up: `base` (values and text), `board` (the race on the screen), `tabs`, `files`, `shows` (its features), then `main.js`.
The program puts text into the page through `textContent` only, and the template holds nothing that Handlebars or a
template literal would evaluate. `components.py` makes a gr.HTML of it, `player/player.py` a page that needs no server:
nothing here needs gradio.
"""

from engine.analysis.verdict_words import to_json
from engine.drafters import words_of_all
from engine.remote.served_options import CHECKED, SERVED

from .bundle import FOLDER, bundle
from .colours import variables

# What the programs of the page know from the engine.
CONSTANTS = {"DRAFTER_WORDS": words_of_all(), "SAYS": to_json(), "CHECKED": CHECKED, "SERVED": SERVED}
SHEETS = (
    "board/frame.css",
    "board/texts.css",
    "board/panels.css",
    "tabs/step.css",
    "shows/story.css",
    "tabs/decide.css",
    "tabs/guess.css",
    "board/touch.css",
    "shows/stage.css",
)


def read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _template() -> str:
    """The board's, with the parts that have files of their own."""
    text = read("board/template.html")
    for part in ("tabs/decide.html", "shows/glossary.html"):
        text = text.replace(f"  <!-- {part.split('/')[1]} -->\n", read(part))
    return text


RACE_VIEW_TEMPLATE = _template()
# For `launch(css=...)`. Gradio drops @container, @supports and @layer rules there, and splits selectors at every comma.
RACE_VIEW_CSS = variables(".pf") + "".join(map(read, SHEETS))
PRINT_CSS = read("board/print.css")
RACE_VIEW_JS = bundle("main.js", constants=CONSTANTS)
