"""The three seams of the loop: a target that verifies, a drafter that proposes, a rule that accepts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from .spec import MAX_K

if TYPE_CHECKING:
    from torch import Tensor

Guarantee = Literal["same tokens", "same distribution"]
GoOn = Callable[[int, float], bool]
"""Told each token as it is drafted, and its margin: by how much its logit led the next best, noise included. Whether to
draft another."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Up to k proposed token ids; `logits` [k, vocab] only from drafters whose rule needs their distribution. copied:
    as in `events.Step`; for readers alone."""

    token_ids: tuple[int, ...] = ()
    logits: Any = None
    copied: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.token_ids)

    def first(self, num: int) -> Draft:
        """The draft cut to at most `num` tokens."""
        if num >= len(self.token_ids):
            return self
        copied = self.copied if self.copied and self.copied[0] < num else ()
        return Draft(self.token_ids[:num], None if self.logits is None else self.logits[:num], copied)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a rule made of a draft: how many of its tokens stand, and all committed tokens (those, then the target's
    own)."""

    num_accepted: int
    token_ids: tuple[int, ...]


class Target(Protocol):
    """A model with a cache of committed tokens. See `decode.py` for the invariant on its length."""

    vocab_size: int

    def extend(self, token_ids: Sequence[int], num_logits: int) -> tuple[Tensor, Tensor | None]:
        """Append tokens to the cache. Returns logits [num_logits, vocab] of the first `num_logits` of them (prefill
        asks for 0) and, where hidden states were asked for at construction, hidden [len(token_ids), layers * dim], else
        None. Valid until the next call."""
        ...

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens of the cache."""
        ...

    def width_for(self, num_tokens: int) -> int:
        """Rows of the forward that a step of this many tokens costs, padding included."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done everything asked of it."""
        ...

    def checksums(self, logits: Tensor) -> tuple[int, ...]:
        """One unsigned 64-bit integer per row of logits, a function of all its bits."""
        ...


class Verify(Protocol):
    """A whole step: what `extend` and a rule do, in one go."""

    def __call__(self, token: int, draft: Draft, position: int) -> tuple[Acceptance, Tensor, Tensor | None]:
        """Append the last committed `token` and a draft to the cache, and judge the draft; `position` is that of the
        next token in the completion. Returns what the rule says, logits [len(draft) + 1, vocab], and hidden [len(draft)
        + 1, layers * dim] or None; both valid until the next call."""
        ...


@runtime_checkable
class WholeStepTarget(Target, Protocol):
    """A target that can judge drafts where its logits are."""

    def verifier(self, accept: AcceptRule) -> Verify | None:
        """Whole steps under this rule; None where `extend` and the rule itself are to be used. Both give the same, bit
        for bit. The same for every lane of a race whose rules promise the same tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """What a drafter takes beside its target. weight_bytes: of weights as they lie in memory; what it shares with the
    target counts 0. token_bytes: of cache for a token of context, keys and values."""

    weight_bytes: int = 0
    token_bytes: int = 0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.weight_bytes + other.weight_bytes, self.token_bytes + other.token_bytes)


class Drafter(ABC):
    """Guesses what the target will say next. It changes speed, never tokens. A new drafter derives from this class and
    writes `prefill` and `propose`; the attributes have defaults."""

    hidden_layers: tuple[int, ...] = ()
    """The target's hidden states that it asks for, indices into transformers' `hidden_states` (0: embeddings); () for
    none."""
    max_k: int = MAX_K
    """The most tokens that it can propose at once, however many are asked for."""
    synthetic: bool = False
    """Whether it knows what the target will say. Its speed then says nothing of a real drafter, and every view labels
    it."""
    parts: tuple[Drafter, ...] = ()
    """The drafters that it chooses between, if that is all it does; () for none. `auto` k asks them and not their
    owner: it weighs each by its own cost and acceptance."""
    memory: Memory = Memory()

    @abstractmethod
    def prefill(self, prompt_ids: Sequence[int], hidden: Tensor | None) -> None:
        """See the prompt, before the first step. `hidden` [len(prompt) - 1, layers * dim] if it asked for hidden
        states. Starts a new race: nothing of an earlier one may remain."""

    @abstractmethod
    def propose(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> Draft:
        """Guess at most k tokens after `token_ids`, all tokens committed so far, prompt included (not to be kept or
        changed). `hidden` [new, layers * dim]: rows of the target for the tokens that its last step committed, except
        the newest; None at the first step. Valid until the target's next step. Fewer tokens, or none, is fine. k = 0:
        return an empty draft, but consume `hidden`."""


class MarginDrafter(Drafter):
    """A drafter that knows how sure it is of each token. `auto` k ends its drafts where the next token would not
    pay."""

    @abstractmethod
    def propose_while(self, token_ids: Sequence[int], hidden: Tensor | None, k: int, go_on: GoOn) -> Draft:
        """As `propose`, and the same tokens; but each is told to `go_on`, and the draft ends with the first for which
        that returns False. k is at least 1. Never called under a rule that weighs drafts by their logits: a length that
        depends on what was drafted would bias it."""


class Choice(ABC):
    """The target's choice of a token."""

    @abstractmethod
    def __call__(self, row: Tensor, position: int) -> int:
        """The token that logits [vocab] give at that position of the completion; decided by the two alone."""

    def at_once(self, rows: Tensor, draft: Sequence[int], position: int) -> list[int]:
        """The choices from rows [len(draft) + 1, vocab], the first at `position`, one after the other while each is
        what `draft` has (the last may be another), as far as they can be told in one go. [] is always right: the caller
        then asks row by row."""
        return []


class AcceptRule(Protocol):
    guarantee: Guarantee

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        """Judge a draft by the target's logits [len(draft) + 1, vocab]; row 0 decides the token at `position` of the
        completion."""
        ...
