"""What one forward passes to its layers."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .delta_places import Places

# attend(query [W, heads, dim], keys, values [1, kv_heads, S, dim], at [W], window, scaling, sinks=None) -> as many
# numbers as query, in the same order. Row r, at position at[0] + r, sees the columns up to its own; with a window the
# last `window` of them. sinks: see `attention.attend_rows`.
Attend = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class StepState:
    """What the attention of one forward needs, all device tensors: positions [W]; per layer keys and values [1,
    kv_heads, S, dim], or a linear layer's rings; per window (None: full attention) an additive mask [groups * W, S]."""

    at: Tensor
    kv: list[tuple[Tensor, Tensor]]
    masks: dict[int | None, Tensor]
    seen: dict[int, int | None] | None = None  # if not None, receives each layer's window
    places: Places | None = None  # for linear layers: where in their rings
    # Attention without masks. None: torch's, with masks.
    attend: Attend | None = None
