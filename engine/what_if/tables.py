"""Tables of drafts by position, and the race each implies at any size of its drafts. Standard library only."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..analysis.costs import Costs
from ..core.events import Step
from ..core.interfaces import Draft
from ..core.spec import kept
from ..drafters.pace import num_matching

TREES = "tree"


def table_name(drafter: str, k: int | str) -> str:
    """Name of a drafter's table for one k, or of the one for TREES. A table of chains for every k has the drafter's
    name."""
    return f"{drafter}@{k}"


@dataclass(frozen=True)
class Table:
    """What a drafter proposes: `drafts[i]` after i committed tokens, as long as a step can verify and the race had room
    for. A smaller draft is the first tokens of it; those of a tree come best first."""

    name: str
    drafter: str
    drafts: tuple[Draft, ...]

    @property
    def is_tree(self) -> bool:
        """Whether its drafts may branch."""
        return self.name == table_name(self.drafter, TREES)


@dataclass(frozen=True)
class Text:
    """What a race committed: its prompt, its tokens, and the most it could have had (`max_new_tokens`)."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    limit: int

    def room(self, position: int) -> int:
        """The largest draft that the loop requests at `position`, leaving room for the target's own token."""
        return self.limit - position - 1

    def right(self, draft: Draft, position: int) -> Sequence[int]:
        """Which tokens of a draft at `position` continue the text, ascending: the loop keeps those that are drafted."""
        written = self.token_ids[position : position + len(draft)]
        if not draft.parents:
            return range(num_matching(draft.token_ids, written))
        return kept(draft.parents, draft.token_ids, written)

    def step(self, index: int, position: int, draft: Draft, draft_s: float, verify_s: float) -> Step:
        """The step that verifies this draft at `position`. Past the end of the text nothing was committed: no draft
        token is accepted there, and no token of the target's own follows."""
        ids, num = draft.token_ids, len(self.right(draft, position))
        committed = self.token_ids[position : position + num + 1]
        return Step(index, position, ids, num, committed, draft_s, verify_s, None, parents=draft.parents)


def cut(draft: Draft, num: int) -> Draft:
    """The first `num` tokens of a draft and their places; a tree that does not branch becomes a chain."""
    short = draft.first(num)
    parents = () if short.parents == tuple(range(len(short))) else short.parents
    return Draft(short.token_ids, parents=parents)


def steps_at(table: Table, text: Text, num: int, costs: Costs) -> list[Step]:
    """The race of the table's drafter with up to `num` drafted tokens a step. Counts and tokens are those of a real
    race; times are computed from `costs`; widths, pieces and sources are left out."""
    steps: list[Step] = []
    position, draft_s = 0, costs.draft_s[table.name]
    while position < len(text.token_ids):
        draft = cut(table.drafts[position], min(num, text.room(position)))
        steps.append(text.step(len(steps), position, draft, draft_s[len(draft)], costs.verify_s[len(draft)]))
        position += len(steps[-1].token_ids)
    return steps
