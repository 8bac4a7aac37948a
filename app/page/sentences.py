"""The page's own sentences and small pieces of HTML. Everything that is not constant goes through `safe`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.errors import short
from engine.core.spec import RANDOM
from engine.drafters import label
from engine.kernels.usable import RUN
from engine.loading.default_model import NAME, NOTICE

from ..catalogue.catalogue import Offer, Pair, Preset
from ..catalogue.fits import SERVER
from ..jobs.loader import ModelStatus

TITLE = "Photofinish"
SLOGAN = "A language model writes one text twice: token by token, and by guessing ahead and checking."
HEADER = f"""
<header class="page-header">
  <div class="page-mark" aria-hidden="true"></div>
  <h1>Photofinish</h1>
  <button type="button" id="page-menu-button" aria-expanded="false">Menu</button>
  <button type="button" id="page-story-button">How it works</button>
  <button type="button" id="page-stage-button" title="For talks: full screen, large type, keyboard control. ? lists the
    keys, Esc leaves.">Stage</button>
  <button type="button" id="page-yours-button" data-yours title="Your prompts, your model, your servers: does it pay,
    also under load, and what makes it slow or wrong?">Try it on yours</button>
  <p>{SLOGAN}</p>
</header>
"""
PANEL_HEAD = """
<div class="page-panel-head"><h2 class="page-panel-title">Settings</h2>
<button type="button" id="page-panel-close">Close</button></div>
"""
SMALL_MODEL = "A small model: fast, not smart."
REFUSED = "Not on offer here; a server of yours can race them (“Try it on yours”):"
RANDOM_WEIGHTS = (
    "RANDOM WEIGHTS: step times are realistic for this size; the text and the share of guesses kept mean nothing."
)
LOOKING = "Finding the best model and drafter for this machine. The first start after an install can take minutes …"
WAITING_FOR_MODEL = "You can race as soon as the model is ready."
LOADED_LATER = "{} is loaded for its next race."
_CODES = str.maketrans({sign: f"&#{ord(sign)};" for sign in "&<>\"'${}`\\"})


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
        f'<footer class="page-footer"><p>{notice}.</p><p>Times are measured in the engine, step by step, after the '
        "device has finished. A server's times are those at which its text reached the engine. Nothing is measured "
        "in the browser. "
        '<button type="button" data-glossary>Glossary</button></p></footer>'
    )


def model_line(status: ModelStatus | None, chosen: str = "") -> str:
    """The status of the model behind the page: a lamp, a sentence, a bar where the share is known, a note on the
    device. chosen: the target that the next race needs, which may not be the one that is loaded."""
    if status is None:
        return _line("loading", LOOKING)
    if status.state == "ready" and chosen not in ("", status.target):
        return _line("idle", LOADED_LATER.format(chosen), note=status.note)
    if status.state == "ready":
        about = SMALL_MODEL if status.target == NAME else RANDOM_WEIGHTS if status.target.startswith(RANDOM) else ""
        return _line("ready", f"{status.target} is ready. {about}".strip(), None, status.note, status.target)
    if status.state == "failed":
        return _line("failed", f"{status.target} {status.fault}: {status.text}.", note=status.note)
    return _line("loading", f"{status.text[:1].upper()}{status.text[1:]} … {WAITING_FOR_MODEL}", status.share)


def _line(state: str, text: str, share: float | None = None, note: str = "", target: str = "") -> str:
    """target: the model that counts the tokens of the prompt box."""
    bar = "" if share is None else f'<progress max="1" value="{share:.3f}" aria-label="Loading the model"></progress>'
    lamp = '<span class="page-lamp" aria-hidden="true"></span>'
    where = f'data-state="{state}" data-target="{safe(target)}"'
    line = f'<div class="page-model" {where}>{lamp}<span>{safe(text)}</span>{bar}</div>'
    return f'<div role="status">{line}{_device(note) if note else ""}</div>'


def _device(note: str) -> str:
    """Why a GPU is not used, with the command that changes it, where there is one, set apart to be copied."""
    cause, run, command = note.partition(RUN)
    words = f'{safe(cause)}{run}<code translate="no">{safe(command)}</code>' if command else safe(cause)
    return f'<p class="page-device">Races run on the CPU. {words}</p>'


def preset_line(preset: Preset, pair: Pair) -> str:
    """What to look for in a preset's race, if this pair's target is the one it was recorded with, and the setting that
    a visitor would not expect to be changed."""
    expect = preset.expect if pair.lanes is None and pair.target == NAME else ""
    words = safe(f"Temperature {preset.temperature:g}. {expect}" if preset.temperature else expect)
    return f'<p class="page-expect">{words}</p>'


def other_drafter_line(asked: object, drafter: str) -> str:
    """That a race from elsewhere drafts with something that is not on offer here, and with what it drafts instead."""
    words = safe(f"{short(asked)} is not on offer here; this race drafts with {label(drafter)}.")
    return f'<p class="page-expect page-instead">{words}</p>'


def drafter_choices(drafters: Sequence[str]) -> list[tuple[str, str]]:
    """(what to show, drafter) for each drafter on offer."""
    return [(label(text), text) for text in drafters]


def refused(offers: Sequence[Offer], note: str = "") -> str:
    """The models that cannot be chosen here, each with the reason of its first pair, under a note on this machine."""
    runnable = {offer.pair.target for offer in offers if not offer.reason}
    reasons = {o.pair.target: o for o in reversed(offers) if o.reason and o.pair.target not in runnable}
    rows = "".join(
        f"<li><strong>{safe(o.pair.title.partition(' + ')[0])}</strong> {safe(o.reason.removesuffix(SERVER))}.</li>"
        for o in reversed(reasons.values())
    )
    about = f"<p>{safe(note)}</p>" if note else ""
    return f'<div class="page-refused">{about}<p>{REFUSED}</p><ul>{rows}</ul></div>' if rows else about


def pair_line(pair: Pair | None) -> str:
    """What is special about this target and drafter; nothing for a pair that is not in the catalogue."""
    return f'<p class="page-hint"{" data-base" * (pair.chat is False)}>{safe(pair.note)}</p>' if pair else ""


def charts_of(request: str, switches: Mapping[str, Any]) -> str:
    """Which request of the page's program these charts answer, and how the switches of "How demos cheat" are set."""
    return f'<i data-charts-of="{safe(request)}" data-switches="{safe(json.dumps(switches))}" hidden></i>'


def chart_head(title: str) -> str:
    return f'<h3 class="page-chart-title">{safe(title)}</h3>'


def chart_sentence(text: str) -> str:
    return f'<p class="page-chart-sentence">{safe(text)}</p>'


def chart_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A figure's table, folded away. Its first row is its head; nothing without rows."""
    if not rows:
        return ""
    head, *body = (
        "<tr>" + "".join(f"<{tag}>{safe(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False)
    )
    return (
        '<details><summary>Table</summary><div class="page-chart-table" tabindex="0" role="group" '
        f'aria-label="{safe(title)}"><table>'
        f"<thead>{head}</thead><tbody>{''.join(body)}</tbody></table></div></details>"
    )
