"""A lane's whole step as one fixed call for each width: forward, the target's choice in every row, and how much of the
draft stands.

The host sends one small copy (pointer, position, the last token and the draft) and reads one small copy back (the
accepted count and the choices). Where row after row is chosen on the host, each costs the device a wait; here rows
after the first rejection are chosen for nothing, which is why the CPU keeps to rows. Both make the same choice from the
same bits. Captured as a CUDA graph on CUDA; tests run it by direct calls. Not yet measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..choice.nucleus import NOT_NUMBERS
from ..choice.sampler import Sampler
from ..errors import RaceError
from ..interfaces import Acceptance
from ..kernels import Kernels

POINTER, POSITION, NUM_DRAFTED, HEADER = 0, 1, 2, 3
Forward = Callable[[Tensor], tuple[Tensor | None, Tensor | None]]
"""ids [1, W] at the pointer -> logits [W, vocab], hidden [W, any] or None."""


class StepInput:
    """All that changes from step to step, in one device tensor of int64 that stays in place, and views of its parts.
    Every one of them [1] but `ids(width)` [1, width]: the last committed token, the draft, zeros."""

    def __init__(self, max_width: int, kernels: Kernels) -> None:
        self._write = kernels.host_write(HEADER + max_width)
        self._values = self._write.values
        self.pointer, self.position, self.num_drafted = (
            self._values[i : i + 1] for i in (POINTER, POSITION, NUM_DRAFTED)
        )
        self._pointed = 0

    def ids(self, width: int) -> Tensor:
        return self._values[HEADER : HEADER + width][None]

    def put(self, width: int, token_ids: Sequence[int]) -> None:
        """Set `ids(width)` alone: at most so many, then zeros. The host waits for it."""
        self._write.put(HEADER, [*token_ids, *[0] * (width - len(token_ids))])

    def point(self, length: int) -> None:
        """Set the pointer alone."""
        if length != self._pointed:
            self.pointer.fill_(length)
            self._pointed = length

    def send(self, pointer: int, position: int, token_ids: tuple[int, ...]) -> None:
        """Set everything; see HostWrite."""
        self._write.send((pointer, position, len(token_ids) - 1, *token_ids))
        self._pointed = pointer


class DeviceStep:
    """The steps of one sequence under one sampler, whose choice `pick_rows` makes. `call` is one step; what it leaves
    is to be noted by the caller.

    num_positions: as many as a completion may have. step_input: that of the sequence, over whose pointer `forward`
    runs."""

    def __init__(
        self,
        forward: Forward,
        step_input: StepInput,
        widths: Sequence[int],
        sampler: Sampler,
        num_positions: int,
        kernels: Kernels,
        pool: Any,
    ) -> None:
        self._forward, self._input, self._sampler = forward, step_input, sampler
        self._keys = sampler.keys(num_positions)
        self._rows = torch.arange(max(widths), device=kernels.device)
        self._read = kernels.host_read(1 + max(widths))
        self.calls = {
            width: kernels.fixed(partial(self._run, width), pool, f"the whole step of width {width}")
            for width in widths
        }

    @torch.inference_mode()
    def call(
        self, width: int, pointer: int, position: int, token_ids: tuple[int, ...]
    ) -> tuple[Acceptance, Tensor, Tensor | None]:
        """One step of that width with the last committed token and a draft: what a Coupled rule makes of it, and logits
        [width, vocab] and hidden states [width, any], valid until the next call. Raises RaceError where a row that
        decides a token is no numbers."""
        self._input.send(pointer, position, token_ids)
        logits, hidden, out = self.calls[width]()
        num_accepted, *chosen = self._read(out)
        committed = tuple(chosen[: num_accepted + 1])
        if committed[-1] < 0:
            raise RaceError(NOT_NUMBERS)
        return Acceptance(num_accepted, committed), logits, hidden

    def _run(self, width: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """logits, hidden, and [accepted count, the choice of every row]: int64 [1 + width]. Over the same input always
        the same."""
        ids = self._input.ids(width)
        logits, hidden = self._forward(ids)
        assert logits is not None
        chosen = self._sampler.pick_rows(logits, self._keys.index_select(0, self._input.position + self._rows[:width]))
        stands = (chosen[:-1] == ids[0, 1:]) & (self._rows[: width - 1] < self._input.num_drafted)
        num_accepted = stands.long().cumprod(0).sum(0, keepdim=True)
        return logits, hidden, torch.cat([num_accepted, chosen])
