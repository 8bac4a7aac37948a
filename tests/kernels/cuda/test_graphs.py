"""Captured calls on the stand-in for CUDA: what failures say, and what must not happen in a capture."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from engine.errors import RaceError, UnsupportedModel
from engine.kernels.cuda.graphs import FixedCall, GraphPool, capture_stream, named
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import CUDA, fake_cuda


def test_what_cannot_be_captured_is_named_with_its_first_cause() -> None:
    """A lane would fail with CUDA's last words, which say nothing of what went wrong."""

    def asks() -> None:
        torch.cuda.synchronize()

    says = (
        "the step of width 8 could not be captured as a CUDA graph: RuntimeError: CUDA error: operation not permitted"
    )
    with fake_cuda(), pytest.raises(RaceError, match=f"^{says} when stream is capturing: synchronize$"):
        FixedCall(asks, CUDA, name="the step of width 8")()


def test_a_refused_model_stays_refused() -> None:
    """The sentence that says why a model is not supported would be buried in one about graphs."""

    def refuses() -> None:
        raise UnsupportedModel("it does something else")

    with fake_cuda(), pytest.raises(UnsupportedModel, match=r"^it does something else$"):
        FixedCall(refuses, CUDA)()


def raise_memory_error() -> None:
    raise MemoryError


def test_an_error_that_is_being_handled_is_not_the_cause() -> None:
    """A race begun because something else had failed would blame that."""
    try:
        raise UnsupportedModel("the one before")
    except UnsupportedModel:
        with pytest.raises(RaceError, match=r"^x could not be captured as a CUDA graph: MemoryError$"), named("x"):
            raise_memory_error()


@pytest.mark.parametrize("fails", [False, True])
def test_no_garbage_is_collected_in_a_capture_and_all_share_a_stream(fails: bool, monkeypatch: Any) -> None:
    """An old race's graph would be destroyed in a new one's capture, which breaks it; and cuBLAS would keep a workspace
    for the stream of every race."""
    streams, enabled = [], []
    monkeypatch.setattr("engine.kernels.cuda.graphs.WARM_UPS", 1)

    def step() -> None:
        enabled.append(gc.isenabled())
        if fails:
            raise_memory_error()

    with fake_cuda() as device:
        graph = device.graph

        def seen(made: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "") -> Any:
            streams.append(stream)
            return graph(made, pool, stream, capture_error_mode)

        monkeypatch.setattr(device, "graph", seen)
        monkeypatch.setattr(torch.cuda, "graph", seen)
        for _ in range(2):
            try:
                FixedCall(step, CUDA, GraphPool(CUDA))()
            except RaceError:
                assert fails
        assert streams and all(stream is capture_stream(CUDA) for stream in streams)
    assert enabled and not any(enabled) and gc.isenabled()
