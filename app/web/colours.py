"""Every colour of the page, once, by what it means: style sheets get them as variables, Gradio's theme and plotly read
them here. A test keeps them out of all other files. Standard library only."""

from typing import Literal, NamedTuple

BLUE, SKY, ORANGE, GREEN, MINT, AMBER = "#0072b2", "#56b4e9", "#e69f00", "#009e73", "#2fc797", "#f2ac1e"
WHITE, BLACK, PALE, MIDDLE = "#ffffff", "#0a0c0f", "#d5dade", "#808691"
CLEAR = "rgba(0,0,0,0)"

BLUES = (
    *("#eaf4fb", "#cfe6f6", "#a3cfee", "#6fb4e2", "#3c97d3"),
    BLUE,
    *("#00629a", "#004f7d", "#003e62", "#002c46", "#001c2e"),
)
INKS = (
    *("#f7f6f3", "#efede8", "#e2dfd8", "#cbc7bd", "#9c988e", "#75736d"),
    *("#555c65", "#2f3740", "#20262d", "#12161b", "#0d1014"),
)  # the theme's two scales, from light to dark: Gradio's shades 50, 100, 200, ..., 900, 950

VERIFY = KEPT = BLUE
DRAFT = ORANGE
REACHED = GREEN
PLAIN_STEP = FIGURE_TEXT = MIDDLE
# Plotly's figures, the same in light and dark: bars of the two parts of a step, of draft tokens kept and, where the
# draft got so far, reached; plain decoding; text; the grid.
GRID = f"rgba({','.join(str(int(MIDDLE[i : i + 2], 16)) for i in (1, 3, 5))},0.25)"


class Colour(NamedTuple):
    """One meaning's colour on a light page and on a dark one."""

    light: str
    dark: str


def _both(value: str) -> Colour:
    return Colour(value, value)


COLOURS = {
    # the page
    "page": Colour(INKS[0], INKS[-1]),
    "ink": Colour("#15181c", "#ebe8e1"),
    "soft": Colour(INKS[6], "#9da5ae"),
    "soft-contrast": Colour("#2a2f35", PALE),
    "paper": Colour(WHITE, INKS[9]),
    "line": Colour("#d8d5cd", "#2c333b"),
    "line-contrast": Colour("#6a7078", "#8a939c"),
    "focus": Colour(BLUE, "#8fd0f7"),
    "shadow": _both("rgb(0 0 0 / 0.28)"),
    "shade": _both("#0000005c"),
    "model-loading": _both(ORANGE),
    "model-ready": _both(GREEN),
    "model-failed": _both("#d55e00"),
    # tokens
    "accepted": Colour(BLUE, SKY),
    "accepted-bg": Colour("#e4f1fa", "#10283a"),
    "rejected": Colour("#b04300", "#f08a52"),
    "correction": Colour("#c07f00", ORANGE),
    "correction-bg": Colour("#fdf1d8", "#372807"),
    "bonus": Colour("#00805d", MINT),
    "bonus-bg": Colour("#dff4ec", "#07332a"),
    # states of a race
    "running": _both(MINT),
    "caution": _both(AMBER),
    "caution-words": Colour("#8a5a00", ORANGE),
    "fault": Colour("#b3261e", "#ff8a75"),
    "fault-bg": Colour("#fdf1ef", "#221311"),
    "ribbon": _both(AMBER),
    "ribbon-stripe": _both("#e39a06"),
    "ribbon-ink": _both("#16120a"),
    # the board and the track, dark on either page
    "board": _both(BLACK),
    "board-line": _both("#262c33"),
    "board-ink": _both("#f3f0e8"),
    "board-soft": _both("#98a1ab"),
    "board-soft-contrast": _both(PALE),
    "board-empty": _both("#3d454e"),
    "speculative": _both(SKY),
    "baseline": _both("#b9c0c8"),
    "baseline-gap": _both(MIDDLE),
    "rail": _both("#1a1f25"),
    # buttons
    "hover": Colour("#eeece6", "#222a32"),
    "pressed": Colour("#dfe9f0", "#24394a"),
    "play-ink": Colour(WHITE, BLACK),
    "play-hover": Colour("#3a4048", WHITE),
    # the two texts
    "baseline-edge": _both("#8d959d"),
    "step-seam": Colour("#a9b0b7", "#525b64"),
}  # name -> the variable --name of the style sheets


def variables(selector: str, always: Literal["light"] | None = None) -> str:
    """A rule that gives every colour to what `selector` selects and all below it. Which of two colours holds is decided
    by `color-scheme` where it is used, or `always`."""
    values = ((name, *((pair.light,) * 2 if always else pair)) for name, pair in COLOURS.items())
    given = (f"--{name}: {light if light == dark else f'light-dark({light}, {dark})'};" for name, light, dark in values)
    return f"{selector} {{\n  " + "\n  ".join(given) + "\n}\n"
