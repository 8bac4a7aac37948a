"""A fixed-shape computation over fixed buffers: captured once as a CUDA graph on CUDA, called directly elsewhere.

The same call site serves both, so that the CPU tests exercise what CUDA runs. Not yet measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class FixedCall(Generic[T]):
    """`call()` runs `function()`, which takes no arguments, reads buffers that stay in place and never asks the host for anything.

    On CUDA the first call warms up on a side stream and captures; later calls replay. The returned tensors are the graph's own: they are
    overwritten by the next call."""

    def __init__(self, function: Callable[[], T], device: torch.device) -> None:
        self._function = function
        self._device = device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: T | None = None

    def __call__(self) -> T:
        if self._device.type != "cuda":
            return self._function()
        if self._graph is None:
            self._capture()
        assert self._graph is not None and self._result is not None
        self._graph.replay()
        return self._result

    def _capture(self) -> None:
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._function()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = self._function()
