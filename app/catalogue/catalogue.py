"""What a visitor can choose: prompts that are more or less predictable, and pairs of target and drafter. Everything
else is refused.

Targets and drafters from disk or the hub come from `assets/pairs.json`, from the command line and, on a page that only
its owner can reach, from its owner (`own_model.py`). No other browser names a folder or a repository.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.core.errors import UsageError, choices, short
from engine.core.spec import check_length
from engine.drafters import check as check_drafter
from engine.drafters import weightless
from engine.drafters.synthetic import parts_of
from engine.loading.json_files import read_json
from engine.loading.sources import DEFAULT_TARGET

from . import fits
from .limits import Limits
from .machine import NOTES, Machine

ASSETS = Path(__file__).resolve().parents[2] / "assets"
NOT_ALLOWED = "needs more weights than the default pair, which the operator of this page has not allowed"
CHEAPEST = "ngram", 7  # drafter and k of a target that the command line names alone
CODE = "python-class"  # the example that a page with a GPU opens with: what published ratios are about
MARGIN = 0.1  # share of free GPU memory that the default pair must leave, because its need is estimated, not measured


@dataclass(frozen=True)
class Preset:
    """A prompt with settings that suit it.

    expect: what to look for, in a sentence.
    prompt: a text to continue.
    message: the same task for a chat-tuned model.
    more: additional lanes, by the values of the page's control."""

    id: str
    name: str
    expect: str
    temperature: float
    seed: int
    k: int | str
    drafter: str
    max_new_tokens: int
    prompt: str
    message: str
    more: Sequence[str] = ()


@dataclass(frozen=True)
class Pair:
    """A target and its drafter, as used in the field.

    chat: whether the target has a chat template; None: unknown until it is loaded.
    lanes: the drafters of its lanes, if all lanes are on servers, so that a visitor cannot choose how they draft.
    named: its drafter was named by the operator or the page's owner, so no example replaces it.
    thinking: whether it thinks before it answers, see `encode_messages`; the same for all pairs of a target."""

    id: str
    title: str
    target: str
    drafter: str
    k: int | str
    note: str
    chat: bool | None
    lanes: tuple[str, ...] | None = None
    named: bool = False
    thinking: bool | None = None


@dataclass(frozen=True)
class Offer:
    """A pair and, if it cannot run on this machine, the reason as a sentence; otherwise ""."""

    pair: Pair
    reason: str


@dataclass(frozen=True)
class Catalogue:
    """Everything on offer, within which limits, and the pair selected when the page opens.

    note: why this machine's GPU is not used, or a remark about its system; usually "".
    card: see `Machine`."""

    presets: tuple[Preset, ...]
    offers: tuple[Offer, ...]
    default: Pair
    note: str = ""
    card: str = ""
    limits: Limits = field(default_factory=Limits)

    def adding(self, pairs: Iterable[Pair], default: Pair | None) -> Catalogue:
        """The same with more pairs, before the others, and perhaps another default."""
        offers = *(Offer(pair, "") for pair in pairs), *self.offers
        return replace(self, offers=offers, default=default or self.default)

    def opening(self, ratios: Mapping[str, float]) -> Catalogue:
        """The same, with the fastest drafter for the default pair's target, once that pair has raced here too. ratios:
        of races of the opening example on this card, by the pairs' ids; a pair's note has its own."""

        if not ratios:
            return self

        def noted(pair: Pair) -> Pair:
            says = f" {ratios[pair.id]:.2f}× on “{self.presets[0].name}” with this GPU." if pair.id in ratios else ""
            return replace(pair, note=pair.note + says)

        opened = replace(self, offers=tuple(Offer(noted(offer.pair), offer.reason) for offer in self.offers))
        rivals = [pair for pair in opened.runnable if pair.target == self.default.target and pair.id in ratios]
        if self.default.id not in ratios:
            return opened
        return replace(opened, default=max(rivals, key=lambda pair: ratios[pair.id]))

    @property
    def runnable(self) -> tuple[Pair, ...]:
        return tuple(offer.pair for offer in self.offers if not offer.reason)

    def pair(self, pair_id: object) -> Pair:
        """The pair with this id. Raises UsageError with the reason if it cannot run here, or with the choices."""
        for offer in self.offers:
            if offer.pair.id == pair_id:
                if offer.reason:
                    raise UsageError(f"the pair {offer.pair.title!r} cannot run here: it {offer.reason}")
                return offer.pair
        known = ", ".join(pair.id for pair in self.runnable)
        raise UsageError(f"unknown pair {short(pair_id)}; choose one of: {known}")

    def preset_of(self, prompt: object) -> Preset | None:
        """The preset with this text, if any."""
        return next((preset for preset in self.presets if prompt in (preset.prompt, preset.message)), None)

    def like(self, pair: Pair, drafter: object) -> Pair | None:
        """The runnable pair with the same target on the same machines and this drafter, if any."""
        wanted = (pair.target, pair.lanes, drafter)
        return next((e for e in self.runnable if (e.target, e.lanes, e.drafter) == wanted), None)

    def drafter(self, pair: Pair, text: object) -> str:
        """Check that a visitor may race this drafter with this pair, and return it. Raises UsageError with the
        choices."""
        if not isinstance(text, str):
            raise UsageError(f"a drafter must be given as text, not {short(text)}")
        check_length(text)
        offered = self.drafters(pair)
        if not _is_offered(text, offered):
            known = ", ".join([*offered, "synthetic:RATE"])
            raise UsageError(f"unknown drafter {short(text)} for this pair; choose one of: {known}")
        check_drafter(text)
        return text

    def drafters(self, pair: Pair) -> tuple[str, ...]:
        """The drafters on offer for this pair's target: the pair's own, those of other pairs, and all without
        weights."""
        same_target = [candidate.drafter for candidate in self.runnable if candidate.target == pair.target]
        return tuple(dict.fromkeys([pair.drafter, *same_target, *weightless()]))

    def drafting(self, preset: Preset | None, pair: Pair) -> tuple[str, int | str]:
        """Drafter and k of a pair's races: the preset's if its text is raced, the target has that drafter and nobody
        named another; else the pair's own."""
        if preset is None or pair.named or pair.lanes is not None or preset.drafter not in self.drafters(pair):
            return pair.drafter, pair.k
        return preset.drafter, preset.k


def load(
    machine: Machine, target: str | None = None, drafter: str | None = None, pairs: str = "all", dtype: str = "auto"
) -> Catalogue:
    """The shipped catalogue for this machine.

    The default pair comes from the command line, if given; otherwise the first pair of the hub that runs here with
    MARGIN to spare (the file begins with simple ones, large before small); otherwise the bundled model's.

    target, drafter: from the command line.
    pairs: what visitors may choose besides the default: `all`, `loaded` (no weights but the default's), or ids
        separated by commas.
    dtype: of the weights.

    Raises UsageError for an unusable drafter or unknown pairs."""
    shipped = load_pairs()
    bundled = next(pair for pair in shipped if pair.target == DEFAULT_TARGET)
    offers = [Offer(pair, _reason(pair, machine, dtype)) for pair in shipped]
    less = replace(machine, gpu_bytes=machine.gpu_bytes and int(machine.gpu_bytes * (1 - MARGIN)))
    default = next((pair for pair in shipped if _on_hub(pair) and not _reason(pair, less, dtype)), bundled)
    if target is not None or drafter is not None:
        default = _from_command_line(shipped, target, drafter)
        offers.insert(0, Offer(default, ""))
    allowed = {default.id, *_allowed(pairs, shipped, default)}
    offers = [offer if offer.pair.id in allowed else Offer(offer.pair, offer.reason or NOT_ALLOWED) for offer in offers]
    presets = tuple(sorted(load_presets(), key=lambda preset: machine.gpu and preset.id != CODE))
    return Catalogue(presets, tuple(offers), default, machine.no_gpu or NOTES.get(sys.platform, ""), machine.card)


def _allowed(pairs: str, shipped: tuple[Pair, ...], default: Pair) -> set[str]:
    """The ids selected by `load`'s argument `pairs`."""
    known = {pair.id for pair in shipped}
    if pairs == "all":
        return known
    if pairs == "loaded":
        return {pair.id for pair in shipped if _is_loaded(pair, default)}
    named = set(pairs.split(","))
    for name in sorted(named - known):
        raise choices("pair", name, {"all", "loaded", *known})
    return named


def _is_loaded(pair: Pair, default: Pair) -> bool:
    """Whether a pair needs only the weights of the default pair and those that ship."""
    own_drafter = pair.drafter == default.drafter or pair.drafter.partition(":")[0] in weightless()
    return pair.target == default.target and (own_drafter or not _on_hub(pair))


def _on_hub(pair: Pair) -> bool:
    return pair.target != DEFAULT_TARGET


def load_pairs() -> tuple[Pair, ...]:
    """The shipped pairs."""
    return tuple(Pair(**entry) for entry in json.loads((ASSETS / "pairs.json").read_text(encoding="utf-8")))


def load_presets() -> tuple[Preset, ...]:
    """The shipped prompts, from the most predictable to the least."""
    return tuple(Preset(**entry) for entry in json.loads((ASSETS / "presets.json").read_text(encoding="utf-8")))


def on_hub() -> list[tuple[str, str]]:
    """Target and drafter of every shipped pair whose target is on the hub."""
    return [(pair.target, pair.drafter) for pair in load_pairs() if _on_hub(pair)]


def _reason(pair: Pair, machine: Machine, dtype: str) -> str:
    dtype = machine.gpu_dtype if dtype == "auto" else dtype
    return fits.reason(pair.target, pair.drafter, machine, 4 if dtype == "float32" else 2)


def _is_offered(text: str, offered: tuple[str, ...]) -> bool:
    """Whether a drafter is offered: listed, without weights, or `synthetic:RATE[+X]` with an offered X."""
    name, _, argument = text.partition(":")
    if text in offered or name in weightless():
        return True
    if name != "synthetic":
        return False
    cost = parts_of(argument)[1]
    return not cost or _is_offered(cost, offered)


def _from_command_line(shipped: Sequence[Pair], target: str | None, drafter: str | None) -> Pair:
    named, target, drafter = drafter is not None, target or DEFAULT_TARGET, drafter or CHEAPEST[0]
    check_drafter(drafter)
    title, note = f"{target} + {drafter}", "Chosen on the command line."
    chat, thinking = of_template(shipped, target)
    return Pair("command-line", title, target, drafter, CHEAPEST[1], note, chat, named=named, thinking=thinking)


def of_template(shipped: Sequence[Pair], target: str) -> tuple[bool | None, bool | None]:
    """`chat` and `thinking` of a pair with this target: those of a shipped one, if there is any; else whether the
    tokenizer in that folder has a template."""
    if known := [pair for pair in shipped if pair.target == target]:
        return known[0].chat, known[0].thinking
    if not (folder := Path(os.path.expanduser(target))).is_dir():
        return None, None
    config = folder / "tokenizer_config.json"
    said = read_json(config) if config.is_file() else None
    inside = isinstance(said, dict) and bool(said.get("chat_template"))
    return inside or any((folder / f"chat_template.{form}").is_file() for form in ("jinja", "json")), None
