"""The rows of a DFlash head for one sequence by one compiled call (`dflash.c`), in place of the operations of fixed
shapes of `drafters.dflash.DFlashDrafter`."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from .build import has, library
from .decoder import ACTIVATIONS
from .eagle3 import GatedMLP, embedding_of
from .linear import LANES, LinearArguments, NativeLinear

POINTER, NUMBER, INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int


class BlockLayerArguments(ctypes.Structure):
    """`BlockLayer` of dflash.c."""

    _fields_ = (
        *((name, LinearArguments) for name in ("query", "key_value", "o", "gate_up", "down")),
        *((name, POINTER) for name in ("norm", "inner_norm", "query_norm", "key_norm")),
        *((name, NUMBER) for name in ("window", "causal")),
    )


class BlockArguments(ctypes.Structure):
    """`Block` of dflash.c."""

    _fields_ = (
        ("layers", ctypes.POINTER(BlockLayerArguments)),
        *((name, LinearArguments) for name in ("fuse", "output")),
        *((name, POINTER) for name in ("embedding", "context_norm", "norm")),
        *(
            (name, NUMBER)
            for name in (
                "words",
                "mask",
                "num_layers",
                "hidden",
                "heads",
                "kv",
                "dim",
                "inner",
                "act",
                "window_from_block",
            )
        ),
        *((name, ctypes.c_float) for name in ("eps", "scale", "embedding_scale")),
    )


def reason_against_block(head: Any) -> str | None:
    """Why the rows of a DFlash head cannot be NativeDFlashRows; None if they can."""
    embedding, layers = embedding_of(head), list(head.layers)
    if embedding.device.type != "cpu" or embedding.dtype != torch.bfloat16 or not embedding.is_contiguous():
        return f"its embedding is {embedding.dtype} on {embedding.device.type}, not bfloat16 rows on the CPU"
    if not has("photofinish_block"):
        return "there is no compiled kernel for it here"
    for layer in layers:
        if not isinstance(layer.mlp, GatedMLP):
            return "its MLPs are not gated, or by another function"
        attention = layer.self_attn
        if not all(
            isinstance(linear, NativeLinear)
            for linear in (attention.q_proj, getattr(attention, "kv_proj", None), attention.o_proj, layer.mlp.down_proj)
        ):
            return "its linears are not packed"
    if not isinstance(head.fc, NativeLinear):
        return "its linears are not packed"
    sizes = (head.fc.in_features, head.fc.out_features, *(layer.mlp.down_proj.in_features for layer in layers))
    if any(size % LANES for size in sizes) or layers[0].self_attn.dim % (2 * LANES):
        return f"its sizes are no multiples of {LANES}, or its heads' of {2 * LANES}"
    return None


class NativeDFlashRows:
    """Context rows and blocks of a head that `reason_against_block` has nothing against. keys, values: per layer
    bfloat16 [kv_heads, S, dim]; rope: cos and sin float32 [S, dim]; states: the target's, bfloat16 [S, features]; they
    stay the caller's. block_size: rows of a block, the last token's included.

    A row's bits do not depend on how many are wanted, on how context rows were taken in, nor on the threads."""

    def __init__(
        self,
        head: Any,
        keys: list[Tensor],
        values: list[Tensor],
        rope: tuple[Tensor, Tensor],
        states: Tensor,
        block_size: int,
    ) -> None:
        attention = head.layers[0].self_attn
        self.head, self._block_size, self._first = head, block_size, 0 if head.spec.sample_from_anchor else 1
        self._length, self._dim, self._num_kv = keys[0].shape[1], attention.dim, len(keys[0])
        cache = [side for layer in zip(keys, values, strict=True) for side in layer]
        angles = [part[:, : self._dim // 2].float().contiguous() for part in rope]
        sides = (POINTER * len(cache))(*(side.data_ptr() for side in cache))
        self._floats: list[Any] = []
        output = self._output()
        self._arguments = self._of(output)
        most = block_size - self._first
        self._last = torch.zeros(most, head.fc.out_features, dtype=torch.bfloat16)
        self._logits = None if output is None else torch.zeros(most, output.out_features, dtype=torch.bfloat16)
        self._views = [None if self._logits is None else self._logits[:num] for num in range(most + 1)]
        assert (
            states.dtype == torch.bfloat16
            and states.shape == (self._length, head.fc.in_features)
            and states.is_contiguous()
        )
        self._states_at, self._row_bytes = states.data_ptr(), states.shape[1] * states.element_size()
        kernels = library()
        self._call, self._room_bytes = kernels.photofinish_block, kernels.photofinish_block_room
        self._call.argtypes, self._call.restype = (*[POINTER] * 5, *[NUMBER] * 7, POINTER, POINTER, INT, POINTER), INT
        self._room_bytes.argtypes, self._room_bytes.restype = (POINTER, *[NUMBER] * 3, INT), NUMBER
        self._kept_alive = cache, angles, sides, states
        self._constants = (
            ctypes.addressof(self._arguments),
            ctypes.addressof(sides),
            *(part.data_ptr() for part in angles),
        )
        self._outputs = self._last.data_ptr(), None if self._logits is None else self._logits.data_ptr()
        self._room, self._room_at, self._room_for = torch.empty(0, dtype=torch.uint8), 0, (-1, 0)

    def _of(self, output: Any) -> BlockArguments:
        head, spec, layers = self.head, self.head.spec, list(self.head.layers)
        arguments = (BlockLayerArguments * len(layers))()
        for index, (its, layer) in enumerate(zip(arguments, layers, strict=True)):
            attention, mlp = layer.self_attn, layer.mlp
            linears = (attention.q_proj, attention.kv_proj, attention.o_proj, mlp.gate_up, mlp.down_proj)
            its.query, its.key_value, its.o, its.gate_up, its.down = (linear.arguments for linear in linears)
            norms = (layer.input_layernorm, layer.post_attention_layernorm, attention.q_norm, attention.k_norm)
            its.norm, its.inner_norm, its.query_norm, its.key_norm = map(self._scale, norms)
            its.window, its.causal = spec.windows[index] or 0, spec.causal[index]
        self._floats.append(arguments)
        embedding, mlp, num_heads = (
            embedding_of(head),
            layers[0].mlp,
            layers[0].self_attn.q_proj.out_features // self._dim,
        )
        return BlockArguments(
            arguments,
            head.fc.arguments,
            LinearArguments() if output is None else output.arguments,
            *(embedding.data_ptr(), self._scale(head.hidden_norm), self._scale(head.norm)),
            *(
                len(embedding),
                spec.mask_token_id,
                len(layers),
                head.fc.out_features,
                num_heads,
                self._num_kv,
                self._dim,
                mlp.down_proj.in_features,
            ),
            *(ACTIVATIONS[type(mlp.act_fn).__name__], spec.window_from_block),
            *(spec.layers.rms_norm_eps, self._dim**-0.5, 0 if spec.embedding_scale == 1 else spec.embedding_scale),
        )

    def _output(self) -> Any:
        """The output layer, where it is one for the call, and logits are what it gives: else the head is asked
        apart."""
        head = self.head
        output = head.lm_head if hasattr(head, "lm_head") else head._lent[1]
        return (
            output
            if isinstance(output, NativeLinear) and head.spec.logit_scale == 1 and head.spec.softcap is None
            else None
        )

    def _scale(self, norm: Any) -> int:
        self._floats.append(kept := norm.weight.detach().float().contiguous())
        return kept.data_ptr()

    def absorb(self, first: int, stop: int) -> None:
        """Put the states of positions `first` to `stop` - 1 into the cache."""
        self._run(first, stop, 0, 0, 0)

    def draft(self, first: int, stop: int, token_id: int, num: int) -> Tensor:
        """The same, then a block that begins at `stop` with that token: logits [num, draft vocabulary] of its first
        drafts. They are valid until the next call."""
        assert 0 < num < len(self._views)
        self._run(first, stop, token_id, self._block_size, num)
        view = self._views[num]
        return self.head.logits(self._last[:num]) if view is None else view

    def _run(self, first: int, stop: int, token_id: int, num_rows: int, wanted: int) -> None:
        num, threads = stop - first, torch.get_num_threads()
        assert 0 <= first <= stop <= self._length - num_rows
        if num > self._room_for[0] or threads > self._room_for[1]:
            self._room_for = most = max(num, self._room_for[0]), max(threads, self._room_for[1])
            self._room = torch.empty(
                self._room_bytes(self._constants[0], most[0], self._block_size, self._length, most[1]),
                dtype=torch.uint8,
            )
            self._room_at = self._room.data_ptr()
        states_at = self._states_at + first * self._row_bytes
        if self._call(
            *self._constants,
            states_at,
            num,
            token_id,
            num_rows,
            self._first,
            wanted,
            first,
            self._length,
            *self._outputs,
            threads,
            self._room_at,
        ):
            raise IndexError(f"token {token_id} is outside of the embedding of {self._arguments.words} words")
