"""A smaller causal LM with the same tokenizer drafts, one token at a time (Leviathan et al. 2023; Chen et al. 2023).

It decodes on its own fixed step (`target.py`), so on CUDA its steps are graphs too. Tokens are picked with the race's
own sampler: the noise at a position is the target's, and a draft is accepted wherever both models choose alike under
the same noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.interfaces import BranchingDrafter, Draft, Node
from .pace import num_matching

if TYPE_CHECKING:
    from torch import Tensor

    from ..core.sampling.sampler import Sampler
    from ..runner.target import StaticTarget

# Rows of every step: what is new after a whole draft was accepted (its last token and the target's own). A single
# width, so that a proposal does not depend on how the tokens before it came.
WIDTH = 2


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
        self._model.extend(prompt_ids[:-1], 0)
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
            row = self._model.extend(node.path[-1:], 1)[0][0]
        else:
            row = self._catch_up(self._token_ids)
            self._num_committed, self._drafted = len(self._token_ids), []
        return row[: self._vocab_size]

    def _catch_up(self, token_ids: Sequence[int]) -> Tensor:
        """Make the cache hold exactly `token_ids`; the logits [vocab] after the last of them."""
        new = self._missing(token_ids)
        logits, _ = self._model.extend(new, len(new))
        return logits[-1]

    def _missing(self, token_ids: Sequence[int]) -> Sequence[int]:
        """Make the cache hold all of `token_ids` but the last one or two (at most WIDTH), and return those."""
        common = self._num_committed + num_matching(self._drafted, token_ids[self._num_committed :])
        common = min(common, len(token_ids) - 1)
        self._model.rollback(common)
        new = token_ids[common:]
        if len(new) > WIDTH:
            self._model.extend(new[:-1], 0)
            new = new[-1:]
        return new
