"""Tables of drafts by position, and the race each implies at any k. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..drafters.pace import num_matching
from ..events import Step
from .costs import Costs

Draft = tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """What a drafter proposes: `drafts[i]` after i committed tokens, as long as a step can verify and the race had room
    for. A shorter draft is its prefix. margins: how sure the drafter was of each token (see `MarginDrafter`), or
    None."""

    name: str
    drafter: str
    drafts: tuple[Draft, ...]
    margins: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True)
class Text:
    """What a race committed: its prompt, its tokens, and the most it could have had (`max_new_tokens`)."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    limit: int

    def room(self, position: int) -> int:
        """The longest draft that the loop requests at `position`, leaving room for the target's own token."""
        return self.limit - position - 1

    def step(self, index: int, position: int, draft: Draft, draft_s: float, verify_s: float) -> Step:
        """The step that verifies this draft at `position`. Past the end of the text nothing was committed: no draft
        token is accepted there, and no token of the target's own follows."""
        num = num_matching(draft, self.token_ids[position : position + len(draft)])
        committed = self.token_ids[position : position + num + 1]
        return Step(index, position, draft, num, committed, draft_s, verify_s, None)


def steps_at(table: Table, text: Text, k: int, costs: Costs) -> list[Step]:
    """The race of the table's drafter with up to `k` drafted tokens a step. Counts and tokens are those of a real race;
    times are computed from `costs`; widths and pieces are left out."""
    steps: list[Step] = []
    position, draft_s = 0, costs.draft_s[table.name]
    while position < len(text.token_ids):
        draft = table.drafts[position][: min(k, text.room(position))]
        steps.append(text.step(len(steps), position, draft, draft_s[len(draft)], costs.verify_s[len(draft)]))
        position += len(steps[-1].token_ids)
    return steps


def seconds_at(table: Table, text: Text, ks: Iterable[int], costs: Costs) -> dict[int, float]:
    """Seconds of the race of `steps_at` at each of these k, without building its steps."""
    num, draft_s = len(text.token_ids), costs.draft_s[table.name]
    step_s = [draft + verify for draft, verify in zip(draft_s, costs.verify_s, strict=True)]
    lengths = [min(len(draft), text.room(i)) for i, draft in enumerate(table.drafts[:num])]
    right = num_right(table, text)
    seconds_by_k = {}
    for k in ks:
        position, seconds = 0, 0.0
        while position < num:
            length = lengths[position]
            if length > k:
                length = k
            seconds += step_s[length]
            position += (right[position] if right[position] < length else length) + 1
        seconds_by_k[k] = seconds
    return seconds_by_k


def num_right(table: Table, text: Text) -> list[int]:
    """For each draft, how many of its first tokens match the committed text."""
    return [
        len(draft) if draft == (written := text.token_ids[i : i + len(draft)]) else num_matching(draft, written)
        for i, draft in enumerate(table.drafts)
    ]


def seconds_of(steps: Sequence[Step]) -> float:
    """Seconds of all steps."""
    return sum(step.seconds for step in steps)
