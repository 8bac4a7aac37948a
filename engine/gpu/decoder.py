"""A fused decoder (`fused_decoder.py`) whose steps are five to nine launches a layer, no more of them with many rows than with one.

Where norms come before attention and MLP alone, none is launched: a linear that adds to the residual leaves the sums of squares of its own columns behind, and
the next linear multiplies its products by what they make of the row's norm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..attention import StepState
from ..fused import FusedAttention, FusedMLP
from ..fused_decoder import PRE_NORM, Decoded, FusedDecoder, StepDecoder
from .attention import attend, num_arrivals, place
from .linear import GpuLinear, reason_against
from .rows import add_normed, normed
from .runtime import MOST_ROWS

ACTIVATIONS = {"SiLUActivation": "silu", "SiLU": "silu", "GELUTanh": "gelu_tanh"}
"""Classes of transformers and torch -> linear.py."""
MOST_HEAD_DIM = 256


class GpuLayer(nn.Module):
    """The kernels of one layer over the weights of a FusedLayer. `norms` [dim] float32 each: as there."""

    arrivals: Tensor | None = None
    """With them attention is one launch, not two; see GpuDecoder.merge."""

    def __init__(self, fused: Any) -> None:
        super().__init__()
        attention, mlp = fused.self_attn, fused.mlp
        assert isinstance(attention, FusedAttention) and isinstance(mlp, FusedMLP)
        self.qkv, self.o, self.down = GpuLinear(attention.qkv), GpuLinear(attention.o_proj), GpuLinear(mlp.down_proj)
        self.gate_up = GpuLinear(mlp.gate_up, ACTIVATIONS[type(mlp.act_fn).__name__])
        self.norms = nn.ParameterList(nn.Parameter(norm.scale.float(), requires_grad=False) for norm in fused.norms)
        self.eps = [norm.eps for norm in fused.norms]
        self.scales = None if attention.scales is None else nn.Parameter(attention.scales.float(), requires_grad=False)
        self.head_eps, self.num_heads, self.window, self.scaling, self.layer = attention.eps, attention.num_heads, attention.sliding_window, attention.scaling, attention.layer_idx

    def attend(self, qkv: Tensor, cos: Tensor, sin: Tensor, state: StepState) -> Tensor:
        """qkv [n, (heads + 2 kv_heads) * head_dim], cos and sin [n, head_dim] -> [n, heads * head_dim]."""
        keys, values = state.kv[self.layer]
        query = place(qkv, cos, sin, self.scales, self.head_eps, keys, values, state.at, self.num_heads)
        return attend(query, keys, values, state.at, self.window, self.scaling, self.arrivals)


class GpuDecoder(StepDecoder):
    """In the place of a FusedDecoder on CUDA; `reason_against_decoder` tells whether it can be. More than MOST_ROWS tokens at once go through the FusedDecoder that
    it was made of, whose weights it shares."""

    def __init__(self, fused: FusedDecoder) -> None:
        super().__init__()
        self._for_prefills = (fused,)  # no child: no step runs its linears
        self.embed_tokens, self.angles, self.kinds = fused.embed_tokens, fused.angles, fused.kinds
        self.layers = nn.ModuleList(GpuLayer(layer) for layer in fused.layers)
        self.scale, self.eps = nn.Parameter(fused.norm.scale.float(), requires_grad=False), fused.norm.eps
        self._sandwich = len(self._layers[0].norms) > len(PRE_NORM)

    def merge(self, merged: bool = True) -> None:
        """Attention of a layer in one launch, whose last program adds up what all found, or in two. Other sums, so: before anything is probed."""
        heads, first = self._layers[0].num_heads, self._layers[0]
        kv_heads = first.qkv.out_features // (first.o.in_features // heads) - heads
        arrivals = torch.zeros(num_arrivals(MOST_ROWS, heads, kv_heads // 2), dtype=torch.int32, device=self.scale.device) if merged else None
        for layer in self._layers:
            layer.arrivals = arrivals

    @property
    def fused(self) -> FusedDecoder:
        """What this was made of."""
        return self._for_prefills[0]

    @property
    def _layers(self) -> list[Any]:
        return list(self.layers)

    def _decoded(self, input_ids: Tensor, position_ids: Tensor, state: StepState, all_states: bool) -> Decoded:
        if not state.by_kernels:
            return self.fused(input_ids=input_ids, position_ids=position_ids, state=state, output_hidden_states=all_states)
        embedded = self.embed_tokens(input_ids)[0]
        turns = {kind: [part[0, :, 0].contiguous() for part in angles(position_ids, embedded.dtype)] for kind, angles in self.angles.items()}
        rows = self._sandwiched(embedded, turns, state) if self._sandwich else self._pre_normed(embedded, turns, state)
        if state.seen is not None:
            state.seen.update({layer.layer: layer.window for layer in self._layers})
        return Decoded(rows[-1][None], tuple(row[None] for row in rows) if all_states else None)

    def _pre_normed(self, x: Tensor, turns: dict[str, list[Tensor]], state: StepState) -> list[Tensor]:
        """The embeddings, what every layer but the last gave, and the last one's rows after the last norm."""
        layers, rows = self._layers, [x]
        first = layers[0]
        qkv = first.qkv(normed(x, first.norms[0], first.eps[0]))
        for layer, following, kind in zip(layers, [*layers[1:], None], self.kinds, strict=True):
            mixed = layer.o.add_to(layer.attend(qkv, *turns[kind], state), rows[-1], layer.norms[1])
            inner = layer.gate_up.normed(mixed, layer.eps[1])
            added = layer.down.add_to(inner, mixed.rows, self.scale if following is None else following.norms[0])
            rows.append(added.rows)
            if following is not None:
                qkv = following.qkv.normed(added, following.eps[0])
        rows[-1] = normed(rows[-1], self.scale, self.eps)
        return rows

    def _sandwiched(self, x: Tensor, turns: dict[str, list[Tensor]], state: StepState) -> list[Tensor]:
        """The same, with norms after attention and MLP too."""
        layers, rows = self._layers, [x]
        hidden = normed(x, layers[0].norms[0], layers[0].eps[0])
        for layer, following, kind in zip(layers, [*layers[1:], None], self.kinds, strict=True):
            _, after_attention, before_mlp, after_mlp = list(layer.norms)
            x, hidden = add_normed(x, layer.o(layer.attend(layer.qkv(hidden), *turns[kind], state)), after_attention, before_mlp, layer.eps[1])
            x, hidden = add_normed(x, layer.down(layer.gate_up(hidden)), after_mlp, self.scale if following is None else following.norms[0], layer.eps[3])
            rows.append(x)
        rows[-1] = hidden
        return rows


def reason_against_decoder(fused: FusedDecoder) -> str | None:
    """Why a decoder cannot be a GpuDecoder; None if it can."""
    layers: list[Any] = list(fused.layers)
    for layer in layers:
        attention, mlp, norms = layer.self_attn, layer.mlp, [*layer.norms, fused.norm]
        assert isinstance(attention, FusedAttention) and isinstance(mlp, FusedMLP)
        if (name := type(mlp.act_fn).__name__) not in ACTIVATIONS:
            return f"its activation is {name}, not one of {', '.join(ACTIVATIONS)}"
        if attention.head_dim > MOST_HEAD_DIM:
            return f"its heads have {attention.head_dim} numbers, more than {MOST_HEAD_DIM}"
        for linear in (attention.qkv, attention.o_proj, mlp.gate_up, mlp.down_proj):
            if type(linear) is not nn.Linear:
                return f"a {type(linear).__name__} is no plain linear"
            if why := reason_against(linear):
                return why
        if len({norm.eps for norm in norms}) > 1:
            return "its norms differ in eps"
    return None
