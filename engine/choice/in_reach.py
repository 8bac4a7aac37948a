"""Which columns of a row of logits are large, on the CPU: most words of a vocabulary are out of reach of any noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SIGN_BIT, INFINITY_BITS = 0x8000, 0x7F80
"""Of bfloat16."""


class Likely:
    """The columns of a row of processed logits [vocab], float32 on the CPU, by how large they are. top: the largest
    value, NaN if there is one."""

    def __init__(self, processed: Tensor) -> None:
        self._processed, self._values = processed, processed.numpy()
        self.top = float(self._values.max())

    def at_least(self, least: float) -> Any:
        """Ascending numbers of the columns whose value is at least that; others may be among them."""
        return (self._values >= least).nonzero()[0]

    def scaled(self, columns: Any) -> Tensor:
        """Their values [n]."""
        return self._processed[torch.from_numpy(columns)]


class LikelyBits:
    """The same for bfloat16 logits and a temperature, without a pass in float32: as 16-bit whole numbers, those of
    positive values are in their order, those of negative ones in the reverse."""

    def __init__(self, row: Tensor, bits: Any, temperature: float) -> None:
        self._row, self._bits, self._temperature = row, bits, temperature
        self.top = float(row[int(bits.argmax())].float() / temperature)

    @classmethod
    def of(cls, row: Tensor, temperature: float) -> LikelyBits | None:
        """None for another dtype, and for rows whose largest is not a finite number above 0."""
        if row.dtype != torch.bfloat16:
            return None
        bits = row.view(torch.int16).numpy()
        usual = 0 < int(bits.max()) < INFINITY_BITS and int(bits.view("uint16").max()) <= SIGN_BIT + INFINITY_BITS
        return cls(row, bits, temperature) if usual else None

    def at_least(self, least: float) -> Any:
        """See `Likely`."""
        magnitude = int(torch.tensor(abs(least) * self._temperature).view(torch.int32)) >> 16
        if least > 0 and magnitude > 1:
            return (self._bits >= magnitude - 1).nonzero()[0]
        return ((self._bits >= 0) | (self._bits <= magnitude + 2 - SIGN_BIT)).nonzero()[0]

    def scaled(self, columns: Any) -> Tensor:
        """See `Likely`."""
        return self._row[torch.from_numpy(columns)].float() / self._temperature
