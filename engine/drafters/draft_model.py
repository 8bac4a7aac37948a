"""A smaller causal LM with the same tokenizer drafts, one token at a time (Leviathan et al. 2023; Chen et al. 2023).

It decodes on its own fixed step (`target.py`), so on CUDA its steps are graphs too. Tokens are picked with the race's
own sampler: the noise at a position is the target's, and a draft is accepted wherever both models choose alike under
the same noise. A draft may stay on the device until it is complete, for CUDA: then it is one copy to the device, one
graph for the new tokens, one graph for each further token, and one read. Tests run that by direct calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.interfaces import BranchingDrafter, Draft, Node
from ..kernels.weak import weak_call
from .device_picks import DevicePicks
from .pace import num_matching

if TYPE_CHECKING:
    from ..core.sampling.sampler import Sampler
    from ..runner.target import StaticTarget

# Rows of every step: what is new after a whole draft was accepted (its last token and the target's own). A single
# width, so that a proposal does not depend on how the tokens before it came.
WIDTH = 2


def readable(model: StaticTarget, token_ids: Sequence[int]) -> list[int]:
    """The ids, with 0 for those that the model has no row for: a target that is padded further can write them."""
    return [token_id if token_id < model.vocab_size else 0 for token_id in token_ids]


class DraftModelDrafter(BranchingDrafter):
    """Proposes k tokens of `model`, picked by `sampler` from its first `vocab_size` tokens.

    Between drafts the model's cache holds the tokens committed at the last one, then those of its tokens that the model
    read. Each draft rolls back to what the target agreed with, extends by what is new, and continues token by token.
    With `keep_logits` a draft carries the rows it was picked from, over the target's vocabulary; tokens that the model
    lacks are at -inf."""

    most_nodes = 1

    def __init__(self, model: StaticTarget, sampler: Sampler, vocab_size: int, keep_logits: bool = False) -> None:
        self._model, self._sampler, self._vocab_size, self._keep_logits = model, sampler, vocab_size, keep_logits
        self._num_prompt_tokens = self._num_committed = 0
        self._drafted: list[int] = []
        self._token_ids: Sequence[int] = ()
        self._tip: Node | None = None

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._model.rollback(0)
        self._model.extend(readable(self._model, prompt_ids[:-1]), 0)
        self._num_prompt_tokens, self._num_committed = len(prompt_ids), len(prompt_ids) - 1
        self._drafted = []

    def begin(self, token_ids: Sequence[int], hidden: Any) -> None:
        self._token_ids, self._tip = token_ids, None

    def can_expand(self, node: Node) -> bool:
        return node.parent is self._tip and node.depth < self.max_k

    def expand(self, nodes: Sequence[Node], num_best: int) -> list[list[tuple[int, float]]]:
        (node,) = nodes
        row = self._row(node)
        return [self._sampler.best(row, len(self._token_ids) - self._num_prompt_tokens + node.depth, num_best)]

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        self.begin(token_ids, hidden)
        node, position = Node(), len(token_ids) - self._num_prompt_tokens
        kept = None
        while node.depth < k:
            row = self._row(node)
            if self._keep_logits:
                kept = row.new_full((k, self._vocab_size), float("-inf")) if kept is None else kept
                kept[node.depth, : len(row)] = row
            node = Node((*node.path, self._sampler(row, position + node.depth)), parent=node)
        return Draft(node.path, kept)

    def _row(self, node: Node) -> Tensor:
        """The logits after a node that continues the one before, if not the root."""
        self._tip = node
        if node.depth:
            self._drafted.append(node.path[-1])
            logits, _ = self._model.extend(node.path[-1:], 1)
        else:
            new = self._missing(self._token_ids)
            logits, _ = self._model.extend(new, len(new))
            self._num_committed, self._drafted = len(self._token_ids), []
        return logits[-1, : self._vocab_size]

    def _missing(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Make the cache hold all of `token_ids` but the last one or two (at most WIDTH), and return those."""
        common = self._num_committed + num_matching(self._drafted, token_ids[self._num_committed :])
        common = min(common, len(token_ids) - 1)
        self._model.rollback(common)
        new = readable(self._model, token_ids[common:])
        if len(new) > WIDTH:
            self._model.extend(new[:-1], 0)
            new = new[-1:]
        return new


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
