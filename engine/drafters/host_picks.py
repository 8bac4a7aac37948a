"""The choice of a draft's token from a row on the CPU: the race's own, and by how much it led the next best.

The noise of a token is large only where its hash is small, so hashes tell which of thousands of tokens can be among the best two, and no logarithm
is taken for the others. Integers are numpy's: it hashes 8,192 tokens in 19 us, where `sampling.uniform` takes 77 (one thread). Of bfloat16 rows compiled
kernels tell the same in a few microseconds, where they run.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import RaceError
from ..native.build import has, library
from ..sampling import NOT_NUMBERS, Sampler, splitmix64, units, words
from ..spec import SamplingParams

if TYPE_CHECKING:
    from . import DrafterContext

MOST_COLUMNS = 2**16
"""With more, most of them out of reach of any noise, `Sampler` itself is faster."""
HASHES = 2.0**32
SLACK = 1.001
"""More than what float32 rounds."""
BELOW = (2.0, 10.0, 30.0, float("inf"))
"""How far below the largest logit the second best score is looked for, nearest first: each look costs as much as it finds."""
NUM_BEST = 2


class HostPicks:
    """What a sampler without top-k and top-p chooses, for rows over `token_ids` [n] of the vocabulary."""

    def __init__(self, params: SamplingParams, token_ids: Tensor, natively: bool = True) -> None:
        self._temperature, self._seed = np.float32(params.temperature), params.seed
        self._ids = token_ids.to(torch.int32).contiguous().numpy()
        self._near = Near(self._ids, params) if natively and has("photofinish_near") else None

    def __call__(self, row: Tensor, position: int) -> tuple[int, float]:
        """The first of the columns with the largest score, and its lead (inf where there is no other). Raises RaceError where the row is no numbers."""
        if self._near is not None and row.dtype == torch.bfloat16 and row.is_contiguous():
            return self._near(row, position)
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
            near = (unsigned <= chances * np.float32(np.exp(min(below, 80.0)) * HASHES * SLACK)).nonzero()[0] if below < np.inf else np.arange(len(logits))
            scores = noisy(logits[near], hashes[near])
            if np.count_nonzero(scores >= top - below) >= wanted:
                break
        return best_two(scores, near)


class Near:
    """The same from bfloat16 rows, what is in reach of the noise found by `picks.c`."""

    def __init__(self, ids: Any, params: SamplingParams) -> None:
        self._ids, self._temperature, self._seed = ids, params.temperature, splitmix64(params.seed)
        self._found = [np.empty(len(ids), kind) for kind in (np.int32, np.int32, np.float32)]
        self._top = np.empty(1, np.float32)
        self._constants = ids.ctypes.data, len(ids), params.temperature
        self._places = [array.ctypes.data for array in (self._top, *self._found)]
        self._find = library().photofinish_near
        self._find.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_float, *[ctypes.c_void_p] * 4)
        self._find.restype = ctypes.c_int64

    def __call__(self, row: Tensor, position: int) -> tuple[int, float]:
        """See `HostPicks`."""
        assert len(row) == len(self._ids)
        key, place, wanted = splitmix64(self._seed ^ position), row.data_ptr(), min(NUM_BEST, len(row))
        for below in BELOW:
            num = self._find(place, *self._constants, key & 0xFFFFFFFF, key >> 32, below, *self._places)
            columns, hashes, scores = (array[:num] for array in self._found)
            if math.isnan(top := self._top[0]):
                raise RaceError(NOT_NUMBERS)
            if self._temperature:
                scores = noisy(scores, hashes)
            if np.count_nonzero(scores >= top - below) >= wanted:
                break
        return best_two(scores, columns)


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
    """For rows of a head's logits, whose columns are `target_ids` of the vocabulary (None: all of it). None where another way is due, or faster."""
    sampler = context.sample or Sampler(SamplingParams(), 0, "cpu")
    if context.loaded.prepared.device.type != "cpu" or not sampler.picks_rows:
        return None
    num_columns = context.loaded.prepared.vocab_size if target_ids is None else len(target_ids)
    if num_columns > MOST_COLUMNS:
        return None
    return HostPicks(sampler.params, torch.arange(num_columns) if target_ids is None else target_ids)
