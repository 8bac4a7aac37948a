"""What Python hands to C: anything of another type, size, order or place is an error, in words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.kernels.cpu.attention import attend as attend_natively
from engine.kernels.cpu.forward import NativeForward
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cpu.picks import NativePicks
from engine.runner.target import StaticTarget
from tests.helpers.native_kernels import linear_of, needs_byte_kernels, prepared, random

pytestmark = needs_byte_kernels
LENGTH = 64


def attend(query: Tensor | None = None, keys: Tensor | None = None, values: Tensor | None = None, at: int = 3) -> Any:
    side, rows = random(1, 2, 16, 32), random(4, 4, 32)
    query, keys, values = (
        given if given is not None else usual for given, usual in ((query, rows), (keys, side), (values, side))
    )
    return attend_natively(query, keys, values, torch.tensor([at]), None, 1.0)


def forward() -> NativeForward:
    target = StaticTarget(prepared("llama"), LENGTH, (4,))
    return NativeForward(target.prepared.model, target.kv)


def step(ids: Tensor, parents: Tensor | None = None) -> Any:
    return forward()(ids, 0, True, False, parents=parents)


def caches(change: Callable[[list[tuple[Tensor, Tensor]]], Any]) -> Any:
    target = StaticTarget(prepared("llama"), LENGTH, (4,))
    return NativeForward(target.prepared.model, change(target.kv))


def picks(rows: Tensor) -> Any:
    return NativePicks(np.arange(8, dtype=np.int32), 0.8, 1)(rows, [1, 2], 1)


IDS = torch.tensor([[1, 2, 3, 4]])
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "float32 queries": (lambda: attend(random(4, 4, 32).float()), "torch.float32 of"),
    "transposed keys": (lambda: attend(keys=random(1, 16, 2, 32).transpose(1, 2)), "not contiguous"),
    "fewer values than keys": (lambda: attend(values=random(1, 2, 15, 32)), "(1, 2, 15, 32)"),
    "keys of another size": (lambda: attend(keys=random(1, 2, 16, 64)), "(1, 2, 16, 64)"),
    "values elsewhere": (lambda: attend(values=random(1, 2, 16, 32).to("meta")), "on meta"),
    "heads that fill no vector": (lambda: attend(random(4, 4, 48), random(1, 2, 16, 48), random(1, 2, 16, 48)), "48"),
    "heads in unequal groups": (lambda: attend(random(4, 3, 32)), "3 of queries for 2 of keys"),
    "no heads of keys": (lambda: attend(keys=random(1, 0, 16, 32), values=random(1, 0, 16, 32)), "for 0 of keys"),
    "rows behind the cache": (lambda: attend(at=13), "4 rows from position 13"),
    "rows before the cache": (lambda: attend(at=-1), "from position -1"),
    "rows of a linear elsewhere": (lambda: NativeLinear(linear_of(8, 8))(random(2, 8).to("meta")), "on meta"),
    "int32 ids": (lambda: step(IDS.int()), "torch.int32"),
    "int64 parents": (lambda: step(IDS, torch.zeros(4, dtype=torch.long)), "torch.int32 tensor of (4)"),
    "fewer parents than rows": (lambda: step(IDS, torch.zeros(3, dtype=torch.int32)), "(3)"),
    "kept rows behind the cache": (lambda: forward().keep(LENGTH - 2, [0, 2]), f"cache of {LENGTH}"),
    "kept rows backwards": (lambda: forward().keep(4, [2, 1]), "[2, 1]"),
    "kept rows from before": (lambda: forward().keep(4, [-1]), "[-1]"),
    "fewer caches than layers": (lambda: caches(lambda kv: kv[:-1]), "3 layers"),
    "caches of another model": (lambda: caches(lambda kv: [(a[:, :1], b) for a, b in kv]), f"(1, 1, {LENGTH}, 32)"),
    "float32 caches": (lambda: caches(lambda kv: [(a.float(), b) for a, b in kv]), "torch.float32"),
    "logits of fewer words": (lambda: picks(random(2, 7)), "(2, 7)"),
    "logits of fewer rows": (lambda: picks(random(1, 8)), "(1, 8)"),
    "float32 logits": (lambda: picks(random(2, 8).float()), "torch.float32"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_c_would_read_as_something_else_is_an_error(what):
    """Python would end without a word, with all races of all visitors."""
    call, said = WRONG[what]
    with pytest.raises(ValueError) as caught:
        call()
    assert said in str(caught.value)


def test_what_fits_is_taken():
    """The checks would refuse what the engine itself does."""
    assert attend().shape == (4, 4, 32) and step(IDS, torch.tensor([0, 0, 0, 1]).int())[0].shape[0] == 4
    assert len(picks(random(2, 8))) == 2 and forward().keep(LENGTH - 3, [0, 2]) is None and caches(list)
