"""What one race tells of every k: tables, costs, and how near each lane came to the oracle. Standard library only."""

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
from .tables import Table, Text, seconds_of, steps_at

MOST = 1e6
"""A margin beyond it is written as this: of a vocabulary of one token it is infinite."""


@dataclass(frozen=True)
class WhatIf:
    """Of a race that was held: what it committed, what was drafted at each position, by table, and what it cost."""

    text: Text
    tables: Mapping[str, Table]
    costs: Costs

    def steps(self, drafter: str, k: int) -> list[Step]:
        """The race of this drafter at this k; see `steps_at`. Raises UsageError, naming the tables, where there is none
        of it."""
        for name in (drafter, table_name(drafter, k)):
            if name in self.tables:
                return steps_at(self.tables[name], self.text, k, self.costs)
        raise self._missing(f"{drafter!r} at k={k}")

    def offered(self) -> dict[str, list[int]]:
        """Of each drafter every k, ascending, that `steps` knows of it and a step of the race could verify."""
        found: dict[str, set[int]] = {}
        for table in self.tables.values():
            k = table.name.removeprefix(table.drafter)[1:]
            if k != AUTO:
                found.setdefault(table.drafter, set()).update([int(k)] if k else range(1, len(self.costs.verify_s)))
        return {drafter: sorted(ks) for drafter, ks in found.items()}

    def oracle(self, drafter: str) -> Oracle:
        """Of this drafter, or a hybrid's parts: see `oracle`. Where `auto` k may draft more than the drafter alone
        would, that counts; of a drafter that was asked at several k, each is open to every step."""
        parts = list(with_tables(drafter))
        tables = [table for part in parts for table in self._widest(part)]
        return oracle(tables, self.text, self.costs, self._widest(parts[0])[0] if len(parts) > 1 else None)

    def longest(self, part: str) -> Table:
        """What `auto` k drafts from. Raises UsageError, as `oracle` and `steps` do, where there is no table."""
        return self._widest(part)[-1]

    def _widest(self, part: str) -> list[Table]:
        """In the order of the k that they serve."""
        copies = self.tables.get(table_name(part, AUTO))
        tables = [table for table in self.tables.values() if table.drafter == part and copies in (None, table)]
        if not tables:
            raise self._missing(repr(part))
        return sorted(tables, key=lambda table: max(map(len, table.drafts), default=0))

    def _missing(self, what: str) -> UsageError:
        return UsageError(f"there is no table of {what}; there are: {', '.join(self.tables) or 'none'}")

    def shares(self, lanes: Iterable[tuple[LaneSpec, Sequence[Step]]]) -> dict[str, dict[str, float]]:
        """Of each of these lanes, by name: `seconds` of the oracle of its drafter, and `share`, those over the seconds
        that the lane's own steps took: the part of the oracle's speed that it reached. Noise may carry it above 1."""
        found = {}
        for lane, steps in lanes:
            if (taken := seconds_of(steps)) > 0:
                best = self.oracle(lane.drafter).seconds
                found[lane.name] = {"seconds": best, "share": best / taken}
        return found

    def to_json(self) -> dict[str, Any]:
        """Members of a recording."""
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
    """The name of a table that serves one k: of a block drafter asked at that size; "auto": of the longest copies,
    which `auto` k cuts as it likes."""
    return f"{drafter}@{k}"
