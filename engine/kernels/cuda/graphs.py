"""A fixed-shape computation over fixed buffers, captured once as a CUDA graph. Not yet measured on a GPU."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from threading import RLock
from typing import Generic, TypeVar

import torch

from ...core.errors import CaptureError, PhotofinishError, in_a_line

T = TypeVar("T")
WARM_UPS = 3
ERROR_MODE = "thread_local"  # CUDA calls of other threads, such as allocations, do not break a capture
ONE_CAPTURE = RLock()  # captures share a stream, so they take turns


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all captures on a device. Never replaced: cuBLAS keeps a workspace of up to 32 MiB for every
    stream."""
    return torch.cuda.Stream(device)


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Within it, no collection destroys an old graph, which would break a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class GraphPool:
    """Memory shared by the graphs of one race, which run one at a time: one graph's temporary memory is reused by
    another.

    A separate graph, captured first, keeps the pool open: PyTorch does not reopen a pool that all graphs have left."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @cached_property
    def first(self) -> torch.cuda.CUDAGraph:
        """The graph that keeps the pool."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=capture_stream(self.device), capture_error_mode=ERROR_MODE):
            torch.zeros(1, device=self.device)
        return graph


class FixedCall(Generic[T]):
    """`call()` runs `function()`, which takes no arguments, reads buffers that stay in place and never waits for the
    device.

    The first call warms up on a side stream and captures; later calls replay. So `function` must give the same result
    however often it runs over the same buffers, or be called first where that does not matter. The returned tensors are
    valid until any call of the same pool, of any lane, runs again: what is read later belongs in a buffer that
    `function` writes to. `name` is for error messages. Raises CaptureError if it cannot be captured."""

    def __init__(
        self, function: Callable[[], T], device: torch.device, pool: GraphPool | None = None, name: str = "a fixed call"
    ) -> None:
        self._function, self._device, self._name = function, device, name
        self._pool = pool or GraphPool(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: T | None = None

    def __call__(self) -> T:
        if self._graph is None:
            with ONE_CAPTURE, no_garbage_collected(), named(self._name):
                self._graph = self._capture()
        self._graph.replay()
        return self._result  # type: ignore[return-value]

    def _capture(self) -> torch.cuda.CUDAGraph:
        stream, pool = capture_stream(self._device), self._pool.first.pool()
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._function()
        current.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # The outer context is for a failed capture, which leaves its own stream behind as the current one.
        with (
            torch.cuda.stream(current),
            torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode=ERROR_MODE),
        ):
            self._result = self._function()
        return graph


@contextmanager
def named(what: str) -> Iterator[None]:
    """Errors while `what` is captured become one sentence with its name and the first cause: an operation that is not
    allowed in a capture makes the end of the capture raise again and hide it. Deliberate errors stay as they are."""
    handled = sys.exception()  # from our caller: not a cause of errors in here
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        while (earlier := cause.__cause__ or cause.__context__) not in (None, handled):
            cause = earlier
        if isinstance(cause, PhotofinishError):
            raise cause from error
        raise CaptureError(f"{what} could not be captured as a CUDA graph: {in_a_line(cause)}") from error
