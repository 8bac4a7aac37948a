"""Drafting with a DFlash head: one forward over [last token, mask x k] fills in the whole draft."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.interfaces import Node
from ..heads.dflash import DFlashHead, additive, block_mask
from ..heads.head_layers import masked_attention
from . import DrafterContext
from .head_drafter import HeadDrafter


class DFlashDrafter(HeadDrafter):
    """Drafts with `head` in fixed shapes, at most as many tokens as a block of it gives, all from one forward: what is
    rated at a place does not depend on the path there."""

    head: DFlashHead

    def __init__(self, head: DFlashHead, context: DrafterContext, pool: Any = None) -> None:
        super().__init__(head, context, most_drafts(head), pool=pool)
        shape = 1, self.max_k + (not head.spec.sample_from_anchor)  # as vLLM's: not wider than the longest draft needs
        # the first row of new context, of the block, and which of a draft's tokens that gives; where that is in the
        # completion
        self._taken, self._start, self._rank, self._position, _ = self._places
        self._block = torch.full(shape, head.spec.mask_token_id, dtype=torch.long, device=self._device)
        self._forward = self._fixed_by_rows(self._forward_step)

    def _calls(self) -> Iterable[Callable[[], Any]]:
        return self._forward.values()

    def can_expand(self, node: Node) -> bool:
        return node.depth < self.max_k

    def _rows(self, nodes: Sequence[Node]) -> Tensor | None:
        if self._tip is None:
            self._block_rows = self._whole_block()
        return self._block_rows[[node.depth for node in nodes]]

    def _whole_block(self) -> Tensor:
        """Logits [k, draft vocabulary] of a block after the last token; takes in what is new."""
        start = self._num_tokens - 1
        self._num_rows = min(self._num_rows, start)
        self._write.send((self._num_rows, start, 0, self._num_tokens - self._num_prompt_tokens))
        rows = self._forward[self._rows_for(start - self._num_rows)]()
        self._num_rows = start
        return rows

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
        taken = self._taken + buffers.columns[:num_rows]
        at = self._start + buffers.columns[: self._block.shape[1]]
        self._block[0, :1] = buffers.token_ids[self._start]
        if self._own is not None:
            self._own.take(taken)
            return self._own.block(self._block[0], at)[0 if spec.sample_from_anchor else 1 :]
        self._take(taken)
        masks: dict[Any, Tensor] = {}

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            buffers.write(layer, at, key, value)
            if (kind := (spec.windows[layer], spec.causal[layer])) not in masks:
                masks[kind] = additive(block_mask(spec, layer, self._start, at, buffers.columns), query.dtype)
            return masked_attention(query, buffers.keys[layer], buffers.values[layer], masks[kind])

        out = self.head.block(self.head.embed(self._block), buffers.rope(at), attend)
        return self.head.logits(out[:, 0 if spec.sample_from_anchor else 1 :])[0]


def most_drafts(head: DFlashHead) -> int:
    """How many drafts a block of its size gives."""
    return head.spec.block_size - (not head.spec.sample_from_anchor)
