"""Shared by the compiled calls for draft heads: packed linears, a cache in C's layout, working memory."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...layers.modules import replace_modules
from .build import INT, NUMBER, POINTER, has, library
from .bytes import packed
from .decoder import ACTIVATIONS
from .linear import BLOCK, LANES, LinearArguments, NativeLinear, reason_against
from .tensors import address, check_heads


class GatedMLP(nn.Module):
    """down(act(gate(x)) * up(x)), with gate and up in one linear."""

    def __init__(self, mlp: Any, gate_up: nn.Module) -> None:
        super().__init__()
        self.gate_up, self.down_proj, self.act_fn = gate_up, mlp.down_proj, mlp.act_fn

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_up(x))


def pack_head(head: Any, rounded: bool = True) -> None:
    """Replace the linears that compiled kernels can multiply by, in place; rounded: with 8-bit weights if possible."""
    for layer in head.layers:
        gate_up: Any = getattr(layer.mlp, "gate_up", None)
        act = ACTIVATIONS.get(type(layer.mlp.act_fn).__name__)
        if act is not None and reason_against(gate_up) is None and gate_up.out_features % BLOCK == 0:
            layer.mlp = GatedMLP(layer.mlp, packed(gate_up, rounded, act))
    replace_modules(head, lambda child: packed(child, rounded) if reason_against(child) is None else None)


def embedding_of(head: Any) -> Tensor:
    """The matrix that `Eagle3Head.embed` looks up in."""
    return head._lent[0] if head.embed_tokens is None else head.embed_tokens.weight


def reason_against_rows(head: Any, function: str, projections: Sequence[str], features: int) -> str | None:
    """Why a function of the library cannot compute a head's rows; None if it can. projections: names of the linears
    before attention; features: numbers per state."""
    if not has(function):
        return "there is no compiled kernel for it here"
    embedding, layers = embedding_of(head), list(head.layers)
    if embedding.device.type != "cpu" or embedding.dtype != torch.bfloat16 or not embedding.is_contiguous():
        return f"its embedding is {embedding.dtype} on {embedding.device.type}, not bfloat16 rows on the CPU"
    if not all(isinstance(layer.mlp, GatedMLP) for layer in layers):
        return "its MLPs are not gated, or by another function"
    linears = [head.fc, *(layer.mlp.down_proj for layer in layers)]
    linears += [getattr(layer.self_attn, name, None) for layer in layers for name in (*projections, "o_proj")]
    if not all(isinstance(linear, NativeLinear) for linear in linears):
        return "its linears are not packed"
    sizes = (features, head.fc.out_features, *(layer.mlp.down_proj.in_features for layer in layers))
    if any(size % LANES for size in sizes) or layers[0].self_attn.dim % (2 * LANES):
        return f"its sizes are no multiples of {LANES}, or its heads' of {2 * LANES}"
    return None


class HeadRows(ABC):
    """Rows of a head that `reason_against_rows` accepts, for one sequence. keys, values: per layer bfloat16 [kv_heads,
    S, dim]; rope: cos and sin float32 [S, dim]; all owned by the caller. most: rows that are wanted at once. function:
    its name in the library, and its argument type; sizes: what its working memory depends on besides rows and
    threads."""

    def __init__(
        self,
        head: Any,
        keys: list[Tensor],
        values: list[Tensor],
        rope: tuple[Tensor, Tensor],
        most: int,
        function: tuple[str, Sequence[Any]],
        sizes: Sequence[int],
    ) -> None:
        self.head, self._length, self._num_kv = head, keys[0].shape[1], len(keys[0])
        self._dim = head.layers[0].self_attn.dim
        check_heads(head.layers[0].self_attn.o_proj.in_features // self._dim, self._num_kv, self._dim)
        cache = [side for layer in zip(keys, values, strict=True) for side in layer]
        angles = [part[:, : self._dim // 2].float().contiguous() for part in rope]
        sizes_of_a_side = self._num_kv, self._length, self._dim
        sides = (POINTER * len(cache))(*(address(side, torch.bfloat16, *sizes_of_a_side) for side in cache))
        self._kept_alive: list[Any] = [cache, angles, sides]
        output = self._output()
        self._arguments = self._of(LinearArguments() if output is None else output.arguments)
        self._last = torch.zeros(most, head.fc.out_features, dtype=torch.bfloat16)
        self._logits = None if output is None else torch.zeros(most, output.out_features, dtype=torch.bfloat16)
        self._outputs = self._last.data_ptr(), None if self._logits is None else self._logits.data_ptr()
        name, takes = function
        self._call, self._room_bytes = library()[name], library()[f"{name}_room"]
        self._call.argtypes, self._call.restype = takes, INT
        self._room_bytes.argtypes, self._room_bytes.restype = (POINTER, NUMBER, *[NUMBER] * len(sizes), INT), NUMBER
        self._constants = (
            ctypes.addressof(self._arguments),
            ctypes.addressof(sides),
            *(address(part, torch.float32, self._length, self._dim // 2) for part in angles),
        )
        self._sizes, self._room, self._room_at, self._room_for = sizes, torch.empty(0, dtype=torch.uint8), 0, (-1, 0)

    @abstractmethod
    def _of(self, output: LinearArguments) -> Any:
        """The C arguments of the head, with that output layer."""

    def _output(self) -> Any:
        """The output layer, if it can be part of the call; otherwise it is called separately."""
        output = self.head.lm_head if hasattr(self.head, "lm_head") else self.head._lent[1]
        return output if isinstance(output, NativeLinear) else None

    def _shared(self, kind: type[ctypes.Structure], windows: Sequence[int | None]) -> tuple[Any, dict[str, Any]]:
        """Layers of that kind, and the arguments that all heads have in common."""
        head, layers = self.head, list(self.head.layers)
        arguments: Any = (kind * len(layers))()
        for args, layer, window in zip(arguments, layers, windows, strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            args.o, args.gate_up, args.down = (
                linear.arguments for linear in (attention.o_proj, mlp.gate_up, mlp.down_proj)
            )
            args.norm, args.inner_norm = self._scale(layer.input_layernorm), self._scale(layer.post_attention_layernorm)
            if not isinstance(attention.q_norm, nn.Identity):
                args.query_norm, args.key_norm = self._scale(attention.q_norm), self._scale(attention.k_norm)
            args.window = window or 0
        self._kept_alive.append(arguments)
        embedding, first = embedding_of(head), layers[0]
        return arguments, {
            "layers": arguments,
            "fuse": head.fc.arguments,
            "embedding": embedding.data_ptr(),
            "norm": self._scale(head.norm),
            "words": len(embedding),
            "num_layers": len(layers),
            "hidden": head.fc.out_features,
            "heads": first.self_attn.o_proj.in_features // self._dim,
            "kv": self._num_kv,
            "dim": self._dim,
            "inner": first.mlp.down_proj.in_features,
            "act": ACTIVATIONS[type(first.mlp.act_fn).__name__],
            "eps": head.spec.layers.rms_norm_eps,
            "scale": self._dim**-0.5,
        }

    def _scale(self, *norms: Any) -> int:
        """Address of the weights of norms, one after the other, in float32."""
        self._kept_alive.append(kept := torch.cat([norm.weight.detach().float() for norm in norms]))
        return kept.data_ptr()

    def _make_room(self, num: int, threads: int) -> None:
        """Allocate working memory for that many rows and threads."""
        if num > self._room_for[0] or threads > self._room_for[1]:
            self._room_for = most = max(num, self._room_for[0]), max(threads, self._room_for[1])
            num_bytes = self._room_bytes(self._constants[0], most[0], *self._sizes, most[1])
            self._room = torch.empty(num_bytes, dtype=torch.uint8)
            self._room_at = self._room.data_ptr()
