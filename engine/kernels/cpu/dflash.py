"""The rows of a DFlash head for one sequence by one compiled call (`dflash.c`), in place of
`drafters.dflash.DFlashDrafter`'s operations of fixed shapes."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from .build import INT, NUMBER, POINTER, fields
from .head_rows import HeadRows, reason_against_rows
from .linear import LinearArguments
from .tensors import address


class BlockLayerArguments(ctypes.Structure):
    """`BlockLayer` of dflash.c."""

    _fields_ = (
        *fields(LinearArguments, "query", "key_value", "o", "gate_up", "down"),
        *fields(POINTER, "norm", "inner_norm", "query_norm", "key_norm"),
        *fields(NUMBER, "window", "causal"),
    )


class BlockArguments(ctypes.Structure):
    """`Block` of dflash.c."""

    _fields_ = (
        ("layers", ctypes.POINTER(BlockLayerArguments)),
        *fields(LinearArguments, "fuse", "output"),
        *fields(POINTER, "embedding", "context_norm", "norm"),
        *fields(NUMBER, "words", "mask", "num_layers", "hidden", "heads", "kv", "dim", "inner", "act"),
        ("window_from_block", NUMBER),
        *fields(ctypes.c_float, "eps", "scale", "embedding_scale"),
    )


def reason_against_block(head: Any) -> str | None:
    """Why the rows of a DFlash head cannot be NativeDFlashRows; None if they can."""
    return reason_against_rows(head, "photofinish_block", ("q_proj", "kv_proj"), head.fc.in_features)


class NativeDFlashRows(HeadRows):
    """Context rows and blocks of a head that `reason_against_block` accepts; see HeadRows. states: the target's,
    bfloat16 [S, features], owned by the caller. block_size: rows of a block, the last token's included.

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
        self._block_size, self._first = block_size, 0 if head.spec.sample_from_anchor else 1
        most, sizes = block_size - self._first, (block_size, keys[0].shape[1])
        takes = (*[POINTER] * 5, *[NUMBER] * 7, POINTER, POINTER, INT, POINTER)
        super().__init__(head, keys, values, rope, most, ("photofinish_block", takes), sizes)
        self._views = [None if self._logits is None else self._logits[:num] for num in range(most + 1)]
        self._states_at = address(states, torch.bfloat16, self._length, head.fc.in_features)
        self._kept_alive.append(states)
        self._row_bytes = states.shape[1] * states.element_size()

    def _of(self, output: LinearArguments) -> BlockArguments:
        head, spec = self.head, self.head.spec
        layers, shared = self._shared(BlockLayerArguments, spec.windows)
        for args, layer, causal in zip(layers, head.layers, spec.causal, strict=True):
            args.query, args.key_value = layer.self_attn.q_proj.arguments, layer.self_attn.kv_proj.arguments
            args.causal = causal
        return BlockArguments(
            **shared,
            output=output,
            context_norm=self._scale(head.hidden_norm),
            mask=spec.mask_token_id,
            window_from_block=spec.window_from_block,
            embedding_scale=0 if spec.embedding_scale == 1 else spec.embedding_scale,
        )

    def _output(self) -> Any:
        """Only if the output layer is part of the call."""
        return super()._output() if self.head.spec.logit_scale == 1 and self.head.spec.softcap is None else None

    def absorb(self, first: int, stop: int) -> None:
        """Put the states of positions `first` to `stop` - 1 into the cache."""
        self._run(first, stop, 0, 0, 0)

    def draft(self, first: int, stop: int, token_id: int, num: int) -> Tensor:
        """`absorb`, then a block that begins at `stop` with that token: logits [num, draft vocabulary] of its first
        drafts, valid until the next call."""
        assert 0 < num < len(self._views)
        self._run(first, stop, token_id, self._block_size, num)
        view = self._views[num]
        return self.head.logits(self._last[:num]) if view is None else view

    def _run(self, first: int, stop: int, token_id: int, num_rows: int, wanted: int) -> None:
        num, threads = stop - first, torch.get_num_threads()
        assert 0 <= first <= stop <= self._length - num_rows
        self._make_room(num, threads)
        states_at = self._states_at + first * self._row_bytes
        rows = token_id, num_rows, self._first, wanted, first, self._length
        if self._call(*self._constants, states_at, num, *rows, *self._outputs, threads, self._room_at):
            raise IndexError(f"token {token_id} is outside of the embedding of {self._arguments.words} words")
