"""Drafting with an EAGLE-3 head: one row for every committed token but the last two, then rows that feed on its own
output. The target's own states overwrite those rows at the next step, as in vLLM."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.interfaces import Node
from ..heads.dflash import additive
from ..heads.eagle3 import Eagle3Head
from ..heads.head_layers import masked_attention, rope_table
from . import DrafterContext
from .head_drafter import HeadDrafter


class Eagle3Drafter(HeadDrafter):
    """Drafts with `head`, in fixed shapes over buffers that stay in place, for CUDA graphs. Row i holds the target's
    states of token i and the embedding of token i + 1; nothing can be drafted before there is one."""

    head: Eagle3Head
    most_nodes = 1

    def __init__(self, head: Eagle3Head, context: DrafterContext, pool: Any = None) -> None:
        super().__init__(head, context, pool=pool)
        prepared = context.loaded.prepared
        self._windows = head.spec.windows
        # the first row of a catch-up, its last one by number, a chain's row, which of a draft's tokens that one gives,
        # and where in the completion the first is
        self._known, self._last, self._pointer, self._rank, self._position = self._places
        self._fed = torch.zeros(1, 1, head.spec.layers.hidden_size, dtype=prepared.dtype, device=prepared.device)
        self._token = torch.zeros(1, 1, dtype=torch.long, device=prepared.device)
        self._catch_up = self._fixed_by_rows(self._catch_up_step)
        self._chain = self._fixed(self._chain_step)

    def _calls(self) -> Iterable[Callable[[], Any]]:
        return *self._catch_up.values(), self._chain

    def _rows(self, nodes: Sequence[Node]) -> Tensor | None:
        (node,), end = nodes, self._num_tokens - 1
        if node.depth:
            self._follow(node)
            return self._chain()[None]
        if end == 0:
            return None
        start = min(self._num_rows, end - 1)
        self._num_rows = end
        self._write.send((start, end - start - 1, end - 1, 0, self._num_tokens - self._num_prompt_tokens))
        return self._catch_up[self._rows_for(end - start)]()[None]

    def _follow(self, node: Node) -> None:
        """Let the next row of the chain be that of `node`."""
        self._token.fill_(node.path[-1])
        self._pointer.fill_(self._num_tokens - 2 + node.depth)

    def _take_in(self, start: int, stop: int) -> None:
        self._take(self.buffers.columns[start:stop])

    def _take(self, at: Tensor) -> Tensor:
        """Fill the cache at positions [n]; what is fed back [1, n, hidden] and what `lm_head` reads."""
        embedded, fused = self.head.embed(self.buffers.token_ids[at + 1]), self.head.fuse(self.buffers.hidden[at])
        return self._step(embedded[None], fused[None], at)

    def _catch_up_step(self, num_rows: int) -> Tensor:
        at = self._known + self.buffers.columns[:num_rows]
        if self._own is not None:
            return self._own.catch_up(at, self._last, self._fed[0])
        fed, out = self._take(at)
        self._fed.copy_(fed.index_select(1, self._last))
        return self.head.logits(out.index_select(1, self._last))[0, 0]

    def _chain_step(self) -> Tensor:
        if self._own is not None:
            return self._own.chain(self._token[0], self._fed[0], self._pointer)
        fed, out = self._step(self.head.embed(self._token), self._fed, self._pointer)
        self._fed.copy_(fed)
        return self.head.logits(out)[0, 0]

    def _step(self, embedded: Tensor, hidden: Tensor, at: Tensor) -> Any:
        buffers = self.buffers
        back = at[:, None] - buffers.columns[None]
        masks = {
            window: additive((back >= 0) & (back < window) if window else back >= 0, hidden.dtype)
            for window in set(self._windows)
        }

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            buffers.write(layer, at, key, value)
            return masked_attention(query, buffers.keys[layer], buffers.values[layer], masks[self._windows[layer]])

        return self.head.step(embedded, hidden, buffers.rope(at), attend)


class HostEagle3Drafter(HeadDrafter):
    """The same drafts but for rounding, by kernels that compute rows in one call at positions known to the host
    (`Kernels.eagle3_rows`): any nodes whose parents have been expanded share a call."""

    head: Eagle3Head

    def __init__(self, head: Eagle3Head, context: DrafterContext) -> None:
        super().__init__(head, context)
        self._most, self._num_grown = self.tree_rows(context) - 1, 0
        keys, values = ([side[0] for side in sides] for sides in (self.buffers.keys, self.buffers.values))
        angles = rope_table(head.spec.layers, keys[0].shape[1], torch.float32, self._device)
        self._tree = self._kernels.eagle3_rows(head)(head, keys, values, angles, self._most)

    def can_expand(self, node: Node) -> bool:
        if node.parent is None:
            return self._tip is None
        return node.parent.is_expanded and self._num_grown < self._most

    def _calls(self) -> Iterable[Callable[[], Any]]:
        return (partial(self._tree.start, *self._inputs(0, num)) for num in range(1, self.width + 1))

    def _rows(self, nodes: Sequence[Node]) -> Tensor | None:
        if nodes[0].depth:
            parents = [node.parent.row for node in nodes if node.parent]
            for node in nodes:
                self._num_grown += 1
                node.row = self._num_grown
            return self._tree.grow([node.path[-1] for node in nodes], parents)
        self._num_grown, end = 0, self._num_tokens - 1
        if end == 0:
            return None
        start, self._num_rows = min(self._num_rows, end - 1), end
        return self._tree.start(*self._inputs(start, end))

    def _take_in(self, start: int, stop: int) -> None:
        self._tree.absorb(*self._inputs(start, stop))

    def _inputs(self, start: int, stop: int) -> tuple[Tensor, Tensor, int]:
        """Token ids and target states of rows, and the position of the first."""
        return self.buffers.token_ids[start + 1 : stop + 1], self.buffers.hidden[start:stop], start
