"""The choice of a draft's token from a row on the CPU: the race's own, and by how much it led the next best.

The noise of a token is large only where its hash is small, so hashes tell which of thousands of tokens can be among the
best two, and no logarithm is taken for the others. Integers are numpy's: it hashes 8,192 tokens in 19 us, where
`noise.uniform` takes 77 (one thread). From bfloat16 rows compiled kernels choose in some ten microseconds, where they
run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..choice.noise import units, words
from ..choice.nucleus import NOT_NUMBERS
from ..choice.sampler import Sampler
from ..errors import RaceError
from ..spec import SamplingParams

if TYPE_CHECKING:
    from . import DrafterContext

Picks = Callable[[Tensor, int, int], list[tuple[int, float]]]
"""picks(rows, num, position): of `num` rows of bfloat16 logits, one behind the other, what HostPicks gives of each."""
MOST_COLUMNS = 2**16
"""With more, most of them out of reach of any noise, `Sampler` itself is faster."""
HASHES = 2.0**32
SLACK = 1.001
"""More than what float32 rounds."""
BELOW = (2.0, 10.0, 30.0, float("inf"))
"""How far below the largest logit the second best score is looked for, nearest first: each look costs as much as it
finds."""
NUM_BEST = 2


class HostPicks:
    """What a sampler without top-k and top-p chooses, for rows over `token_ids` [n] of the vocabulary. near: what
    chooses from bfloat16 rows, where the kernels have it (`Kernels.picks`)."""

    def __init__(self, params: SamplingParams, token_ids: Tensor, near: Picks | None = None) -> None:
        self._temperature, self._seed = np.float32(params.temperature), params.seed
        self._ids = token_ids.to(torch.int32).contiguous().numpy()
        self._near = near

    def of_rows(self, rows: Tensor, position: int) -> list[tuple[int, float]]:
        """Of each of rows [k, n], the first at `position`, what a call gives."""
        if self._near is not None and rows.dtype == torch.bfloat16 and rows.is_contiguous():
            assert rows.shape[1] == len(self._ids)
            return self._near(rows, len(rows), position)
        return [self(row, position + i) for i, row in enumerate(rows)]

    def __call__(self, row: Tensor, position: int) -> tuple[int, float]:
        """The first of the columns with the largest score, and its lead (inf where there is no other). Raises RaceError
        where the row is no numbers."""
        if self._near is not None and row.dtype == torch.bfloat16 and row.is_contiguous():
            assert len(row) == len(self._ids)
            return self._near(row, 1, position)[0]
        logits = row.float().numpy()
        if self._temperature == 0:
            return best_two(logits, None)
        logits = logits / self._temperature
        top = logits.max()
        if not np.isfinite(top):
            raise RaceError(NOT_NUMBERS)
        hashes = words(self._ids, self._seed, position)
        unsigned, chances = hashes.view(np.uint32), np.exp(logits - top)
        wanted = min(NUM_BEST, len(logits))
        for below in BELOW:
            near = (
                (unsigned <= chances * np.float32(np.exp(min(below, 80.0)) * HASHES * SLACK)).nonzero()[0]
                if below < np.inf
                else np.arange(len(logits))
            )
            scores = noisy(logits[near], hashes[near])
            if np.count_nonzero(scores >= top - below) >= wanted:
                break
        return best_two(scores, near)


def noisy(logits: Any, hashes: Any) -> Any:
    """Logits with the noise of their words' hashes."""
    return logits - np.log(-np.log1p(-units(hashes)))


def best_two(scores: Any, columns: Any) -> tuple[int, float]:
    """(column of the largest, its lead over the next)."""
    best = int(scores.argmax())
    score = scores[best]
    if np.isnan(score):
        raise RaceError(NOT_NUMBERS)
    others = [part.max() for part in (scores[:best], scores[best + 1 :]) if len(part)]
    return int(best if columns is None else columns[best]), float(score - max(others)) if others else float("inf")


def host_picks(context: DrafterContext, target_ids: Tensor | None) -> HostPicks | None:
    """For rows of a head's logits, whose columns are `target_ids` of the vocabulary (None: all of it). None for top-k
    and top-p, off the host, and above MOST_COLUMNS columns."""
    prepared = context.loaded.prepared
    sampler = context.sample or Sampler(SamplingParams(), 0, prepared.kernels)
    num_columns = prepared.vocab_size if target_ids is None else len(target_ids)
    if not prepared.kernels.on_host or sampler.is_filtered or num_columns > MOST_COLUMNS:
        return None
    token_ids = torch.arange(num_columns) if target_ids is None else target_ids
    return HostPicks(sampler.params, token_ids, prepared.kernels.picks(token_ids, sampler.params))
