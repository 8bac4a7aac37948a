"""A race of the drafter over a few prompts, and what it would have guessed at every position.

A head is compared with its `variants` at the same positions: the one that helps by more than chance is the remedy."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..analysis.metrics import num_tokens_of, share
from ..core.errors import PhotofinishError, TemplateError
from ..core.events import Prompt, Step
from ..core.spec import BASELINE, PLAIN, RaceSpec, SamplingParams, lanes_of
from ..drafters import parse as parse_drafter
from ..heads.names import parse_name
from ..loading.loading import LoadedModel
from ..progress import Progress, silent
from ..session import TorchRace
from ..session.run_prompts import Entry, Raced, run_prompts
from ..what_if.ask import what_if
from ..what_if.judged import WhatIf
from ..what_if.tables import Table
from . import K
from .findings import Finding
from .variants import Variant

LANE = "drafter"
# A drafter hardly knows its target if it is right at most 1.5 times as often as guessing the text's commonest token
# everywhere would be, and at most at this share of positions: in a loop that token alone is often right.
CHANCE, MOST_BY_CHANCE = 1.5, 0.15
NOTHING = 0.03  # up to this share it knows nothing about it
LOW = 0.3  # below this a healthy head would be a rare one
# A variant is better if it is right at this share of positions more, and by this many standard deviations.
MIN_GAIN, MIN_DEVIATIONS = 0.06, 3.0
MIN_COVERED = 0.9
FOREIGN = "Use a drafter trained for exactly this target: other models or versions have other hidden states"


@dataclass
class Trial:
    """races: tables and costs of each prompt's race. plain_s: seconds of its faster plain lane. kinds: of the prompts.
    steps: of the drafter's lanes, with drafts of up to K tokens. tables: of each race, by drafter: "" for the given
    one, a text for each variant."""

    races: list[WhatIf] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    tables: dict[str, list[Table]] = field(default_factory=dict)

    def right(self, drafter: str = "", depth: int = 0) -> list[bool]:
        """For each position whose draft has more than `depth` tokens: whether the token at that depth, and all before
        it, are right."""
        return [is_right for _, _, is_right in self.positions(drafter, depth)]

    def positions(self, drafter: str = "", depth: int = 0) -> Iterator[tuple[int, int, bool]]:
        """Like `right`, each with the number of its race and its place in the text."""
        for number, (race, table) in enumerate(zip(self.races, self.tables.get(drafter, ()), strict=False)):
            length = len(race.text.token_ids)
            for at, draft in enumerate(table.drafts[:length]):
                if len(draft) > depth and at + depth < length:
                    yield number, at, len(race.text.right(draft, at)) > depth

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a step, over all races together."""
        return num_tokens_of(self.steps) / max(1, len(self.steps))

    @property
    def written(self) -> Counter[int]:
        """The target's tokens."""
        return Counter(token for race in self.races for token in race.text.token_ids)


def run(
    loaded: LoadedModel,
    text: str,
    prompts: Sequence[tuple[str, Prompt | TemplateError]],
    params: SamplingParams,
    others: Sequence[str] = (),
    progress: Progress = silent,
) -> Trial:
    """Race the drafter `text` on each prompt, and query it and `others`, its variants, at every position. A variant
    that cannot be made is left out. `progress` may raise to give up, also between two steps. Raises what a race
    raises.

    prompts: each with its kind of text; one that was refused is passed over, and so is its seed."""
    trial, lanes = Trial(), lanes_of([(LANE, text, K)])

    def read(raced: Raced) -> None:
        race = raced.race
        race.result()  # raises if the device failed
        trial.races.append(what_if(race, [(text, K)], raced.tell))
        trial.tables.setdefault("", []).append(trial.races[-1].tables_of(text, K)[-1])
        trial.plain_s.append(min(sum(step.seconds for step in race.lanes[name].steps) for name in (PLAIN, BASELINE)))
        trial.kinds.append(raced.entry.kind)
        trial.steps += race.lanes[LANE].steps
        for n, variant in enumerate(others):
            raced.tell(f"trying setting {n + 1} of {len(others)}", None)
            if (table := _table(race, variant, loaded)) is not None:
                trial.tables.setdefault(variant, []).append(table)

    entries = [
        Entry("", kind, prompt, RaceSpec(lanes, replace(params, seed=seed)))
        for seed, (kind, prompt) in enumerate(prompts, params.seed)
        if isinstance(prompt, Prompt)
    ]
    deque(run_prompts(loaded, entries, read, progress=progress), maxlen=0)
    trial.tables = {name: tables for name, tables in trial.tables.items() if len(tables) == len(entries)}
    return trial


def _table(race: TorchRace, drafter: str, loaded: LoadedModel) -> Table | None:
    try:
        return what_if(race, [(drafter, K)], most=1).tables_of(drafter, K)[-1]
    except PhotofinishError:
        return None  # for example a block without a token to draft
    finally:
        kind, argument = parse_drafter(drafter)
        loaded.let_go((kind, parse_name(kind, argument)))


def draft_findings(trial: Trial, tried: Sequence[Variant], untrained: Callable[[], bool]) -> Iterator[Finding]:
    """What the drafts say about the drafter.

    tried: the variants of the trial.
    untrained: whether the head's weights look as if they were never trained."""
    right = trial.right()
    if not right:
        yield Finding("doubt", "drafts", "It proposed nothing, so nothing can be said about it.", "Try longer prompts")
        return
    own, num = share(right), len(right)
    if best := _likeliest(trial, tried, right):
        changed = share(trial.right(best.drafter))
        says = f"Its first guess is right at {own:.0%} of {num} positions, and at {changed:.0%} if {best.what}."
        yield Finding("fault", best.check, says, best.change)
        return
    written = trial.written
    chance = max(written.values()) / written.total()
    by_depth = ", ".join(f"{share(trial.right(depth=d)):.0%}" for d in range(K) if trial.right(depth=d))
    if own <= min(MOST_BY_CHANCE, max(CHANCE * chance, 3 / num)):
        says = (
            f"Its first guess is right at {own:.0%} of {num} positions; the commonest token alone would be right at "
            f"{chance:.0%}."
        )
        if untrained():
            change = "These weights are as they were initialised: use the trained checkpoint"
            yield Finding("fault", "weights", says, change)
        else:
            yield Finding("fault" if own <= max(NOTHING, 3 / num) else "doubt", "acceptance", says, FOREIGN)
        return
    turned = next((share(trial.right(variant.drafter)) for variant in tried if variant.is_reversed), 0.0)
    if own < LOW and turned > own / 2:
        says = (
            f"Its first guess is right at {own:.0%} of {num} positions, and at {turned:.0%} if it reads its hidden "
            "states in the wrong order: they mean little to it."
        )
        yield Finding("doubt", "acceptance", says, FOREIGN)
        return
    yield Finding("ok", "acceptance", f"Guesses 1 to {K} of a chain are right at {by_depth} of {num} positions.")


def _likeliest(trial: Trial, tried: Sequence[Variant], right: Sequence[bool]) -> Variant | None:
    """The first variant that is better than the head, and that no other is clearly better than."""
    better = [variant for variant in tried if is_better(trial.right(variant.drafter), right)]
    best = max(better, key=lambda variant: share(trial.right(variant.drafter)), default=None)
    most = trial.right(best.drafter) if best else []
    return next((variant for variant in better if not is_better(most, trial.right(variant.drafter))), None)


def covered(trial: Trial, words: set[int] | None) -> Iterator[Finding]:
    """The limit that a reduced vocabulary sets. words: the ids it can draft; None for all."""
    if words is None:
        return
    written = trial.written
    most = sum(num for token, num in written.items() if token in words) / written.total()
    says = f"{most:.0%} of the target's own {written.total()} tokens are among the {len(words):,} that it can draft."
    if most < MIN_COVERED:
        yield Finding("doubt", "reduced vocabulary", says, "Train the head with the words that your own text has")
    else:
        yield Finding("ok", "reduced vocabulary", says)


def is_better(one: Sequence[bool], another: Sequence[bool]) -> bool:
    """Whether `one` is right more often than `another` at the same positions, beyond chance: a sign test."""
    if len(one) != len(another):
        return share(one) > share(another) + 0.2
    wins = sum(a and not b for a, b in zip(one, another, strict=True))
    losses = sum(b and not a for a, b in zip(one, another, strict=True))
    return wins - losses > max(MIN_GAIN * len(one), MIN_DEVIATIONS * math.sqrt(wins + losses))
