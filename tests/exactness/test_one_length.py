"""A fault at one cache length alone, after what does not depend on the length was found in order at another."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.cache import ENVIRONMENT_VARIABLE
from engine.exactness import operators
from engine.exactness.probe import MIN_ROWS, probe_cached
from engine.exactness.widths import WidthClasses
from engine.kernels.cpu.packing import PackedLinear
from engine.runner.forward import Buffers
from engine.runner.target import StaticTarget
from tests.helpers.planted import last_bit
from tests.helpers.tiny import LENGTH, prepared

FAULTY = 2 * LENGTH
WIDTHS = (1, 2, 4, 16)
# fault(buffers, ids [n], logits [n, vocab]) -> logits; it may change the caches.
Fault = Callable[[Buffers, Tensor, Tensor], Tensor]


def in_a_key(buffers: Buffers, ids: Tensor, logits: Tensor) -> Tensor:
    keys = buffers.kv[-1][0][:, :, int(buffers.pointer)]
    keys.copy_(last_bit(keys, len(ids) == 4))
    return logits


def at(place: int, *widths: int) -> Fault:
    return lambda buffers, ids, logits: last_bit(
        logits, (torch.arange(len(ids)) == place)[:, None] & (len(ids) in widths)
    )


FAULTS: dict[str, tuple[set[int], Fault]] = {
    "at one width": ({4}, lambda buffers, ids, logits: last_bit(logits, len(ids) == 4)),
    "at one width, early in the cache": (
        {4},
        lambda buffers, ids, logits: last_bit(logits, len(ids) == 4 and int(buffers.pointer) < FAULTY // 4),
    ),
    "at one width, deep in the cache": (
        {4},
        lambda buffers, ids, logits: last_bit(logits, len(ids) == 4 and int(buffers.pointer) >= FAULTY // 4),
    ),
    "in a key": ({4}, in_a_key),
    "at the last place of the widest step": ({16}, at(15, 16)),
    "at one place of two widths": ({4, 16}, at(2, 4, 16)),
    "beside some neighbours": ({2}, lambda buffers, ids, logits: last_bit(logits, len(ids) == 2 and ids[-1] % 2 == 0)),
    "of some tokens": ({4}, lambda buffers, ids, logits: last_bit(logits, (len(ids) == 4) & (ids[:, None] % 4 == 0))),
}
# Here width 1 is of one class with the others for the first, and alone for the second.
BOTH = ("gemma3", "llama")
on_both_kinds = pytest.mark.parametrize("name", BOTH)
Classes = Callable[[str, int], WidthClasses]


def probed(name: str, length: int) -> WidthClasses:
    return probe_cached(StaticTarget(prepared(name), length, WIDTHS), name)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory) -> Path:
    """A memory with what is found without a fault."""
    place = tmp_path_factory.mktemp("healthy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, str(place))
        patch.setattr(operators, "LINEAR_ROWS", (16, 64))  # as `few_rows`
        patch.setattr(operators, "ATTENTION_ROUNDS", (1, 2))
        for name in BOTH:
            probed(name, LENGTH), probed(name, FAULTY + LENGTH)
    return place


@pytest.fixture
def classes(monkeypatch, tmp_path, few_rows, healthy) -> Classes:
    """What is found of a model at a length, with a memory of this test's own."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(shutil.copytree(healthy, tmp_path / "cache")))
    return probed


def check_apart(split: WidthClasses, whole: WidthClasses, widths: set[int]) -> None:
    """These widths are in no class with others, and the others as they were."""
    assert any(len(c) > 1 and widths & set(c) for c in whole.classes), "nothing can be planted here"
    left = [set(c) - widths for c in whole.classes]
    assert sorted(c for c in split.classes if not widths & set(c)) == sorted(tuple(sorted(c)) for c in left if c)
    assert all(len(c) == 1 for c in split.classes if widths & set(c))


@pytest.mark.parametrize("fault", FAULTS)
@on_both_kinds
def test_a_fault_of_the_whole_forward_is_found_at_its_length(name, fault, classes, monkeypatch):
    """A race at this length would be called exact, on what was found at another."""
    widths, spoil = FAULTS[fault]
    right, whole, healthy = Buffers.forward, classes(name, LENGTH), classes(name, FAULTY + LENGTH)

    def faulty(self: Buffers, ids: Tensor, want_logits: bool, seen: Any = None) -> Any:
        logits, hidden = right(self, ids, want_logits, seen)
        if logits is not None and len(self.columns) == FAULTY:
            logits = spoil(self, ids[0], logits)
        return logits, hidden

    monkeypatch.setattr(Buffers, "forward", faulty)
    check_apart(classes(name, FAULTY), healthy, widths)
    assert classes(name, LENGTH) == whole


@on_both_kinds
def test_a_fault_of_a_linear_is_found_at_its_length(name, classes, monkeypatch):
    """Linears are compared once for all lengths; what goes wrong in one at one length alone is left to the replay."""
    whole, length, right = classes(name, LENGTH), [0], Buffers.forward

    def noted(self: Buffers, *given: Any, **more: Any) -> Any:
        length[0] = len(self.columns)
        return right(self, *given, **more)

    monkeypatch.setattr(Buffers, "forward", noted)
    for kind in (nn.Linear, PackedLinear):

        def faulty(self: Any, x: Tensor, inner: Any = kind.forward) -> Tensor:
            return last_bit(inner(self, x), length[0] == FAULTY and x.shape[-2] == 4)

        monkeypatch.setattr(kind, "forward", faulty)
    check_apart(classes(name, FAULTY), whole, {4})
    assert classes(name, LENGTH) == whole


def test_every_place_of_every_step_is_compared(few_rows, monkeypatch, tmp_path):
    """A width's last places would never hold a row that counts, and a fault there would show in the race alone."""
    steps: set[tuple[int, int]] = set()
    right = StaticTarget.extend

    def noted(self: StaticTarget, token_ids: Any, num_logits: int, width: int | None = None, **tree: Any) -> Any:
        if not tree.get("parents"):
            steps.update((width or 0, place) for place in range(num_logits))
        return right(self, token_ids, num_logits, width, **tree)

    monkeypatch.setattr(StaticTarget, "extend", noted)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    probed("gemma3", LENGTH)
    assert steps == {(width, place) for width in WIDTHS for place in range(width)} and max(WIDTHS) > MIN_ROWS
