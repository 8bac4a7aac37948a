"""A model's forward over one sequence's caches in one compiled call (`step.c`), for models with a NativeDecoder."""

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .build import INT, NUMBER, POINTER, fields
from .decoder import SCALED_EMBEDDINGS
from .tensors import address


class ModelArguments(ctypes.Structure):
    """`Model` of step.c."""

    _fields_ = (
        *fields(POINTER, "decoder", "head", "embeddings"),
        *fields(NUMBER, "num_tokens", "hidden", "num_layers"),
        ("scale", ctypes.c_float),
    )


class NativeForward:
    """What does not change between steps is made once; logits stay in one place, overwritten by the next call. kv: keys
    and values of one sequence, bfloat16 [1, kv_heads, S, dim] for each layer. Raises ValueError if they do not fit."""

    def __init__(self, model: Any, kv: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._decoder, self._head = model.get_decoder(), model.lm_head
        decoder, embedding = self._decoder.arguments, self._decoder.embed_tokens
        if len(kv) != decoder.num_layers:
            raise ValueError(f"a decoder of {decoder.num_layers} layers needs as many caches, not {len(kv)}")
        self._kept_alive, self._length = list(kv), kv[0][0].shape[2]
        self._size = decoder.kv, self._length, decoder.dim
        sides = (address(side, torch.bfloat16, 1, *self._size) for layer in kv for side in layer)
        self._caches = (POINTER * (2 * len(kv)))(*sides)
        self._embeddings = weight = embedding.weight.detach().contiguous()
        scale = float(embedding.embed_scale.to(weight.dtype)) if type(embedding).__name__ in SCALED_EMBEDDINGS else 0.0
        weights_at = address(weight, torch.bfloat16, None, decoder.hidden)
        pointers = ctypes.addressof(decoder), ctypes.addressof(self._head.arguments), weights_at
        self._arguments = ModelArguments(*pointers, *weight.shape, len(kv), scale)
        self._logits = torch.empty(0, self._head.out_features, dtype=weight.dtype)
        self._tables = self._decoder.tables(self._length)
        self._tables_at = (POINTER * len(self._tables))(*(table.data_ptr() for table in self._tables))
        self._constants = ctypes.addressof(self._arguments), self._caches, self._tables_at
        self._room, kernels = torch.empty(0, dtype=torch.uint8), self._decoder.kernels
        self._forward, self._keep = kernels.photofinish_forward, kernels.photofinish_keep
        self._forward.argtypes = (*[POINTER] * 8, *[NUMBER] * 3, INT, POINTER)
        self._keep.argtypes = (POINTER, *[NUMBER] * 5, POINTER, NUMBER)
        self._room_bytes = kernels.photofinish_room
        self._room_bytes.argtypes, self._room_bytes.restype = (POINTER, NUMBER, NUMBER, INT), NUMBER

    def __call__(
        self,
        ids: Tensor,
        at: int,
        want_logits: bool,
        want_hidden: bool,
        seen: dict[int, int | None] | None = None,
        parents: Tensor | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """ids [1, n] from position `at` on -> logits [n, vocab] and transformers' hidden states [layers + 1, n,
        hidden], if wanted. Records each layer's window in `seen`. parents [n], int32: see `Forward`. Raises IndexError
        for invalid ids or parents, ValueError for tensors of other types or sizes."""
        if seen is not None:
            seen.update(self._decoder.windows)
        num_rows, length, hidden = ids.shape[1], self._length, self._arguments.hidden
        assert 0 <= at <= length - num_rows, f"{num_rows} rows from position {at} on do not fit a cache of {length}"
        ids_at = address(ids, torch.long, 1, num_rows)
        parents_at = None if parents is None else address(parents, torch.int32, num_rows)
        threads = torch.get_num_threads()
        num_bytes = self._room_bytes(self._arguments.decoder, num_rows, length, threads)
        if len(self._room) < num_bytes:
            self._room = torch.empty(num_bytes, dtype=torch.uint8)
        if want_logits and len(self._logits) < num_rows:
            self._logits = self._logits.new_empty(num_rows, self._head.out_features)
        x = self._logits.new_empty(num_rows, hidden)
        logits = self._logits[:num_rows] if want_logits else None
        kept = torch.empty(self._arguments.num_layers + 1, num_rows, hidden, dtype=x.dtype) if want_hidden else None
        outputs = (None if out is None else out.data_ptr() for out in (x, kept, logits))
        where = num_rows, at, length, threads, self._room.data_ptr()
        if not self._forward(*self._constants, ids_at, *outputs, parents_at, *where):
            raise IndexError(f"a token id is not from 0 to {self._arguments.num_tokens - 1}, or rows are no tree")
        return logits, kept

    def keep(self, at: int, rows: Sequence[int]) -> None:
        """See `Forward`. Raises ValueError for rows that are not ascending, or beyond the cache."""
        length, ascend = self._length, all(row < after for row, after in pairwise((-1, *rows)))
        if not ascend or not 0 <= at <= length - 1 - max(rows, default=-1):
            raise ValueError(f"rows {list(rows)} from position {at} on do not ascend in a cache of {length}")
        path = (ctypes.c_int32 * len(rows))(*rows)
        self._keep(self._caches, self._arguments.num_layers, *self._size, at, path, len(rows))
