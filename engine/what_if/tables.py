"""A table of drafts by position, and the race that it tells at any k. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..drafters.rates import num_matching
from ..events import Step
from .costs import Costs

Draft = tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """What a drafter proposes after each committed token: `drafts[i]` after i of them, as many tokens as a step can
    verify and the race had room for. A shorter draft is its beginning. margins: how sure the drafter was of each token
    (see `MarginDrafter`); None of one that does not say."""

    name: str
    drafter: str
    drafts: tuple[Draft, ...]
    margins: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True)
class Text:
    """What a race committed: its prompt, its tokens, and how many it might have had (`max_new_tokens`)."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    limit: int

    def room(self, position: int) -> int:
        """The longest draft that the loop asks for there: the target's own token needs a place."""
        return self.limit - position - 1

    def step(self, index: int, position: int, draft: Draft, draft_s: float, verify_s: float) -> Step:
        """The step that verifies this draft there. What lies beyond the end of the text was not committed: neither
        accepted nor followed by a token of the target's own."""
        num = num_matching(draft, self.token_ids[position:])
        committed = self.token_ids[position : position + num + 1]
        return Step(index, position, draft, num, committed, draft_s, verify_s, None)


def steps_at(table: Table, text: Text, k: int, costs: Costs) -> list[Step]:
    """The race of the table's drafter at `k` drafts a step, step for step. Their counts and tokens are those of a real
    race; their times are computed from `costs`; widths and pieces are left out."""
    steps: list[Step] = []
    position, draft_s = 0, costs.draft_s[table.name]
    while position < len(text.token_ids):
        draft = table.drafts[position][: min(k, text.room(position))]
        steps.append(text.step(len(steps), position, draft, draft_s[len(draft)], costs.verify_s[len(draft)]))
        position += len(steps[-1].token_ids)
    return steps


def seconds_of(steps: Sequence[Step]) -> float:
    """Of the whole race."""
    return sum(step.seconds for step in steps)
