"""The oracle: the fastest race that any choice of draft lengths allows with given drafters, knowing the whole text. No
rule can beat it at the same costs; `auto` k is measured against it. Standard library only.

A shortest path over positions: T[i] = min over m of D(m) + V(m) + T[i + m + 1], with m right tokens of the draft after
i committed ones (a wrong one adds cost but no token, since D and V never fall), and T = 0 at the end of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from operator import add

from .costs import Costs
from .tables import Table, Text, num_right


@dataclass(frozen=True)
class Oracle:
    """ks: how many tokens each step drafts, all of them right. seconds: sum over all steps."""

    ks: tuple[int, ...]
    seconds: float


def oracle(tables: Sequence[Table], text: Text, costs: Costs, copies: Table | None = None) -> Oracle:
    """The fastest race in which each step drafts any prefix of any table's draft.

    copies: a table that may continue another's draft at no extra cost, as `auto` k lets a copy continue a head's."""
    num = len(text.token_ids)
    right = {table.name: num_right(table, text) for table in tables}
    to_end = [0.0] * (num + len(costs.verify_s))  # seconds, by position
    drafts = [0] * num  # tokens drafted by the fastest step, by position
    for position in range(num - 1, -1, -1):
        room, ways = min(text.room(position), len(costs.verify_s) - 1), []
        for table in tables:
            draft_s, longest = costs.draft_s[table.name], min(right[table.name][position], room)
            carried = list(draft_s[: longest + 1])  # seconds, by length
            if copies and table is not copies:  # the shortest draft that a copy extends this far is the cheapest
                carried = carried[:1]
                for m in range(1, longest + 1):
                    more = right[copies.name][position + m] if position + m < num else 0
                    carried += [draft_s[m]] * (min(m + more, room) + 1 - len(carried))
            after = to_end[position + 1 : position + 1 + len(carried)]
            ways.append(min(zip(map(add, map(add, carried, costs.verify_s), after), count(), strict=False)))
        to_end[position], drafts[position] = min(ways)
    ks, position = [], 0
    while position < num:
        ks.append(drafts[position])
        position += ks[-1] + 1
    return Oracle(tuple(ks), to_end[0])
