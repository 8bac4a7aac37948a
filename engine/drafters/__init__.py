"""The table of drafters, and the way from a drafter's text form (`name` or `name:argument`) to a drafter. Standard
library only.

A new drafter is a class derived from `interfaces.Drafter`, with `prefill` and `propose`, and one line in DRAFTERS,
which points to a `Kind` in a module of its own, imported on use. The page lists what stands here, under its label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UsageError, choices
from ..interfaces import Drafter

if TYPE_CHECKING:
    from ..choice.sampler import Sampler
    from ..events import Prompt
    from ..progress import Progress
    from ..spec import SamplingParams

DRAFTERS: dict[str, str] = {
    "ngram": "engine.drafters.ngram:KIND",
    "draft_model": "engine.drafters.model_kinds:KIND",
    "eagle3": "engine.drafters.head_kinds:EAGLE3",
    "dflash": "engine.drafters.head_kinds:DFLASH",
    "synthetic": "engine.drafters.synthetic:KIND",
    "hybrid": "engine.drafters.hybrid:KIND",
    "none": "engine.drafters.none:KIND",
}
"""name -> "module:attribute" of a `Kind`, in the order in which lists show them."""


@dataclass(frozen=True)
class DrafterContext:
    """What a drafter may use of the race it is made for.

    loaded: the target. k: the most tokens a draft may have. length: S, the static cache length. sample: what a drafter
    with a distribution picks with, `sample(logits row [vocab], position in the completion) -> id`: under rule `coupled`
    the race's own choice, so that its noise is the target's. reference: the target's own completion, from an untimed
    run. keep_logits: the lane's rule needs the distributions that draft tokens were picked from: `Draft.logits`.
    auto_k: k is the most that may ever pay and not what was asked for; a drafter with a smaller limit takes that, and
    says so in `Drafter.max_k`. pool: the race's memory for captured graphs, if it has one.
    """

    loaded: Any
    params: SamplingParams
    k: int
    length: int
    sample: Sampler
    prompt: Prompt
    reference: Callable[[], Sequence[int]] | None
    progress: Progress
    keep_logits: bool = False
    auto_k: bool = False
    pool: Any = None


@dataclass(frozen=True)
class Kind:
    """What a table entry points to. Its module imports nothing heavy.

    parse: reads the text after the colon ("": none was given) into what `make` takes; raises UsageError where it is
    unusable and imports nothing heavy either. label: what the drafter does, in a few words; `{}` stands for the drafter
    inside it. weightless: it needs no weights, whatever its argument, so it suits every target and anyone may ask for
    it. table: whether its draft is a function of the committed text and the noise at each position, so that a table of
    drafts by position tells its race (`engine/what_if`). "any k": it is, and a shorter draft is the beginning of a
    longer one; "one k": it is, but the draft may depend on the lane's k; "parts": `parse` gives drafters that have
    tables; "": it is not.
    """

    parse: Callable[[str], Any]
    make: Callable[[Any, DrafterContext], Drafter]
    label: str
    weightless: bool = False
    table: Literal["any k", "one k", "parts", ""] = ""


def parse(text: str) -> tuple[str, str]:
    """`name[:argument]` -> (name, argument or ""). Raises UsageError with the choices."""
    name, colon, argument = text.partition(":")
    if name not in DRAFTERS:
        raise choices("drafter", name, DRAFTERS)
    if colon and not argument:
        raise UsageError(f"drafter {text!r} ends in a colon; give an argument after it or leave it out")
    return name, argument


def check(text: str) -> None:
    """Raise UsageError for an unusable drafter, before anything is loaded and without torch."""
    name, argument = parse(text)
    _kind(name).parse(argument)


def make(text: str, context: DrafterContext) -> Drafter:
    """The drafter for one lane of one race. Raises UsageError where it is unusable, also for this target."""
    name, argument = parse(text)
    kind = _kind(name)
    return kind.make(kind.parse(argument), context)


def with_tables(text: str) -> dict[str, bool]:
    """The drafters whose tables tell what this one can draft, itself or a hybrid's parts: of each whether one table
    serves every k. Raises UsageError, with the choices, where there is no table."""
    name, argument = parse(text)
    kind = _kind(name)
    if kind.table == "parts":
        return {part: whole for each in kind.parse(argument) for part, whole in with_tables(each).items()}
    if not kind.table:
        raise UsageError(
            f"drafter {text!r} has no table of drafts by position; choose one of: "
            + ", ".join(each for each in DRAFTERS if _kind(each).table)
        )
    return {text: kind.table == "any k"}


def label(text: str) -> str:
    """How a list shows a drafter: `ngram: copy what followed before`; the text itself where its argument says more."""
    name, argument = parse(text)
    words, inside = _kind(name).label, argument.rpartition("+")[2]
    if "{}" in words and inside and ":" not in argument:
        what = _kind(inside).label.partition(",")[0]
        return f"{name}: {words.format(f'{what} ({inside})')}"
    return text if argument else f"{name}: {words}"


def words_of_all() -> dict[str, str]:
    """Of every drafter, by its name, what it does in a few words; `{}` stands for the drafter inside it."""
    return {name: _kind(name).label for name in DRAFTERS}


def weightless() -> tuple[str, ...]:
    """The names of all drafters that suit every target and that anyone may ask for."""
    return tuple(name for name in DRAFTERS if _kind(name).weightless)


def _kind(name: str) -> Kind:
    module, attribute = DRAFTERS[name].split(":")
    return getattr(import_module(module), attribute)
