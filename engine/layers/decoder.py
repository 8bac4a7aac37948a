"""transformers' usual decoders, and hybrids of one kind, as a plain loop over fused layers (`layers.py`), without
decorators, masks or output objects per layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from weakref import ref

import torch
from torch import Tensor, nn

from ..core.errors import UnsupportedModel
from .delta_rule import DeltaLayer
from .layers import (
    FusedAttention,
    FusedMLP,
    FusedNorm,
    fuse_layers,
    fused_attention,
    fused_mlp,
    fused_norm,
    is_stock,
    join_projections,
)
from .published import fixed_angles
from .step import StepState

# transformers' classes that do just this: embed, turn by rotary angles, the layers, a norm.
DECODERS = {"Gemma3TextModel", "LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model"}
# The same with some linear layers (`delta_rule.py`), and three positions per token, equal for text.
HYBRIDS = {"Qwen3_5TextModel"}
ANGLES_BY_TYPE = {"Gemma3TextModel"}
EVERY_LAYER = "layer"
FAMILIES = ("Gemma3", "Llama", "Mistral", "Qwen2", "Qwen3", "Qwen3_5")
# Classes that do just this: the decoder, then `lm_head`, then, if configured, a cap on the logits.
HEADS = {f"{family}ForCausalLM" for family in FAMILIES}
PRE_NORM = ("input_layernorm", "post_attention_layernorm")
SANDWICH = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
# Class -> its norms: before attention and MLP, or before and after both. A linear layer counts as attention.
LAYERS = {f"{family}DecoderLayer": SANDWICH if family == "Gemma3" else PRE_NORM for family in FAMILIES}


def fuse(model: nn.Module, by_layer_norm: bool) -> None:
    """Replace the model's decoder, in place, by its equal with fewer operations; or, if the decoder is unknown, just
    its known norms and MLPs. Call it after the engine's attention and linear layers are installed, and before linears
    are packed. by_layer_norm: see `fuse_layers`."""
    join_projections(model)
    for name, child in list(model.named_children()):
        if (fused := _decoder(child, by_layer_norm)) is not None:
            setattr(model, name, fused)
            is_plain = type(model).__name__ in HEADS and is_stock(model) and name == "model"
            if is_plain and not getattr(model.config, "final_logit_softcapping", None):
                model.forward = partial(_head_on_top, ref(model))
    fuse_layers(model, by_layer_norm)


def _head_on_top(model: Callable[[], Any], **call: Any) -> Decoded:
    """The forward of one of HEADS. Looks its modules up in every call: they may have been packed since."""
    whole = model()
    decoded = whole.model(**call)
    return Decoded(decoded.last_hidden_state, decoded.hidden_states, whole.lm_head(decoded.last_hidden_state))


def is_head_on_top(model: nn.Module) -> bool:
    """Whether the model's forward does just that."""
    forward = vars(model).get("forward")
    return isinstance(forward, partial) and forward.func is _head_on_top


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoder's result, under transformers' names: the rows after the last norm, and, if requested, the embeddings
    and every layer's output. With logits, a model's result."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] | None
    logits: Tensor | None = None
    past_key_values: None = None
    attentions: None = None


class StepDecoder(nn.Module, ABC):
    """A decoder for steps of the engine: it needs their state, and has no other cache."""

    def get_decoder(self) -> Self:
        """Itself, for the model's `get_decoder`."""
        return self

    def forward(
        self,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        state: StepState | None = None,
        output_hidden_states: bool = False,
        use_cache: bool = False,
        **more: Any,
    ) -> Decoded:
        """input_ids, position_ids [1, n]. Raises UnsupportedModel for a call that is no step of the engine."""
        has_more = use_cache or any(value is not None for value in more.values())
        if input_ids is None or position_ids is None or state is None or has_more:
            raise UnsupportedModel(
                "a prepared model runs the engine's steps only; load another copy to call it otherwise"
            )
        return self._decoded(input_ids, position_ids, state, output_hidden_states)

    @abstractmethod
    def _decoded(self, input_ids: Tensor, position_ids: Tensor, state: StepState, all_states: bool) -> Decoded: ...


class FusedDecoder(StepDecoder):
    """One of the classes in DECODERS over fused layers."""

    def __init__(
        self,
        stock: Any,
        layers: Sequence[FusedLayer],
        norm: FusedNorm,
        kinds: Sequence[str],
        angles: Mapping[str, Angles],
    ) -> None:
        super().__init__()
        self.embed_tokens, self.norm = stock.embed_tokens, norm
        self.layers, self.angles = nn.ModuleList(layers), nn.ModuleDict(angles)
        self.kinds = tuple(kinds)

    def _decoded(self, input_ids: Tensor, position_ids: Tensor, state: StepState, all_states: bool) -> Decoded:
        x = self.embed_tokens(input_ids)
        turns = {kind: angles(position_ids, x.dtype) for kind, angles in self.angles.items()}
        kept = [x]
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            x = layer(x, *turns[kind], state)
            kept.append(x)
        kept[-1] = x = self.norm(x)
        return Decoded(x, tuple(kept) if all_states else None)


class HybridDecoder(FusedDecoder):
    """One of the classes in HYBRIDS: a FusedDecoder of linear layers and GatedAttention."""


class Angles(nn.Module):
    """Rotary angles: each position times every frequency. Those of the first half of a head are negated: their terms
    are subtracted, and a sine changes its sign with its angle, a cosine does not."""

    def __init__(self, frequencies: Tensor, scaling: float) -> None:
        super().__init__()
        self.frequencies = nn.Buffer(torch.cat((-frequencies, frequencies)).float(), persistent=False)
        self.scaling = scaling

    def forward(self, position_ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """position_ids [1, n] -> cosines and sines [1, n, 1, turned values of a head]."""
        turns = position_ids[:, :, None, None] * self.frequencies
        cos, sin = turns.cos(), turns.sin()
        if self.scaling != 1:
            cos, sin = cos * self.scaling, sin * self.scaling
        return cos.to(dtype), sin.to(dtype)


def _angles(decoder: Any, kind: str) -> Angles | None:
    """The angles of a decoder's `rotary_emb` for layers of that type, if it is just frequencies and a factor."""
    rotary, by_type = decoder.rotary_emb, type(decoder).__name__ in ANGLES_BY_TYPE
    prefix = f"{kind}_" if by_type else ""
    frequencies = getattr(rotary, f"{prefix}inv_freq", None)
    scaling = getattr(rotary, f"{prefix}attention_scaling", None)
    if not is_stock(rotary) or not isinstance(frequencies, Tensor) or not isinstance(scaling, int | float):
        return None
    angles = Angles(frequencies, float(scaling))
    last = (fixed_angles(decoder.config.to_dict()) or decoder.config.max_position_embeddings) - 1
    positions = torch.tensor([[0, 1, 2, min(77, last), last]], device=frequencies.device)
    x = torch.zeros(1, device=frequencies.device)
    places = positions.expand(3, -1, -1) if type(decoder).__name__ in HYBRIDS else positions
    cos, sin = rotary(x, places, kind) if by_type else rotary(x, places)
    our_cos, our_sin = (angle[:, :, 0] for angle in angles(positions, x.dtype))
    half = len(frequencies)
    same = (
        cos.shape == our_cos.shape
        and torch.allclose(cos, our_cos, atol=1e-5)
        and torch.allclose(sin, torch.cat((-our_sin[..., :half], our_sin[..., half:]), -1), atol=1e-5)
    )
    return angles if same else None


class FusedLayer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); with four norms also on both outputs."""

    def __init__(self, attention: FusedAttention | DeltaLayer, mlp: FusedMLP, norms: Sequence[FusedNorm]) -> None:
        super().__init__()
        self.self_attn, self.mlp = attention, mlp
        self.norms = nn.ModuleList(norms)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, state: StepState) -> Tensor:
        if len(self.norms) == len(PRE_NORM):
            before_attention, before_mlp = self.norms
            x = x + self.self_attn(before_attention(x), cos=cos, sin=sin, state=state)
            return x + self.mlp(before_mlp(x))
        before_attention, after_attention, before_mlp, after_mlp = self.norms
        x = x + after_attention(self.self_attn(before_attention(x), cos=cos, sin=sin, state=state))
        return x + after_mlp(self.mlp(before_mlp(x)))


@torch.inference_mode()
def _decoder(decoder: Any, by_layer_norm: bool) -> FusedDecoder | None:
    name = type(decoder).__name__
    if name not in DECODERS | HYBRIDS or not is_stock(decoder):
        return None
    layers = [_layer(layer, by_layer_norm) for layer in decoder.layers]
    known, norm = [layer for layer in layers if layer is not None], fused_norm(decoder.norm, by_layer_norm)
    kinds = decoder.config.layer_types if name in ANGLES_BY_TYPE else [EVERY_LAYER] * len(layers)
    angles = {kind: own for kind in sorted(set(kinds)) if (own := _angles(decoder, kind)) is not None}
    if norm is None or len(known) < len(layers) or angles.keys() != set(kinds):
        return None
    return (HybridDecoder if name in HYBRIDS else FusedDecoder)(decoder, known, norm, kinds, angles)


def _layer(layer: Any, by_layer_norm: bool) -> FusedLayer | None:
    names = LAYERS.get(type(layer).__name__, ())
    if not names or not is_stock(layer):
        return None
    linear, mlp = getattr(layer, "linear_attn", None), fused_mlp(layer.mlp)
    attention = (
        linear if isinstance(linear, DeltaLayer) else fused_attention(getattr(layer, "self_attn", None), by_layer_norm)
    )
    norms = [norm for name in names if (norm := fused_norm(getattr(layer, name), by_layer_norm)) is not None]
    return None if attention is None or mlp is None or len(norms) < len(names) else FusedLayer(attention, mlp, norms)
