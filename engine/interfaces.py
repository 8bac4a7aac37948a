"""The three seams of the loop: a target that verifies, a drafter that proposes, a rule that accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Guarantee = Literal["same tokens", "same distribution"]


@dataclass(frozen=True, slots=True)
class Draft:
    """Up to k proposed token ids; `logits` [k, vocab] only from drafters whose rule needs their distribution."""

    token_ids: tuple[int, ...] = ()
    logits: Any = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a rule made of a draft: how many of its tokens stand, and all committed tokens (those, then the target's own)."""

    num_accepted: int
    token_ids: tuple[int, ...]


class Target(Protocol):
    """A model with a cache of committed tokens. See `decode.py` for the invariant on its length."""

    vocab_size: int

    def extend(self, token_ids: Sequence[int], num_logits: int) -> tuple[Tensor, Tensor | None]:
        """Append tokens to the cache. Returns logits [num_logits, vocab] of the first `num_logits` of them (prefill asks for 0) and, where
        hidden states were asked for at construction, hidden [len(token_ids), layers * dim], else None. Valid until the next call."""
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
        """Append the last committed `token` and a draft to the cache, and judge the draft; `position` is that of the next token in the completion.
        Returns what the rule says, logits [len(draft) + 1, vocab], and hidden [len(draft) + 1, layers * dim] or None; both valid until the next call."""
        ...


@runtime_checkable
class WholeStepTarget(Target, Protocol):
    """A target that can judge drafts where its logits are."""

    def verifier(self, accept: AcceptRule) -> Verify | None:
        """Whole steps under this rule; None where `extend` and the rule itself are to be used. Both give the same, bit for bit. The same for every lane
        of a race whose rules promise the same tokens."""
        ...


class Drafter(Protocol):
    """Guesses what the target will say next. It changes speed, never tokens."""

    hidden_layers: tuple[int, ...]
    """The target's hidden states that it asks for, indices into transformers' `hidden_states` (0: embeddings); () for none."""

    def prefill(self, prompt_ids: Sequence[int], hidden: Tensor | None) -> None:
        """See the prompt, before the first step. `hidden` [len(prompt) - 1, layers * dim] if it asked for hidden states.
        Starts a new race: nothing of an earlier one may remain."""
        ...

    def propose(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> Draft:
        """Guess at most k tokens after `token_ids`, all tokens committed so far, prompt included (not to be kept or changed).
        `hidden` [new, layers * dim]: rows of the target for the tokens that its last step committed, except the newest; None at the first
        step. Valid until the target's next step. Fewer, or none, is fine; k 0 asks for none, and the rows are to be taken all the same.

        A drafter that goes token by token may also have `propose_while(token_ids, hidden, k, go_on)`, which tells `go_on` each token and the
        margin with which it was picked (logits over the next best, noise included) and stops where that returns False; `auto` k uses it. The picks are the same."""
        ...


class AcceptRule(Protocol):
    guarantee: Guarantee

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        """Judge a draft by the target's logits [len(draft) + 1, vocab]; row 0 decides the token at `position` of the completion."""
        ...


class Ending(Protocol):
    """Decides where a completion ends, token by token, so that it ends at the same token however steps are cut."""

    def cut(self, token_ids: Sequence[int]) -> tuple[int, str | None]:
        """How many of these newly committed tokens stand, and the reason if the completion ends with the last of them."""
        ...
