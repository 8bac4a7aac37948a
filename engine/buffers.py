"""The buffers of one sequence, and the model's forward over them: what a fixed call runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .attention import StepState, additive_masks
from .linear_attention import Places
from .native.decoder import masks_itself

if TYPE_CHECKING:
    from .target import Prepared


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

    def forward(self, ids: Tensor, want_logits: bool, seen: dict[int, int | None] | None = None) -> tuple[Tensor | None, Tensor | None]:
        """ids [1, n] at the pointer -> logits [n, vocab] (or None), hidden [n, layers * dim] (or None). No host sync, no state but the buffers.
        The logits are those of the model's own forward, with whatever it does to them."""
        model = self.prepared.model
        at = self.pointer + self.columns[: ids.shape[1]]
        shape = self.prepared.shape
        places = None if shape.linear is None else Places.of(at, shape.linear, self.num_states, chunked=not want_logits)
        masks = {} if masks_itself(model) else additive_masks(shape, at, self.columns, self.prepared.dtype)
        state = StepState(at, self.kv, masks, seen, places)
        run = model if want_logits else model.get_decoder()
        out = run(input_ids=ids, position_ids=at[None], use_cache=False, output_hidden_states=bool(self.hidden_layers), state=state)
        hidden = torch.cat([out.hidden_states[layer][0] for layer in self.hidden_layers], dim=-1) if self.hidden_layers else None
        return out.logits[0] if want_logits else None, hidden
