"""CUDA's kernels: Triton where it runs, else torch's own, in captured graphs. With TRITON_INTERPRET=1 Triton's run on
the CPU too, very slowly: for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor

from .. import Attend
from ..host_copies import HostRead, HostWrite
from ..torch import MIB, TorchKernels, what_runs
from . import available
from .available import MOST_ROWS
from .graphs import FixedCall, GraphPool

T = TypeVar("T")
LARGEST_READ = 4096 * MIB
LAUNCHES = 4
"""In a row, so that the gaps between launches are hidden behind the kernels."""
DECODERS = {"FusedDecoder": "torch", "HybridDecoder": "torch", "GpuDecoder": "Triton"}
LINEARS = {"Linear": "torch", "GpuLinear": "Triton"}


class _Sizes(threading.local):
    """A set of sizes that is each thread's own."""

    def __init__(self) -> None:
        self.sizes: set[int] = set()


class CudaKernels(TorchKernels):
    """See `Kernels`. against: why no step runs Triton kernels, "" where they do; None: found out."""

    name = "cuda"

    def __init__(self, device: torch.device, dtype: torch.dtype | None, against: str | None = None) -> None:
        super().__init__(device)
        self.dtype = dtype
        self.against = available.reason_against_dtype(device, dtype) if against is None else against
        self._sizes = _Sizes()

    @staticmethod
    def are_interpreted(device: torch.device, dtype: torch.dtype | None) -> bool:
        """Whether Triton's interpreter runs the kernels there, on the CPU: for tests."""
        return device.type == "cpu" and available.reason_against(device) is None and dtype in (*available.DTYPES, None)

    @property
    def triton(self) -> bool:
        """Whether steps run Triton kernels."""
        return not self.against

    # A model

    def best_dtype(self) -> str:
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"

    def install(self, model: Any, int8: bool) -> None:
        assert not int8
        if not self.on_host:  # cuDNN's attention plans anew for every shape in every thread, and each race is a thread
            torch.backends.cuda.enable_cudnn_sdp(False)
        if self.triton:
            from .install import put_kernels

            put_kernels(model)

    def remove(self, model: Any) -> None:
        from .install import take_out_kernels

        take_out_kernels(model)

    def removed(self, model: Any) -> AbstractContextManager[None]:
        from .install import without_kernels

        return without_kernels(model)

    def fallback(self, why: str) -> CudaKernels | None:
        """torch's own, in the same graphs."""
        return CudaKernels(self.device, self.dtype, why) if self.triton else None

    # A step

    def attention(self, model: Any, num_rows: int) -> Attend | None:
        if not self.triton or num_rows > MOST_ROWS:
            return None
        from .attention import attend_rows

        return attend_rows

    @property
    def judges_on_device(self) -> bool:
        return not self.on_host

    @property
    def warmed(self) -> set[int]:
        """Each thread's own: cuBLAS keeps its workspaces by thread, and each race is a thread."""
        return self._sizes.sizes

    def graph_pool(self) -> GraphPool | None:
        return None if self.on_host else GraphPool(self.device)

    def fixed(self, function: Callable[[], T], pool: Any = None, name: str = "a fixed call") -> Callable[[], T]:
        return function if self.on_host else FixedCall(function, self.device, pool, name)

    def host_write(self, size: int) -> HostWrite:
        return HostWrite(size, self.device, pinned=not self.on_host)

    def host_read(self, size: int) -> HostRead:
        if self.on_host:
            return HostRead(size)
        event = torch.cuda.Event()

        def wait() -> None:
            event.record(torch.cuda.current_stream(self.device))
            event.synchronize()

        return HostRead(size, wait, pinned=True)

    def synchronize(self) -> None:
        if not self.on_host:
            torch.cuda.synchronize(self.device)

    # The choice of a token

    def pick_rows(self, rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float) -> tuple[Tensor, Tensor] | None:
        if available.reason_against(rows.device) is not None:
            return None
        from .sample import pick_rows

        return pick_rows(rows.contiguous(), tokens, keys.contiguous(), temperature)

    # Training

    @property
    def trains_in_bfloat16(self) -> bool:
        return True

    # The device

    def identity(self, model: Any) -> dict[str, Any]:
        found = super().identity(model)
        if not self.on_host:
            found["device"] = torch.cuda.get_device_name(self.device)
        if self.triton:
            from .install import configurations

            found["kernels"] += [available.description(self.device), *configurations(model)]
        return found

    def describe(self, model: Any = None) -> str:
        """Also the tiles of its linears, on which bits depend."""
        if not self.triton or model is None:
            return available.description(self.device) if self.triton else ""
        from .install import tiles

        return f"{available.description(self.device)}, {tiles(model)}"

    def runs(self, model: Any) -> dict[str, Any]:
        """Also "against": why no Triton decoder, "" where there is one."""
        found = what_runs(model, DECODERS, LINEARS, "ours, Triton" if self.triton else "torch's")
        against = "" if found["decoder"] == "GpuDecoder" else self.against or _reason_against_decoder(model)
        if against:
            found["sentence"] += f"; no Triton decoder: {against}"
        return {**found, "against": against}

    def about_device(self) -> dict[str, Any]:
        """Also whether torch may choose cuDNN's attention: it plans anew for every shape in every thread."""
        found = super().about_device()
        if not self.on_host:
            found["name"] = torch.cuda.get_device_name(self.device)
            found["cudnn_attention"] = "on" if torch.backends.cuda.cudnn_sdp_enabled() else "off"
        return found

    def free_bytes(self) -> int:
        if self.on_host:
            return super().free_bytes()
        return (
            torch.cuda.mem_get_info(self.device)[0]
            + torch.cuda.memory_reserved(self.device)
            - torch.cuda.memory_allocated(self.device)
        )

    def give_back_memory(self) -> None:
        if not self.on_host:
            torch.cuda.empty_cache()

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=[] if self.on_host else [self.device.index or 0])

    def read_bytes(self) -> int:
        return super().read_bytes() if self.on_host else min(LARGEST_READ, self.free_bytes() // 4)

    def readers(self, buffer: Tensor) -> Mapping[str, Callable[[], Any]]:
        halves = buffer.view(torch.bfloat16)
        ones = torch.ones(halves.shape[1], dtype=halves.dtype, device=buffer.device)
        return {
            **super().readers(buffer),
            "a matrix-vector product of bfloat16": lambda: torch.mv(halves, ones),
            "a maximum of float32": buffer.view(-1).amax,
        }

    def seconds(self, call: Callable[[], Any]) -> float:
        if self.on_host:
            return super().seconds(call)
        with torch.cuda.device(self.device):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(LAUNCHES):
                call()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / 1000 / LAUNCHES


def _reason_against_decoder(model: Any) -> str:
    from ...model.decoder import FusedDecoder
    from .decoder import reason_against_decoder

    decoder = model.get_decoder()
    if not isinstance(decoder, FusedDecoder):
        return f"a {type(decoder).__name__} is none that can be fused"
    return reason_against_decoder(decoder) or "it was not asked for"
