"""A model's forward over one sequence's caches in one compiled call (`step.c`), where it is no more than embeddings, a
NativeDecoder and a head."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...model.decoder import is_head_on_top
from ...model.layers import is_stock
from .build import NUMBER, POINTER, fields
from .decoder import Caches, NativeDecoder
from .linear import NativeLinear

SCALED_EMBEDDINGS = {"Gemma3TextScaledWordEmbedding"}
"""transformers' classes that multiply what they look up by `embed_scale`."""


class ModelArguments(ctypes.Structure):
    """`Model` of step.c."""

    _fields_ = (
        *fields(POINTER, "decoder", "head", "embeddings"),
        *fields(NUMBER, "num_tokens", "hidden", "num_layers"),
        ("scale", ctypes.c_float),
    )


class NativeForward:
    """`is_whole_step` tells where it can be, once linears are packed. What does not change from step to step is made
    once; logits stay in one place, overwritten by the next call."""

    def __init__(self, model: Any, kv: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._decoder, self._head, self._caches = model.get_decoder(), model.lm_head, Caches(kv)
        embedding = self._decoder.embed_tokens
        self._embeddings = weight = embedding.weight.detach().contiguous()
        scale = float(embedding.embed_scale.to(weight.dtype)) if type(embedding).__name__ in SCALED_EMBEDDINGS else 0.0
        pointers = ctypes.addressof(self._decoder.arguments), ctypes.addressof(self._head.arguments), weight.data_ptr()
        self._arguments = ModelArguments(*pointers, *weight.shape, self._caches.num_layers, scale)
        self._arguments_at = ctypes.byref(self._arguments)
        self._logits = torch.empty(0, self._head.out_features, dtype=weight.dtype)
        self._places: dict[int, tuple[Tensor, Tensor, int, int]] = {}
        self._forward = self._decoder.kernels.photofinish_forward

    def __call__(
        self, ids: Tensor, at: int, want_logits: bool, want_hidden: bool, seen: dict[int, int | None] | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """ids [1, n] from position `at` on -> logits [n, vocab] and transformers' hidden states [layers + 1, n,
        hidden], where they are wanted. Notes in `seen` which window each layer has. Raises IndexError for what is no
        token."""
        if seen is not None:
            seen.update(self._decoder.windows)
        num_rows, length, hidden = ids.shape[1], self._caches.length, self._arguments.hidden
        span = self._decoder.span(length, at, num_rows)
        assert ids.dtype == torch.long and ids.is_contiguous()
        if want_logits:
            x, logits, x_at, logits_at = self._places.get(num_rows) or self._place(num_rows)
        else:
            x, logits = torch.empty(num_rows, hidden, dtype=self._logits.dtype), None
            x_at, logits_at = x.data_ptr(), None
        kept = torch.empty(self._caches.num_layers + 1, num_rows, hidden, dtype=x.dtype) if want_hidden else None
        tables = self._decoder.tables_for(length)  # held by this call
        done = self._forward(
            self._arguments_at,
            self._caches.addresses,
            tables[1],
            POINTER(ids.data_ptr()),
            POINTER(x_at),
            None if kept is None else POINTER(kept.data_ptr()),
            POINTER(logits_at),
            *span,
        )
        if not done:
            raise IndexError(f"a token id is not from 0 to {self._arguments.num_tokens - 1}")
        return logits, kept

    def _place(self, num_rows: int) -> tuple[Tensor, Tensor, int, int]:
        """Where rows and logits of a step of so many rows are, and the addresses. Of all widths the logits lie in the
        same memory."""
        if len(self._logits) < num_rows:
            self._logits = self._logits.new_empty(num_rows, self._head.out_features)
            self._places.clear()
        x, logits = self._logits.new_empty(num_rows, self._arguments.hidden), self._logits[:num_rows]
        self._places[num_rows] = x, logits, x.data_ptr(), logits.data_ptr()
        return self._places[num_rows]


def is_whole_step(model: Any) -> bool:
    """Whether a model's forward can be a NativeForward."""
    decoder = model.get_decoder()
    if (
        not isinstance(decoder, NativeDecoder)
        or not is_head_on_top(model)
        or model._forward_hooks
        or model._forward_pre_hooks
    ):
        return False
    head, embedding = model.lm_head, decoder.embed_tokens
    known = type(embedding) is nn.Embedding or type(embedding).__name__ in SCALED_EMBEDDINGS
    usual = known and embedding.max_norm is None and embedding.weight.dtype == torch.bfloat16
    return usual and isinstance(head, NativeLinear) and all(is_stock(module) for module in (decoder, head, embedding))
