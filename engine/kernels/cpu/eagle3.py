"""The rows of an EAGLE-3 head for one sequence by one compiled call (`eagle3.c`), in place of the operations of fixed
shapes of `drafters.eagle3.Eagle3Drafter`."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from .build import has, library
from .bytes import ByteLinear, reason_against_bytes
from .decoder import ACTIVATIONS
from .linear import BLOCK, LANES, LinearArguments, NativeLinear, reason_against

POINTER, NUMBER, INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


class HeadLayerArguments(ctypes.Structure):
    """`HeadLayer` of eagle3.c."""

    _fields_ = (
        *((name, LinearArguments) for name in ("qkv", "o", "gate_up", "down")),
        *((name, POINTER) for name in ("norm", "inner_norm", "query_norm", "key_norm")),
        ("window", NUMBER),
    )


class HeadArguments(ctypes.Structure):
    """`Head` of eagle3.c."""

    _fields_ = (
        ("layers", ctypes.POINTER(HeadLayerArguments)),
        *((name, LinearArguments) for name in ("fuse", "output")),
        *((name, POINTER) for name in ("embedding", "hidden_norm", "norm", "features_norm", "state_norms")),
        *(
            (name, NUMBER)
            for name in (
                "words",
                "num_layers",
                "hidden",
                "heads",
                "kv",
                "dim",
                "inner",
                "act",
                "features",
                "states",
                "norm_before_residual",
                "norm_output",
            )
        ),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    )


class GatedMLP(nn.Module):
    """down(act(gate(x)) * up(x)), all but `down` in one linear."""

    def __init__(self, mlp: Any, gate_up: nn.Module) -> None:
        super().__init__()
        self.gate_up, self.down_proj, self.act_fn = gate_up, mlp.down_proj, mlp.act_fn

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_up(x))


def pack_head(head: Any, rounded: bool = True) -> None:
    """Replace a head's linears that compiled kernels can multiply by, in place; rounded: their weights in 8 bits, where
    kernels can do that."""
    for layer in head.layers:
        gate_up: Any = getattr(layer.mlp, "gate_up", None)
        act = ACTIVATIONS.get(type(layer.mlp.act_fn).__name__)
        if act is not None and reason_against(gate_up) is None and gate_up.out_features % BLOCK == 0:
            layer.mlp = GatedMLP(layer.mlp, _packed(gate_up, rounded, act))
    for parent in list(head.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and reason_against(child) is None:
                setattr(parent, name, _packed(child, rounded))


def _packed(linear: nn.Linear, rounded: bool, act: int | None = None) -> nn.Module:
    return ByteLinear(linear, act) if rounded and reason_against_bytes(linear) is None else NativeLinear(linear, act)


def embedding_of(head: Any) -> Tensor:
    """What `Eagle3Head.embed` looks up in."""
    return head._lent[0] if head.embed_tokens is None else head.embed_tokens.weight


def reason_against_head(head: Any) -> str | None:
    """Why the rows of a head cannot be NativeEagle3Rows; None if they can."""
    if not has("photofinish_head"):
        return "there is no compiled kernel for it here"
    embedding, layers = embedding_of(head), list(head.layers)
    if embedding.device.type != "cpu" or embedding.dtype != torch.bfloat16 or not embedding.is_contiguous():
        return f"its embedding is {embedding.dtype} on {embedding.device.type}, not bfloat16 rows on the CPU"
    for layer in layers:
        if not isinstance(layer.mlp, GatedMLP):
            return "its MLPs are not gated, or by another function"
        if not all(
            isinstance(linear, NativeLinear)
            for linear in (getattr(layer.self_attn, "qkv", None), layer.self_attn.o_proj, layer.mlp.down_proj)
        ):
            return "its linears are not packed"
    if not isinstance(head.fc, NativeLinear):
        return "its linears are not packed"
    sizes = (
        head.fc.in_features // len(head.spec.hidden_layers),
        head.fc.out_features,
        *(layer.mlp.down_proj.in_features for layer in layers),
    )
    if any(size % LANES for size in sizes) or layers[0].self_attn.dim % (2 * LANES):
        return f"its sizes are no multiples of {LANES}, or its heads' of {2 * LANES}"
    return None


class NativeEagle3Rows:
    """The rows of a head that `reason_against_head` has nothing against. keys, values: per layer bfloat16 [kv_heads, S,
    dim]; they stay the caller's. rope: cos and sin float32 [S, dim]. A row of logits is valid until the next call."""

    def __init__(self, head: Any, keys: list[Tensor], values: list[Tensor], rope: tuple[Tensor, Tensor]) -> None:
        attention, config = head.layers[0].self_attn, head.spec.layers
        self.head, self._cache = head, [side for layer in zip(keys, values, strict=True) for side in layer]
        self._length, self._dim = keys[0].shape[1], attention.dim
        self._angles = [part[:, : self._dim // 2].float().contiguous() for part in rope]
        self._sides = (POINTER * len(self._cache))(*(side.data_ptr() for side in self._cache))
        self._floats: list[Any] = []
        self._arguments = self._of(head, config)
        self._features = head.fc.in_features
        size = head.fc.out_features
        self._fed, self._last = (torch.zeros(1, size, dtype=torch.bfloat16) for _ in range(2))
        output = self._output()
        self._logits = None if output is None else torch.zeros(output.out_features, dtype=torch.bfloat16)
        kernels = library()
        self._call, self._room_bytes = kernels.photofinish_head, kernels.photofinish_head_room
        self._call.argtypes, self._call.restype = (
            (POINTER, *[POINTER] * 5, INT, *[NUMBER] * 3, *[POINTER] * 3, INT, POINTER),
            INT,
        )
        self._room_bytes.argtypes, self._room_bytes.restype = (POINTER, NUMBER, NUMBER, INT), NUMBER
        self._token = NUMBER()
        self._constants = (
            ctypes.addressof(self._arguments),
            ctypes.addressof(self._sides),
            *(part.data_ptr() for part in self._angles),
        )
        self._token_at, self._fed_at = ctypes.addressof(self._token), self._fed.data_ptr()
        self._outputs = self._fed_at, self._last.data_ptr(), None if self._logits is None else self._logits.data_ptr()
        self._room, self._room_at, self._room_for = torch.empty(0, dtype=torch.uint8), 0, (0, 0)

    def _of(self, head: Any, config: Any) -> HeadArguments:
        layers, windows = list(head.layers), head.spec.windows or (None,) * len(head.layers)
        arguments = (HeadLayerArguments * len(layers))()
        for its, layer, window in zip(arguments, layers, windows, strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            its.qkv, its.o, its.gate_up, its.down = (
                linear.arguments for linear in (attention.qkv, attention.o_proj, mlp.gate_up, mlp.down_proj)
            )
            its.norm, its.inner_norm = self._scale(layer.input_layernorm), self._scale(layer.post_attention_layernorm)
            if not isinstance(attention.q_norm, nn.Identity):
                its.query_norm, its.key_norm = self._scale(attention.q_norm), self._scale(attention.k_norm)
            its.window = window or 0
        self._floats.append(arguments)
        spec, attention, states = head.spec, layers[0].self_attn, len(head.spec.hidden_layers)
        output, num_kv = self._output(), len(self._cache[0])
        norms = (layers[0].hidden_norm, head.norm, head.input_norm)
        pointers = [None if norm is None else self._scale(norm) for norm in norms]
        pointers.append(
            self._kept(torch.cat([norm.weight.detach().float() for norm in head.fc_norm])) if spec.fc_norm else None
        )
        sizes = (
            head.fc.out_features,
            attention.o_proj.in_features // self._dim,
            num_kv,
            self._dim,
            layers[0].mlp.down_proj.in_features,
        )
        act = ACTIVATIONS[type(layers[0].mlp.act_fn).__name__]
        embedding = embedding_of(head)
        return HeadArguments(
            arguments,
            head.fc.arguments,
            LinearArguments() if output is None else output.arguments,
            embedding.data_ptr(),
            *pointers,
            *(
                len(embedding),
                len(layers),
                *sizes,
                act,
                head.fc.in_features,
                states,
                spec.norm_before_residual,
                spec.norm_output,
            ),
            *(config.rms_norm_eps, self._dim**-0.5),
        )

    def _output(self) -> Any:
        """The output layer, where it is one for the call: else it is asked apart."""
        output = self.head.lm_head if hasattr(self.head, "lm_head") else self.head._lent[1]
        return output if isinstance(output, NativeLinear) else None

    def _scale(self, norm: Any) -> int:
        return self._kept(norm.weight)

    def _kept(self, values: Tensor) -> int:
        self._floats.append(kept := values.detach().float().contiguous())
        return kept.data_ptr()

    def absorb(self, token_ids: Tensor, states: Tensor, first: int) -> None:
        """Put the rows of token ids [n] and the target's states [n, features] into the cache, at consecutive positions
        from `first` on."""
        self._take(token_ids, states, first, (None, None, None))

    def start(self, token_ids: Tensor, states: Tensor, first: int) -> Tensor:
        """The same, and the logits [draft vocabulary] of the last of them."""
        self._take(token_ids, states, first, self._outputs)
        return self._row()

    def follow(self, token_id: int, position: int) -> Tensor:
        """The logits of a row that is given this token and what the last row fed back."""
        self._token.value = token_id
        self._run(self._token_at, self._fed_at, False, 1, position, self._outputs)
        return self._row()

    def _row(self) -> Tensor:
        return self.head.logits(self._last)[0] if self._logits is None else self._logits

    def _take(self, token_ids: Tensor, states: Tensor, first: int, outputs: Any) -> None:
        assert (
            states.dtype == torch.bfloat16
            and states.shape == (len(token_ids), self._features)
            and states.is_contiguous()
            and token_ids.is_contiguous()
        )
        self._run(token_ids.data_ptr(), states.data_ptr(), True, len(token_ids), first, outputs)

    def _run(self, tokens: int, given: int, to_fuse: bool, num: int, first: int, outputs: Any) -> None:
        assert 0 <= first <= self._length - num
        threads = torch.get_num_threads()
        if num > self._room_for[0] or threads > self._room_for[1]:
            self._room_for = most = max(num, self._room_for[0]), max(threads, self._room_for[1])
            self._room = torch.empty(
                self._room_bytes(self._constants[0], most[0], self._length, most[1]), dtype=torch.uint8
            )
            self._room_at = self._room.data_ptr()
        if self._call(
            *self._constants, tokens, given, to_fuse, num, first, self._length, *outputs, threads, self._room_at
        ):
            raise IndexError(f"a token is outside of the embedding of {self._arguments.words} words")
