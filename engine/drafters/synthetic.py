"""The target's own next tokens, spoiled at a chosen rate: to study hardware at any acceptance, on any weights. Standard library only.

What it shows is how fast a machine would be, never how good a drafter is: the attribute `synthetic` makes every view label it so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ..errors import UsageError
from ..interfaces import Draft
from . import DrafterContext, Kind


class SyntheticDrafter:
    """Proposes `reference`, the completion that the target is about to write; each token is replaced, with probability 1 - rate, by a different
    one below `vocab_size`. Which, and by what, depends on the seed and the token's position alone. Past the reference's end it proposes nothing."""

    hidden_layers: tuple[int, ...] = ()
    synthetic = True

    def __init__(self, reference: Sequence[int], rate: float, seed: int, vocab_size: int) -> None:
        self._proposals = tuple(_spoil(token, position, rate, seed, vocab_size) for position, token in enumerate(reference))
        self._num_prompt_tokens = 0

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._num_prompt_tokens = len(prompt_ids)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        position = len(token_ids) - self._num_prompt_tokens
        return Draft(self._proposals[position : position + k])


def _spoil(token: int, position: int, rate: float, seed: int, vocab_size: int) -> int:
    noise = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=16).digest()
    if int.from_bytes(noise[:8], "big") < rate * 2**64:
        return token
    return (token + 1 + int.from_bytes(noise[8:], "big") % (vocab_size - 1)) % vocab_size


def rate_of(argument: str) -> float:
    """The argument as a number. Raises UsageError naming the limits."""
    try:
        rate = float(argument)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:  # also where it is NaN
        raise UsageError(f"drafter 'synthetic' needs an acceptance rate from 0 to 1, as in synthetic:0.8, not {argument!r}")
    return rate


def _make(rate: float, context: DrafterContext) -> SyntheticDrafter:
    if context.reference is None:
        raise UsageError("drafter 'synthetic' needs the target's own completion, which this race does not provide")
    return SyntheticDrafter(context.reference(), rate, context.params.seed, context.loaded.prepared.vocab_size)


KIND = Kind(rate_of, _make)
