"""A fixed-shape computation over fixed buffers, captured once as a CUDA graph. Not yet measured on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Generic, TypeVar

import torch

from ...errors import PhotofinishError, RaceError, in_a_line

T = TypeVar("T")
WARM_UPS = 3
ERROR_MODE = "thread_local"
"""What other threads ask of CUDA meanwhile, such as memory, breaks no capture."""


class GraphPool:
    """Memory that graphs share: what one of them needs only while it runs, another uses when it runs. One a race, whose
    graphs run one at a time.

    A graph of its own, captured first, keeps the pool open while others come and go: PyTorch does not reopen a pool
    that all graphs have left. All captures share one stream, for memory freed on a stream is used again on that stream
    only."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @cached_property
    def opened(self) -> tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]:
        """(the graph whose pool it is, the stream to capture on); CUDA only."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=ERROR_MODE):
            torch.zeros(1, device=self.device)
        return graph, stream


class FixedCall(Generic[T]):
    """`call()` runs `function()`, which takes no arguments, reads buffers that stay in place and never asks the host
    for anything.

    The first call warms up on a side stream and captures; later calls replay. So `function` must give the same however
    often it is run over the same buffers, or be called first where that does not matter. The returned tensors are valid
    until any call of the same pool runs again, of this lane or another: what is read later belongs in a buffer that
    `function` writes to. `name` is what an error calls it. Raises RaceError where it cannot be captured."""

    def __init__(
        self, function: Callable[[], T], device: torch.device, pool: GraphPool | None = None, name: str = "a fixed call"
    ) -> None:
        self._function, self._device, self._name = function, device, name
        self._pool = pool or GraphPool(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: T | None = None

    def __call__(self) -> T:
        if self._graph is None:
            with named(self._name):
                self._graph = self._capture()
        self._graph.replay()
        return self._result  # type: ignore[return-value]

    def _capture(self) -> torch.cuda.CUDAGraph:
        first, stream = self._pool.opened
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._function()
        current.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # The outer context is for a capture that fails: it leaves its own stream behind as the current one.
        with (
            torch.cuda.stream(current),
            torch.cuda.graph(graph, pool=first.pool(), stream=stream, capture_error_mode=ERROR_MODE),
        ):
            self._result = self._function()
        return graph


@contextmanager
def named(what: str) -> Iterator[None]:
    """Whatever is raised while `what` is captured becomes one sentence that names it and the first cause: where an
    operation is not allowed in a capture, ending the capture raises again and hides it. Errors that the engine raises
    on purpose stay what they are."""
    handled = sys.exception()  # by our caller: no cause of what is raised in here
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        while (earlier := cause.__cause__ or cause.__context__) not in (None, handled):
            cause = earlier
        if isinstance(cause, PhotofinishError):
            raise cause from error
        raise RaceError(f"{what} could not be captured as a CUDA graph: {in_a_line(cause)}") from error
