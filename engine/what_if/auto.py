"""`auto` k simulated on tables: the real rule (`drafters/auto.py`), with drafters that answer from tables and a clock
that advances by what drafts cost. Standard library only.

A real race would differ: its times scatter, and the rule itself takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..drafters import with_tables
from ..drafters.auto import AutoDrafter
from ..drafters.hybrid import HybridDrafter
from ..drafters.ngram import Copy, NgramDrafter, min_match_of
from ..events import Step
from ..interfaces import Draft, Drafter, GoOn, MarginDrafter
from ..spec import MAX_AUTO_K
from .judged import WhatIf
from .tables import Table


class Clock:
    """Time that advances only when a draft is paid for."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class TableDrafter(Drafter):
    """Drafts from a table, at the table's costs."""

    def __init__(self, table: Table, draft_s: Sequence[float], clock: Clock) -> None:
        self._table, self._draft_s, self._clock = table, draft_s, clock
        self._num_prompt_tokens = 0

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._num_prompt_tokens = len(prompt_ids)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        draft = self._table.drafts[len(token_ids) - self._num_prompt_tokens][:k]
        self._clock.now += self._draft_s[len(draft)]
        return Draft(draft)


class MarginTableDrafter(TableDrafter, MarginDrafter):
    """A TableDrafter for a table with margins."""

    def propose_while(self, token_ids: Sequence[int], hidden: Any, k: int, go_on: GoOn) -> Draft:
        assert self._table.margins is not None
        place = len(token_ids) - self._num_prompt_tokens
        draft, margins = self._table.drafts[place][:k], self._table.margins[place]
        self._clock.now += self._draft_s[0]
        for num, (token_id, margin) in enumerate(zip(draft, margins, strict=False), 1):
            self._clock.now += self._draft_s[num] - self._draft_s[num - 1]
            if not go_on(token_id, margin):
                return Draft(draft[:num])
        return Draft(draft)


class PaidCopies(NgramDrafter):
    """The n-gram drafter, with lookups that advance the clock."""

    def __init__(self, min_match: int, seconds: float, clock: Clock) -> None:
        super().__init__(min_match)
        self._seconds, self._clock = seconds, clock

    def look(self, token_ids: Sequence[int], drafted: Sequence[int], k: int) -> Copy:
        self._clock.now += self._seconds
        return super().look(token_ids, drafted, k)


def auto_steps(found: WhatIf, drafter: str) -> list[Step]:
    """The race of this drafter or hybrid at k "auto", as the rule would run it at the computed costs. Raises
    UsageError, naming the tables, if one is missing."""
    clock, text, costs = Clock(), found.text, found.costs
    parts = [_part(found, part, clock) for part in with_tables(drafter)]
    whole = HybridDrafter(*parts) if len(parts) > 1 else parts[0]
    auto = AutoDrafter(whole, costs.verify_s[: MAX_AUTO_K + 1], clock)
    auto.calibrate(text.prompt_ids, None)
    auto.prefill(text.prompt_ids, None)
    steps: list[Step] = []
    position = 0
    while position < len(text.token_ids):
        began = clock()
        token_ids = (*text.prompt_ids, *text.token_ids[:position])
        draft = auto.propose(token_ids, None, min(text.room(position), MAX_AUTO_K)).token_ids
        steps.append(text.step(len(steps), position, draft, clock() - began, costs.verify_s[len(draft)]))
        position += len(steps[-1].token_ids)
    return steps


def _part(found: WhatIf, part: str, clock: Clock) -> Drafter:
    table = found.longest(part)
    draft_s = found.costs.draft_s[table.name]
    name, _, argument = part.partition(":")
    if name == "ngram":
        return PaidCopies(min_match_of(argument), draft_s[-1], clock)
    return (TableDrafter if table.margins is None else MarginTableDrafter)(table, draft_s, clock)
