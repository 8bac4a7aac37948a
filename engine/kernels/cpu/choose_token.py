"""The choice of `sampler.py` from rows of bfloat16 logits on the CPU by `choose.c`: the same tokens, at the cost of
reading a row."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from .build import NUMBER, POINTER, fields, library
from .tensors import address


class ChooserArguments(ctypes.Structure):
    """`Chooser` of choose.c."""

    _fields_ = (
        ("tokens", POINTER),
        ("num", NUMBER),
        ("seed", ctypes.c_uint64),
        *fields(ctypes.c_float, "temperature", "max_noise", "near"),
    )


class Chooser:
    """Chooses like a Sampler without top-k and top-p wherever rounding cannot matter; the rest is left to the Sampler.

    tokens [vocab]: int32, on the CPU. seed: through splitmix64. max_noise, near: see `sampler.py`."""

    def __init__(self, tokens: Tensor, temperature: float, seed: int, max_noise: float, near: float) -> None:
        self._tokens, self._temperature = tokens.contiguous(), temperature
        themselves = torch.equal(tokens, torch.arange(len(tokens), dtype=tokens.dtype))
        tokens_at = address(self._tokens, torch.int32, None)
        self._arguments = ChooserArguments(None if themselves else tokens_at, 0, seed, temperature, max_noise, near)
        self._choose = library().photofinish_choose
        self._choose.restype = NUMBER

    def __call__(self, rows: Tensor, draft: Sequence[int], position: int) -> list[int]:
        """See `interfaces.Choice.at_once`. Ends before a row that the sampler itself must decide: of another dtype, not
        finite, or with two scores that only the sampler's own bits tell apart."""
        num_rows, num_columns = rows.shape
        is_other = rows.dtype != torch.bfloat16 or not rows.is_cpu or rows.stride(1) != 1
        if is_other or (self._temperature and num_columns > len(self._tokens)):
            return []
        self._arguments.num = num_columns
        numbers = NUMBER * num_rows
        chosen = numbers()
        sizes = NUMBER(num_rows), NUMBER(rows.stride(0))
        num = self._choose(
            ctypes.byref(self._arguments), POINTER(rows.data_ptr()), *sizes, numbers(*draft), NUMBER(position), chosen
        )
        return chosen[:num]
