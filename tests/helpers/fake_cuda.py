"""A CUDA device that is none: tensors that say they are on "cuda" and keep their numbers on the CPU, streams that do
nothing, and graphs that repeat what was recorded. With it the engine's code for CUDA runs on any machine, with real
numbers, and what a GPU would refuse is refused: operands on different devices; numpy on a device's tensor; in a capture
whatever waits for the device, copies between it and the host, or depends on a number of the host's. Graphs of one pool
share memory, and here they do so always: before a graph is replayed, everything that the pool's other graphs made is
spoiled.

What it cannot see: kernels' own faults, a wrong order on several streams, and what an operation of torch does inside on
CUDA but for what is written here: attention's layout, and operations that only the CPU has.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from tests.helpers.cuda_tensors import CUDA as CUDA
from tests.helpers.cuda_tensors import CudaTensor, guards, tensors_in
from tests.helpers.cuda_tensors import on_cuda as on_cuda
from tests.helpers.fake_device import CudaGraph, Device, Event

CAPABILITY = (9, 0)


@contextmanager
def fake_cuda(run_kernels: bool = False, tries: bool = False) -> Iterator[Device]:
    """The device, while entered. run_kernels: Triton's kernels are run by its interpreter; else a launch writes
    nothing, and buffers made for it are zeros. tries: kernels are first tried in a process of their own, as it is done
    elsewhere."""
    from triton.runtime import interpreter

    from engine.kernels.cuda import available as choice
    from engine.runner import prepare

    device = Device(run_kernels)
    launch = interpreter.GridExecutor.__call__
    first_kernel = choice.run_first_kernel

    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, CudaTensor) for x in tensors_in((args, kwargs))):
            return device.launch(self.fn, lambda *a, **k: launch(self, *a, **k), args, kwargs)
        return launch(self, *args, **kwargs)

    stream = mock.Mock(spec_set=torch.cuda.Stream)  # everything happens at once
    replaced: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda *unused: "a pretended GPU",
        "get_device_capability": lambda *unused: CAPABILITY,
        "get_device_properties": lambda *unused: SimpleNamespace(multi_processor_count=132),
        "mem_get_info": lambda *unused: (1 << 28, 1 << 30),
        "synchronize": device.synchronize,
        "Stream": lambda *unused: stream,
        "current_stream": lambda *unused: stream,
        "Event": Event,
        "CUDAGraph": CudaGraph,
        "stream": nullcontext,
        "device": nullcontext,
        "graph": device.graph,
    }
    assert Device._current is None
    with ExitStack() as stack:
        stack.enter_context(guards())
        stack.enter_context(mock.patch.multiple(torch.cuda, **replaced))
        stack.enter_context(mock.patch.object(interpreter.GridExecutor, "__call__", launched))
        if not run_kernels:
            stack.enter_context(mock.patch.object(choice, "run_first_kernel", lambda unused: None))
        if not tries:
            stack.enter_context(mock.patch.object(prepare, "tried", lambda *unused: ""))
        Device._current = device
        overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
        # a parameter that is moved becomes another tensor
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda"): made on the CPU, then copied
        try:
            with device:
                yield device
        finally:
            Device._current = None
            torch._C._set_only_lift_cpu_tensors(lifted)
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
            first_kernel.cache_clear()
