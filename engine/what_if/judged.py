"""One race at every size of its drafts: tables, costs, and how close each lane came to the oracle; made anew or read
from a checked recording. Standard library only."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from ..analysis.costs import Costs
from ..analysis.metrics import seconds_of
from ..core.errors import UsageError
from ..core.events import Step, token_ids
from ..core.interfaces import Draft
from ..core.spec import BASELINE, MAX_AUTO_K, LaneSpec, tree_size
from ..recordings.recording import Recording
from .oracle import oracle
from .tables import TREES, Table, Text, steps_at, table_name

MAX_WORK = 500_000  # Limit on tables times tokens times step lengths. A race on the page has at most 6 * 1,000 * 64.
_NAME = re.compile(r"(.*?)(?:@(?:[1-9][0-9]?|tree))?", re.DOTALL)  # see `table_name`
OLD = "@auto"  # ends the names of tables that older versions kept for `auto` k


@dataclass(frozen=True)
class WhatIf:
    """A finished race's text, its drafts at each position by table, and its costs. drawn: see `Odds.expected`, by
    drafter."""

    text: Text
    tables: Mapping[str, Table]
    costs: Costs
    drawn: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    def steps(self, drafter: str, k: int | str) -> list[Step]:
        """The race of this drafter at this k, an integer or tree:N (see `steps_at`). A tree's table may be named in
        place of the drafter, k is then N. Raises UsageError, naming the tables, if none fits."""
        size = tree_size(k)
        for name in [table_name(drafter, TREES)] if size else [drafter, table_name(drafter, k)]:
            table = self.tables.get(name)
            if table and not (table.is_tree and (size or int(k)) > _reach(table)):
                return steps_at(table, self.text, size or int(k), self.costs)
        raise self._missing(f"{drafter!r} at k={k}")

    def offered(self) -> dict[str, list[int]]:
        """By drafter, or by name for a table of trees, every size of drafts (ascending) that `steps` can compute and a
        step of the race could verify."""
        sizes: dict[str, set[int]] = {}
        every = range(1, len(self.costs.verify_s))
        for table in self.tables.values():
            if table.is_tree:
                sizes[table.name] = {n for n in every if n <= _reach(table)}
            else:
                k = table.name.removeprefix(table.drafter)[1:]
                sizes.setdefault(table.drafter, set()).update([int(k)] if k else every)
        return {drafter: sorted(some) for drafter, some in sizes.items()}

    def seconds(self) -> dict[str, dict[int, float]]:
        """The seconds of the race at everything that is `offered`."""
        return {of: {k: seconds_of(self.steps(of, k)) for k in ks} for of, ks in self.offered().items()}

    def rates(self) -> dict[str, dict[int, float]]:
        """The same as tokens a second, where that is known."""
        num = len(self.text.token_ids)
        rates = {name: {k: num / s for k, s in by_k.items() if s} for name, by_k in self.seconds().items()}
        return {name: by_k for name, by_k in rates.items() if by_k}

    def tables_of(self, drafter: str, k: int | str) -> list[Table]:
        """What a lane of this drafter at this k drafts from: its table of trees or, where it has none, those of chains,
        the longest drafts last. Raises UsageError, as `oracle` and `steps` do, if there is none."""
        trees = self.tables.get(table_name(drafter, TREES))
        if trees and isinstance(k, str):
            return [trees]
        chains = [table for table in self.tables.values() if table.drafter == drafter and not table.is_tree]
        if not chains:
            raise self._missing(f"{drafter!r} at k={k}")
        return sorted(chains, key=lambda table: max(map(len, table.drafts), default=0))

    def oracle(self, drafter: str, k: int | str) -> float:
        """Seconds of the `oracle` of such a lane. With tables for several k, each step may use any of them."""
        return oracle(self.tables_of(drafter, k), self.text, self.costs)

    def _missing(self, what: str) -> UsageError:
        return UsageError(f"no table for {what}; available: {', '.join(self.tables)[:200] or 'none'}")

    def shares(self, lanes: Iterable[tuple[LaneSpec, Sequence[Step]]]) -> dict[str, dict[str, float]]:
        """For each lane, by name: `seconds` of its oracle, and `share`, the oracle's seconds divided by those of the
        lane's own steps. Noise may push the share above 1."""
        shares = {}
        for lane, steps in lanes:
            if (taken := seconds_of(steps)) > 0:
                best = self.oracle(lane.drafter, lane.k)
                shares[lane.name] = {"seconds": best, "share": best / taken}
        return shares

    def to_json(self) -> dict[str, Any]:
        """The members of a recording."""
        trees = [table for table in self.tables.values() if table.is_tree]
        members = {
            "tables": {name: [draft.token_ids for draft in table.drafts] for name, table in self.tables.items()},
            "table_parents": {table.name: [draft.parents for draft in table.drafts] for table in trees},
            "drawn": dict(self.drawn),
            "costs": {"verify_s": self.costs.verify_s, "draft_s": dict(self.costs.draft_s)},
        }
        return {name: member for name, member in members.items() if member}


def _reach(table: Table) -> int:
    """The largest trees that the table holds; where none is as large, there are no more tokens."""
    return max(MAX_AUTO_K, max(map(len, table.drafts), default=0))


def what_if_of(recording: Recording) -> WhatIf | None:
    """The tables and costs of a recording; None if it lacks either.

    Raises UsageError if computing with them would exceed MAX_WORK."""
    tables = {name: drafts for name, drafts in recording.get("tables", {}).items() if not name.endswith(OLD)}
    costs = recording.get("costs")
    if not tables or not costs:
        return None
    spec, events = recording.spec, recording.events
    written = [token for name in spec.named(BASELINE) for token in token_ids(events, name)]
    if len(tables) * len(written) * len(costs["verify_s"]) > MAX_WORK:
        raise UsageError(
            f"{len(tables)} tables, {len(written)} tokens and {len(costs['verify_s'])} lengths of a step are more than "
            f"can be computed here: multiplied, they may be at most {MAX_WORK}"
        )
    text = Text(tuple(recording["prompt"]["token_ids"]), tuple(written), spec.params.max_new_tokens)
    by_name: dict[str, Table] = {}
    for name, drafts in tables.items():
        match = _NAME.fullmatch(name)
        assert match is not None
        rows = zip(drafts, recording.get("table_parents", {}).get(name, repeat(())), strict=False)
        made = (Draft(tuple(ids), parents=tuple(follows)) for ids, follows in rows)
        by_name[name] = Table(name, match[1], tuple(made))
    drafts_s = {name: tuple(costs["draft_s"][name]) for name in by_name}
    return WhatIf(text, by_name, Costs(tuple(costs["verify_s"]), drafts_s), recording.get("drawn", {}))
