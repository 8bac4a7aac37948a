"""The buffers of one sequence, and the model's forward over them: what a fixed call runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..kernels import Forward
from ..model.attention import additive_masks
from ..model.delta_places import Places
from ..model.step import StepState

if TYPE_CHECKING:
    from .prepared import Prepared


@dataclass(frozen=True)
class Buffers:
    """The buffers of one sequence, all of them device tensors that stay in place."""

    prepared: Prepared
    kv: list[tuple[Tensor, Tensor]]
    pointer: Tensor
    columns: Tensor
    hidden_layers: tuple[int, ...]
    num_states: int = 0
    """Of a linear layer's ring."""
    hidden: Tensor | None = None
    """Where a step's hidden states [widest step, layers * dim] are put. A drafter reads them one step later, when the
    lanes that share this lane's graph memory have run: so they are no output of a graph. None: every call makes its
    own."""

    def forward(
        self, ids: Tensor, want_logits: bool, seen: dict[int, int | None] | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """ids [1, n] at the pointer -> logits [n, vocab] (or None), hidden [n, layers * dim] (or None). No host sync,
        no state but the buffers. The logits are those of the model's own forward, with whatever it does to them. With
        logits it is a step: its hidden states are in `hidden` and valid until the next one. Without, it is a prefill:
        they are the caller's."""
        if self._whole is None:
            logits, states = self._run(ids, want_logits, seen)
        else:
            logits, states = self._whole(ids, int(self.pointer), want_logits, bool(self.hidden_layers), seen)
        if states is None:
            return logits, None
        place = self.hidden[: ids.shape[1]] if want_logits and self.hidden is not None else None
        return logits, torch.cat([states[layer] for layer in self.hidden_layers], dim=-1, out=place)

    @cached_property
    def _whole(self) -> Forward | None:
        return self.prepared.kernels.forward(self.prepared.model, self.kv)

    def _run(
        self, ids: Tensor, want_logits: bool, seen: dict[int, int | None] | None
    ) -> tuple[Tensor | None, Sequence[Tensor] | None]:
        model = self.prepared.model
        at = self.pointer + self.columns[: ids.shape[1]]
        shape = self.prepared.shape
        places = None if shape.linear is None else Places.of(at, shape.linear, self.num_states, chunked=not want_logits)
        attend = self.prepared.kernels.attention(model, ids.shape[1])
        masks = {} if attend is not None else additive_masks(shape, at, self.columns, self.prepared.dtype)
        state = StepState(at, self.kv, masks, seen, places, attend)
        run = model if want_logits else model.get_decoder()
        out = run(
            input_ids=ids,
            position_ids=at[None],
            use_cache=False,
            output_hidden_states=bool(self.hidden_layers),
            state=state,
        )
        return out.logits[0] if want_logits else None, [
            states[0] for states in out.hidden_states
        ] if self.hidden_layers else None
