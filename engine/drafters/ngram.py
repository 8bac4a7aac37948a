"""Prompt lookup: the tokens that followed the last time the text ended like this. Standard library only.

Source of the method: prompt lookup decoding (Saxena 2023) with the hash chains and the overlapping copies of LZ77 (as in DEFLATE, RFC 1951).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UsageError
from ..interfaces import Draft

MIN_MATCH = 1
MAX_MIN_MATCH = 16
MAX_MATCH = 32
MAX_CANDIDATES = 64
DRAFT_FOR_MATCH = {1: 1, 2: 3}
"""Match length -> the most tokens worth drafting; longer matches get all of k. Short matches seldom last, and a step's width follows its draft.
The values fill widths 2 and 4."""


class NgramDrafter:
    """Proposes what followed the longest earlier occurrence of the text's last tokens.

    A candidate is a position after an earlier occurrence of the last `min_match` tokens; the MAX_CANDIDATES most recent are looked at. The one whose
    preceding tokens agree furthest backwards wins (agreement counted up to MAX_MATCH), ties to the most recent. Its continuation is copied; where
    it runs into the end of the text it goes on into the draft itself, so a loop yields k tokens. How many are drafted depends on the match
    (DRAFT_FOR_MATCH). Each call costs the same however long the context is: only new tokens are indexed, and the candidates are bounded.
    """

    def __init__(self, min_match: int = MIN_MATCH) -> None:
        self.min_match = min_match
        self._ids: list[int] = []
        self._latest: dict[tuple[int, ...], int] = {}
        self._previous: list[int] = []

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """Index the prompt; forget any earlier race."""
        self._ids, self._latest, self._previous = [], {}, []
        self._append(prompt_ids)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        """See `interfaces.Drafter`. `token_ids` must extend those of the call before. O(new tokens), whatever the context."""
        self._append(token_ids[len(self._ids) :])
        match, start = self._longest_match()
        return Draft(self._copy(start, min(k, DRAFT_FOR_MATCH.get(match, k))) if match else ())

    def _append(self, new: Sequence[int]) -> None:
        """Index every position that has a next token: by the `min_match` tokens before it, chained to the position indexed under them before."""
        ids, n, latest, previous = self._ids, self.min_match, self._latest, self._previous
        ids.extend(new)
        for position in range(len(previous), len(ids)):
            key = tuple(ids[max(0, position - n) : position])  # shorter than n at the very start: matches no lookup
            previous.append(latest.get(key, -1))
            latest[key] = position

    def _longest_match(self) -> tuple[int, int]:
        """(length of the match, position after it), or (0, -1)."""
        ids, end = self._ids, len(self._ids)
        best, best_at = 0, -1
        if end <= self.min_match:
            return best, best_at
        at = self._latest.get(tuple(ids[-self.min_match :]), -1)
        for _ in range(MAX_CANDIDATES):
            if at < 0 or best == MAX_MATCH:
                break
            length = self.min_match
            while length < min(at, MAX_MATCH) and ids[at - 1 - length] == ids[end - 1 - length]:
                length += 1
            if length > best:
                best, best_at = length, at
            at = self._previous[at]
        return best, best_at

    def _copy(self, start: int, count: int) -> tuple[int, ...]:
        """`count` tokens from `start` on, running over the end of the text into the copy itself."""
        tokens = self._ids[start : start + count]
        period = len(self._ids) - start
        while len(tokens) < count:
            tokens.append(tokens[-period])
        return tuple(tokens)


def make(argument: str, context: Any) -> NgramDrafter:
    """`ngram` or `ngram:<minimum match length>`. Nothing of the context is needed."""
    return NgramDrafter(min_match(argument))


def min_match(argument: str) -> int:
    """The argument as a number. Raises UsageError naming the limits."""
    if not argument:
        return MIN_MATCH
    if argument.isascii() and argument.isdigit() and 1 <= int(argument) <= MAX_MIN_MATCH:
        return int(argument)
    raise UsageError(f"ngram's minimum match length must be an integer from 1 to {MAX_MIN_MATCH}, not {argument!r}")
