"""The choice of a draft's tokens on the device, so that the host reads a whole draft at once."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..core.errors import NOT_NUMBERS, RaceError
from ..core.sampling.sampler import Sampler
from ..kernels.torch import Kernels, Notes

if TYPE_CHECKING:
    from . import DrafterContext

IDS, MARGINS = 0, 1


class DevicePicks:
    """Fixed buffers for up to `max_k` tokens of a draft. target_ids: the target's id of each of the head's columns, or
    None if they are equal. num_positions: the most that a completion and a draft may have."""

    def __init__(
        self, sampler: Sampler, target_ids: Tensor | None, max_k: int, num_positions: int, kernels: Kernels
    ) -> None:
        self._sampler = sampler if target_ids is None else sampler.among(target_ids)
        self._keys, self._target_ids, self._max_k = sampler.keys(num_positions), target_ids, max_k
        self._count = torch.arange(max_k, device=kernels.device)
        self._picked = torch.zeros(2, max_k, dtype=torch.long, device=kernels.device)
        self._read = kernels.host_read(2 * max_k)

    def pick(
        self, rows: Tensor, place: Tensor, position: Tensor, token: Tensor | None = None, moved: Tensor | None = None
    ) -> Tensor:
        """In a fixed call: pick from rows of logits [n, columns] as Notes of these say; keep the target's ids and how
        far each led the next best, noise included. Returns ids [n] for lookups."""
        notes = Notes(place, position, self._picked, self._target_ids, token, moved)
        if (noted := self._sampler.picked_by_kernels(rows, self._keys, notes)) is not None:
            return noted[0]
        places = place + self._count[: len(rows)]
        best, margins = self._sampler.pick_rows_with_margins(rows, self._keys.index_select(0, position + places))
        column = best.clamp(min=0)
        ids = column if self._target_ids is None else self._target_ids.index_select(0, column)
        places = places.clamp(max=self._max_k - 1)
        self._picked[IDS].index_copy_(0, places, ids.masked_fill(best < 0, -1))
        self._picked[MARGINS].index_copy_(0, places, margins.view(torch.int32).long())
        if token is not None:
            token.copy_(ids)
        if moved is not None:
            moved.add_(1)
        return ids

    def rated(self, place: int) -> list[tuple[int, float]]:
        """The token at that place, rated as by `BranchingDrafter.expand`: the next best, whichever it is, is -1."""
        *_, picked = self.read(place + 1)
        return [picked, (-1, 0.0)]

    def read(self, num: int) -> Iterator[tuple[int, float]]:
        """The first `num` tokens and their margins; one wait. Raises RaceError at a token picked from a NaN row."""
        numbers = self._read(self._picked.view(-1))
        margins = struct.unpack(f"{num}f", struct.pack(f"{num}i", *numbers[self._max_k : self._max_k + num]))
        for token_id, margin in zip(numbers[:num], margins, strict=True):
            if token_id < 0:
                raise RaceError(NOT_NUMBERS)
            yield token_id, margin


def stays_on_device(context: DrafterContext, wanted: bool | None = None) -> bool:
    """Whether drafts are picked on the device. wanted: None for CUDA only. Never if their logits are needed."""
    return (context.loaded.prepared.kernels.judges_on_device if wanted is None else wanted) and not context.keep_logits
