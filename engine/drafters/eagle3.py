"""Drafting with an EAGLE-3 head: one row for every committed token but the last two, then a chain that feeds on its own output.

Rows of the chain are overwritten by the target's own states at the next step, as vLLM does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..heads.dflash import additive
from ..heads.eagle3 import Eagle3Head
from ..heads.layers import masked_attention
from ..interfaces import Draft
from . import DrafterContext
from .head_drafter import GoOn, HeadDrafter


class Eagle3Drafter(HeadDrafter):
    """Proposes k tokens of `head`. Row i holds the target's states of token i and the embedding of token i + 1; nothing can be drafted before there is one."""

    head: Eagle3Head

    def __init__(self, head: Eagle3Head, context: DrafterContext) -> None:
        super().__init__(head, context)
        prepared = context.loaded.prepared
        self._windows = head.spec.windows or (None,) * len(head.layers)
        self._pointer = torch.zeros(1, dtype=torch.long, device=prepared.device)
        self._last = torch.zeros(1, dtype=torch.long, device=prepared.device)
        self._fed = torch.zeros(1, 1, head.spec.layers.hidden_size, dtype=prepared.dtype, device=prepared.device)
        self._token = torch.zeros(1, 1, dtype=torch.long, device=prepared.device)
        self._catch_up = self._fixed_by_rows(self._catch_up_step)
        self._chain = self._fixed(self._chain_step)
        self._warm(len(context.prompt.token_ids), *self._catch_up.values(), self._chain)

    def _draft(self, k: int, go_on: GoOn | None) -> tuple[list[int], list[Tensor]]:
        end = self._num_tokens - 1
        if end == 0:
            return [], []
        self._num_rows = min(self._num_rows, end - 1)
        num_new = end - self._num_rows
        self._pointer.fill_(self._num_rows)
        self._last.fill_(num_new - 1)
        row = self._catch_up[self._rows_for(num_new)]()
        self._num_rows = end
        self._pointer.fill_(end - 1)
        drafted: list[int] = []
        rows: list[Tensor] = []
        while True:
            if self._keep_logits:
                row = row.clone()
            rows.append(row)
            if go_on is None:
                drafted.append(self._choose(row, len(drafted)))
                more = True
            else:
                token_id, margin = self._choose_with_margin(row, len(drafted))
                drafted.append(token_id)
                more = go_on(margin)
            if not more or len(drafted) == k:
                return drafted, rows
            self._token.fill_(drafted[-1])
            self._pointer += 1
            row = self._chain()

    def propose_while(self, token_ids: Sequence[int], hidden: Tensor | None, k: int, go_on: GoOn) -> Draft:
        """See `interfaces.Drafter`. Not under a rule that weighs drafts by their logits: a length that depends on what was drafted would bias it."""
        assert not self._keep_logits
        return self.propose(token_ids, hidden, k, go_on)

    def _take(self, at: Tensor) -> Tensor:
        """Fill the cache at positions [n] from the buffers; what is fed back [1, n, hidden] and what `lm_head` reads."""
        buffers = self.buffers
        return self._step(self.head.embed(buffers.token_ids[at + 1])[None], self.head.fuse(buffers.hidden[at])[None], at)

    def _catch_up_step(self, num_rows: int) -> Tensor:
        fed, out = self._take(self._pointer + self.buffers.columns[:num_rows])
        self._fed.copy_(fed.index_select(1, self._last))
        return self.head.logits(out.index_select(1, self._last))[0, 0]

    def _chain_step(self) -> Tensor:
        fed, out = self._step(self.head.embed(self._token), self._fed, self._pointer)
        self._fed.copy_(fed)
        return self.head.logits(out)[0, 0]

    def _step(self, embedded: Tensor, hidden: Tensor, at: Tensor) -> Any:
        buffers = self.buffers
        back = at[:, None] - buffers.columns[None]
        masks = {window: additive((back >= 0) & (back < window) if window else back >= 0, hidden.dtype) for window in set(self._windows)}

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            buffers.write(layer, at, key, value)
            return masked_attention(query, buffers.keys[layer], buffers.values[layer], masks[self._windows[layer]])

        return self.head.step(embedded, hidden, buffers.rope(at), attend)
