"""`auto` k simulated on tables, at computed costs. Standard library only.

Trees: at each position as many tokens as are worth most, by their chances and the lane's speed so far. The real rule
also decides which passes of its drafter pay. Chains without chances: the real rule (`drafters/by_rate.py`), with a
drafter that answers from a table and a clock that advances by what drafts cost. A real race would differ: its times
scatter, and the rule itself takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ..core.events import Step
from ..core.interfaces import Draft, Drafter
from ..core.spec import AUTO, MAX_AUTO_K
from ..drafters.by_rate import ByRateDrafter
from ..drafters.pace import Pace
from .judged import WhatIf
from .tables import Table, cut


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
        draft = cut(self._table.drafts[len(token_ids) - self._num_prompt_tokens], k)
        self._clock.now += self._draft_s[len(draft)]
        return draft


def auto_steps(computed: WhatIf, drafter: str) -> list[Step]:
    """The race of this drafter at k "auto" as it is simulated. Raises UsageError, naming the tables, if there is none
    of it."""
    table = computed.tables_of(drafter, AUTO)[-1]
    draft_s, verify_s = computed.costs.draft_s[table.name], computed.costs.verify_s[: MAX_AUTO_K + 1]
    by_chance = table.is_tree and any(draft.chances for draft in table.drafts)
    draft_at = (_by_chance if by_chance else _by_rate)(computed, table, draft_s, verify_s)
    steps: list[Step] = []
    position = 0
    while position < len(computed.text.token_ids):
        draft, seconds = draft_at(position, min(computed.text.room(position), len(verify_s) - 1))
        steps.append(computed.text.step(len(steps), position, draft, seconds, verify_s[len(draft)]))
        position += len(steps[-1].token_ids)
    return steps


# From a position and the most tokens to the draft and its seconds. Positions come in the order of a race.
DraftAt = Callable[[int, int], tuple[Draft, float]]


def _by_chance(computed: WhatIf, table: Table, draft_s: Sequence[float], verify_s: Sequence[float]) -> DraftAt:
    pace, step_s = Pace(verify_s), [draft + verify for draft, verify in zip(draft_s, verify_s, strict=False)]
    last, last_s = 0, 0.0

    def draft_at(position: int, most: int) -> tuple[Draft, float]:
        nonlocal last, last_s
        if position:
            pace.add(position - last, last_s)
        draft = cut(table.drafts[position], most)
        worths = accumulate(draft.chances, initial=0.0)
        values = [worth - pace.rate * seconds for worth, seconds in zip(worths, step_s, strict=False)]
        num = values.index(max(values))
        last, last_s = position, step_s[num]
        return cut(draft, num), draft_s[num]

    return draft_at


def _by_rate(computed: WhatIf, table: Table, draft_s: Sequence[float], verify_s: Sequence[float]) -> DraftAt:
    clock, text = Clock(), computed.text
    auto = ByRateDrafter(TableDrafter(table, draft_s, clock), verify_s, clock)
    auto.calibrate(text.prompt_ids, None)
    auto.prefill(text.prompt_ids, None)

    def draft_at(position: int, most: int) -> tuple[Draft, float]:
        began = clock()
        draft = auto.propose((*text.prompt_ids, *text.token_ids[:position]), None, most)
        return draft, clock() - began

    return draft_at
