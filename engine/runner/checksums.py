"""One number per row of logits, computed from all its bits, to compare rows across lanes and recordings."""

from __future__ import annotations

import torch
from torch import Tensor


class Checksums:
    """`checksums(logits [n, vocab])`: per row the sum over tokens of the row's bits times an odd 64-bit weight, modulo
    2**64: any single changed bit changes it. One wait for the device for all rows."""

    def __init__(self) -> None:
        self._weights: Tensor | None = None

    @torch.inference_mode()
    def __call__(self, logits: Tensor) -> tuple[int, ...]:
        if self._weights is None:
            x = torch.arange(logits.shape[-1], device=logits.device) * -7046029254386353131 + 1442695040888963407
            self._weights = (x ^ (x >> 29)) * -4658895280553007687 | 1
        bits = logits.contiguous().view(torch.int16 if logits.element_size() == 2 else torch.int32)
        sums = [(row.long() * self._weights).sum() for row in bits]
        return tuple(value & (2**64 - 1) for value in torch.stack(sums).tolist()) if sums else ()
