"""The rows of an EAGLE-3 head for one sequence by one compiled call (`eagle3.c`), in place of
`drafters.eagle3.Eagle3Drafter`'s operations of fixed shapes."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .build import INT, NUMBER, POINTER, fields, has, library
from .decoder import ACTIVATIONS
from .linear import LANES, LinearArguments, NativeLinear
from .packing import GatedMLP
from .tensors import address, check_heads


class HeadLayerArguments(ctypes.Structure):
    """`HeadLayer` of eagle3.c."""

    _fields_ = (
        *fields(LinearArguments, "qkv", "o", "gate_up", "down"),
        *fields(POINTER, "norm", "inner_norm", "query_norm", "key_norm"),
        ("window", NUMBER),
    )


class HeadArguments(ctypes.Structure):
    """`Head` of eagle3.c."""

    _fields_ = (
        ("layers", ctypes.POINTER(HeadLayerArguments)),
        *fields(LinearArguments, "fuse", "output"),
        *fields(POINTER, "embedding", "hidden_norm", "norm", "features_norm", "state_norms"),
        *fields(NUMBER, "words", "num_layers", "hidden", "heads", "kv", "dim", "inner", "act", "features", "states"),
        *fields(NUMBER, "norm_before_residual", "norm_output"),
        *fields(ctypes.c_float, "eps", "scale"),
    )


def reason_against_head(head: Any) -> str | None:
    """Why the rows of a head cannot be NativeEagle3Rows; None if they can."""
    if not has("photofinish_head"):
        return "there is no compiled kernel for it here"
    embedding, layers = head.embedding, list(head.layers)
    if embedding.device.type != "cpu" or embedding.dtype != torch.bfloat16 or not embedding.is_contiguous():
        return f"its embedding is {embedding.dtype} on {embedding.device.type}, not bfloat16 rows on the CPU"
    if not all(isinstance(layer.mlp, GatedMLP) for layer in layers):
        return "its MLPs are not gated, or by another function"
    linears = [head.fc, *(layer.mlp.down_proj for layer in layers)]
    linears += [getattr(layer.self_attn, name, None) for layer in layers for name in ("qkv", "o_proj")]
    if not all(isinstance(linear, NativeLinear) for linear in linears):
        return "its linears are not packed"
    features = head.fc.in_features // len(head.spec.hidden_layers)
    sizes = (features, head.fc.out_features, *(layer.mlp.down_proj.in_features for layer in layers))
    if any(size % LANES for size in sizes) or layers[0].self_attn.dim % (2 * LANES):
        return f"its sizes are no multiples of {LANES}, or its heads' of {2 * LANES}"
    return None


class NativeEagle3Rows:
    """The rows of a head that `reason_against_head` accepts, for one sequence. keys, values: per layer bfloat16
    [kv_heads, S, dim]; rope: cos and sin float32 [S, dim]; all owned by the caller. most: how many rows may follow
    those of the target's states. Logits are valid until the next call."""

    def __init__(
        self, head: Any, keys: list[Tensor], values: list[Tensor], rope: tuple[Tensor, Tensor], most: int
    ) -> None:
        self.head, self._length, self._num_kv = head, keys[0].shape[1], len(keys[0])
        self._dim, size = head.layers[0].self_attn.dim, head.fc.out_features
        check_heads(head.layers[0].self_attn.o_proj.in_features // self._dim, self._num_kv, self._dim)
        cache = [side for layer in zip(keys, values, strict=True) for side in layer]
        angles = [part[:, : self._dim // 2].float().contiguous() for part in rope]
        sizes_of_a_side = self._num_kv, self._length, self._dim
        sides = (POINTER * len(cache))(*(address(side, torch.bfloat16, *sizes_of_a_side) for side in cache))
        self._kept_alive: list[Any] = [cache, angles, sides]
        output = head.output
        in_call = isinstance(output, NativeLinear)  # else the output layer is called separately
        self._arguments = self._of(output.arguments if in_call else LinearArguments())
        self._last = torch.zeros(most, size, dtype=torch.bfloat16)
        self._logits = torch.zeros(most, output.out_features, dtype=torch.bfloat16) if in_call else None
        self._outputs = self._last.data_ptr(), None if self._logits is None else self._logits.data_ptr()
        self._call, self._room_bytes = library().photofinish_head, library().photofinish_head_room
        self._call.argtypes = (*[POINTER] * 7, *[NUMBER] * 4, *[POINTER] * 3, INT, POINTER)
        self._room_bytes.argtypes, self._room_bytes.restype = (POINTER, NUMBER, NUMBER, INT), NUMBER
        self._constants = (
            ctypes.addressof(self._arguments),
            ctypes.addressof(sides),
            *(address(part, torch.float32, self._length, self._dim // 2) for part in angles),
        )
        self._room = torch.empty(0, dtype=torch.uint8)
        self._fed = torch.zeros(most + 1, size, dtype=torch.bfloat16)
        self._tokens, self._parents = (NUMBER * (most + 1))(), (ctypes.c_int32 * (most + 1))()
        self._most, self._num, self._at = most, 0, 0

    def _of(self, output: LinearArguments) -> HeadArguments:
        """The C arguments of the head, with that output layer."""
        head, spec = self.head, self.head.spec
        embedding, first, input_norm = head.embedding, head.layers[0], head.input_norm
        return HeadArguments(
            layers=self._layers(),
            fuse=head.fc.arguments,
            output=output,
            embedding=embedding.data_ptr(),
            hidden_norm=self._scale(first.hidden_norm),
            norm=self._scale(head.norm),
            features_norm=None if input_norm is None else self._scale(input_norm),
            state_norms=self._scale(*head.fc_norm) if spec.fc_norm else None,
            words=len(embedding),
            num_layers=len(head.layers),
            hidden=head.fc.out_features,
            heads=first.self_attn.o_proj.in_features // self._dim,
            kv=self._num_kv,
            dim=self._dim,
            inner=first.mlp.down_proj.in_features,
            act=ACTIVATIONS[type(first.mlp.act_fn).__name__],
            features=head.fc.in_features,
            states=len(spec.hidden_layers),
            norm_before_residual=spec.norm_before_residual,
            norm_output=spec.norm_output,
            eps=spec.layers.rms_norm_eps,
            scale=self._dim**-0.5,
        )

    def _layers(self) -> Any:
        layers = list(self.head.layers)
        arguments: Any = (HeadLayerArguments * len(layers))()
        for args, layer, window in zip(arguments, layers, self.head.spec.windows, strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            args.qkv, args.o = attention.qkv.arguments, attention.o_proj.arguments
            args.gate_up, args.down = mlp.gate_up.arguments, mlp.down_proj.arguments
            args.norm, args.inner_norm = self._scale(layer.input_layernorm), self._scale(layer.post_attention_layernorm)
            if not isinstance(attention.q_norm, nn.Identity):
                args.query_norm, args.key_norm = self._scale(attention.q_norm), self._scale(attention.k_norm)
            args.window = window or 0
        self._kept_alive.append(arguments)
        return arguments

    def _scale(self, *norms: Any) -> int:
        """Address of the weights of norms, one after the other, in float32."""
        self._kept_alive.append(kept := torch.cat([norm.weight.detach().float() for norm in norms]))
        return kept.data_ptr()

    def absorb(self, token_ids: Tensor, states: Tensor, first: int) -> None:
        """Put the rows of token ids [n] and the target's states [n, features] into the cache, at consecutive positions
        from `first` on."""
        self._take(token_ids, states, first, (None, None, None))

    def start(self, token_ids: Tensor, states: Tensor, first: int) -> Tensor:
        """`absorb`, and the logits [1, draft vocabulary] of the last row. It becomes row 0 of a tree, to be grown."""
        self._take(token_ids, states, first, (self._fed.data_ptr(), *self._outputs))
        self._num, self._at = 1, first + len(token_ids) - 1
        return self._rows(1)

    def grow(self, token_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """The logits [n, draft vocabulary] of further rows, one for each of these tokens, and what the row that it
        follows feeds back. Rows are numbered as they come, from 1 on; parents: earlier ones."""
        num, base = len(token_ids), self._num
        assert base and base + num <= self._most + 1
        self._tokens[:num], self._parents[base : base + num] = list(token_ids), list(parents)
        outputs = self._fed.data_ptr(), *self._outputs
        self._run(ctypes.addressof(self._tokens), None, ctypes.addressof(self._parents), base, num, self._at, outputs)
        self._num += num
        return self._rows(num)

    def _rows(self, num: int) -> Tensor:
        return self.head.logits(self._last[:num]) if self._logits is None else self._logits[:num]

    def _take(self, token_ids: Tensor, states: Tensor, first: int, outputs: Any) -> None:
        num = len(token_ids)
        states_at = address(states, torch.bfloat16, num, self.head.fc.in_features)
        self._run(address(token_ids, torch.long, num), states_at, None, 0, num, first, outputs)

    def _run(
        self, tokens: int, features: int | None, parents: int | None, base: int, num: int, at: int, outputs: Any
    ) -> None:
        assert 0 <= at <= self._length - base - num
        threads = torch.get_num_threads()
        num_bytes = self._room_bytes(self._constants[0], num, self._length, threads)
        if len(self._room) < num_bytes:
            self._room = torch.empty(num_bytes, dtype=torch.uint8)
        where = at, self._length, *outputs, threads, self._room.data_ptr()
        if self._call(*self._constants, tokens, features, parents, base, num, *where):
            raise IndexError(f"a token is outside of the embedding of {self._arguments.words} words")
