"""The best tokens of a head's rows of bfloat16 logits, by `picks.c`."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.errors import NOT_NUMBERS, RaceError
from .build import NUMBER, POINTER, library
from .tensors import address


class NativePicks:
    """See `kernels.Picks`. ids: int32 [n], the columns' tokens. seed: through splitmix64."""

    def __init__(self, ids: Any, temperature: float, seed: int) -> None:
        self._kept_alive = ids, *(np.empty(len(ids), kind) for kind in (np.int32, np.int32, np.float32))
        self._room = [array.ctypes.data for array in self._kept_alive[1:]]
        self._constants = ids.ctypes.data, len(ids), temperature, seed
        self._pick = library().photofinish_picks
        self._pick.argtypes = (
            *(POINTER, NUMBER, POINTER, NUMBER, ctypes.c_float, ctypes.c_uint64, POINTER, NUMBER),
            *[POINTER] * 5,
        )
        self._pick.restype = NUMBER

    def __call__(self, rows: Tensor, positions: Sequence[int], num_best: int) -> list[list[tuple[int, float]]]:
        num = len(positions)
        best, scores = (NUMBER * (num * num_best))(), (ctypes.c_float * (num * num_best))()
        at = (NUMBER * num)(*positions)
        rows_at = address(rows, torch.bfloat16, num, self._constants[1])
        if self._pick(rows_at, num, *self._constants, at, num_best, *self._room, best, scores) < num:
            raise RaceError(NOT_NUMBERS)
        pairs = list(zip(best, scores, strict=True))
        return [[pair for pair in pairs[i : i + num_best] if pair[0] >= 0] for i in range(0, num * num_best, num_best)]
