"""A fused decoder (`layers/decoder.py`) whose steps are six to nine launches a layer, for one row or many.

With norms only before attention and MLP, none is launched: a linear that adds to the residual also stores the sums of
squares of its own columns, and the next linear multiplies its products by the norm's factor computed from them."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from ...layers.decoder import PRE_NORM, Decoded, FusedDecoder, StepDecoder
from ...layers.delta_places import WINDOW
from ...layers.delta_rule import DeltaLayer, of_one
from ...layers.layers import GatedAttention
from ...layers.step import StepState
from .attention import attend
from .linear import GpuLinear, reason_against
from .qkv_rope_cache import place
from .rmsnorm import add_normed, normed

# Classes of transformers and torch -> linear.py.
ACTIVATIONS = {"SiLUActivation": "silu", "SiLU": "silu", "GELUTanh": "gelu_tanh"}
MOST_HEAD_DIM = 256


class GpuLayer(nn.Module, ABC):
    """The kernels of one layer over a FusedLayer's weights: its MLP, and a subclass's part in front of it, between
    linears `enter` and `leave`. `norms` [dim] float32 each; `layer`, `window`: for the step's state."""

    enter: GpuLinear
    leave: GpuLinear
    layer: int
    window: int | None

    def __init__(self, fused: Any) -> None:
        super().__init__()
        mlp = fused.mlp
        self.gate_up = GpuLinear(mlp.gate_up, ACTIVATIONS[type(mlp.act_fn).__name__])
        self.down = GpuLinear(mlp.down_proj)
        self.norms = nn.ParameterList(nn.Parameter(norm.scale.float(), requires_grad=False) for norm in fused.norms)

    @abstractmethod
    def mix(self, entered: Tensor, cos: Tensor, sin: Tensor, state: StepState) -> Tensor:
        """Output of `enter` for a step's rows [n, any], and their angles [n, turned values of a head] -> input of
        `leave` [n, any]."""


class GpuAttentionLayer(GpuLayer):
    """A layer with a FusedAttention or a GatedAttention."""

    def __init__(self, fused: Any) -> None:
        super().__init__(fused)
        attention = fused.self_attn
        self.enter, self.leave = GpuLinear(attention.qkv), GpuLinear(attention.o_proj)
        self.is_gated = isinstance(attention, GatedAttention)
        self.scales = None if attention.scales is None else nn.Parameter(attention.scales.float(), requires_grad=False)
        self.head_eps, self.num_heads = attention.eps, attention.num_heads
        self.num_kv_heads = attention.num_turned - attention.num_heads
        self.window, self.scaling, self.layer = attention.sliding_window, attention.scaling, attention.layer_idx

    def mix(self, entered: Tensor, cos: Tensor, sin: Tensor, state: StepState) -> Tensor:
        """See GpuLayer. Three launches."""
        keys, values = state.kv[self.layer]
        query = place(entered, cos, sin, self.scales, self.head_eps, keys, values, state.at, self.num_heads)
        gated = entered if self.is_gated else None
        return attend(query, keys, values, state.at, self.window, self.scaling, None, gated)


class GpuDeltaLayer(GpuLayer):
    """A layer with a DeltaLayer on kernels, linears included."""

    window = WINDOW

    def __init__(self, fused: Any) -> None:
        super().__init__(fused)
        delta = fused.self_attn
        self.delta, self.layer = delta, delta.layer_idx
        self.enter, self.leave = delta.in_proj, delta.out_proj

    def mix(self, entered: Tensor, cos: Tensor, sin: Tensor, state: StepState) -> Tensor:
        """See GpuLayer. Two launches in a step; a prefill's chunks are torch's."""
        assert state.places is not None
        return self.delta.mix(self.delta.shape.parts_of(entered), state.places, *state.kv[self.layer])


class GpuDecoder(StepDecoder):
    """Replaces a FusedDecoder on CUDA if `reason_against_decoder` accepts it. More than MOST_ROWS tokens at once go
    through the FusedDecoder, whose weights it shares."""

    def __init__(self, fused: FusedDecoder) -> None:
        super().__init__()
        self._for_prefills = (fused,)  # not a child: no step runs its linears
        self.embed_tokens, self.angles, self.kinds = fused.embed_tokens, fused.angles, fused.kinds
        self.layers = nn.ModuleList(
            (GpuDeltaLayer if isinstance(layer.self_attn, DeltaLayer) else GpuAttentionLayer)(layer)
            for layer in fused.layers
        )
        self.scale, self.eps = nn.Parameter(fused.norm.scale.float(), requires_grad=False), fused.norm.eps
        self._sandwich = len(self._layers[0].norms) > len(PRE_NORM)

    @property
    def fused(self) -> FusedDecoder:
        """The FusedDecoder that this was made from."""
        return self._for_prefills[0]

    @property
    def _layers(self) -> list[Any]:
        return list(self.layers)

    def _decoded(self, input_ids: Tensor, position_ids: Tensor, state: StepState, all_states: bool) -> Decoded:
        if state.attend is None:
            return self.fused(
                input_ids=input_ids, position_ids=position_ids, state=state, output_hidden_states=all_states
            )
        embedded = self.embed_tokens(input_ids)[0]
        turns = {
            kind: [part[0, :, 0].contiguous() for part in angles(position_ids, embedded.dtype)]
            for kind, angles in self.angles.items()
        }
        rows = self._sandwiched(embedded, turns, state) if self._sandwich else self._pre_normed(embedded, turns, state)
        if state.seen is not None:
            state.seen.update({layer.layer: layer.window for layer in self._layers})
        return Decoded(rows[-1][None], tuple(row[None] for row in rows) if all_states else None)

    def _pre_normed(self, x: Tensor, turns: dict[str, list[Tensor]], state: StepState) -> list[Tensor]:
        """The embeddings, the output of every layer but the last, and the final rows after the last norm."""
        layers, rows = self._layers, [x]
        entered = layers[0].enter(normed(x, layers[0].norms[0], self.eps))
        for layer, following, kind in zip(layers, [*layers[1:], None], self.kinds, strict=True):
            mixed = layer.leave.add_to(layer.mix(entered, *turns[kind], state), rows[-1], layer.norms[1])
            inner = layer.gate_up.normed(mixed, self.eps)
            added = layer.down.add_to(inner, mixed.rows, self.scale if following is None else following.norms[0])
            rows.append(added.rows)
            if following is not None:
                entered = following.enter.normed(added, self.eps)
        rows[-1] = normed(rows[-1], self.scale, self.eps)
        return rows

    def _sandwiched(self, x: Tensor, turns: dict[str, list[Tensor]], state: StepState) -> list[Tensor]:
        """The same, with norms after attention and MLP too."""
        layers, rows = self._layers, [x]
        hidden = normed(x, layers[0].norms[0], self.eps)
        for layer, following, kind in zip(layers, [*layers[1:], None], self.kinds, strict=True):
            _, after_attention, before_mlp, after_mlp = list(layer.norms)
            mixed = layer.leave(layer.mix(layer.enter(hidden), *turns[kind], state))
            x, hidden = add_normed(x, mixed, after_attention, before_mlp, self.eps)
            inner = layer.down(layer.gate_up(hidden))
            following_norm = self.scale if following is None else following.norms[0]
            x, hidden = add_normed(x, inner, after_mlp, following_norm, self.eps)
            rows.append(x)
        rows[-1] = hidden
        return rows


def reason_against_decoder(fused: FusedDecoder) -> str | None:
    """Why a decoder cannot be a GpuDecoder; None if it can. Its linear layers must be on kernels already."""
    layers: list[Any] = list(fused.layers)
    for layer in layers:
        mixer, mlp, norms = layer.self_attn, layer.mlp, [*layer.norms, fused.norm]
        if (name := type(mlp.act_fn).__name__) not in ACTIVATIONS:
            return f"its activation is {name}, not one of {', '.join(ACTIVATIONS)}"
        linears = [mlp.gate_up, mlp.down_proj]
        if isinstance(mixer, DeltaLayer):
            if (
                mixer.mix_step is None
                or mixer.project is not of_one
                or not all(isinstance(linear, GpuLinear) for linear in (mixer.in_proj, mixer.out_proj))
            ):
                return f"linear layer {mixer.layer_idx} runs no kernels"
        else:
            if mixer.head_dim > MOST_HEAD_DIM:
                return f"its heads have {mixer.head_dim} numbers, more than {MOST_HEAD_DIM}"
            linears += [mixer.qkv, mixer.o_proj]
        for linear in linears:
            if type(linear) not in (nn.Linear, GpuLinear):  # kernels, unless refused earlier
                return f"a {type(linear).__name__} is no plain linear"
            if why := reason_against(linear):
                return why
        if len({norm.eps for norm in norms}) > 1:
            return "its norms differ in eps"
    return None
