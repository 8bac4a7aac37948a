"""Drafting with a DFlash head: one forward over [last token, mask x k] fills in the whole draft."""

from __future__ import annotations

import torch
from torch import Tensor

from ..heads.dflash import DFlashHead, additive, block_mask
from ..heads.layers import masked_attention
from . import DrafterContext
from .head_drafter import GoOn, HeadDrafter


class DFlashDrafter(HeadDrafter):
    """Proposes up to k tokens of `head`, all picked from one forward. Raises UsageError where a block holds fewer than k."""

    head: DFlashHead

    def __init__(self, head: DFlashHead, context: DrafterContext) -> None:
        first = not head.spec.sample_from_anchor
        super().__init__(head, context, head.spec.block_size - first)
        device = context.loaded.prepared.device
        size = self.max_k + first
        self._start = torch.zeros(1, dtype=torch.long, device=device)
        self._rows = torch.zeros(1, dtype=torch.long, device=device)
        self._block = torch.full((1, size), head.spec.mask_token_id, dtype=torch.long, device=device)
        self._forward = self._fixed_by_rows(self._forward_step)
        self._warm(len(context.prompt.token_ids), *self._forward.values())

    def _draft(self, k: int, go_on: GoOn | None) -> tuple[list[int], list[Tensor]]:
        start = self._num_tokens - 1
        self._num_rows = min(self._num_rows, start)
        self._rows.fill_(self._num_rows)
        self._start.fill_(start)
        rows = list(self._forward[self._rows_for(start - self._num_rows)]()[:k])
        self._num_rows = start
        if self._keep_logits:
            rows = [row.clone() for row in rows]
        return [self._choose(row, offset) for offset, row in enumerate(rows)], rows

    def _take_in(self, start: int, stop: int) -> None:
        self._take(self.buffers.columns[start:stop])

    def _take(self, at: Tensor) -> None:
        """Fill the cache's context at positions [n] from the buffers."""
        fused = self.head.fuse(self.buffers.hidden[at])[None]
        for layer, (key, value) in enumerate(self.head.context(fused, self.buffers.rope(at))):
            self.buffers.write(layer, at, key, value)

    def _forward_step(self, num_rows: int) -> Tensor:
        """Logits [k, draft vocabulary], after taking in that many rows of context."""
        buffers, spec = self.buffers, self.head.spec
        self._take(self._rows + buffers.columns[:num_rows])
        at = self._start + buffers.columns[: self._block.shape[1]]
        self._block[0, :1] = buffers.token_ids[self._start]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            buffers.write(layer, at, key, value)
            mask = additive(block_mask(spec, layer, self._start, at, buffers.columns), query.dtype)
            return masked_attention(query, buffers.keys[layer], buffers.values[layer], mask)

        out = self.head.block(self.head.embed(self._block), buffers.rope(at), attend)
        return self.head.logits(out[:, 0 if spec.sample_from_anchor else 1 :])[0]
