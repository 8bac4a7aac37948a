"""The chance that a drafted token is the target's, given that all before it are: calibrated once, the same in every
race. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

COPIES = {
    "agreed": (0.68, 0.88, 0.96, 0.985, 0.995, 0.998),
    "lone": (0.3, 0.56, 0.78, 0.87, 0.957, 0.985),
    "contested": (0.22,),
}
"""Chance of a copied token, by how many tokens match before it, the copy's own included: 1, from 2, 4, 8, 16 and 32 on.
agreed: the best other place has the same token there; lone: there is no other, or it has parted before; contested: it
parts here."""
SECOND = 0.15
"""Chance of the other place's token where the two part."""
SHARPNESS, OTHERS = 0.8, 0.8
"""A score's weight in the chance of its token, and the weight of all tokens that were not scored, relative to the
best."""
SAME_ERROR = 0.3
"""How often a copy and the head agree when both are wrong."""
MOST = 0.998


def of_copy(match: int, agreed: int | None, place: int, rank: int) -> float:
    """The chance of a copy's token. match: how many tokens match before it; place: in the copy; rank: 0 for the best
    copy, 1 for the other, which shares its first `agreed` tokens."""
    if rank and agreed == place:
        return SECOND
    kind = "lone" if agreed is None or place > agreed else "agreed" if place < agreed else "contested"
    by_match = COPIES[kind]
    return by_match[min(max(match, 1).bit_length(), len(by_match)) - 1]


def of_scores(scores: Sequence[float]) -> list[float]:
    """Chances of a drafter's best tokens by their scores, noise included, best first."""
    weights = [math.exp(SHARPNESS * max(score - scores[0], -80.0)) for score in scores]
    total = sum(weights) + OTHERS
    return [min(MOST, weight / total) for weight in weights]


def with_copy(rated: Mapping[int, float], copies: Mapping[int, float]) -> dict[int, float]:
    """Chances of tokens that a drafter rated, where copies propose some of them or others. What one gains the others
    lose in proportion."""
    chances = dict(rated)
    for token_id, copy in copies.items():
        head = rated.get(token_id, 0.0)
        same = copy * head + SAME_ERROR * (1 - copy) * (1 - head)
        if token_id in rated:
            chance = copy * head / same if same else 0.0
        else:
            chance = copy * (1 - max(rated.values(), default=0.0))
        left = (1 - chance) / (1 - head) if head < 1 else 0.0
        chances = {other: value * min(1.0, left) for other, value in chances.items()} | {token_id: min(MOST, chance)}
    return chances
