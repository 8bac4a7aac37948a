"""The large columns of a row of logits, on the CPU: most of a vocabulary is out of reach of any noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SIGN_BIT, INFINITY_BITS = 0x8000, 0x7F80
"""bfloat16's."""


class Likely:
    """Columns of processed logits [vocab], float32 on the CPU, by value. top: the largest value, NaN if there is
    one."""

    def __init__(self, processed: Tensor) -> None:
        self._processed, self._values = processed, processed.numpy()
        self.top = float(self._values.max())

    def at_least(self, least: float) -> Any:
        """Ascending column numbers, among them all whose value is at least that."""
        return (self._values >= least).nonzero()[0]

    def scaled(self, columns: Any) -> Tensor:
        """The values [n] of these columns."""
        return self._processed[torch.from_numpy(columns)]


class LikelyBits:
    """`Likely` for bfloat16 logits and a temperature, without a pass in float32: as 16-bit integers, positive values
    are in their own order, negative ones in reverse."""

    def __init__(self, row: Tensor, bits: Any, temperature: float) -> None:
        self._row, self._bits, self._temperature = row, bits, temperature
        self.top = float(row[int(bits.argmax())].float() / temperature)

    @classmethod
    def of(cls, row: Tensor, temperature: float) -> LikelyBits | None:
        """None for another dtype, and for rows whose largest value is not finite and positive."""
        if row.dtype != torch.bfloat16:
            return None
        bits = row.view(torch.int16).numpy()
        usual = 0 < int(bits.max()) < INFINITY_BITS and int(bits.view("uint16").max()) <= SIGN_BIT + INFINITY_BITS
        return cls(row, bits, temperature) if usual else None

    def at_least(self, least: float) -> Any:
        magnitude = int(torch.tensor(abs(least) * self._temperature).view(torch.int32)) >> 16
        if least > 0 and magnitude > 1:
            return (self._bits >= magnitude - 1).nonzero()[0]
        return ((self._bits >= 0) | (self._bits <= magnitude + 2 - SIGN_BIT)).nonzero()[0]

    def scaled(self, columns: Any) -> Tensor:
        return self._row[torch.from_numpy(columns)].float() / self._temperature
