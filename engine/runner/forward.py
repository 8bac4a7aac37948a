"""The buffers of one sequence, and the model's forward over them: what a fixed call runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..kernels.torch import Forward
from ..layers.attention import additive_masks
from ..layers.delta_places import Places
from ..layers.step import StepState

if TYPE_CHECKING:
    from .prepared import Prepared


@dataclass
class Buffers:
    """The buffers of one sequence: device tensors that stay in place."""

    prepared: Prepared
    kv: list[tuple[Tensor, Tensor]]
    pointer: Tensor
    columns: Tensor
    hidden_layers: tuple[int, ...]
    num_states: int = 0  # size of a linear layer's ring
    # A step's hidden states [widest step, layers * dim]. A drafter reads them one step later, after lanes that share
    # this lane's graph memory have run, so they are not the output of a graph. None: every call makes its own.
    hidden: Tensor | None = None
    parents: Tensor | None = None  # the row that each row of a step follows: int32 [width]; None: the one before

    def follow(self, parents: Sequence[int], width: int) -> None:
        """Set `parents` by those of all rows but the first, or none; padding follows the first."""
        rows = [0, *parents, *[0] * (width - len(parents) - 1)]
        self.parents = torch.tensor(rows, dtype=torch.int32) if parents else None

    def forward(
        self, ids: Tensor, want_logits: bool, seen: dict[int, int | None] | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """ids [1, n] at the pointer -> logits [n, vocab] (or None), hidden [n, layers * dim] (or None). No host sync,
        no state but the buffers. The logits are those of the model's own forward. With logits it is a step: its hidden
        states are in `hidden` and valid until the next one. Without, it is a prefill: they belong to the caller."""
        if self._whole is None:
            logits, states = self._run(ids, want_logits, seen)
        else:
            parents = self.parents if want_logits else None
            logits, states = self._whole(ids, int(self.pointer), want_logits, bool(self.hidden_layers), seen, parents)
        if states is None:
            return logits, None
        place = self.hidden[: ids.shape[1]] if want_logits and self.hidden is not None else None
        return logits, torch.cat([states[layer] for layer in self.hidden_layers], dim=-1, out=place)

    @property
    def takes_trees(self) -> bool:
        """Whether rows may follow others: only whole compiled forwards look at `parents`."""
        return self._whole is not None

    def keep(self, at: int, rows: Sequence[int]) -> None:
        """See `Forward`."""
        forward: Any = self._whole
        forward.keep(at, rows)

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
        hidden = [states[0] for states in out.hidden_states] if self.hidden_layers else None
        return out.logits[0] if want_logits else None, hidden
