"""CUDA's kernels: Triton where it runs, else torch's own, in captured graphs. With TRITON_INTERPRET=1 Triton's run on
the CPU too, very slowly: for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...model.step import Attend
from ..host_copies import HostRead, HostWrite
from ..torch import MIB, TorchKernels, what_runs
from . import available
from .available import MOST_ROWS
from .graphs import FixedCall, GraphPool

T = TypeVar("T")
LARGEST_READ = 4096 * MIB
LAUNCHES = 4
"""In a row, so that the gaps between launches are hidden behind the kernels."""


class _Sizes(threading.local):
    """A set of sizes that is each thread's own."""

    def __init__(self) -> None:
        self.sizes: set[int] = set()


class TritonKernels(TorchKernels):
    """See `Kernels`. Alone on a CPU whose Triton interprets. against: why no step runs Triton kernels, "" where they
    do; None: found out."""

    name = "cuda"

    def __init__(self, device: torch.device, dtype: torch.dtype | None, against: str | None = None) -> None:
        super().__init__(device)
        self.dtype = dtype
        self.against = available.reason_against_dtype(device, dtype) if against is None else against

    @property
    def triton(self) -> bool:
        """Whether steps run Triton kernels."""
        return not self.against

    # A model

    def install(self, model: Any, int8: bool) -> None:
        super().install(model, int8)
        if self.triton:
            from .install import put_kernels

            put_kernels(model)

    def remove(self, model: Any) -> None:
        from .install import take_out_kernels

        take_out_kernels(model)

    def removed(self, model: Any) -> AbstractContextManager[None]:
        from .install import without_kernels

        return without_kernels(model)

    def fallback(self, why: str) -> TritonKernels | None:
        """torch's own, in the same graphs."""
        return type(self)(self.device, self.dtype, why) if self.triton else None

    # A step

    def attention(self, model: Any, num_rows: int) -> Attend | None:
        if not self.triton or num_rows > MOST_ROWS:
            return None
        from .attention import attend_rows

        return attend_rows

    # The choice of a token

    def pick_rows(self, rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float) -> tuple[Tensor, Tensor] | None:
        if available.reason_against(rows.device) is not None:
            return None
        from .sample import pick_rows

        return pick_rows(rows.contiguous(), tokens, keys.contiguous(), temperature)

    # The device

    def identity(self, model: Any) -> dict[str, Any]:
        found = super().identity(model)
        if self.triton:
            from .install import configurations

            found["kernels"] += [available.description(self.device), *configurations(model)]
        return found

    def describe(self, model: Any = None) -> str:
        """Also the tiles of its linears, on which bits depend."""
        if not self.triton:
            return ""
        from .install import tiles

        return available.description(self.device) + ("" if model is None else f", {tiles(model)}")

    def runs(self, model: Any) -> dict[str, Any]:
        """Also "against": why no Triton decoder, "" where there is one."""
        found = what_runs(
            model, {"GpuDecoder": "Triton"}, {"GpuLinear": "Triton"}, "ours, Triton" if self.triton else "torch's"
        )
        against = "" if found["decoder"] == "GpuDecoder" else self.against or _reason_against_decoder(model)
        if against:
            found["sentence"] += f"; no Triton decoder: {against}"
        return {**found, "against": against}


class CudaKernels(TritonKernels):
    """On a CUDA device."""

    def __init__(self, device: torch.device, dtype: torch.dtype | None, against: str | None = None) -> None:
        super().__init__(device, dtype, against)
        self._sizes = _Sizes()

    # A model

    def best_dtype(self) -> str:
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"

    def install(self, model: Any, int8: bool) -> None:
        # cuDNN's attention plans anew for every shape in every thread, and each race is a thread
        torch.backends.cuda.enable_cudnn_sdp(False)
        super().install(model, int8)

    # A step

    @property
    def judges_on_device(self) -> bool:
        return True

    @property
    def warmed(self) -> set[int]:
        """Each thread's own: cuBLAS keeps its workspaces by thread, and each race is a thread."""
        return self._sizes.sizes

    def graph_pool(self) -> GraphPool:
        return GraphPool(self.device)

    def fixed(self, function: Callable[[], T], pool: Any = None, name: str = "a fixed call") -> Callable[[], T]:
        return FixedCall(function, self.device, pool, name)

    def host_write(self, size: int) -> HostWrite:
        return HostWrite(size, self.device, pinned=True)

    def host_read(self, size: int) -> HostRead:
        event = torch.cuda.Event()

        def wait() -> None:
            event.record(torch.cuda.current_stream(self.device))
            event.synchronize()

        return HostRead(size, wait, pinned=True)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    # Training

    @property
    def trains_in_bfloat16(self) -> bool:
        return True

    # The device

    def identity(self, model: Any) -> dict[str, Any]:
        return super().identity(model) | {"device": torch.cuda.get_device_name(self.device)}

    def about_device(self) -> dict[str, Any]:
        """Also whether torch may choose cuDNN's attention: it plans anew for every shape in every thread."""
        return super().about_device() | {
            "name": torch.cuda.get_device_name(self.device),
            "cudnn_attention": "on" if torch.backends.cuda.cudnn_sdp_enabled() else "off",
        }

    def free_bytes(self) -> int:
        return (
            torch.cuda.mem_get_info(self.device)[0]
            + torch.cuda.memory_reserved(self.device)
            - torch.cuda.memory_allocated(self.device)
        )

    def give_back_memory(self) -> None:
        torch.cuda.empty_cache()

    def random_numbers_kept(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=[self.device.index or 0])

    def read_bytes(self) -> int:
        return min(LARGEST_READ, self.free_bytes() // 4)

    def readers(self, buffer: Tensor) -> Mapping[str, Callable[[], Any]]:
        halves = buffer.view(torch.bfloat16)
        ones = torch.ones(halves.shape[1], dtype=halves.dtype, device=buffer.device)
        return {
            **super().readers(buffer),
            "a matrix-vector product of bfloat16": lambda: torch.mv(halves, ones),
            "a maximum of float32": buffer.view(-1).amax,
        }

    def seconds(self, call: Callable[[], Any]) -> float:
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
