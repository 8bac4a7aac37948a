"""One race at every k: tables, costs, and how close each lane came to the oracle. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..drafters import with_tables
from ..errors import UsageError
from ..events import Step
from ..spec import AUTO, LaneSpec
from .costs import Costs
from .oracle import Oracle, oracle
from .tables import Table, Text, seconds_at, seconds_of, steps_at

MOST = 1e6
"""Cap on margins in a recording: with a vocabulary of one token they are infinite."""


@dataclass(frozen=True)
class WhatIf:
    """A finished race's text, its drafts at each position by table, and its costs."""

    text: Text
    tables: Mapping[str, Table]
    costs: Costs

    def steps(self, drafter: str, k: int) -> list[Step]:
        """The race of this drafter at this k (see `steps_at`). Raises UsageError, naming the tables, if none fits."""
        for name in (drafter, table_name(drafter, k)):
            if name in self.tables:
                return steps_at(self.tables[name], self.text, k, self.costs)
        raise self._missing(f"{drafter!r} at k={k}")

    def offered(self) -> dict[str, list[int]]:
        """For each drafter, every k (ascending) that `steps` can compute and a step of the race could verify."""
        ks: dict[str, set[int]] = {}
        for table in self.tables.values():
            k = table.name.removeprefix(table.drafter)[1:]
            if k != AUTO:
                ks.setdefault(table.drafter, set()).update([int(k)] if k else range(1, len(self.costs.verify_s)))
        return {drafter: sorted(some) for drafter, some in ks.items()}

    def seconds(self) -> dict[str, dict[int, float]]:
        """For each drafter, the seconds of its race at every k that is `offered`."""
        by_drafter: dict[str, dict[int, float]] = {}
        for drafter, ks in self.offered().items():
            ks_of = {drafter: ks} if drafter in self.tables else {table_name(drafter, k): [k] for k in ks}
            timed = (seconds_at(self.tables[name], self.text, some, self.costs) for name, some in ks_of.items())
            by_drafter[drafter] = {k: seconds for each in timed for k, seconds in each.items()}
        return by_drafter

    def oracle(self, drafter: str) -> Oracle:
        """The `oracle` of this drafter or of a hybrid's parts, with drafts as long as `auto` k could make them. With
        tables for several k, each step may use any of them."""
        parts = list(with_tables(drafter))
        tables = [table for part in parts for table in self._widest(part)]
        return oracle(tables, self.text, self.costs, self._widest(parts[0])[0] if len(parts) > 1 else None)

    def longest(self, part: str) -> Table:
        """The table that `auto` k drafts from. Raises UsageError, as `oracle` and `steps` do, if there is none."""
        return self._widest(part)[-1]

    def _widest(self, part: str) -> list[Table]:
        """Tables ordered by the k that they serve."""
        copies = self.tables.get(table_name(part, AUTO))
        tables = [table for table in self.tables.values() if table.drafter == part and copies in (None, table)]
        if not tables:
            raise self._missing(repr(part))
        return sorted(tables, key=lambda table: max(map(len, table.drafts), default=0))

    def _missing(self, what: str) -> UsageError:
        return UsageError(f"no table for {what}; available: {', '.join(self.tables)[:200] or 'none'}")

    def shares(self, lanes: Iterable[tuple[LaneSpec, Sequence[Step]]]) -> dict[str, dict[str, float]]:
        """For each lane, by name: `seconds` of its drafter's oracle, and `share`, the oracle's seconds divided by those
        of the lane's own steps. Noise may push the share above 1."""
        shares = {}
        for lane, steps in lanes:
            if (taken := seconds_of(steps)) > 0:
                best = self.oracle(lane.drafter).seconds
                shares[lane.name] = {"seconds": best, "share": best / taken}
        return shares

    def to_json(self) -> dict[str, Any]:
        """The members of a recording."""
        return {
            "tables": {name: table.drafts for name, table in self.tables.items()},
            "table_margins": {
                name: [[round(min(margin, MOST), 2) for margin in row] for row in table.margins]
                for name, table in self.tables.items()
                if table.margins is not None
            },
            "costs": {"verify_s": self.costs.verify_s, "draft_s": dict(self.costs.draft_s)},
        }


def table_name(drafter: str, k: int | str) -> str:
    """Name of a table for one k: a block drafter's at that size, or "auto": the longest copies, for `auto` k to cut."""
    return f"{drafter}@{k}"
