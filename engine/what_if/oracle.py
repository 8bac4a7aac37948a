"""The oracle: the fastest that any choice of draft lengths can be with given drafters, made with knowledge of the whole
text. No rule can do better at the same costs; `auto` k is measured by it. Standard library only.

A shortest path over positions: T[i] = min over m of D(m) + V(m) + T[i + m + 1], where m are right tokens of the draft
after i committed tokens (a wrong one adds cost and no token, since D and V never fall), and T is 0 at the text's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..drafters.rates import num_matching
from .costs import Costs
from .tables import Table, Text


@dataclass(frozen=True)
class Oracle:
    """ks: how many tokens each step drafts, all of them right. seconds: of all steps."""

    ks: tuple[int, ...]
    seconds: float


def oracle(tables: Sequence[Table], text: Text, costs: Costs, copies: Table | None = None) -> Oracle:
    """The fastest race in which each step takes any beginning of any table's draft. copies: a draft of another table
    may go on with what this one has there, as `auto` k lets a head's draft end in a copy; the copy costs nothing
    more."""
    num = len(text.token_ids)
    right = {table.name: _right(table, text) for table in tables}
    then = right[copies.name] if copies else [0] * num
    best: list[tuple[float, int]] = [(0.0, 0)] * (num + 1)  # (seconds to the end, drafts of the step) by position
    for position in range(num - 1, -1, -1):
        room = min(text.room(position), len(costs.verify_s) - 1)

        def ways(position: int = position, room: int = room) -> Iterator[tuple[float, int]]:
            """(seconds of a draft, its length)"""
            for table in tables:
                for m in range(min(right[table.name][position], room) + 1):
                    draft_s, place = costs.draft_s[table.name][m], position + m
                    more = then[place] if place < num and table is not copies and m else 0
                    for length in range(m, min(m + more, room) + 1):
                        yield draft_s, length

        best[position] = min(
            (draft_s + costs.verify_s[m] + best[min(position + m + 1, num)][0], m) for draft_s, m in ways()
        )
    ks, position = [], 0
    while position < num:
        ks.append(best[position][1])
        position += ks[-1] + 1
    return Oracle(tuple(ks), best[0][0])


def _right(table: Table, text: Text) -> list[int]:
    """How many tokens of each draft are what was committed there."""
    return [num_matching(draft, text.token_ids[i : i + len(draft)]) for i, draft in enumerate(table.drafts)]
