"""What `auto` k believes of copies and of a head's tokens: priors, then what the race shows. Standard library only.

A prior is a share of cases, worth a number of cases. All were measured together: docs/log.md, 2026-11-22, `auto` judged
by the oracle.
"""

from __future__ import annotations

from typing import Literal

from .ngram import Copy
from .rates import MarginOdds, Rate

CopyKind = Literal["agreed", "lone", "contested"]
"""Of a token of a copy: the two best places say it; there is one place; or the two part here."""
COPIES: dict[CopyKind, tuple[float, ...]] = {
    "agreed": (0.68, 0.88, 0.96, 0.985, 0.995, 0.998),
    "lone": (0.3, 0.56, 0.78, 0.87, 0.957, 0.985),
    "contested": (0.22,),
}
"""Chance of a copied token, by how many tokens match before it, those of the copy included: 1, 2 or more, 4, 8, 16,
32."""
SAME_ERROR = 0.3
"""Where a copy and the head are both wrong, how often they say the same."""
NEXT = 0.78
WEIGHT = 8.0
COPY_FORGET = 0.97


class Beliefs:
    """Of one race. by_place: acceptance of the head's tokens by their place in the draft."""

    def __init__(self) -> None:
        self._copies = {
            kind: [Rate(prior, WEIGHT, COPY_FORGET) for prior in priors] for kind, priors in COPIES.items()
        }
        self.of_margin = MarginOdds()
        self.next = Rate(NEXT, WEIGHT)

    def of_copy(self, copy: Copy) -> list[Rate]:
        """Of each token of a copy, given that all before it are right."""
        agreed = copy.num_agreed
        found = []
        for i in range(len(copy.token_ids)):
            kind: CopyKind = "lone" if agreed is None or i > agreed else "agreed" if i < agreed else "contested"
            rates = self._copies[kind]
            found.append(rates[min((copy.match + i).bit_length(), len(rates)) - 1])
        return found


def where_same(copy: float, head: float) -> float:
    """The chance that both are right, where both say the same; arguments: the chance of each alone."""
    right = copy * head
    return right / (right + SAME_ERROR * (1 - copy) * (1 - head))


def where_other(copy: float, head: float) -> tuple[float, float]:
    """The chances of the copy and of the head, where they say different things."""
    ways = copy * (1 - head), head * (1 - copy), (1 - SAME_ERROR) * (1 - copy) * (1 - head)
    return ways[0] / sum(ways), ways[1] / sum(ways)
