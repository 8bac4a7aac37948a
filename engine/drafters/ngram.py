"""Prompt lookup: what followed the last time the text ended like this. Standard library only.

Source of the method: prompt lookup decoding (Saxena 2023), with the hash chains and overlapping copies of LZ77 (as in
DEFLATE, RFC 1951).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..core.errors import UsageError
from ..core.interfaces import Draft, Drafter
from . import Kind

MIN_MATCH = 1
MAX_MIN_MATCH = 16
LONG_MATCH = 4
MAX_MATCH = 32
MAX_CANDIDATES = 64
# Tokens before a match whose similarity decides between equally long ones: after a value that differs, the same field
# of an earlier record.
NEIGHBOURHOOD = 8
# Match length -> how many tokens to draft after a single earlier occurrence; all of k for longer matches. 1 and 3 fill
# steps of width 2 and 4.
TRUST = {1: 1, 2: 3}


@dataclass(frozen=True, slots=True)
class Copied:
    """What followed an earlier occurrence of a text's last `match` tokens. start: its place in the text. agreed: how
    many of its first tokens the best other occurrence of that length agrees on; None if there is none."""

    token_ids: tuple[int, ...]
    match: int
    agreed: int | None
    start: int


class NgramDrafter(Drafter):
    """Proposes what followed the longest earlier occurrence of the text's last tokens.

    Candidates are the positions after an earlier occurrence of the last LONG_MATCH tokens or, if there is none, of the
    last `min_match`; only the MAX_CANDIDATES most recent count. The match that reaches furthest back wins (up to
    MAX_MATCH); of equally long ones the one whose NEIGHBOURHOOD has the most distinct tokens in common with the text's
    end, then the most recent. What followed it is copied; a copy that runs into the end of the text continues into
    itself, so that a loop yields k tokens.

    A draft is as long as it is likely to hold: of two equally long matches, as far as the two best agree, but at least
    one token; of a single one, by TRUST. The cost of a call does not grow with the text: only new tokens are indexed,
    and the candidates are bounded. The proposal is a function of the tokens alone."""

    def __init__(self, min_match: int = MIN_MATCH) -> None:
        self._lengths = sorted({min_match, max(min_match, LONG_MATCH)}, reverse=True)
        self.prefill((), None)

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """Index the prompt; forget any earlier race."""
        self._ids: list[int] = []
        self._chains = [_Chain(length) for length in self._lengths]
        self._append(prompt_ids)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        """See `interfaces.Drafter`."""
        copies = self.look(token_ids, (), k)
        if not copies or not k:
            return Draft()
        best = copies[0]
        num = TRUST.get(best.match, k) if best.agreed is None else max(1, best.agreed)
        return Draft(best.token_ids, copied=(0, best.start)).first(num)

    def look(self, token_ids: Sequence[int], drafted: Sequence[int], k: int) -> list[Copied]:
        """What may be copied after `token_ids` and `drafted`, k tokens from committed text and from the copy itself:
        the best two places, or one, or none."""
        self._append(token_ids[len(self._ids) :])
        num_committed = len(self._ids)
        self._ids.extend(drafted)
        length, starts = self._longest_matches()
        copies = [self._copy(start, k) for start in starts]
        del self._ids[num_committed:]
        agreed = None
        if len(copies) == 2:
            agreed = next((i for i, (a, b) in enumerate(zip(*copies, strict=True)) if a != b), k)
        return [Copied(copy, length, agreed, start) for copy, start in zip(copies, starts, strict=True)]

    def _append(self, new: Sequence[int]) -> None:
        self._ids.extend(new)
        for chain in self._chains:
            chain.index(self._ids)

    def _longest_matches(self) -> tuple[int, list[int]]:
        """(length of the longest match, the one or two best positions after a match of that length), or (0, [])."""
        for chain in self._chains:
            best, starts = 0, []
            for start in islice(chain.candidates(self._ids), MAX_CANDIDATES):
                length = self._match_length(start, chain.length)
                if length > best:
                    best, starts = length, [start]
                elif length == best:
                    starts.append(start)
            if starts:
                return best, self._most_alike(starts)[:2]
        return 0, []

    def _most_alike(self, starts: list[int]) -> list[int]:
        """The positions, newest first, by how many distinct tokens their neighbourhoods share with the text's end."""
        if len(starts) < 2:
            return starts
        here = set(self._ids[-NEIGHBOURHOOD:])
        return sorted(
            starts, key=lambda start: -len(here.intersection(self._ids[max(0, start - NEIGHBOURHOOD) : start]))
        )

    def _match_length(self, start: int, known: int) -> int:
        """How many tokens before `start` equal the text's last ones; the first `known` do."""
        ids, end = self._ids, len(self._ids)
        length, limit = known, min(start, MAX_MATCH)
        while length < limit and ids[start - 1 - length] == ids[end - 1 - length]:
            length += 1
        return length

    def _copy(self, start: int, count: int) -> tuple[int, ...]:
        """`count` tokens from `start` on, running over the text's end into the copy itself."""
        tokens = self._ids[start : start + count]
        period = len(self._ids) - start
        while len(tokens) < count:
            tokens.append(tokens[-period])
        return tuple(tokens)


class _Chain:
    """For every position with a token, the earlier ones that follow the same `length` tokens, newest first."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._latest: dict[tuple[int, ...], int] = {}
        self._previous: list[int | None] = [None] * length  # too near the start

    def index(self, ids: list[int]) -> None:
        """Take in the positions added to `ids` since the last call."""
        length, latest, previous = self.length, self._latest, self._previous
        for position in range(len(previous), len(ids)):
            key = tuple(ids[position - length : position])
            previous.append(latest.get(key))
            latest[key] = position

    def candidates(self, ids: list[int]) -> Iterator[int]:
        """The indexed positions that follow the same tokens as the end of `ids`, most recent first."""
        at = self._latest.get(tuple(ids[-self.length :]))
        while at is not None:
            yield at
            at = self._previous[at]


def min_match_of(argument: str) -> int:
    """The argument as a number. Raises UsageError naming the limits."""
    if not argument:
        return MIN_MATCH
    if argument.isascii() and argument.isdigit() and len(argument) <= 2 and 1 <= int(argument) <= MAX_MIN_MATCH:
        return int(argument)
    raise UsageError(
        f"drafter 'ngram' takes a minimum match length from 1 to {MAX_MIN_MATCH}, as in ngram:2, not {argument!r}"
    )


KIND = Kind(
    parse=min_match_of,
    make=lambda min_match, context: NgramDrafter(min_match),
    label="n-gram (copies earlier text)",
    weightless=True,
    table="any k",
)
