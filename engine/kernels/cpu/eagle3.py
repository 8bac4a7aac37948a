"""The rows of an EAGLE-3 head for one sequence by one compiled call (`eagle3.c`), in place of
`drafters.eagle3.Eagle3Drafter`'s operations of fixed shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .build import INT, NUMBER, POINTER, fields
from .head_rows import HeadRows, reason_against_rows
from .linear import LinearArguments
from .tensors import address


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
    """The rows of a head that `reason_against_head` accepts; see HeadRows. most: how many rows may follow those of the
    target's states. Logits are valid until the next call."""

    def __init__(
        self, head: Any, keys: list[Tensor], values: list[Tensor], rope: tuple[Tensor, Tensor], most: int
    ) -> None:
        takes = (*[POINTER] * 7, *[NUMBER] * 4, *[POINTER] * 3, INT, POINTER)
        super().__init__(head, keys, values, rope, most, ("photofinish_head", takes), (keys[0].shape[1],))
        self._fed = torch.zeros(most + 1, head.fc.out_features, dtype=torch.bfloat16)
        self._tokens, self._parents = (NUMBER * (most + 1))(), (ctypes.c_int32 * (most + 1))()
        self._most, self._num, self._at = most, 0, 0

    def _of(self, output: LinearArguments) -> HeadArguments:
        head, spec = self.head, self.head.spec
        layers, shared = self._shared(HeadLayerArguments, spec.windows or (None,) * len(head.layers))
        for args, layer in zip(layers, head.layers, strict=True):
            args.qkv = layer.self_attn.qkv.arguments
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
        self._make_room(num, threads)
        if self._call(
            *self._constants, tokens, features, parents, base, num, at, self._length, *outputs, threads, self._room_at
        ):
            raise IndexError(f"a token is outside of the embedding of {self._arguments.words} words")
