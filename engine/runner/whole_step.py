"""A lane's whole step as one fixed call per width: forward, the target's choice in every row, and how much of the draft
is accepted.

The host sends one small copy (pointer, position, the last token and the draft) and reads one back (the accepted count
and the choices). Choosing row after row on the host would cost a wait for the device each; here rows after the first
rejection are chosen in vain, which is why the CPU keeps to rows. Both make the same choice from the same bits. A graph
on CUDA; tests run it by direct calls."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.errors import NOT_NUMBERS, RaceError
from ..core.interfaces import Acceptance
from ..core.sampling.sampler import Sampler
from ..kernels.torch import Kernels
from ..kernels.weak import weak_call

POINTER, POSITION, NUM_DRAFTED, HEADER = 0, 1, 2, 3
# ids [1, W] at the pointer -> logits [W, vocab], hidden [W, any] or None.
Forward = Callable[[Tensor], tuple[Tensor | None, Tensor | None]]


class StepInput:
    """Everything that changes from step to step, in one int64 device tensor that stays in place, and views of its
    parts. Each is [1] except `ids(width)` [1, width]: the last committed token, the draft, zeros."""

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
        """Set only `ids(width)`: the tokens, then zeros. The host waits for it."""
        self._write.put(HEADER, [*token_ids, *[0] * (width - len(token_ids))])

    def point(self, length: int) -> None:
        """Set only the pointer."""
        if length != self._pointed:
            self.pointer.fill_(length)
            self._pointed = length

    def send(self, pointer: int, position: int, token_ids: tuple[int, ...]) -> None:
        """Set everything; see HostWrite."""
        self._write.send((pointer, position, len(token_ids) - 1, *token_ids))
        self._pointed = pointer


class DeviceStep:
    """The steps of one sequence under one sampler, which chooses by `pick_rows`. `call` is one step; its caller records
    it.

    num_positions: the most that a completion may have. step_input: the sequence's, over whose pointer `forward`
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
            width: kernels.fixed(weak_call(self._run, width), pool, f"the whole step of width {width}")
            for width in widths
        }

    @torch.inference_mode()
    def call(
        self, width: int, pointer: int, position: int, token_ids: tuple[int, ...]
    ) -> tuple[Acceptance, Tensor, Tensor | None]:
        """One step of that width with the last committed token and a draft: a Coupled rule's decision, logits [width,
        vocab] and hidden states [width, any], valid until the next call. Raises RaceError if a deciding row is NaN."""
        self._input.send(pointer, position, token_ids)
        logits, hidden, out = self.calls[width]()
        num_accepted, *chosen = self._read(out)
        committed = tuple(chosen[: num_accepted + 1])
        if committed[-1] < 0:
            raise RaceError(NOT_NUMBERS)
        return Acceptance(num_accepted, committed), logits, hidden

    def _run(self, width: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """logits, hidden, and [accepted count, the choice of every row]: int64 [1 + width], of the input alone."""
        ids = self._input.ids(width)
        logits, hidden = self._forward(ids)
        assert logits is not None
        chosen = self._sampler.pick_rows(logits, self._keys.index_select(0, self._input.position + self._rows[:width]))
        matches = (chosen[:-1] == ids[0, 1:]) & (self._rows[: width - 1] < self._input.num_drafted)
        num_accepted = matches.long().cumprod(0).sum(0, keepdim=True)
        return logits, hidden, torch.cat([num_accepted, chosen])
