"""The table of drafters: from a text form (`name` or `name:argument`) to a drafter. Standard library only.

A new drafter is a class derived from `interfaces.Drafter`, with `prefill` and `propose`, and one line in DRAFTERS that
points to a `Kind` in its own module, imported on use. The page lists the table's labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import UsageError, choices
from ..core.interfaces import Drafter
from ..core.spec import AUTO, MAX_K, TREE, check_length

if TYPE_CHECKING:
    from ..core.events import Prompt
    from ..core.sampling.sampler import Sampler
    from ..core.spec import SamplingParams
    from ..progress import Progress

DRAFTERS: dict[str, str] = {
    "ngram": "engine.drafters.ngram:KIND",
    "draft_model": "engine.drafters.model_kinds:KIND",
    "eagle3": "engine.drafters.model_kinds:EAGLE3",
    "dflash": "engine.drafters.model_kinds:DFLASH",
    "synthetic": "engine.drafters.synthetic:KIND",
    "hybrid": "engine.drafters.hybrid:KIND",
    "none": "engine.drafters.none:KIND",
}  # name -> "module:attribute" of a `Kind`, in the order of lists
# End the name of a drafter that drafts as servers do in a race that samples: its likeliest tokens, the default of vLLM
# 0.32.0, SGLang 0.5.23 and llama.cpp, or by probability. No revision on a hub can have a "~".
GREEDY, DRAWN = "~greedy", "~probabilistic"
RULES = {GREEDY: ", drafted greedily", DRAWN: ", drafted by probability"}


@dataclass(frozen=True)
class DrafterContext:
    """What a drafter may use of its race.

    loaded: the target.
    k: the most tokens in a draft.
    length: S, the static cache length.
    sample: picks from a distribution: `sample(logits row [vocab], position in the completion) -> id`. Under rule
        `coupled` the race's own choice, with the target's noise.
    reference: runs the target once, untimed, and returns its completion.
    keep_logits: whether the lane's rule needs the distributions that draft tokens were picked from (`Draft.logits`).
    auto_k: k is an upper limit, not a request. A drafter with a smaller limit uses its own either way, `Drafter.max_k`.
    pool: the race's memory for captured graphs, if any.
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
    """An entry of the table. Its module imports nothing heavy.

    parse: reads the text after the colon ("": there is none) into what `make` takes; raises UsageError if unusable, and
        imports nothing heavy.
    label: its name, as everywhere on the page; each `{}` stands for a drafter inside it.
    weightless: needs no weights, whatever its argument, so it suits every target and every visitor.
    table: whether drafts are a function of the committed text and the noise at each position, so that a table of drafts
        by position determines the race (`engine/what_if`). "any k": yes, and a shorter draft is the beginning of a
        longer one; "one k": yes, but a draft may depend on the lane's k; "parts": like the drafters that `parse`
        returns; "": no.
    cache_bytes: device memory for drafts up to k in a race of that length, without weights; may load them.
    most_drafts: the longest draft that it makes for a target; may load weights. A lane is clamped to it.
    """

    parse: Callable[[str], Any]
    make: Callable[[Any, DrafterContext], Drafter]
    label: str
    weightless: bool = False
    table: Literal["any k", "one k", "parts", ""] = ""
    cache_bytes: Callable[[Any, Any, int, int, Progress], int] = lambda *_: 0
    most_drafts: Callable[[Any, Any, Progress], int] = lambda *_: MAX_K


def parse(text: str) -> tuple[str, str]:
    """`name[:argument]` -> (name, argument or ""). Raises UsageError, naming the choices or the limit."""
    check_length(text)
    name, colon, argument = text.partition(":")
    if name not in DRAFTERS:
        raise choices("drafter", name, DRAFTERS)
    if colon and not argument:
        raise UsageError(f"drafter {text!r} ends in a colon; give an argument after it or leave it out")
    return name, argument


def check(text: str) -> None:
    """Raise UsageError for an unusable drafter, before anything is loaded and without torch."""
    _parsed(text)


def make(text: str, context: DrafterContext) -> Drafter:
    """The drafter for one lane of one race. Raises UsageError if it is unusable, also for this target."""
    kind, argument = _parsed(text)
    return kind.make(argument, context)


def cache_bytes(text: str, loaded: Any, k: int, length: int, progress: Progress) -> int:
    """See `Kind.cache_bytes`; loaded: the target. Raises as `make` does."""
    kind, argument = _parsed(text)
    return kind.cache_bytes(argument, loaded, k, length, progress)


def most_drafts(text: str, loaded: Any, progress: Progress) -> int:
    """See `Kind.most_drafts`; loaded: the target. Raises as `make` does."""
    kind, argument = _parsed(text)
    return kind.most_drafts(argument, loaded, progress)


def serves_every_k(text: str) -> bool:
    """Whether one table of the drafter's chains serves every k (see `Kind.table`). Raises UsageError, with the choices,
    if it has none."""
    kind, argument = _parsed(text)
    if kind.table == "parts":
        return all(map(serves_every_k, argument))
    if not kind.table:
        raise UsageError(
            f"drafter {text!r} has no table of drafts by position; choose one of: "
            + ", ".join(choice for choice in DRAFTERS if _kind(choice).table)
        )
    return kind.table == "any k"


def ruled(text: str) -> tuple[str, str]:
    """A drafter without the rule by which a server would draft, and that rule in words, "" if there is none. A "~" may
    also stand for a home directory in its argument."""
    rule = next((end for end in RULES if text.endswith(end)), "")
    return text.removesuffix(rule), RULES.get(rule, "")


def label(text: str) -> str:
    """A drafter's name everywhere on the page: `EAGLE-3 head owner/name`. Twin of drafterName in
    app/web/base/text.js; compared by test_a_drafter_has_one_name."""
    text, rule = ruled(text)
    if rule:
        return label(text) + rule
    name, argument = parse(text)
    words = _kind(name).label
    if "{}" in words:
        first, _, second = argument.partition("+")
        return words.format(short_label(first), label(second))
    return f"{words} {argument}" if argument else words


def short_label(text: str) -> str:
    """`label` without the part in brackets."""
    words, bracket, rest = label(text).partition(" (")
    return words + rest.partition(")")[2] if bracket else words


def draft_words(text: str, k: int | str) -> str:
    """What a lane drafts, and how much of it: `n-gram (copies earlier text), k = 5`. Twin of draftWords in
    app/web/base/text.js."""
    length = "automatic length" if k == AUTO else f"k = {k}".replace(f"k = {TREE}", "trees of up to ")
    return f"{label(text)}, {length}"


def words_of_all() -> dict[str, str]:
    """name -> label of every drafter."""
    return {name: _kind(name).label for name in DRAFTERS}


def weightless() -> tuple[str, ...]:
    """Names of the drafters that suit every target and every visitor."""
    return tuple(choice for choice in DRAFTERS if _kind(choice).weightless)


def _parsed(text: str) -> tuple[Kind, Any]:
    """The drafter's kind, and what its `make` takes."""
    name, argument = parse(text)
    kind = _kind(name)
    return kind, kind.parse(argument)


def _kind(name: str) -> Kind:
    module, attribute = DRAFTERS[name].split(":")
    return getattr(import_module(module), attribute)
