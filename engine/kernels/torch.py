"""torch's own operations as kernels: they run anywhere, and the others are compared with them."""

from __future__ import annotations

import math
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import Kernels
from .host_copies import HostRead, HostWrite
from .processor import cpu_info

SHAPE, WIDTHS, REPEATS = (2048, 640), (1, 8), 8  # linears that decide the dtype
MIB = 1024**2
# A buffer to read is this many times the size of the last-level caches, so that little of it stays in them between
# reads.
CACHES = 8
USUAL, LARGEST, SHARE_OF_MEMORY = 256 * MIB, 1024 * MIB, 8


class TorchKernels(Kernels):
    """See `Kernels`. Other kernels derive from it."""

    name = "torch"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._warmed: set[int] = set()

    @property
    def on_host(self) -> bool:
        return self.device.type == "cpu"

    # A model

    def best_dtype(self) -> str:
        """Measured, with linears as narrow as in decoding."""
        seconds = _narrow_linears_s((torch.bfloat16, torch.float32), self.device)
        return "bfloat16" if seconds[0] <= seconds[1] else "float32"

    def reason_against_int8(self) -> str:
        return f"is for the CPU, not for {str(self.device)!r}"

    def install(self, model: Any, int8: bool) -> None:
        assert not int8

    # A step

    @property
    def warmed(self) -> set[int]:
        return self._warmed

    def host_write(self, size: int) -> HostWrite:
        return HostWrite(size, self.device)

    def host_read(self, size: int) -> HostRead:
        return HostRead(size)

    # The device

    def identity(self, model: Any) -> dict[str, Any]:
        name = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}" if self.on_host else self.device.type
        return {"kernels": [self.name], "device": name, "threads": torch.get_num_threads() if self.on_host else 0}

    def runs(self, model: Any) -> dict[str, Any]:
        return what_runs(model, {}, {}, "torch's")

    def about_device(self) -> dict[str, Any]:
        return {"type": self.device.type, "name": cpu_name(), "threads": torch.get_num_threads()}

    def free_bytes(self) -> int:
        try:
            lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
            return int(lines["MemAvailable"].split()[0]) * 1024
        except (OSError, KeyError, ValueError):
            return 2**63 - 1

    @property
    def device_map(self) -> dict[str, Any] | None:
        return None if self.on_host else {"": self.device}

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=[])

    def read_bytes(self) -> int:
        return min(max(USUAL, CACHES * _last_level_caches()), LARGEST, self.free_bytes() // SHARE_OF_MEMORY)

    def readers(self, buffer: Tensor) -> Mapping[str, Callable[[], Any]]:
        flat, vector = buffer.view(-1), torch.ones(buffer.shape[1], dtype=buffer.dtype, device=buffer.device)
        kernels: dict[str, Callable[[], Any]] = {
            "a sum of float32": flat.sum,
            "a dot product of float32": lambda: torch.dot(flat, flat),
            "a matrix-vector product of float32": lambda: torch.mv(buffer, vector),
        }
        if self.device.type != "mps":
            kernels |= {"a sum of float64": flat.view(torch.float64).sum, "a sum of int64": flat.view(torch.int64).sum}
        return kernels

    def seconds(self, call: Callable[[], Any]) -> float:
        started = time.perf_counter()
        call().sum().item()  # waits for the device
        return time.perf_counter() - started

    def reason_against_compiling(self) -> str:
        if not self.on_host:
            return ""
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except (InvalidCxxCompiler, RuntimeError, OSError):
            return "there is no C++ compiler here (install g++, or name one in the environment variable CXX)"
        return ""


def what_runs(model: Any, decoders: Mapping[str, str], linears: Mapping[str, str], attention: str) -> dict[str, Any]:
    """{"sentence": all of it in words, "decoder": its class, "layers": what runs them, "linears": {what runs them: how
    many}, "attention": whose}.

    decoders, linears: class -> what runs it, unless torch does."""
    linears = {"Linear": "torch", **linears}
    decoder = type(model.get_decoder()).__name__
    layers = {"FusedDecoder": "torch", "HybridDecoder": "torch", **decoders}.get(decoder, "transformers' own")
    kinds = [linears[name] for module in model.modules() if (name := type(module).__name__) in linears]
    counts = dict(sorted(Counter(kinds).items()))
    listed = ", ".join(f"{num} {kind}" for kind, num in counts.items()) or "none"
    sentence = f"steps run by {decoder} ({layers}); linears: {listed}; attention: {attention}"
    return {"sentence": sentence, "decoder": decoder, "layers": layers, "linears": counts, "attention": attention}


def cpu_name() -> str:
    """The processor's name from the kernel, and its number of cores. A virtual machine's may be that of many processors
    ("AMD EPYC"): its family and model are then added, or two machines would count as one."""
    name = cpu_info("model name") or platform.processor() or platform.machine()
    if (family := cpu_info("cpu family")) and not any(map(str.isdigit, name)):
        name += f" (family {family}, model {cpu_info('model')})"
    return f"{name}, {os.cpu_count()} cores"


def _last_level_caches() -> int:
    """Bytes of all last-level caches together; 0 if unknown."""
    sizes: dict[str, int] = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index3"):
        try:
            shared, size = (folder / "shared_cpu_list").read_text().strip(), (folder / "size").read_text().strip()
            sizes[shared] = int(size.rstrip("KM")) * (MIB if size.endswith("M") else 1024)
        except (OSError, ValueError):
            continue
    return sum(sizes.values())


@torch.inference_mode()
def _narrow_linears_s(dtypes: Sequence[torch.dtype], device: torch.device) -> list[float]:
    """For each dtype, the seconds of one linear at width 1 and one at width 8: the best of many, interleaved, so that a
    busy moment affects all alike, and on one thread, because on a busy machine several mostly wait for each other."""
    operands = {
        (dtype, width): (
            torch.ones(width, SHAPE[1], dtype=dtype, device=device),
            torch.ones(SHAPE, dtype=dtype, device=device),
        )
        for dtype in dtypes
        for width in WIDTHS
    }
    best = dict.fromkeys(operands, math.inf)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(REPEATS):
            for key, (x, weight) in operands.items():
                started = time.perf_counter()
                torch.nn.functional.linear(x, weight)[0, 0].item()
                best[key] = min(best[key], time.perf_counter() - started)
    finally:
        torch.set_num_threads(num_threads)
    return [sum(best[dtype, width] for width in WIDTHS) for dtype in dtypes]
