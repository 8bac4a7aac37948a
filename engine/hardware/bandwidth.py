"""The roofline of plain decoding: the bytes that a step must read, and how fast this device reads when it does nothing
else.

At batch 1 a step reads every weight once and does two operations with each, so memory bandwidth bounds its time. The
bandwidth is measured, not taken from a datasheet: the best of several kernels that only read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.errors import RaceError
from ..kernels.choose import choose
from ..kernels.torch import MIB, Kernels
from ..layers.attention import windows_of
from ..layers.modules import StepLinear
from ..layers.published import STATE_BYTES

if TYPE_CHECKING:
    from ..runner.prepared import Prepared

log = logging.getLogger(__name__)
SMALLEST = 64 * MIB
COLUMNS = 4096
SECONDS = 0.6
ROUNDS = 8


@dataclass(frozen=True)
class Bandwidth:
    """samples: (kernel, its best bytes per second), the fastest first. num_bytes: size of the buffer."""

    samples: tuple[tuple[str, float], ...]
    num_bytes: int

    @property
    def bytes_per_s(self) -> float:
        return self.samples[0][1]

    @property
    def how(self) -> str:
        """The measurement in a few words."""
        size, best = f"{self.num_bytes / MIB:.0f} MiB", self.samples[0][0]
        return f"{best} over {size}, the best of {len(self.samples)} kernels that only read"


def measured_bandwidth(device: torch.device) -> Bandwidth:
    """The bandwidth of the device's memory; measured on first use, in less than a second on a CPU (a fraction of that
    on a GPU), then cached.

    On a CPU as many threads read as torch uses now. The best sample counts: a busy machine only makes reads slower.
    Raises RaceError if not even a small buffer fits, or no kernel can read it."""
    return _measured(device, torch.get_num_threads() if choose(device).on_host else 0)


@cache
def _measured(device: torch.device, threads: int) -> Bandwidth:
    """Cached by the number of threads, on which nothing else here depends."""
    began = time.perf_counter()
    kernels = choose(device)
    return _measure(kernels, _buffer(kernels, began), began)


def roofline_figures(prepared: Prepared, length: int) -> dict[str, Any] | None:
    """The bytes of a step with `length` live tokens, and this device's bandwidth; None if there is no room to measure
    it."""
    try:
        bandwidth = measured_bandwidth(prepared.device)
    except RaceError:
        log.warning("the memory bandwidth was not measured", exc_info=True)
        return None
    return {
        "bytes_per_step": step_bytes(prepared, length),
        "bandwidth_bytes_per_s": bandwidth.bytes_per_s,
        "how": bandwidth.how,
    }


def step_bytes(prepared: Prepared, length: int) -> int:
    """Bytes that a step of one token must read with `length` tokens in the cache.

    Every weight once, except the embedding, of which it reads a row (a tied one counts once, as the LM head; of experts
    only those for one token). The live keys and values: `length` positions of a full-attention layer, at most the
    window of a sliding one. The state of layers that keep one instead of keys."""
    return weight_bytes(prepared.model) + kv_bytes(prepared, length)


def weight_bytes(model: nn.Module) -> int:
    """See `step_bytes`. Counts weights wherever they are: in a parameter, or in a new layout in a module that replaced
    a linear."""
    storages: dict[int, dict[tuple[int, int], int]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            continue
        share = _share_of_experts(model, name)
        for tensor in _weights(module):
            where, start, num_bytes = id(tensor), 0, tensor.numel() * tensor.element_size()
            if not tensor.is_mkldnn:
                where, start = tensor.untyped_storage().data_ptr(), tensor.data_ptr()
            storages.setdefault(where, {})[start, num_bytes] = round(num_bytes * share)
    return sum(sum(views.values()) for views in map(_without_views_of_views, storages.values()))


def kv_bytes(prepared: Prepared, length: int) -> int:
    """See `step_bytes`."""
    shape, windows = prepared.shape, windows_of(prepared.model).values()  # those of linear layers are empty
    columns = sum(length if window is None else min(length, window) for window in windows)
    states = 0
    if (linear := shape.linear) is not None:
        states = len(linear.layers) * linear.num_value_heads * linear.key_dim * linear.value_dim
    return columns * 2 * shape.num_kv_heads * shape.head_dim * prepared.dtype.itemsize + states * STATE_BYTES


def _weights(module: nn.Module) -> Iterator[Tensor]:
    """A module's own parameters; for a linear's replacement also the weights that it reads."""
    yield from (p for p in module._parameters.values() if p is not None)
    if isinstance(module, StepLinear):
        yield module.read()


def _without_views_of_views(views: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """A storage's tensors, without those inside another: a fused weight and its parts are read once."""
    kept: dict[tuple[int, int], int] = {}
    end = -1
    for (start, size), counted in sorted(views.items(), key=lambda item: (item[0][0], -item[0][1])):
        if start + size > end:
            kept[start, size] = counted
            end = start + size
    return kept


def _share_of_experts(model: nn.Module, name: str) -> float:
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if config is not None else None
    if "experts" not in name.split(".") or config is None:
        return 1.0
    num = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    used = getattr(config, "num_experts_per_tok", None) or getattr(config, "top_k_experts", None)
    return min(1.0, used / num) if num and used else 1.0


def _buffer(kernels: Kernels, began: float) -> Tensor:
    """float32 zeros [rows, COLUMNS] in memory of their own (pages never written share one page, which stays in a
    cache). If writing takes half of the time, only the rows written by then."""
    row, block = 4 * COLUMNS, SMALLEST // (4 * COLUMNS)
    rows = max(kernels.read_bytes(), SMALLEST) // row
    try:
        buffer = torch.empty(rows, COLUMNS, dtype=torch.float32, device=kernels.device)
        for start in range(0, rows, block):
            if start and time.perf_counter() - began > SECONDS / 2:
                return buffer[:start]
            buffer[start : start + block].zero_()
        return buffer
    except RuntimeError as error:
        raise RaceError(
            f"there is no room for {rows * row / MIB:.0f} MiB on {kernels.device} to measure the memory bandwidth with"
        ) from error


@torch.inference_mode()
def _measure(kernels: Kernels, buffer: Tensor, began: float) -> Bandwidth:
    """Run all readers in turn until the time since `began` is used up; those that ran and did not fail count."""
    best: dict[str, float] = {}
    left = dict(kernels.readers(buffer))
    for _ in range(ROUNDS):
        for name, reader in tuple(left.items()):
            if best and time.perf_counter() - began > SECONDS:
                break
            try:
                best[name] = max(best.get(name, 0.0), buffer.nbytes / kernels.seconds(reader))
            except RuntimeError:
                log.warning("%s does not run here, and is not measured", name, exc_info=True)
                del left[name]
    if not best:
        raise RaceError(f"no kernel can read {buffer.nbytes / MIB:.0f} MiB on {buffer.device}")
    return Bandwidth(tuple(sorted(best.items(), key=lambda item: -item[1])), buffer.nbytes)
