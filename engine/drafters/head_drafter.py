"""What drafters with a head share: static buffers over the positions of a race, and the choice of tokens.

The target's hidden states are kept by position as they come, and used when a draft is wanted; so a step without a draft
costs nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.interfaces import BranchingDrafter, Draft, Node
from ..core.sampling.noise import splitmix64
from ..core.spec import MAX_K
from ..heads.head_layers import rope_table
from ..kernels.weak import weak_call

if TYPE_CHECKING:
    from ..runner.prepared import Prepared
    from . import DrafterContext

PREFILL_CHUNK = 256
ROWS = (1, 2, 4, 8)
# With more columns `Sampler` is faster than `Kernels.picks`, since most are out of reach of any noise.
MOST_COLUMNS = 2**16
NUM_PLACES = 5


class HeadBuffers:
    """Device tensors of one sequence, all of length S, which stay in place: keys and values per layer, token ids, the
    target's hidden states, angles."""

    def __init__(self, head: Any, num_features: int, length: int, dtype: torch.dtype, device: torch.device) -> None:
        config = head.spec.layers
        attention = head.layers[0].self_attn
        size = (1, config.num_key_value_heads, length, attention.dim)
        self.keys, self.values = (
            [torch.zeros(size, dtype=dtype, device=device) for _ in head.layers] for _ in range(2)
        )
        self.token_ids = torch.zeros(length, dtype=torch.long, device=device)
        self.hidden = torch.zeros(length, num_features, dtype=dtype, device=device)
        self.columns = torch.arange(length, device=device)
        self.cos, self.sin = rope_table(config, length, dtype, device)

    def tensors(self) -> list[Tensor]:
        return [*self.keys, *self.values, self.token_ids, self.hidden, self.columns, self.cos, self.sin]

    def rope(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Angles of positions [n]."""
        return self.cos[at][None], self.sin[at][None]

    def write(self, layer: int, at: Tensor, key: Tensor, value: Tensor) -> None:
        """Put [1, kv_heads, n, dim] at positions [n]."""
        self.keys[layer].index_copy_(2, at, key)
        self.values[layer].index_copy_(2, at, value)


def buffer_bytes(head: Any, prepared: Prepared, length: int) -> int:
    """Bytes of a HeadBuffers of that length for that target."""
    num_features = len(head.spec.hidden_layers) * prepared.shape.hidden_size
    of_a_token = HeadBuffers(head, num_features, 1, prepared.dtype, torch.device("meta"))
    return length * sum(tensor.nbytes for tensor in of_a_token.tensors())


class HeadDrafter(BranchingDrafter):
    """Keeps the buffers of a race. They hold `_num_tokens` token ids and the hidden states of all but the last.

    Subclasses compute rows of logits by `_rows`, for drafts of at most `max_k` tokens, their `limit` (None: any
    number); `_num_rows` positions are in their cache already. A constructor only makes buffers and fixed calls; its
    caller runs `warm` before the first draft. pool: memory that graphs share; None: each has its own."""

    def __init__(self, head: Any, context: DrafterContext, limit: int | None = None, pool: Any = None) -> None:
        prepared = context.loaded.prepared
        self.head, self.max_k = head, context.k if limit is None else min(context.k, limit)
        self.hidden_layers = head.spec.hidden_layers
        self.width = self.max_k + 1
        num_features = len(self.hidden_layers) * prepared.shape.hidden_size
        length = context.length + max(self.width, self.tree_rows(context))
        self.buffers = HeadBuffers(head, num_features, length, prepared.dtype, prepared.device)
        self._device, self._kernels, self._pool = prepared.device, prepared.kernels, pool
        self._own, self.runs = self._kernels.head_rows(head, self.buffers, self.width)  # None: torch's
        # What changes from draft to draft: positions [1] that fixed calls read.
        self._write = self._kernels.host_write(NUM_PLACES)
        self._places = self._write.values.split(1)
        self._ids = self.buffers.token_ids.numpy() if self._kernels.on_host else None
        self._num_prompt_tokens = self._num_tokens = self._num_rows = 0
        self._tip: Node | None = None  # the node that was expanded last
        self._vocab_size = prepared.vocab_size
        self._keep_logits = context.keep_logits
        self._target_ids: list[int] | None = None if head.target_ids is None else head.target_ids.tolist()
        sampler = context.sample
        ids = torch.arange(self._vocab_size) if head.target_ids is None else head.target_ids
        self._pick = sampler if head.target_ids is None else sampler.among(ids)
        fits = prepared.dtype == torch.bfloat16 and not sampler.is_filtered and len(ids) <= MOST_COLUMNS
        noise = sampler.params.temperature, splitmix64(sampler.params.seed)
        self._host_picks, self._columns = self._kernels.picks(ids, *noise) if fits else None, ids.shape

    @staticmethod
    def tree_rows(context: DrafterContext) -> int:
        """Columns that a draft takes in the cache."""
        return MAX_K + 1 if context.auto_k else context.k + 1

    def prefill(self, prompt_ids: Sequence[int], hidden: Tensor | None) -> None:
        self._num_prompt_tokens = len(prompt_ids)
        self._num_tokens = self._num_rows = 0
        self._keep(prompt_ids, hidden)
        self._absorb(len(prompt_ids) - 2)

    def begin(self, token_ids: Sequence[int], hidden: Tensor | None) -> None:
        self._keep(token_ids, hidden)
        self._tip = None

    def can_expand(self, node: Node) -> bool:
        return node.parent is self._tip and node.depth < self.max_k

    @torch.inference_mode()
    def expand(self, nodes: Sequence[Node], num_best: int) -> list[list[tuple[int, float]]]:
        rows = self._rows_of(nodes)
        return [[]] * len(nodes) if rows is None else self._best(rows, [node.depth for node in nodes], num_best)

    @torch.inference_mode()
    def propose(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> Draft:
        self.begin(token_ids, hidden)
        node, kept = Node(), list[Tensor]()
        while node.depth < min(k, self.max_k) and (rows := self._rows_of([node])) is not None:
            if self._keep_logits:
                kept.append(rows[0].clone())
            (((token_id, _),),) = self._best(rows, [node.depth], 1)
            node = Node((*node.path, token_id), parent=node)
        return Draft(node.path, self._scattered(kept) if kept else None)

    def _rows_of(self, nodes: Sequence[Node]) -> Tensor | None:
        if self._tip is None and self._num_tokens - 1 - self._num_rows > self.width:
            self._absorb(self._num_tokens - 2)
        rows = self._rows(nodes)
        self._tip = nodes[-1]
        return rows

    @torch.inference_mode()
    def warm(self, num_prompt_tokens: int) -> None:
        """Run everything that a race with such a prompt will run once, untimed; on CUDA this captures the graphs. What
        it writes is masked until it is overwritten."""
        num_rows = max(0, num_prompt_tokens - 2)
        for size in {min(num_rows, PREFILL_CHUNK), num_rows % PREFILL_CHUNK} - {0}:
            self._take_in(0, size)
        for call in self._calls():
            call()

    def _keep(self, token_ids: Sequence[int], hidden: Tensor | None) -> None:
        first, self._num_tokens = self._num_tokens, len(token_ids)
        if self._ids is not None:
            self._ids[first : self._num_tokens] = token_ids[first:]
        else:
            new = torch.tensor(token_ids[first:], dtype=torch.long)
            self.buffers.token_ids[first : self._num_tokens] = new.to(self._device)
        if hidden is not None and (num := len(hidden)):
            self.buffers.hidden[self._num_tokens - 1 - num : self._num_tokens - 1].copy_(hidden)

    @torch.inference_mode()
    def _absorb(self, end: int) -> None:
        """Put positions up to `end` into the cache, without drafting."""
        while self._num_rows < end:
            stop = min(end, self._num_rows + PREFILL_CHUNK)
            self._take_in(self._num_rows, stop)
            self._num_rows = stop

    @abstractmethod
    def _calls(self) -> Iterable[Callable[[], Any]]:
        """All that a draft may run, in warm-up order."""

    @abstractmethod
    def _take_in(self, start: int, stop: int) -> Any:
        """Put the context of positions `start` to `stop` - 1 into the cache."""

    @abstractmethod
    def _rows(self, nodes: Sequence[Node]) -> Tensor | None:
        """Logits [len(nodes), draft vocabulary] for what follows each node; the first call of a draft is for the root
        alone. None where nothing can be drafted. Valid until the next call."""

    def _best(self, rows: Tensor, depths: Sequence[int], num_best: int) -> list[list[tuple[int, float]]]:
        """See `expand`."""
        positions = [self._num_tokens - self._num_prompt_tokens + depth for depth in depths]
        if self._host_picks is not None:
            assert rows.dtype == torch.bfloat16 and rows.shape[1:] == self._columns and rows.is_contiguous()
            best = self._host_picks(rows, positions, num_best)
        elif num_best == 1:
            best = [[(self._pick(row, at), 0.0)] for row, at in zip(rows, positions, strict=True)]
        else:
            best = [self._pick.best(row, at, num_best) for row, at in zip(rows, positions, strict=True)]
        if self._target_ids is None:
            return best
        return [[(self._target_ids[column], score) for column, score in rated] for rated in best]

    def _scattered(self, rows: list[Tensor]) -> Tensor:
        """Rows over the head's vocabulary as [k, vocab]; -inf where it cannot draft."""
        stacked = torch.stack(rows)
        if self.head.target_ids is None:
            return stacked
        whole = torch.full((len(rows), self._vocab_size), -torch.inf, dtype=stacked.dtype, device=stacked.device)
        return whole.index_copy_(1, self.head.target_ids, stacked)

    def _fixed(self, method: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """A method of this drafter as a call that may be a captured graph."""
        call = weak_call(method, *arguments)
        return self._kernels.fixed(call, self._pool, f"the draft of {type(self.head).__name__}")

    def _fixed_by_rows(self, method: Callable[[int], Any]) -> dict[int, Callable[[], Any]]:
        """A call for each number of new rows that `_rows_for` returns."""
        return {num: self._fixed(method, num) for num in sorted({*(n for n in ROWS if n < self.width), self.width})}

    def _rows_for(self, num_new: int) -> int:
        """How many rows a call takes to include `num_new`; a call of few is cheaper, and most steps commit few."""
        return next((n for n in ROWS if num_new <= n < self.width), self.width)
