"""Captured calls, on a stand-in for the CUDA that this machine may not have: what is captured, where its memory comes
from, what failures say."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from engine.errors import RaceError, UnsupportedModel
from engine.kernels.cuda.graphs import WARM_UPS, FixedCall, GraphPool, named
from tests.helpers.tiny import TORCH

CUDA = torch.device("cuda")


class Machine:
    """CUDA's part in a capture: what runs while it lasts is kept by the graph and run by a replay; a graph may enter a
    pool only while another is in it."""

    def __init__(self) -> None:
        self.capturing = False
        self.pools: dict[int, int] = {}
        self.captures: list[tuple[int, Any]] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        machine = self

        class Stream:
            def __init__(self, device: Any = None) -> None: ...

            def wait_stream(self, other: Any) -> None:
                assert not machine.capturing

        class Graph:
            def __init__(self) -> None:
                self.place, self.replays = -1, 0

            def pool(self) -> int:
                return self.place

            def replay(self) -> None:
                assert not machine.capturing
                self.replays += 1

            def __del__(self) -> None:
                machine.pools[self.place] -= 1

        @contextmanager
        def graph(made: Graph, pool: int | None = None, stream: Any = None, capture_error_mode: str = ""):
            assert not machine.capturing and stream is not None and capture_error_mode == "thread_local"
            made.place = len(machine.pools) if pool is None else pool
            assert pool is None or machine.pools[pool] > 0, "PyTorch would stop here: use_count > 0"
            machine.pools[made.place] = machine.pools.get(made.place, 0) + 1
            machine.captures.append((made.place, stream))
            machine.capturing = True
            try:
                yield
            finally:
                machine.capturing = False
                if machine.broken:
                    machine.broken = False
                    raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

        self.broken = False
        patch.setattr(torch.cuda, "Stream", Stream)
        patch.setattr(torch.cuda, "current_stream", Stream)
        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        patch.setattr(torch.cuda, "graph", graph)
        patch.setattr(torch.cuda, "stream", contextmanager(lambda stream: iter([None])))
        patch.setattr(torch, "zeros", lambda *size, device=None: None)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    made.install(monkeypatch)
    return made


def test_a_call_is_captured_once_and_replayed(machine):
    """Every step would run its kernels one by one, or be captured again."""
    runs = []
    call = FixedCall(lambda: runs.append(machine.capturing) or "out", CUDA)
    assert not runs
    assert [call() for _ in range(5)] == ["out"] * 5
    assert runs == [False] * WARM_UPS + [True]
    assert call._graph is not None and call._graph.replays == 5


def test_the_graphs_of_a_race_share_one_pool_while_others_come_and_go(machine):
    """Each graph would hold its own memory for what it needs while it runs; and PyTorch stops where a pool is entered
    that all graphs have left."""
    pool = GraphPool(CUDA)
    probe = [FixedCall(lambda: None, CUDA, pool) for _ in range(3)]
    for call in probe:
        call()
    del call
    probe.clear()
    lanes = [FixedCall(lambda: None, CUDA, pool) for _ in range(3)]
    for call in lanes:
        call()
    assert len(machine.captures) == 1 + 3 + 3 and len(set(machine.captures)) == 1, "one pool, one stream"
    FixedCall(lambda: None, CUDA, GraphPool(CUDA))()
    assert len(set(machine.captures)) == 2


def test_what_cannot_be_captured_is_named_with_its_first_cause(machine):
    """A lane would fail with CUDA's last words, which say nothing of what went wrong."""

    def branches() -> None:
        if machine.capturing:
            machine.broken = True
            raise RuntimeError("operation not permitted when stream is capturing\nand a page of advice")

    with pytest.raises(RaceError) as caught:
        FixedCall(branches, CUDA, name="the step of width 8")()
    assert (
        str(caught.value)
        == "the step of width 8 could not be captured as a CUDA graph: RuntimeError: operation not permitted when "
        "stream is capturing"
    )


def test_a_refused_model_stays_refused(machine):
    """The sentence that says why a model is not supported would be buried in one about graphs."""

    def refuses() -> None:
        if machine.capturing:
            machine.broken = True
            raise UnsupportedModel("it does something else")

    with pytest.raises(UnsupportedModel, match=r"^it does something else$"):
        FixedCall(refuses, CUDA)()


def raise_memory_error() -> None:
    raise MemoryError


def test_an_error_that_is_being_handled_is_not_the_cause():
    """A race begun because something else had failed would blame that."""
    try:
        raise UnsupportedModel("the one before")
    except UnsupportedModel:
        with pytest.raises(RaceError, match=r"^x could not be captured as a CUDA graph: MemoryError$"), named("x"):
            raise_memory_error()


def test_elsewhere_calls_are_direct():
    """The CPU would pay for a capture that it does not have."""
    runs = []
    call = TORCH.fixed(lambda: runs.append(1))
    assert call() is None and runs == [1]
