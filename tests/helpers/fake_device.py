"""The device that `fake_cuda.py` puts in CUDA's place: its operations, graphs and events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tests.helpers.cuda_tensors import ATTENTION, CudaTensor, Traits, aten, mapped, numbers_of, tensors_in, traits


class CudaGraph:
    """torch.cuda.CUDAGraph. Its last reference going while another is captured spoils that capture, as on a GPU."""

    def __init__(self) -> None:
        self.place: Any = object()  # the pool that its memory is from
        self.recorded: list[tuple[Callable[[], Any], list[Tensor]]] = []
        """What runs each operation, and the tensors that it must write to."""
        self.made: list[Tensor] = []
        """The memory that operations in it took from the pool."""
        self.is_spoiled = False

    def pool(self) -> Any:
        return self.place

    def spoil(self) -> None:
        """Another graph of the pool has used the memory: nothing of the last replay is left, but NaN and -1."""
        for x in () if self.is_spoiled else self.made:
            x.untyped_storage().fill_(0xFF)
        self.is_spoiled = True

    def replay(self) -> None:
        Device.now().forbid_in_capture("a replay")
        with torch.inference_mode(), _disable_current_modes():  # all that runs here is the host's
            for other in Device.now().graphs:
                if other is not self and other.place is self.place:
                    other.spoil()
            self.is_spoiled = False
            for run, outs in self.recorded:
                made = tensors_in(run())
                for old, new in zip(outs, made, strict=True) if outs else ():
                    old.copy_(new)

    def __del__(self) -> None:
        if (device := Device._current) is not None and device._capturing is not None:
            device.broken_by = "a graph is freed"


class Device(TorchDispatchMode):
    """While entered through `fake_cuda`: the device. graphs: those that somebody still has. captured: the names of the
    operations in each graph that there ever was."""

    _mode_key = torch._C._TorchDispatchModeKey.FAKE
    """With this torch does not look for a driver when a tensor on "cuda" is asked for."""
    _current: Device | None = None

    def __init__(self, run_kernels: bool) -> None:
        super().__init__()
        self.graphs: WeakSet[CudaGraph] = WeakSet()
        self.captured: list[list[str]] = []
        self._run_kernels = run_kernels
        self._capturing: CudaGraph | None = None
        self.broken_by = ""
        """What broke the present capture, which ends in an error then."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and torch's guard against that costs each operation a tenth

    @staticmethod
    def now() -> Device:
        assert Device._current is not None
        return Device._current

    # Operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.pop("pin_memory", None):
            assert torch.device(kwargs.get("device") or "cpu").type == "cpu", "only memory of the host can be pinned"
            return func(*args, **kwargs)
        tensors = tensors_in((args, kwargs))
        ours = [x for x in tensors if isinstance(x, CudaTensor)]
        theirs = [x for x in tensors if not isinstance(x, CudaTensor)]
        about, asked = traits(func), kwargs.get("device")
        if asked is None and func is aten.to.device:
            asked = args[1]
        to_cuda = bool(ours) if asked is None else torch.device(asked).type == "cuda"
        if func is aten.copy_.default:
            to_cuda = isinstance(args[0], CudaTensor)
        if not ours and not to_cuda:
            return func(*args, **kwargs)
        self._check(about, args, theirs, to_cuda)
        if asked is not None:
            cpu = torch.device("cpu")
            args = mapped(lambda x: cpu if isinstance(x, torch.device) else x, args)
            kwargs = kwargs | ({"device": cpu} if "device" in kwargs else {})
        inside_args, inside_kwargs = mapped(numbers_of, args), mapped(numbers_of, kwargs)

        def run() -> Any:
            out = func(*inside_args, **inside_kwargs)
            if about.makes_empty:
                return out.zero_()  # what a launch that is not run leaves behind
            if func is ATTENTION:  # as the memory-efficient kernel leaves its rows: heads side by side
                return out.transpose(1, 2).contiguous().transpose(1, 2)
            return out

        out = run()
        if not to_cuda:
            return out.clone() if func is aten.to.device or func is aten._to_copy.default else out
        if self._capturing is not None:
            self._record(about, run, tensors_in(out), [x.numbers for x in ours])

        def known_or_new(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            for known in ours:
                if known.numbers is x:
                    return known  # what is written in place is still the same tensor
            return CudaTensor(x)

        return mapped(known_or_new, out)

    def _check(self, about: Traits, args: Any, theirs: list[Tensor], to_cuda: bool) -> None:
        """Raise what a GPU would."""
        name = about.name
        if about.copies and (theirs or not to_cuda):
            self.forbid_in_capture(f"a copy between host and device ({name})")
            return
        if about.indexes and isinstance(args[0], CudaTensor):
            indices = [x for x in args[1] if isinstance(x, Tensor)]
            if not all(isinstance(x, CudaTensor) for x in indices):
                self.forbid_in_capture(f"an index on the host ({name})")
            if any(x.dtype in (torch.bool, torch.uint8) for x in indices):
                self.forbid_in_capture(f"as many rows as a mask has ({name})")
        elif any(x.dim() for x in theirs):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"({name})"
            )
        elif theirs or about.waits:
            self.forbid_in_capture(f"a number on the host, or one of chance ({name})")
        if about.is_on_cpu_alone:
            raise NotImplementedError(f"Could not run '{name}' with arguments from the 'CUDA' backend.")

    def forbid_in_capture(self, what: str) -> None:
        if self._capturing is not None:
            self.broken_by = what
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing: {what}")

    def _record(self, about: Traits, run: Callable[[], Any], outs: list[Tensor], inputs: list[Tensor]) -> None:
        assert self._capturing is not None
        self.captured[-1].append(about.name)
        places = {x.untyped_storage().data_ptr() for x in inputs if x.numel()}
        if about.is_mutable:
            self._capturing.recorded.append((run, []))
        elif not all(x.untyped_storage().data_ptr() in places for x in outs):  # else it is a view, and stays one
            self._capturing.made += outs
            self._capturing.recorded.append((run, outs))

    # Launches of Triton's kernels

    def launch(self, kernel: Any, run: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """As Triton does: every tensor must be the device's."""
        name = kernel.__name__
        if not all(isinstance(x, CudaTensor) for x in tensors_in((args, kwargs))):
            raise ValueError(f"Pointer argument cannot be accessed from Triton (cpu tensor?): {name}")
        inside_args, inside_kwargs = mapped(numbers_of, (tuple(args), kwargs))

        def again() -> None:
            if self._run_kernels:
                run(*inside_args, **inside_kwargs)

        again()
        if self._capturing is not None:
            self.captured[-1].append(name)
            self._capturing.recorded.append((again, []))

    # What torch.cuda says and does

    def synchronize(self, *unused: Any) -> None:
        self.forbid_in_capture("synchronize")

    @contextmanager
    def graph(self, made: CudaGraph, pool: Any = None, **unused: Any) -> Iterator[None]:
        self.forbid_in_capture("a capture")
        self._capturing, self.broken_by = made, ""
        made.place = made.place if pool is None else pool
        self.graphs.add(made)
        self.captured.append([])
        try:
            yield
        finally:
            self._capturing = None
            if self.broken_by:  # the end of a capture says so again, and hides the first error
                raise RuntimeError(f"CUDA error: operation failed due to a previous error: {self.broken_by}")


class Event:
    """Stands for torch.cuda.Event. Between two of them lies a millisecond."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._timing, self._recorded = enable_timing, False

    def record(self, stream: Any = None) -> None:
        self._recorded = True

    def synchronize(self) -> None:
        assert self._recorded
        Device.now().synchronize()

    def elapsed_time(self, end: Event) -> float:
        assert self._timing and end._timing and self._recorded and end._recorded
        return 1.0
