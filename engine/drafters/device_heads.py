"""Drafters with a head whose drafts stay on the device until they are complete, for CUDA: an EAGLE-3 chain is two
graphs and one read, a DFlash block is one graph and one read. The drafts are those of their base classes, which pick
row by row. Tests run them by direct calls."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.interfaces import Draft, Node
from ..heads.eagle3 import Eagle3Head
from . import DrafterContext
from .device_picks import DevicePicks, stays_on_device
from .dflash import DFlashDrafter
from .eagle3 import Eagle3Drafter, HostEagle3Drafter
from .head_drafter import HeadDrafter


class DeviceDrafter(HeadDrafter):
    """Picking inside fixed calls, shared by both."""

    most_nodes = 1

    def __init__(self, head: Any, context: DrafterContext) -> None:
        super().__init__(head, context, pool=context.pool or context.loaded.prepared.kernels.graph_pool())
        self._num_prompt = self._place()
        max_k = max(1, self.max_k)
        self._picked: list[int] = []  # the tokens that later rows follow
        self._picks = DevicePicks(context.sample, head.target_ids, max_k, context.length + max_k, self._kernels)

    def prefill(self, prompt_ids: Sequence[int], hidden: Tensor | None) -> None:
        self._num_prompt.fill_(len(prompt_ids))
        super().prefill(prompt_ids, hidden)

    def can_expand(self, node: Node) -> bool:
        return super().can_expand(node) and (not node.depth or node.path[-1] == self._picked[node.depth - 1])

    @torch.inference_mode()
    def expand(self, nodes: Sequence[Node], num_best: int) -> list[list[tuple[int, float]]]:
        (node,) = nodes
        if self._rows_of(nodes) is None:
            return [[]]
        rated = self._picks.rated(node.depth)
        self._picked[node.depth :] = [rated[0][0]]
        return [rated]

    @torch.inference_mode()
    def propose(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> Draft:
        self.begin(token_ids, hidden)
        k = min(k, self.max_k)
        if not k or self._rows_of([Node()]) is None:
            return Draft()
        self._follow_all(k)
        return Draft(tuple(token_id for token_id, _ in self._picks.read(k)))

    def _follow_all(self, k: int) -> None:
        """Pick the rest of a draft of k tokens, whose first is picked."""

    def _pick_on_device(self, rows: Tensor, places: Tensor, first: Tensor) -> Tensor:
        """`first` [1]: position of the draft's first token. See DevicePicks."""
        return self._picks.pick(rows, places, (first - self._num_prompt).clamp(min=0))


class DeviceEagle3Drafter(DeviceDrafter, Eagle3Drafter):
    """`_first` is the last row with the target's states, which gives the draft's first token; `_known` the number of
    rows in the cache."""

    def __init__(self, head: Eagle3Head, context: DrafterContext) -> None:
        super().__init__(head, context)
        self._known, self._first = self._place(), self._place()

    def _rows(self, nodes: Sequence[Node]) -> Tensor | None:
        (node,), end = nodes, self._num_tokens - 1
        if node.depth:
            self._pointer.copy_(self._first + node.depth)
            return self._chain()
        if end == 0:
            return None
        self._num_rows = min(self._num_rows, end - 1)
        self._known.fill_(self._num_rows)
        self._first.fill_(end - 1)
        row = self._catch_up[self._rows_for(end - self._num_rows)]()
        self._num_rows = end
        return row

    def _follow_all(self, k: int) -> None:
        for place in range(1, k):
            self._pointer.copy_(self._first + place)
            self._chain()

    def _catch_up_step(self, num_rows: int) -> Tensor:
        self._pointer.copy_(self._known)
        self._last.copy_(self._first - self._known)
        row = super()._catch_up_step(num_rows)
        self._pointer.copy_(self._first)
        self._feed(row)
        return row

    def _chain_step(self) -> Tensor:
        row = super()._chain_step()
        self._feed(row)
        return row

    def _feed(self, row: Tensor) -> None:
        self._token.copy_(self._pick_on_device(row[None], self._pointer - self._first, self._first + 2)[None])


class DeviceDFlashDrafter(DeviceDrafter, DFlashDrafter):
    """Every row of a block is picked from and read, whatever k is and wherever the draft ends."""

    def _rows(self, nodes: Sequence[Node]) -> Tensor | None:
        return self._whole_block() if self._tip is None else self.buffers.hidden[:0]

    def can_expand(self, node: Node) -> bool:
        return node.depth < self.max_k

    def _forward_step(self, num_rows: int) -> Tensor:
        rows = super()._forward_step(num_rows)
        self._pick_on_device(rows, self.buffers.columns[: len(rows)], self._start + 1)
        return rows


def drafter_of(head: Any, context: DrafterContext, on_device: bool | None = None) -> HeadDrafter:
    """The drafter of a head, warm: its drafts stay on the device if possible, else an EAGLE-3 head's are made by the
    kernels' own rows if there are any, else in fixed shapes. on_device: the first or the last; None: the first on CUDA
    only."""
    is_eagle3 = isinstance(head, Eagle3Head)
    made: type[HeadDrafter]
    if stays_on_device(context, on_device):
        made = DeviceEagle3Drafter if is_eagle3 else DeviceDFlashDrafter
    elif on_device is None and is_eagle3 and context.loaded.prepared.kernels.eagle3_rows(head) is not None:
        made = HostEagle3Drafter
    else:
        made = Eagle3Drafter if is_eagle3 else DFlashDrafter
    drafter = made(head, context)
    drafter.warm(len(context.prompt.token_ids))
    return drafter
