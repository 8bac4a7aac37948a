"""A fused decoder (`layers/decoder.py`) as arguments of a compiled call (`forward.py`, `step.c`). Nothing is masked:
every row reads only its own columns."""

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModel
from ...layers.decoder import SANDWICH, Decoded, FusedDecoder, StepDecoder, is_head_on_top
from ...layers.layers import is_stock
from .build import NUMBER, POINTER, fields, library
from .linear import LANES, LinearArguments, NativeLinear, reason_against
from .tensors import MOST_DIM, check_heads

# transformers' classes that multiply what they look up by `embed_scale`.
SCALED_EMBEDDINGS = {"Gemma3TextScaledWordEmbedding"}
ACTIVATIONS = {"SiLUActivation": 0, "SiLU": 0, "GELUTanh": 1}  # classes of transformers and torch -> block.h


class LayerArguments(ctypes.Structure):
    """`Layer` of step.c."""

    _fields_ = (
        *fields(LinearArguments, "qkv", "o", "gate_up", "down"),
        ("norms", POINTER * 4),
        *fields(POINTER, "query_norm", "key_norm"),
        *fields(NUMBER, "window", "angles"),
        ("scale", ctypes.c_float),
    )


class DecoderArguments(ctypes.Structure):
    """`Decoder` of step.c."""

    _fields_ = (
        ("layers", ctypes.POINTER(LayerArguments)),
        ("norm", POINTER),
        *fields(NUMBER, "num_layers", "hidden", "heads", "kv", "dim", "inner", "sandwich", "act"),
        ("eps", ctypes.c_float),
    )


class NativeDecoder(StepDecoder):
    """Replaces a FusedDecoder, for bfloat16 on the CPU, if `reason_against_decoder` accepts it. It is run by a
    NativeForward alone."""

    def __init__(self, fused: FusedDecoder) -> None:
        super().__init__()
        self.embed_tokens, self.angles = fused.embed_tokens, fused.angles
        self.windows: dict[int, int | None] = {}
        self.linears = nn.ModuleList()
        self._kept_alive: list[Any] = []
        self.arguments, self.kernels = self._of(fused), library()

    def _of(self, fused: FusedDecoder) -> DecoderArguments:
        layers: Any = fused.layers
        kinds = sorted(fused.angles)
        arguments = (LayerArguments * len(layers))()
        for args, layer, kind in zip(arguments, layers, fused.kinds, strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            self.windows[attention.layer_idx] = attention.sliding_window
            linears = attention.qkv, attention.o_proj, mlp.down_proj
            args.qkv, args.o, args.down = map(self._linear, linears)
            args.gate_up = self._linear(mlp.gate_up, ACTIVATIONS[type(mlp.act_fn).__name__])
            args.norms = (POINTER * 4)(*(self._floats(norm.scale) for norm in layer.norms))
            if len(attention.norms):
                args.query_norm, args.key_norm = (self._floats(norm.scale) for norm in attention.norms)
            args.window, args.angles, args.scale = attention.sliding_window or 0, kinds.index(kind), attention.scaling
        first = layers[0]
        attention = first.self_attn
        num_kv = attention.num_turned - attention.num_heads
        check_heads(attention.num_heads, num_kv, attention.head_dim)
        self._hidden, self._dim = attention.o_proj.out_features, attention.head_dim
        sizes = (len(layers), self._hidden, attention.num_heads, num_kv, self._dim, first.mlp.down_proj.in_features)
        self._kept_alive.append(arguments)
        return DecoderArguments(
            arguments,
            self._floats(fused.norm.scale),
            *sizes,
            len(first.norms) == len(SANDWICH),
            ACTIVATIONS[type(first.mlp.act_fn).__name__],
            fused.norm.eps,
        )

    def _linear(self, linear: nn.Linear, act: int | None = None) -> LinearArguments:
        self.linears.append(native := NativeLinear(linear, act))
        return native.arguments

    def _floats(self, values: Tensor) -> int:
        kept = values.detach().float().contiguous()
        self.register_buffer(f"norm_{len(self._buffers)}", kept, persistent=False)
        return kept.data_ptr()

    def _decoded(self, *unused: Any) -> Decoded:
        raise UnsupportedModel("a compiled decoder runs whole steps only")

    def tables(self, length: int) -> list[Tensor]:
        """Cosines and sines [length, dim / 2] of every kind of angles, alternating."""
        positions, half = torch.arange(length)[None], self.arguments.dim // 2
        parts = (part for kind in sorted(self.angles) for part in self.angles[kind](positions, torch.float32))
        return [part[0, :, 0, half:].contiguous() for part in parts]


def _sizes(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return (
        len(layer.norms),
        type(mlp.act_fn),
        attention.qkv.weight.shape,
        attention.head_dim,
        attention.num_heads,
        attention.num_turned,
        mlp.down_proj.in_features,
    )


def reason_against_decoder(model: Any) -> str | None:
    """Why a model's decoder cannot be a NativeDecoder, once it is a FusedDecoder; None if it can."""
    if not is_head_on_top(model) or type(fused := model.model) is not FusedDecoder:
        return f"a {type(model).__name__} is no embedding, decoder and head of the usual kind"
    embedding = fused.embed_tokens
    known = type(embedding) is nn.Embedding or type(embedding).__name__ in SCALED_EMBEDDINGS
    if not known or embedding.max_norm is not None or not (is_stock(embedding) and is_stock(model.lm_head)):
        return f"its embedding is a {type(embedding).__name__}, or does more than its class says; or its head does"
    if why := reason_against(model.lm_head):
        return why
    layers: Any = fused.layers
    for layer in layers:
        attention, mlp = layer.self_attn, layer.mlp
        for linear in (attention.qkv, attention.o_proj, mlp.gate_up, mlp.down_proj):
            if why := reason_against(linear):
                return why
        if (name := type(mlp.act_fn).__name__) not in ACTIVATIONS:
            return f"its activation is {name}, not one of {', '.join(ACTIVATIONS)}"
        if (
            attention.head_dim % (2 * LANES)
            or mlp.down_proj.in_features % LANES
            or attention.o_proj.out_features % LANES
            or attention.head_dim > MOST_DIM
        ):
            return f"its sizes are no multiples of {LANES}, or its heads' of {2 * LANES} up to {MOST_DIM}"
        if any(norm.eps != fused.norm.eps for norm in (*layer.norms, *attention.norms)):
            return "its norms differ in eps"
    if len({_sizes(layer) for layer in layers}) > 1:
        return "its layers differ"
    return None
