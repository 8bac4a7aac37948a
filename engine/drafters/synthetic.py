"""The target's own next tokens, spoiled at a chosen rate: to study hardware at any acceptance, on any weights. Standard
library only.

It shows how fast a machine would be, never how good a drafter is: `synthetic` makes every view label it so.
`synthetic:RATE+X` also runs drafter X at every step and discards its draft: the time is X's, the acceptance RATE."""

import hashlib
from collections.abc import Sequence
from typing import Any

from ..core.errors import UsageError
from ..core.interfaces import BranchingDrafter, Draft, Drafter, Node
from ..core.spec import MAX_K
from ..progress import Progress
from . import DrafterContext, Kind, cache_bytes, check, make, most_drafts, parse
from .chances import sharpness

NOT_INSIDE = ("none", "synthetic")
# A token's lead over the next best, at any temperature: leaves enough branches for tests to reach every shape.
LOG_ODDS = 1.8


class SyntheticDrafter(Drafter):
    """Proposes `reference`, the completion that the target is about to write; each token is replaced, with probability
    1 - rate, by a different one below `vocab_size`. Which, and by what, depends on the seed and the token's position
    alone. Past the reference's end it proposes nothing.

    cost: a drafter that drafts at every step too, in vain; no draft is longer than its longest."""

    synthetic = True

    def __init__(
        self, reference: Sequence[int], rate: float, seed: int, vocab_size: int, cost: Drafter | None = None
    ) -> None:
        self._cost = cost
        if cost is not None:
            self.hidden_layers, self.max_k = cost.hidden_layers, cost.max_k
        self._reference, self._vocab_size = tuple(reference), vocab_size
        places = enumerate(reference)
        self._proposals = tuple(_spoil(token, position, rate, seed, vocab_size) for position, token in places)
        self._num_prompt_tokens = 0

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._num_prompt_tokens = len(prompt_ids)
        if self._cost is not None:
            self._cost.prefill(prompt_ids, hidden)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        if self._cost is not None:
            k = min(k, self.max_k)
            self._cost.propose(token_ids, hidden, k)
        position = len(token_ids) - self._num_prompt_tokens
        return Draft(self._proposals[position : position + k])


class SyntheticTree(SyntheticDrafter, BranchingDrafter):
    """The same drafts, with branches: where the first token of a place is spoiled, the true one is among those that
    follow."""

    # Between the scores of successive tokens, which say nothing about what is right.
    gap = 2.0

    def begin(self, token_ids: Sequence[int], hidden: Any) -> None:
        self._at = len(token_ids) - self._num_prompt_tokens

    def can_expand(self, node: Node) -> bool:
        return True

    def expand(self, nodes: Sequence[Node], num_best: int) -> list[list[tuple[int, float]]]:
        return [self._rated(self._at + node.depth)[:num_best] for node in nodes]

    def _rated(self, place: int) -> list[tuple[int, float]]:
        if place >= len(self._proposals):
            return []
        first, true = self._proposals[place], self._reference[place]
        others = [(true + i) % self._vocab_size for i in range(3)]
        ranked = list(dict.fromkeys((first, *(others[place % 3 :] + others[: place % 3]))))
        return [(token, -self.gap * rank) for rank, token in enumerate(ranked)]


def _spoil(token: int, position: int, rate: float, seed: int, vocab_size: int) -> int:
    noise = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=16).digest()
    if int.from_bytes(noise[:8], "big") < rate * 2**64:
        return token
    return (token + 1 + int.from_bytes(noise[8:], "big") % (vocab_size - 1)) % vocab_size


def parts_of(argument: str) -> tuple[float, str]:
    """`RATE` or `RATE+X` -> the rate, and X or "". Raises UsageError naming the limits."""
    text, plus, cost = argument.partition("+")
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:  # also if it is NaN
        raise UsageError(f"drafter 'synthetic' needs an acceptance rate from 0 to 1, as in synthetic:0.8, not {text!r}")
    if plus and (not cost or parse(cost)[0] in NOT_INSIDE):
        raise UsageError(
            f"drafter 'synthetic' can have the cost of another, as in synthetic:0.8+eagle3, not of {cost!r}"
        )
    if cost:
        check(cost)
    return rate, cost


def _make(parts: tuple[float, str], context: DrafterContext) -> SyntheticDrafter:
    rate, cost = parts
    if context.reference is None:
        raise UsageError("drafter 'synthetic' needs the target's own completion, which this race does not provide")
    inner = make(cost, context) if cost else None
    given = (context.reference(), rate, context.params.seed, context.loaded.prepared.vocab_size)
    if inner is not None:
        return SyntheticDrafter(*given, inner)
    tree = SyntheticTree(*given)
    tree.gap = LOG_ODDS / sharpness(context.params.temperature)
    return tree


def _cache_bytes(parts: tuple[float, str], loaded: Any, k: int, length: int, progress: Progress) -> int:
    from ..runner.prepared import sequence_bytes

    _, cost = parts
    inner = cache_bytes(cost, loaded, k, length, progress) if cost else 0
    return inner + sequence_bytes(loaded.prepared, length, k + 1)  # for the untimed run


def _most_drafts(parts: tuple[float, str], loaded: Any, progress: Progress) -> int:
    return most_drafts(parts[1], loaded, progress) if parts[1] else MAX_K


_LABEL = "synthetic drafts (made up)"
KIND = Kind(parts_of, _make, _LABEL, table="any k", cache_bytes=_cache_bytes, most_drafts=_most_drafts)
