"""CUDA's kernels, on three rungs: Triton's in captured graphs, torch's in captured graphs, torch's run eagerly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...core.errors import RaceError, in_a_line
from ...layers.step import Attend
from ...progress import Progress
from ..host_copies import HostRead
from ..torch import MIB, Kernels, Notes, what_runs
from . import available
from .available import MOST_ROWS
from .graphs import FixedCall, GraphPool

T = TypeVar("T")
LARGEST_READ = 4096 * MIB
LAUNCHES = 4  # launches in a row when timing, so that the kernels hide the gaps between them


class TritonKernels(Kernels):
    """See `Kernels`. Used directly on a CPU with Triton's interpreter, by tests. against: why no Triton kernel runs, ""
    if they do, None: find out."""

    name = "cuda"

    def __init__(self, device: torch.device, dtype: torch.dtype | None, against: str | None = None) -> None:
        super().__init__(device)
        self.dtype = dtype
        self.against = available.reason_against_dtype(device, dtype) if against is None else against

    @property
    def triton(self) -> bool:
        """Whether Triton kernels run."""
        return not self.against

    # A model

    @property
    def compares_with_torch(self) -> bool:
        return self.triton

    def install(self, model: Any) -> None:
        if self.triton:
            from .install import put_kernels

            put_kernels(model)

    def remove(self, model: Any) -> None:
        if self.triton:
            from .install import take_out_kernels

            take_out_kernels(model)

    def lower(self, why: str) -> TritonKernels | None:
        return type(self)(self.device, self.dtype, why) if self.triton else None

    # A step

    def attention(self, model: Any, num_rows: int) -> Attend | None:
        if not self.triton or num_rows > MOST_ROWS:
            return None
        from .attention import attend

        return attend

    # The choice of a token

    def pick_rows(
        self, rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float, notes: Notes | None = None
    ) -> tuple[Tensor, Tensor] | None:
        if not self.triton:
            return None
        from .sample import pick_rows

        return pick_rows(rows.contiguous(), tokens, keys.contiguous(), temperature, notes)

    # A head's rows

    def install_head(self, head: Any) -> None:
        if self.triton:
            from .heads import join_block

            join_block(head)

    def head_rows(self, head: Any, buffers: Any, num_rows: int) -> tuple[Any, str]:
        if not self.triton:
            return None, ""
        from .heads import rows_of

        rows = rows_of(head, buffers, num_rows)
        if isinstance(rows, str):
            return None, f"its head drafts by torch: {rows}"
        return rows, "its head drafts by Triton"

    # The device

    def identity(self, model: Any) -> dict[str, Any]:
        key = super().identity(model)
        if self.triton:
            from .install import configurations

            key["kernels"] += [available.description(self.device), *configurations(model)]
        return key

    def describe(self, model: Any = None) -> str:
        """Also the tiles of its linears, on which bits depend."""
        if not self.triton:
            return ""
        from .install import tiles

        return available.description(self.device) + ("" if model is None else f", {tiles(model)}")

    def runs(self, model: Any) -> str:
        """Also why there is no Triton decoder."""
        attention = "ours, Triton" if self.triton else "torch's, over the whole cache"
        sentence = what_runs(model, {"GpuDecoder": "Triton"}, {"GpuLinear": "Triton"}, attention)
        if type(model.get_decoder()).__name__ == "GpuDecoder":
            return sentence
        return f"{sentence}; no Triton decoder: {self.against or self._reason_against_decoder(model)}"

    def _reason_against_decoder(self, model: Any) -> str:
        from ...layers.decoder import FusedDecoder
        from .decoder import reason_against_decoder

        decoder = model.get_decoder()
        if not isinstance(decoder, FusedDecoder):
            return f"a {type(decoder).__name__} is none that can be fused"
        return reason_against_decoder(decoder) or "it was not asked for"


class CudaKernels(TritonKernels):
    """On a CUDA device. eager: why nothing is captured and no Triton kernel runs; "" if graphs are captured."""

    judges_on_device = True

    def __init__(
        self, device: torch.device, dtype: torch.dtype | None, against: str | None = None, eager: str = ""
    ) -> None:
        self.eager = eager
        super().__init__(device, dtype, against)
        self._own = threading.local()

    # A model

    def get_ready(self, progress: Progress) -> None:
        # cuDNN's attention makes a plan for every shape in every thread, and each race is a thread
        torch.backends.cuda.enable_cudnn_sdp(False)
        # some images allow TF32 by an environment variable, which changes transformers' angles at late positions
        torch.set_float32_matmul_precision("highest")

    def best_dtype(self) -> str:
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"

    @property
    def captures_experts(self) -> bool:
        # before Hopper torch's `grouped_mm` reads offsets on the host (GroupedMMUtils.h)
        return torch.cuda.get_device_capability(self.device) >= (9, 0)

    @property
    def must_be_tried(self) -> bool:
        return self.triton

    def install(self, model: Any) -> None:
        if self.triton:
            available.run_first_kernel(self.device)
        super().install(model)

    def lower(self, why: str) -> CudaKernels | None:
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            raise RaceError(
                f"the GPU's context is lost ({in_a_line(error)}); nothing can run on the GPU until this program is "
                f"started again{', and then the Triton kernels stay off' if self.triton else ''}"
            ) from error
        if self.triton:
            return CudaKernels(self.device, self.dtype, why)
        return None if self.eager else CudaKernels(self.device, self.dtype, self.against, why)

    # A step

    @property
    def warmed(self) -> set[int]:
        """Per thread: cuBLAS keeps its workspaces by thread, and each race is a thread."""
        return vars(self._own).setdefault("warmed", set())

    def graph_pool(self) -> GraphPool | None:
        return None if self.eager else GraphPool(self.device)

    def fixed(self, function: Callable[[], T], pool: Any = None, name: str = "a fixed call") -> Callable[[], T]:
        return function if self.eager else FixedCall(function, self.device, pool, name)

    def host_read(self, size: int) -> HostRead:
        event = torch.cuda.Event()

        def wait() -> None:
            event.record(torch.cuda.current_stream(self.device))
            event.synchronize()

        return HostRead(size, wait)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    # Training

    @property
    def trains_in_bfloat16(self) -> bool:
        return True

    # The device

    def runs(self, model: Any) -> str:
        is_wide = self.dtype == torch.float32 and self.best_dtype() == "float32"
        notes = {
            f"no CUDA graphs: {self.eager}": self.eager,
            f"{self.num_rounded} rows of a step round differently in a graph, as all steps here do": self.num_rounded,
            "float32, twice what float16 reads, since this GPU has no bfloat16": is_wide,
        }
        return "; ".join([super().runs(model), *(note for note, holds in notes.items() if holds)])

    def identity(self, model: Any) -> dict[str, Any]:
        """Also the driver, which compiles and launches, and whether steps are graphs."""
        name, capability = torch.cuda.get_device_name(self.device), torch.cuda.get_device_capability(self.device)
        about = {"device": name, "capability": list(capability), "driver": _driver(), "graphs": not self.eager}
        return super().identity(model) | about

    def about_device(self) -> dict[str, Any]:
        return super().about_device() | {"name": torch.cuda.get_device_name(self.device)}

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


def _driver() -> str:
    """The NVIDIA driver's version, from its kernel module; "" if unknown."""
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""
