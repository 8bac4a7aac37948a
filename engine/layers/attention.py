"""The one extension point: an attention function, registered with transformers by name, that owns the cache.

A model under it runs with `use_cache=False` and no Cache object; transformers builds no mask, since no mask function
has this name. Keys and values are written at the step's positions into static buffers of length S, and every row
attends over all S columns under the step's own mask, so shapes never change. What lies behind the pointer is masked,
and overwritten before it can be seen."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from ..core.errors import UnsupportedModel
from ..core.spec import MAX_K
from .delta_places import WINDOW, LinearShape
from .delta_rule import linear_shape_of
from .published import LINEAR, fixed_angles, refusal
from .step import StepState

NAME = "photofinish"
# Arguments without effect here: no dropout at inference; mask, positions and cache are the engine's own.
IGNORABLE = {
    "output_router_logits",
    "dropout",
    "is_causal",
    "position_ids",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "cache_position",
    "logits_to_keep",
    "return_dict",
}


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    state: StepState | None = None,
    s_aux: Tensor | None = None,
    **more: Any,
):
    """query [1, heads, W, dim], key and value [1, kv_heads, W, dim] -> ([1, W, heads, dim], None). s_aux: transformers'
    name for sinks, see `attend_rows`."""
    unknown = [name for name, value in more.items() if value is not None and name not in IGNORABLE]
    if unknown:
        raise UnsupportedModel(
            f"{type(module).__name__} needs {', '.join(unknown)} in its attention, which this engine does not do"
        )
    if state is None:
        raise UnsupportedModel(f"{type(module).__name__} does not hand the engine's state on to its attention")
    if state.seen is not None:
        state.seen[module.layer_idx] = sliding_window
    keys, values = state.kv[module.layer_idx]
    keys.index_copy_(2, state.at, key)
    values.index_copy_(2, state.at, value)
    if state.attend is not None:
        _, heads, width, dim = query.shape
        scaling = dim**-0.5 if scaling is None else scaling
        out = state.attend(query[0].transpose(0, 1), keys, values, state.at, sliding_window, scaling, s_aux)
        return out.view(1, width, heads, dim), None
    return attend_rows(query, keys, values, state.masks[sliding_window], scaling, s_aux).contiguous(), None


def attend_rows(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float | None, sinks: Tensor | None = None
) -> Tensor:
    """query [B, heads, W, dim] over keys and values [B, kv_heads, S, dim] under an additive mask [..., groups * W, S],
    which without sinks may be one of bools -> [B, W, heads, dim].

    sinks [heads]: for each head one more score in the softmax, of no value."""
    size, heads, width, dim = query.shape
    if sinks is not None:  # a column of zeros, whose score is what its mask says: the same operation, one column wider
        column = sinks.to(mask.dtype)[:, None].expand(size, -1, width).reshape(size, keys.shape[1], -1, 1)
        mask = torch.cat([mask.expand(*column.shape[:-1], -1), column], -1)
        keys, values = (F.pad(side, (0, 0, 0, 1)) for side in (keys, values))
    # heads that share keys become rows: K and V are read once, never repeated
    rows = query.reshape(size, keys.shape[1], -1, dim)
    out = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scaling)
    return out.reshape(size, heads, width, -1).transpose(1, 2)  # each kernel chooses its rows' memory layout


AttentionInterface.register(NAME, attend)


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a model's cache."""

    num_layers: int
    num_kv_heads: int
    groups: int
    head_dim: int
    hidden_size: int
    windows: tuple[int | None, ...]
    max_length: int
    linear: LinearShape | None = None


def shape_of(model: PreTrainedModel) -> Shape:
    """Read the cache's shape off the configuration. Raises UnsupportedModel for what the fixed step cannot
    reproduce."""
    if why := refusal(model.config.to_dict()):
        raise UnsupportedModel(f"{type(model).__name__} {why}")
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    windows = {None, getattr(config, "sliding_window", None)}
    fixed = fixed_angles(config.to_dict())  # a step's padding must not go beyond either
    return Shape(
        num_layers=config.num_hidden_layers,
        num_kv_heads=kv_heads,
        groups=heads // kv_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        hidden_size=config.hidden_size,
        windows=tuple(sorted(windows, key=lambda w: -1 if w is None else w)),
        max_length=fixed - MAX_K - 1 if fixed else getattr(config, "max_position_embeddings", None) or 2**31,
        linear=linear_shape_of(model),
    )


def windows_of(model: PreTrainedModel) -> dict[int, int | None]:
    """Each layer's window by the configuration; None: full attention; WINDOW of delta_places.py: a linear layer."""
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    usual = "sliding_attention" if window else "full_attention"
    types = getattr(config, "layer_types", None) or [usual] * config.num_hidden_layers
    windows = {"sliding_attention": window, LINEAR: WINDOW}
    return {layer: windows.get(kind) for layer, kind in enumerate(types)}


def caches(
    shape: Shape, length: int, num_states: int, dtype: torch.dtype, device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """Zeros, per layer: keys and values over `length` columns, or a linear layer's rings of its last `num_states`
    states (float32) and inputs."""
    columns: tuple[tuple[int, ...], torch.dtype] = (1, shape.num_kv_heads, length, shape.head_dim), dtype
    sizes = [(columns, columns)] * shape.num_layers
    if shape.linear is not None:
        states, inputs = shape.linear.ring_sizes(num_states)
        for layer in shape.linear.layers:
            sizes[layer] = ((states, torch.float32), (inputs, dtype))
    return [(_touched(*first, device), _touched(*second, device)) for first, second in sizes]


def _touched(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros in pages that exist already: otherwise the first write would allocate them inside a timed step."""
    return torch.empty(size, dtype=dtype, device=device).zero_()


def additive_masks(shape: Shape, at: Tensor, columns: Tensor, dtype: torch.dtype) -> dict[int | None, Tensor]:
    """Per window a mask [groups * W, S]: 0 where row r, at position at[r % W], may look, -inf elsewhere."""
    rows = at.expand(shape.groups, -1).reshape(-1, 1)
    later = columns > rows
    masks: dict[int | None, Tensor] = {}
    for window in shape.windows:
        hidden = later if window is None else later | (columns <= rows - window)
        masks[window] = torch.zeros(hidden.shape, dtype=dtype, device=at.device).masked_fill_(hidden, -torch.inf)
    return masks
