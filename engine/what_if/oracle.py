"""The oracle: the fastest race that any choice of sizes allows with given drafts, knowing the whole text. No rule can
beat it at the same costs; `auto` k is measured against it. Standard library only.

A shortest path over positions: T[i] = min over n of D(n) + V(n) + T[i + kept(n) + 1], with kept(n) right tokens among
the first n of the draft after i committed ones, and T = 0 at the end of the text. A last token that is wrong adds cost
but no token, since D and V never fall; so n is 0 or ends at a right one.
"""

from collections.abc import Sequence

from ..analysis.costs import Costs
from .tables import Table, Text


def oracle(tables: Sequence[Table], text: Text, costs: Costs) -> float:
    """Seconds of the fastest race in which each step drafts the first tokens of any table's draft."""
    num, most = len(text.token_ids), len(costs.verify_s) - 1
    to_end = [0.0] * (num + most + 1)  # seconds, by position
    step_s = [[d + v for d, v in zip(costs.draft_s[table.name], costs.verify_s, strict=True)] for table in tables]
    for position in range(num - 1, -1, -1):
        room, ways = min(text.room(position), most), []
        for table, seconds in zip(tables, step_s, strict=True):
            right = text.right(table.drafts[position], position)
            ends = (0, *(i + 1 for i in right if i < room))
            ways.append(min(seconds[n] + to_end[position + kept + 1] for kept, n in enumerate(ends)))
        to_end[position] = min(ways)
    return to_end[0]
