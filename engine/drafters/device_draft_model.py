"""A draft model whose drafts stay on the device until they are complete, for CUDA.

A draft is one copy to the device, one graph for the new tokens, one graph for each further token, and one read. The
drafts are those of `DraftModelDrafter`, which picks row by row on the host. Tests run it by direct calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.interfaces import Draft, Node
from ..kernels.weak import weak_call
from .device_picks import DevicePicks
from .draft_model import WIDTH, DraftModelDrafter

if TYPE_CHECKING:
    from ..core.sampling.sampler import Sampler
    from ..runner.target import StaticTarget


class DeviceDraftModelDrafter(DraftModelDrafter):
    """`_first`: the position of the last committed token, whose row gives the draft's first token.

    Other graphs may share the pool, so what one graph leaves for the next is in buffers made outside of captures: the
    picks, `_first`, and the step's input."""

    def __init__(self, model: StaticTarget, sampler: Sampler, vocab_size: int, max_k: int) -> None:
        super().__init__(model, sampler, vocab_size)
        self._forward, self._input, pool = model.parts()
        self._ids, self._max_k, self._picked = self._input.ids(WIDTH), max(1, max_k), -1
        self._first = torch.zeros_like(self._input.pointer)
        kernels, name = model.prepared.kernels, "the draft of a draft model"
        self._picks = DevicePicks(sampler, None, self._max_k, model.cache_length + self._max_k, kernels)
        self._start = kernels.fixed(weak_call(self._start_step), pool, name)
        self._chain = kernels.fixed(weak_call(self._chain_step), pool, name)

    @torch.inference_mode()
    def warm(self) -> None:
        """Run both steps once, untimed, before the first draft: on CUDA this captures them."""
        self._start()
        self._chain()

    def can_expand(self, node: Node) -> bool:
        return super().can_expand(node) and (not node.depth or node.path[-1] == self._picked)

    @torch.inference_mode()
    def expand(self, nodes: Sequence[Node], num_best: int) -> list[list[tuple[int, float]]]:
        (node,) = nodes
        self._pick_after(node)
        rated = self._picks.rated(node.depth)
        self._picked = rated[0][0]
        return [rated]

    @torch.inference_mode()
    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        self.begin(token_ids, hidden)
        k = min(k, self._max_k)
        if not k:
            return Draft()
        self._pick_after(Node())
        for num in range(1, k):
            self._input.point(len(token_ids) + num - 1)
            self._chain()
        drafted = [token_id for token_id, _ in self._picks.read(k)]
        for token_id in drafted[:-1]:
            self._read_next(token_id)
        return Draft(tuple(drafted))

    def _pick_after(self, node: Node) -> None:
        """Pick what follows a node: the root, or the one that was picked last."""
        token_ids = self._token_ids
        self._tip = node
        if node.depth:
            self._input.point(len(token_ids) + node.depth - 1)
            self._chain()
            self._read_next(node.path[-1])
            return
        new = self._missing(token_ids)
        assert len(token_ids) + self._max_k <= self._model.cache_length
        self._input.send(self._model.length, len(token_ids) - self._num_prompt_tokens, tuple(new))
        self._start()
        self._model.stepped(new, WIDTH)
        self._num_committed, self._drafted = len(token_ids), []

    def _read_next(self, token_id: int) -> None:
        """Note that the model has read another drafted token."""
        self._drafted.append(token_id)
        self._model.stepped([token_id], WIDTH)

    def _start_step(self) -> Tensor:
        """Feed one or two new tokens at the pointer. `num_drafted` is their number less one: the last one's row."""
        last = self._input.num_drafted
        self._first.copy_(self._input.pointer + last)
        logits, _ = self._forward(self._ids)
        assert logits is not None
        return self._feed(logits.index_select(0, last), torch.zeros_like(last))

    def _chain_step(self) -> Tensor:
        logits, _ = self._forward(self._ids)
        assert logits is not None
        return self._feed(logits[:1], self._input.pointer - self._first)

    def _feed(self, row: Tensor, place: Tensor) -> Tensor:
        """Pick the draft's token at `place` [1] from its row [1, vocab], and make it the next step's input."""
        token = self._picks.pick(row[:, : self._vocab_size], place, self._input.position)
        self._ids.zero_()
        self._ids[:, :1].copy_(token[None])
        return token
