"""The choice of a draft's tokens from rows of bfloat16 logits by `picks.c`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from torch import Tensor

from ...errors import NOT_NUMBERS, RaceError
from .build import NUMBER, POINTER, library


class NativePicks:
    """See `kernels.Picks`. ids: int32 [n], the columns' tokens. seed: through splitmix64."""

    def __init__(self, ids: Any, temperature: float, seed: int) -> None:
        self._kept_alive = ids, *(np.empty(len(ids), kind) for kind in (np.int32, np.int32, np.float32))
        self._room = [array.ctypes.data for array in self._kept_alive[1:]]
        self._constants = ids.ctypes.data, len(ids), temperature, seed
        self._pick = library().photofinish_picks
        self._pick.argtypes = (
            POINTER,
            NUMBER,
            POINTER,
            NUMBER,
            ctypes.c_float,
            ctypes.c_uint64,
            NUMBER,
            *[POINTER] * 5,
        )
        self._pick.restype = NUMBER
        self._best, self._leads, self._num = (NUMBER * 1)(), (ctypes.c_float * 1)(), 1

    def __call__(self, rows: Tensor, num: int, position: int) -> list[tuple[int, float]]:
        if num > self._num:
            self._best, self._leads, self._num = (NUMBER * num)(), (ctypes.c_float * num)(), num
        if self._pick(rows.data_ptr(), num, *self._constants, position, *self._room, self._best, self._leads) < num:
            raise RaceError(NOT_NUMBERS)
        return list(zip(self._best[:num], self._leads[:num], strict=True))
