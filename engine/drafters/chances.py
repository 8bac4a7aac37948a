"""The chance that a drafted token is the target's, given that all before it are: calibrated once, the same in every
race. Standard library only."""

import math
from collections.abc import Mapping, Sequence

NUM_SCORES = 6  # scores of a node's best tokens that `of_scores` takes
# Chance of a copied token, by how many tokens match before it, the copy's own included: 1, from 2, 4, 8, 16 and 32 on.
# agreed: the best other place has the same token there; lone: there is no other, or it has parted before; contested: it
# parts here. Measured on structured text and prose; docs/log.md, `auto` judged by the oracle.
COPIES = {
    "agreed": (0.68, 0.88, 0.96, 0.985, 0.995, 0.998),
    "lone": (0.3, 0.56, 0.78, 0.87, 0.957, 0.985),
    "contested": (0.2,),
}
# Chance of the other place's token where the two part. This, HEAD, BOTH and OTHERS_ALONE: the maximum likelihood for 24
# texts at temperature 0.8, with an earlier EAGLE-3 head (docs/log.md, chances of trees).
SECOND = 0.1
# Weight of a logit in the logarithm of its token's chance at temperature 0, and the temperature at which it weighs half
# as much: where noise decides more, a drafter's logits say less. This and OTHERS: fitted with that head to everyday
# texts at temperatures 0, 0.3, 0.8 and 1.2, at 0.8 also to `held_out.json`.
SHARPNESS, WARM = 1.65, 1.2
# The logarithm for all tokens without a score: at a last score equal to the best, and its share of the last one's.
OTHERS, OTHERS_BY_LAST = 2.84, 0.98
OTHERS_ALONE, OTHERS_BY_MARGIN = 1.42, 0.79  # the same where only the best token and its lead over the next are known
# A token's chance where a copy and a drafter propose it, in logits: the copy's, a share of the drafter's, a constant.
HEAD, BOTH = 0.42, 0.64
UNRATED = 0.003  # a drafter's chance for a token that is not among its best
FAR = -10.0  # scores this far below the best are not reported
UNREPORTED = -4.6  # the most that such a score weighs; at temperatures below 0.3, FAR is not far
MOST = 0.998


def of_copy(match: int, agreed: int | None, place: int, rank: int) -> float:
    """The chance of a copy's token. match: how many tokens match before it; place: in the copy; rank: 0 for the best
    copy, 1 for the other, which shares its first `agreed` tokens."""
    if rank and agreed == place:
        return SECOND
    kind = "lone" if agreed is None or place > agreed else "agreed" if place < agreed else "contested"
    by_match = COPIES[kind]
    return by_match[min(max(match, 1).bit_length(), len(by_match)) - 1]


def sharpness(temperature: float) -> float:
    """Weight of a score in the logarithm of its token's chance. A score is a logit by the temperature, or itself at 0,
    and the noise."""
    return (temperature or 1.0) * SHARPNESS / (1 + (temperature / WARM) ** 2)


def of_scores(scores: Sequence[float], weight: float) -> list[float]:
    """Chances of a drafter's best tokens by their scores, noise included, best first. weight: from `sharpness`."""
    below = [score - scores[0] for score in scores]
    last = weight * below[-1] if len(below) == NUM_SCORES else min(weight * FAR, UNREPORTED)
    values = [math.exp(weight * gap) for gap in below]
    total = sum(values) + math.exp(OTHERS + OTHERS_BY_LAST * last)
    return [min(MOST, value / total) for value in values]


def of_margin(margin: float, weight: float) -> float:
    """Chance of a drafter's best token by its lead over the next, noise included. weight: from `sharpness`."""
    return min(MOST, 1 / (1 + math.exp(OTHERS_ALONE - OTHERS_BY_MARGIN * weight * min(margin, -FAR))))


def with_copies(rated: Mapping[int, float], copies: Mapping[int, float]) -> dict[int, float]:
    """Chances of tokens that a drafter rated, where copies propose some of them or others. What one gains the others
    lose in proportion."""
    chances = dict(rated)
    for token_id, copy in copies.items():
        head = min(MOST, max(UNRATED, chances.get(token_id, 0.0)))
        odds = math.exp(BOTH) * copy / (1 - copy) * (head / (1 - head)) ** HEAD
        chance = min(MOST, odds / (1 + odds))
        left = (1 - chance) / (1 - head)
        chances = {rated_id: min(MOST, value * left) for rated_id, value in chances.items()} | {token_id: chance}
    return chances
