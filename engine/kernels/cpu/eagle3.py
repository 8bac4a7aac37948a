"""The rows of an EAGLE-3 head for one sequence by one compiled call (`eagle3.c`), in place of
`drafters.eagle3.Eagle3Drafter`'s operations of fixed shapes."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from .build import INT, NUMBER, POINTER, fields
from .heads import HeadRows, reason_against_rows
from .linear import LinearArguments


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
    features = head.fc.in_features // len(head.spec.hidden_layers)
    return reason_against_rows(head, "photofinish_head", ("qkv",), features)


class NativeEagle3Rows(HeadRows):
    """The rows of a head that `reason_against_head` accepts; see HeadRows. A row of logits is valid until
    the next call."""

    def __init__(self, head: Any, keys: list[Tensor], values: list[Tensor], rope: tuple[Tensor, Tensor]) -> None:
        takes = (*[POINTER] * 6, INT, *[NUMBER] * 3, *[POINTER] * 3, INT, POINTER)
        super().__init__(head, keys, values, rope, 1, ("photofinish_head", takes), (keys[0].shape[1],))
        self._fed, self._token = torch.zeros(1, head.fc.out_features, dtype=torch.bfloat16), NUMBER()
        self._token_at, self._fed_at = ctypes.addressof(self._token), self._fed.data_ptr()
        self._last_logits = None if self._logits is None else self._logits[0]

    def _of(self, output: LinearArguments) -> HeadArguments:
        head, spec = self.head, self.head.spec
        layers, shared = self._shared(HeadLayerArguments, spec.windows or (None,) * len(head.layers))
        for its, layer in zip(layers, head.layers, strict=True):
            its.qkv = layer.self_attn.qkv.arguments
        hidden_norm, input_norm = head.layers[0].hidden_norm, head.input_norm
        return HeadArguments(
            **shared,
            output=output,
            hidden_norm=None if hidden_norm is None else self._scale(hidden_norm),
            features_norm=None if input_norm is None else self._scale(input_norm),
            state_norms=self._scale(*head.fc_norm) if spec.fc_norm else None,
            features=head.fc.in_features,
            states=len(spec.hidden_layers),
            norm_before_residual=spec.norm_before_residual,
            norm_output=spec.norm_output,
        )

    def absorb(self, token_ids: Tensor, states: Tensor, first: int) -> None:
        """Put the rows of token ids [n] and the target's states [n, features] into the cache, at consecutive positions
        from `first` on."""
        self._take(token_ids, states, first, (None, None, None))

    def start(self, token_ids: Tensor, states: Tensor, first: int) -> Tensor:
        """The same, and the logits [draft vocabulary] of the last of them."""
        self._take(token_ids, states, first, (self._fed_at, *self._outputs))
        return self._row()

    def follow(self, token_id: int, position: int) -> Tensor:
        """The logits of a row that is given this token and what the last row fed back."""
        self._token.value = token_id
        self._run(self._token_at, self._fed_at, False, 1, position, (self._fed_at, *self._outputs))
        return self._row()

    def _row(self) -> Tensor:
        return self.head.logits(self._last)[0] if self._last_logits is None else self._last_logits

    def _take(self, token_ids: Tensor, states: Tensor, first: int, outputs: Any) -> None:
        assert (
            states.dtype == torch.bfloat16
            and states.shape == (len(token_ids), self.head.fc.in_features)
            and states.is_contiguous()
            and token_ids.is_contiguous()
        )
        self._run(token_ids.data_ptr(), states.data_ptr(), True, len(token_ids), first, outputs)

    def _run(self, tokens: int, given: int, to_fuse: bool, num: int, first: int, outputs: Any) -> None:
        assert 0 <= first <= self._length - num
        threads = torch.get_num_threads()
        self._make_room(num, threads)
        if self._call(
            *self._constants, tokens, given, to_fuse, num, first, self._length, *outputs, threads, self._room_at
        ):
            raise IndexError(f"a token is outside of the embedding of {self._arguments.words} words")
