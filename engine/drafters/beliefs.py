"""What `auto` k believes of copies and of a head's tokens: priors, updated during the race. Standard library only.

A prior is a share of cases. "Measured", below, means: on the tuning half of the held-out prompts, the presets and the
prompts of `bench` (default model, gemma-3-270m, its EAGLE-3 head, temperatures 0 and 0.8), in races simulated over
tables; docs/log.md, 2026-11-22, `auto` judged by the oracle."""

from __future__ import annotations

from typing import Literal

from .ngram import Copy
from .rates import Level, LevelRate, MarginOdds, Rate

CopyKind = Literal["agreed", "lone", "contested"]
"""A copied token: the two best places agree on it; there is one place, or one is left; or the two part here."""
COPIES: dict[CopyKind, tuple[float, ...]] = {
    "agreed": (0.68, 0.88, 0.96, 0.985, 0.995, 0.998),
    "lone": (0.3, 0.56, 0.78, 0.87, 0.957, 0.985),
    "contested": (0.22,),
}
"""Chance of a copied token, by how many tokens match before it, the copy's own included: 1, from 2, 4, 8, 16 and 32 on.
Measured: a copy's first token and a later one with as many matches before it have the same chance."""
WEIGHT = 8.0
"""How many cases each of these priors, and the next, is worth. Measured: 4 and 16 change nothing."""
NEXT = 0.78
"""Chance of the head's next token before it is drafted. Measured; 0.7 and 0.85 change nothing."""
UNSURE, SURE = 0.4, 0.97
"""The two values that chance can take once the token and its margin are known, weighted so that their mean is right."""
SAME_ERROR = 0.3
"""How often a copy and the head agree when both are wrong. Measured: 0.29; 0.2 changes nothing."""


class Beliefs:
    """The beliefs of one race. of_margin: acceptance of the head's tokens by margin; next: of its next token. All
    chances assume that the draft is right up to there."""

    def __init__(self) -> None:
        level = Level()
        self._copies = {kind: [LevelRate(prior, WEIGHT, level) for prior in priors] for kind, priors in COPIES.items()}
        self.of_margin, self.next = MarginOdds(), Rate(NEXT, WEIGHT)

    def of_copy(self, copy: Copy) -> list[Rate]:
        """Chance of each token of a copy, given that all before it are right."""
        agreed = copy.num_agreed
        found: list[Rate] = []
        for i in range(len(copy.token_ids)):
            kind: CopyKind = "lone" if agreed is None or i > agreed else "agreed" if i < agreed else "contested"
            rates = self._copies[kind]
            found.append(rates[min((copy.match + i).bit_length(), len(rates)) - 1])
        return found


def when_asked(head: float) -> tuple[tuple[float, float], ...]:
    """The values that the chance of the head's next token can take: (chance, how often)."""
    sure = min(1.0, max(0.0, (head - UNSURE) / (SURE - UNSURE)))
    return (UNSURE, 1 - sure), (SURE, sure)


def chance_of_same(copy: float, head: float) -> float:
    """How often a copy and the head agree. Arguments, also below: each one's chance to be right, taken as
    independent."""
    return copy * head + SAME_ERROR * (1 - copy) * (1 - head)


def where_same(copy: float, head: float) -> float:
    """The chance that both are right, if they agree."""
    return copy * head / chance_of_same(copy, head)


def where_other(copy: float, head: float) -> tuple[float, float]:
    """The chances of the copy and of the head, if they disagree."""
    either = 1 - chance_of_same(copy, head)
    return copy * (1 - head) / either, head * (1 - copy) / either
