"""The page's own sentences and small pieces of HTML. Everything that is not constant goes through `safe`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.drafters import label
from engine.models.default_model import NAME, NOTICE
from engine.models.random_targets import PREFIX

from .catalogue import Offer, Pair, Preset
from .loader import ModelStatus

TITLE = "Photofinish"
HEADER = """
<header class="page-header">
  <div class="page-mark" aria-hidden="true"></div>
  <h1>Photofinish</h1>
  <button type="button" id="page-story-button">How it works</button>
  <button type="button" id="page-stage-button" title="For a talk: full screen, large letters, by keys. ? shows them, Esc
    leaves.">Stage</button>
  <button type="button" id="page-study-button" title="A file of your own prompts: yes or no, and why">Your
    prompts</button>
  <p>The same model writes your text twice: piece by piece, and with guesses it checks in bulk. Same text, less
  time.</p>
</header>
"""
UNDER_LOAD_BUTTON = (
    '<button type="button" id="page-load-button" title="Many users at once: what each server gives, and where guessing '
    'stops paying">Under load</button>'
)
PANEL_HEAD = """
<div class="page-panel-head"><h2 class="page-panel-title">Settings</h2>
<button type="button" id="page-panel-close">Close</button></div>
"""


def header(under_load: bool) -> str:
    """The top of the page; with a button for studies of servers in the place of the one for prompts."""
    begin, end = HEADER.index('<button type="button" id="page-study-button"'), HEADER.index("</button>\n  <p>")
    return HEADER[:begin] + UNDER_LOAD_BUTTON + HEADER[end + len("</button>") :] if under_load else HEADER


SMALL_MODEL = "A small model: fast, not clever."
RANDOM_WEIGHTS = (
    "RANDOM WEIGHTS: step times are those of this shape; the text, and how much of a draft is accepted, mean nothing."
)
WAITING_FOR_MODEL = "Race will start as soon as the model is ready."
_CODES = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "'": "&#39;",
        "$": "&#36;",
        "{": "&#123;",
        "}": "&#125;",
        "`": "&#96;",
        "\\": "&#92;",
    }
)


def safe(text: object) -> str:
    """Text as HTML in which nothing is markup, neither for a browser nor for the two template languages of gr.HTML."""
    return str(text).translate(_CODES)


def footer() -> str:
    """Whose model it is, and under which terms."""
    notice = safe(NOTICE).replace(
        "ai.google.dev/gemma/terms",
        '<a href="https://ai.google.dev/gemma/terms" target="_blank" rel="noopener">ai.google.dev/gemma/terms</a>',
    )
    return (
        f'<footer class="page-footer"><p>{notice}.</p><p>All times on this page are the engine\'s, of '
        "single steps on a device that has finished them; nothing is measured in the browser.</p></footer>"
    )


def model_line(status: ModelStatus | None) -> str:
    """The status of the model behind the page: a lamp, a sentence, a bar where the share is known."""
    if status is None:
        return _line("loading", "Looking for the best pair that this machine can run …", None)
    if status.state == "ready":
        about = SMALL_MODEL if status.target == NAME else RANDOM_WEIGHTS if status.target.startswith(PREFIX) else ""
        return _line("ready", f"{status.target} is ready. {about}".strip(), None)
    if status.state == "failed":
        return _line("failed", f"{status.target} cannot be used: {status.text}.", None)
    return _line("loading", f"{status.text[:1].upper()}{status.text[1:]} … {WAITING_FOR_MODEL}", status.share)


def _line(state: str, text: str, share: float | None) -> str:
    bar = (
        "" if share is None else f'<progress max="1" value="{share:.3f}" aria-label="Progress of the model"></progress>'
    )
    lamp = '<span class="page-lamp" aria-hidden="true"></span>'
    return f'<div class="page-model" data-state="{state}" role="status">{lamp}<span>{safe(text)}</span>{bar}</div>'


def preset_line(preset: Preset) -> str:
    """What to look for in a preset's race, and the setting that a visitor would not expect to be changed."""
    words = safe(f"Sets temperature {preset.temperature:g}. {preset.expect}" if preset.temperature else preset.expect)
    return f'<p class="page-expect" title="{words}">{words}</p>'


def drafter_choices(drafters: Sequence[str]) -> list[tuple[str, str]]:
    """(what to show, drafter) for each drafter on offer."""
    return [(label(text), text) for text in drafters]


def refused(offers: Sequence[Offer], note: str = "") -> str:
    """The pairs that cannot be chosen here, each with its reason, under a note on this machine."""
    rows = "".join(
        f"<li><strong>{safe(offer.pair.title)}</strong> <span>{safe(offer.reason)}</span>{_remote(offer.pair)}</li>"
        for offer in offers
        if offer.reason
    )
    about = f"<p>{safe(note)}</p>" if note else ""
    return f'<div class="page-refused">{about}<p>Not on offer here:</p><ul>{rows}</ul></div>' if rows else about


def _remote(pair: Pair) -> str:
    """A button that shows the commands for a race of servers; see app/race_view/remote.js."""
    if pair.target == NAME:
        return ""
    of = " ".join(f'data-{name}="{safe(getattr(pair, name))}"' for name in ("target", "drafter", "k"))
    return f'<button type="button" class="page-remote" aria-expanded="false" {of}>As a remote lane</button><div></div>'


def pair_line(pair: Pair | None) -> str:
    """What is special about this target and drafter; nothing where the field has no such pair."""
    return f'<p class="page-hint">{safe(pair.note)}</p>' if pair else ""


def charts_of(race: str, beside: Mapping[str, Any]) -> str:
    """Says to the page's program whose charts these are, and what else it needs to know of them."""
    return f'<i data-charts-of="{safe(race)}" data-beside="{safe(json.dumps(beside))}" hidden></i>'


def chart_head(title: str) -> str:
    return f'<h3 class="page-chart-title">{safe(title)}</h3>'


def chart_sentence(text: str) -> str:
    return f'<p class="page-chart-sentence">{safe(text)}</p>'


def chart_table(title: str, rows: Sequence[Sequence[str]], behind: bool) -> str:
    """Rows, the first of them the head; nothing where there are none. behind: they stand behind a figure, hidden until
    somebody asks for them."""
    if not rows:
        return ""
    head, *body = (
        "<tr>" + "".join(f"<{tag}>{safe(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False)
    )
    table = (
        f'<div class="page-chart-table" tabindex="0" role="group" aria-label="{safe(title)}"><table>'
        f"<thead>{head}</thead><tbody>{''.join(body)}</tbody></table></div>"
    )
    return f"<details><summary>Table</summary>{table}</details>" if behind else table
