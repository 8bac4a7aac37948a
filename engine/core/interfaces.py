"""The seams of the loop: a target that verifies, a drafter that proposes, a rule that accepts, an ending that cuts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from .spec import MAX_K, row_after

if TYPE_CHECKING:
    from torch import Tensor

Guarantee = Literal["same tokens", "same distribution"]  # as the baseline


@dataclass(frozen=True, slots=True)
class Draft:
    """Up to k proposed tokens: a chain or, with `parents`, a tree, whose rows `spec.py` numbers.

    logits: [len(draft), vocab], only from drafters whose rule needs their distribution.
    copied, sources, chances: see `events.Step`; only readers use them.
    parents: the row that each token follows, an earlier one; the tokens that follow one row differ. () for a chain, in
        which each follows the one before.
    """

    token_ids: tuple[int, ...] = ()
    logits: Any = None
    copied: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.token_ids)

    def after(self, row: int, token: int) -> int | None:
        """The row of the token that follows `row`, if it is this one; else None."""
        if not self.parents:
            return row + 1 if row < len(self.token_ids) and self.token_ids[row] == token else None
        return row_after(self.parents, self.token_ids, row, token)

    def first(self, num: int) -> Draft:
        """The draft cut to at most `num` tokens."""
        if num >= len(self.token_ids):
            return self
        copied = self.copied if self.copied and self.copied[0] < num else ()
        logits = None if self.logits is None else self.logits[:num]
        return Draft(self.token_ids[:num], logits, copied, self.parents[:num], self.sources[:num], self.chances[:num])


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A rule's decision.

    num_accepted: how many draft tokens are kept.
    token_ids: all committed tokens: those, then the target's own.
    rows: the row that decided each committed token; () means 0, 1, 2, ...
    """

    num_accepted: int
    token_ids: tuple[int, ...]
    rows: tuple[int, ...] = ()


class Target(Protocol):
    """A model with a cache of committed tokens, one for each lane. `decode.py` has the invariant on its length.

    What makes lanes equal: a row of logits, and the entries that it leaves in the cache, have the same bits whatever
    the width of the step, its other rows, and what was rolled back before. They depend on the tokens of the row's own
    path alone: in a tree its position is that of row 0 plus its depth, and it sees no other branch. The widths of a
    race are chosen so that this holds on its device (`exactness/`)."""

    vocab_size: int

    def extend(
        self, token_ids: Sequence[int], num_logits: int, *, parents: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Append tokens to the cache.

        token_ids: the tokens to append.
        num_logits: how many of them, from the first on, need logits; 0 in prefill.
        parents: see `Draft`; token_ids are then the rows of a tree. Raises RaceError where a target takes chains only.

        Returns logits [num_logits, vocab], and hidden states [len(token_ids), layers * dim] if they were requested at
        construction, else None. Both are valid until the next `extend` or whole step."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """After a step over a tree: keep only the cache entries of these rows, in this order. They are a path that
        begins at row 0."""
        ...

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens of the cache."""
        ...

    def width_for(self, num_tokens: int) -> int:
        """Rows of the forward that a step of this many tokens costs, padding included."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""
        ...

    def checksums(self, logits: Tensor) -> tuple[int, ...]:
        """One unsigned 64-bit integer per row of logits, computed from all its bits."""
        ...


class Verify(Protocol):
    """A whole step: `extend` and a rule in one call."""

    def __call__(self, token: int, draft: Draft, position: int) -> tuple[Acceptance, Tensor, Tensor | None]:
        """Append the last committed token and a draft to the cache, and judge the draft. `keep` and `rollback` follow
        as after `extend`.

        token: the last committed token.
        position: of the next token in the completion.

        Returns the rule's decision, logits [len(draft) + 1, vocab], and hidden states [len(draft) + 1, layers * dim] or
        None; both are valid until the next `extend` or whole step."""
        ...


@runtime_checkable
class WholeStepTarget(Target, Protocol):
    """A target that can judge drafts on its own device."""

    def verifier(self, accept: AcceptRule) -> Verify | None:
        """Whole steps under this rule, with the logits of `extend`; None where `extend` and the rule are to be used.
        Their noise may differ from the rule's in its last bits, so a race's lanes that promise the same tokens must
        all have targets of one kind."""
        ...


class Drafter(ABC):
    """Guesses the next tokens. It changes speed, never tokens. A new drafter derives from this class and implements
    `prefill` and `propose`; the attributes have defaults."""

    # The hidden states it needs from the target: indices into transformers' `hidden_states` (0: embeddings).
    hidden_layers: tuple[int, ...] = ()
    max_k: int = MAX_K  # the most tokens it can propose at once
    # Whether it knows the answer. Its speed then says nothing about a real drafter, and every view labels it.
    synthetic: bool = False
    # The drafters it chooses between, if that is all: `auto` k then calls each by itself, and weighs its own cost.
    parts: tuple[Drafter, ...] = ()
    runs: str = ""  # what runs it, in words, where that is not said of the target

    @abstractmethod
    def prefill(self, prompt_ids: Sequence[int], hidden: Tensor | None) -> None:
        """Read the prompt, before the first step of a new race; nothing of an earlier race may remain.

        prompt_ids: the whole prompt.
        hidden: [len(prompt_ids) - 1, layers * dim] if `hidden_layers` is not empty, else None.
        """

    @abstractmethod
    def propose(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> Draft:
        """Guess what follows.

        token_ids: all committed tokens, prompt included; not to be kept or changed.
        hidden: [new, layers * dim], the target's rows that decided the last step's tokens: those of the token before
            them and of all but the newest. None at the first step. Valid until the target's next step; not to be
            changed.
        k: the most tokens to return; fewer, or none, is fine. At 0 return an empty draft, but consume `hidden`.
        """


@dataclass(eq=False, slots=True)
class Node:
    """A token of a draft in the making, or (the root) the last committed one.

    path: the drafted tokens up to it.
    own: the chance that it is kept if its parent is; chance: that it is kept.
    source: see `events.Step`.
    row: its drafter's own number for it.
    children: by token.
    """

    path: tuple[int, ...] = ()
    own: float = 1.0
    source: int = -1
    parent: Node | None = None
    chance: float = 1.0
    is_expanded: bool = False
    row: int = 0
    children: dict[int, Node] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Places after the last committed token."""
        return len(self.path)


class BranchingDrafter(Drafter):
    """A drafter that rates several tokens for the same place: for trees, and for drafts that end where another token
    would not pay. Not used under a rule that weighs drafts by their logits."""

    most_nodes: int = MAX_K  # how many nodes `expand` takes at once

    @abstractmethod
    def begin(self, token_ids: Sequence[int], hidden: Tensor | None) -> None:
        """Start a draft. Arguments as for `propose`."""

    @abstractmethod
    def can_expand(self, node: Node) -> bool:
        """Whether `expand` takes this node now: the root, and as a rule children of nodes that it took before."""

    @abstractmethod
    def expand(self, nodes: Sequence[Node], num_best: int) -> list[list[tuple[int, float]]]:
        """For each node up to `num_best` tokens that may follow its path, with their scores, best first; none where
        nothing can be drafted. The first is what `propose` drafts there. Scores are on the scale of logits by
        temperature, noise included. A node's tokens and scores do not depend on the others."""


class Choice(ABC):
    """The target's choice of a token."""

    @abstractmethod
    def __call__(self, row: Tensor, position: int) -> int:
        """The token for a row of logits [vocab] at that position of the completion, decided by the two alone. Raises
        RaceError for NaN."""

    def at_once(self, rows: Tensor, draft: Sequence[int], position: int) -> list[int]:
        """Choices from rows [len(draft) + 1, vocab], the first at `position`, in one go: up to and including the first
        that differs from `draft`, or fewer: the same as row by row. [] is always right."""
        return []


class AcceptRule(Protocol):
    guarantee: Guarantee

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        """Judge a draft by the target's logits [len(draft) + 1, vocab]; row 0 decides the token at `position` of the
        completion. At least one token is committed."""
        ...


class Ending(Protocol):
    """Where a completion ends: by its tokens alone, however many come at once. Keeps what it has seen, so it is used
    for one lane."""

    def cut(self, token_ids: Sequence[int]) -> tuple[int, str | None]:
        """How many of these newly committed tokens count, and one of `events.FINISH_REASONS` if the completion ends
        with the last of them, else None: then all count."""
        ...
