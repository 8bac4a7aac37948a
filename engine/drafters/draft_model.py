"""A smaller causal LM with the same tokenizer drafts, one token at a time (Leviathan et al. 2023; Chen et al. 2023).

It decodes on its own fixed step (`target.py`), so on CUDA its steps are graphs too. Tokens are picked with the race's
own sampler: the noise at a position is the target's, and a draft is accepted wherever both models choose alike under
the same noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..interfaces import Draft, GoOn, MarginDrafter

if TYPE_CHECKING:
    from torch import Tensor

    from ..runner.target import StaticTarget
    from ..sampling.sampler import Sampler

WIDTH = 2
"""Rows of every step: what is new after a whole draft was accepted (its last token and the target's own). A single
width, so that a proposal does not depend on how the tokens before it came."""


class DraftModelDrafter(MarginDrafter):
    """Proposes k tokens of `model`, picked by `sampler` from its first `vocab_size` tokens.

    Between calls the model's cache holds the tokens committed at the last call, then the draft without its last token.
    Each call rolls back to what the target agreed with, extends by what is new, and continues token by token. With
    `keep_logits` a draft carries the rows it was picked from, over the target's vocabulary; tokens that the model lacks
    are at -inf."""

    def __init__(self, model: StaticTarget, sampler: Sampler, vocab_size: int, keep_logits: bool = False) -> None:
        self._model, self._sampler, self._vocab_size, self._keep_logits = model, sampler, vocab_size, keep_logits
        self._num_prompt_tokens = self._num_committed = 0
        self._drafted: list[int] = []

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._model.rollback(0)
        self._model.extend(prompt_ids[:-1], 0)
        self._num_prompt_tokens, self._num_committed = len(prompt_ids), len(prompt_ids) - 1
        self._drafted = []

    def propose_while(self, token_ids: Sequence[int], hidden: Any, k: int, go_on: GoOn) -> Draft:
        """See `interfaces.MarginDrafter`."""
        assert not self._keep_logits
        return self.propose(token_ids, hidden, k, go_on)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int, go_on: GoOn | None = None) -> Draft:
        if k == 0:
            return Draft()
        position = len(token_ids) - self._num_prompt_tokens
        row = self._catch_up(token_ids)
        draft: list[int] = []
        kept = row.new_full((k, self._vocab_size), float("-inf")) if self._keep_logits else None
        while True:
            row = row[: self._vocab_size]
            if kept is not None:
                kept[len(draft), : len(row)] = row
            more = True
            if go_on is None:
                draft.append(self._sampler(row, position + len(draft)))
            else:
                token_id, margin = self._sampler.with_margin(row, position + len(draft))
                draft.append(token_id)
                more = go_on(token_id, margin)
            if not more or len(draft) == k:
                break
            row = self._model.extend(draft[-1:], 1)[0][0]
        self._num_committed, self._drafted = len(token_ids), draft[:-1]
        return Draft(tuple(draft), None if kept is None else kept[: len(draft)])

    def _catch_up(self, token_ids: Sequence[int]) -> Tensor:
        """Make the cache hold exactly `token_ids`; the logits [vocab] after the last of them."""
        new = self._missing(token_ids)
        logits, _ = self._model.extend(new, len(new))
        return logits[-1]

    def _missing(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Make the cache hold all of `token_ids` but the last one or two (at most WIDTH), and return those."""
        common = self._num_committed
        for cached, committed in zip(self._drafted, token_ids[common:], strict=False):
            if cached != committed:
                break
            common += 1
        common = min(common, len(token_ids) - 1)
        self._model.rollback(common)
        new = token_ids[common:]
        if len(new) > WIDTH:
            self._model.extend(new[:-1], 0)
            new = new[-1:]
        return new
