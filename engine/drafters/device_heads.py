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
        max_k = max(1, self.max_k)
        self._picked: list[int] = []  # the tokens that later rows follow
        self._picks = DevicePicks(context.sample, head.target_ids, max_k, context.length + max_k, self._kernels)

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


class DeviceEagle3Drafter(DeviceDrafter, Eagle3Drafter):
    """A pick moves the chain on to the next row, whose token it is."""

    def _follow(self, node: Node) -> None:
        """Nothing: the pick did it."""

    def _follow_all(self, k: int) -> None:
        for _ in range(1, k):
            self._chain()

    def _catch_up_step(self, num_rows: int) -> Tensor:
        return self._feed(super()._catch_up_step(num_rows))

    def _chain_step(self) -> Tensor:
        return self._feed(super()._chain_step())

    def _feed(self, row: Tensor) -> Tensor:
        moved = self._write.values[2:4]  # pointer and rank
        self._picks.pick(row[None], self._rank, self._position, self._token[0], moved)
        return row


class DeviceDFlashDrafter(DeviceDrafter, DFlashDrafter):
    """Every row of a block is picked from and read, whatever k is and wherever the draft ends."""

    def _rows(self, nodes: Sequence[Node]) -> Tensor | None:
        return self._whole_block() if self._tip is None else self.buffers.hidden[:0]

    def can_expand(self, node: Node) -> bool:
        return node.depth < self.max_k

    def _forward_step(self, num_rows: int) -> Tensor:
        rows = super()._forward_step(num_rows)
        self._picks.pick(rows, self._rank, self._position)
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
