"""Which tiles a linear's kernel takes: a good guess, or the fastest on this GPU, found by trying and remembered.

Bits of a row may depend on the configuration, never on the number of rows: a linear has one for all of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.runtime.errors import TritonError

from .. import cache
from ..graphs import ERROR_MODE
from ..progress import Progress, silent
from .runtime import MOST_ROWS

if TYPE_CHECKING:
    from .linear import GpuLinear

log = logging.getLogger(__name__)
KERNEL_VERSION = 1
"""Of what `linear.py` makes of a configuration. One more with every change that may change times or bits."""
LEAST_BLOCK_N = 16
LEAST_BLOCK_K = 64
MOST_SPLIT = 4
NUM_SMS = 132
"""Of an H100 or H200."""
HOPPER = (9, 0)
ENOUGH = 0.9
"""Programs an SM: with fewer, SMs stand idle, and the inputs are split."""
MOST_CANDIDATES = 8
TIMED_ROWS = 8
COLD_BYTES = 256 << 20
"""Of different weights in one timing, or written before it: several times what any L2 cache holds."""
LEAST_COLD_BYTES = 64 << 20
REPEATS = 15

Timer = Callable[[Sequence["GpuLinear"], "Config"], float]
"""Seconds that linears of one shape take under a configuration. Raises TritonError or RuntimeError where it cannot run."""


@dataclass(frozen=True, slots=True)
class Config:
    """A program takes `block_n` outputs (of a gate, and as many of its values) and `block_k` inputs at a time, `num_stages` - 1 such blocks ahead;
    `split_k` programs share the inputs of a tile. `weights_first`: they are the left factor, which with 64 outputs and 4 warps makes Hopper multiply a
    whole block straight from shared memory."""

    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    split_k: int = 1
    weights_first: bool = False

    def num_programs(self, n: int) -> int:
        """For n outputs."""
        return triton.cdiv(n, self.block_n) * self.split_k

    def shared_bytes(self, gated: bool, capability: tuple[int, int] = HOPPER) -> int:
        """Of shared memory for weights and rows on their way, 16 bits each. Only Hopper multiplies straight from there, which takes a block more."""
        num_blocks = self.num_stages if self.weights_first and capability[0] == HOPPER[0] else self.num_stages - 1
        return 2 * num_blocks * ((2 if gated else 1) * self.block_n + MOST_ROWS) * self.block_k


PLAIN = (
    Config(32, 256, 4, 5),
    Config(64, 128, 4, 5, weights_first=True),
    Config(64, 128, 4, 5),
    Config(32, 256, 2, 5),
    Config(16, 256, 2, 5),
    Config(32, 128, 4, 6),
)
GATED = (
    Config(32, 128, 4, 5),
    Config(64, 64, 4, 6, weights_first=True),
    Config(32, 128, 2, 5),
    Config(64, 128, 4, 4, weights_first=True),
    Config(16, 256, 2, 4),
    Config(16, 128, 2, 6),
)
HEAD = (
    Config(64, 128, 4, 5),
    Config(64, 128, 4, 5, weights_first=True),
    Config(128, 64, 4, 6, weights_first=True),
    Config(64, 256, 4, 4),
    Config(32, 256, 4, 5),
    Config(32, 128, 4, 6),
)
"""The best guess first. Wide tiles read the rows less often, narrow ones are more programs; all have some 40 to 100 kB of weights on their way in an SM."""
HEAD_PROGRAMS = 8
"""An SM has so many programs of 64 outputs or more: a head."""


@dataclass(frozen=True, slots=True)
class Room:
    """Shared memory that a program may take, in bytes, and the device's compute capability."""

    shared_bytes: int = 227 << 10
    capability: tuple[int, int] = HOPPER

    @staticmethod
    def on(device: torch.device) -> Room:
        """A device's own; of one that is not CUDA an H100's."""
        if device.type != "cuda":
            return Room()
        about: Any = torch.cuda.get_device_properties(device)
        return Room(about.shared_memory_per_block_optin, torch.cuda.get_device_capability(device))

    def holds(self, config: Config, gated: bool) -> bool:
        return config.shared_bytes(gated, self.capability) <= self.shared_bytes


def candidates(n: int, k: int, gated: bool, num_sms: int = NUM_SMS, room: Room = Room()) -> list[Config]:
    """Configurations worth trying for n outputs (of a gated linear: n of each) and k inputs, the best guess first. Tiles that leave SMs idle are split
    over the inputs, in as few parts as it takes; then come those with half as many. Those that the room does not hold are left out: consumer chips have 99 kB."""

    def leaves_idle(config: Config) -> bool:
        return config.num_programs(n) < ENOUGH * num_sms

    split: list[Config] = []
    for tile in GATED if gated else HEAD if n >= 64 * HEAD_PROGRAMS * num_sms else PLAIN:
        config = replace(tile, block_k=_block_k(tile.block_k, k))
        while leaves_idle(config) and config.split_k < MOST_SPLIT and k >= 4 * config.split_k * config.block_k:
            config = replace(config, split_k=2 * config.split_k)
        split.append(config)
    split.sort(key=lambda config: (leaves_idle(config), config.split_k))
    halved = [replace(config, split_k=config.split_k // 2) for config in split if config.split_k > 1]
    return [config for config in dict.fromkeys(split + halved) if room.holds(config, gated)][:MOST_CANDIDATES]


def _block_k(most: int, k: int) -> int:
    """Not much more than there are inputs, and half as much where that divides them."""
    block_k = max(LEAST_BLOCK_K, min(most, triton.next_power_of_2(k)))
    return block_k // 2 if k % block_k and k % (block_k // 2) == 0 and block_k >= 4 * LEAST_BLOCK_K else block_k


def default(n: int, k: int, gated: bool, num_sms: int = NUM_SMS) -> Config:
    """The first of the candidates."""
    return candidates(n, k, gated, num_sms)[0]


def num_sms_of(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else NUM_SMS


def tune(linears: Sequence[GpuLinear], progress: Progress = silent, timer: Timer | None = None) -> None:
    """Give all linears of one shape the fastest of their candidates, from the cache folder if this device, this Triton and these kernels have timed them
    before. To be done before anything is captured or probed: bits change with the configuration. Without a `timer`: by the GPU's own, and nothing
    at all on the CPU. A candidate that cannot run is left out; where none can, the guess stays."""
    if timer is None and not all(linear.weight.is_cuda for linear in linears):
        return
    groups: dict[str, list[GpuLinear]] = {}
    for linear in linears:
        groups.setdefault(json.dumps(_key(linear), sort_keys=True), []).append(linear)
    for done, group in enumerate(groups.values()):
        first = group[0]
        progress(f"finding the fastest kernel for linears of {first.weight.shape[0]} x {first.in_features}", done / len(groups))
        config = _cached(first, lambda group=group: _fastest(group, timer or graph_seconds))  # type: ignore[misc]
        for linear in group:
            linear.config = config


def _key(linear: GpuLinear) -> dict:
    """Everything on which the choice may depend."""
    device = linear.weight.device
    return {
        "kernel": KERNEL_VERSION,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "num_sms": num_sms_of(device),
        "triton": triton.__version__,
        "dtype": str(linear.weight.dtype),
        "n": linear.out_features,
        "k": linear.in_features,
        "gated": linear.act is not None,
        "bias": linear.bias is not None,
    }


def _candidates_of(linear: GpuLinear) -> list[Config]:
    device = linear.weight.device
    return candidates(linear.out_features, linear.in_features, linear.act is not None, num_sms_of(device), Room.on(device))


def _cached(linear: GpuLinear, find: Callable[[], Config | None]) -> Config:
    """What `find` gives, remembered. An entry that is not one of the candidates, letter for letter, is found anew."""
    key = _key(linear)
    name = f"gpu-linear-{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]}.json"
    if (known := cache.read_json(name)) is not None:
        for config in _candidates_of(linear):
            if known == {"key": key, "config": asdict(config)}:
                return config
        log.warning("ignoring a damaged or outdated choice of kernel in the cache: %s", name)
    found = find()
    if found is None:
        log.warning("no kernel for linears of %d x %d could be timed; the guess stays", linear.out_features, linear.in_features)
        return linear.config
    cache.write_json(name, {"key": key, "config": asdict(found)})
    return found


def _fastest(group: Sequence[GpuLinear], timer: Timer) -> Config | None:
    timed: dict[Config, float] = {}
    for config in _candidates_of(group[0]):
        try:
            timed[config] = timer(group, config)
        except (TritonError, RuntimeError) as error:
            log.info("no kernel of %s: %s", config, error)
    return min(timed, key=lambda config: timed[config], default=None)


def graph_seconds(group: Sequence[GpuLinear], config: Config) -> float:
    """Seconds a call of 8 rows, in a captured graph that goes through different weights in turn; where those would stay in the L2 cache, it is filled
    with something else before every replay. The median of some replays."""
    linears: list[GpuLinear] = []
    for linear in {id(linear.weight): linear for linear in group}.values():
        linears.append(linear)
        if sum(_num_bytes(each) for each in linears) >= COLD_BYTES:
            break
    is_cold = sum(map(_num_bytes, linears)) >= LEAST_COLD_BYTES
    weight = linears[0].weight
    other = None if is_cold else torch.empty(COLD_BYTES, dtype=torch.uint8, device=weight.device)
    x = torch.randn(TIMED_ROWS, linears[0].in_features, device=weight.device).to(weight.dtype)
    before = [linear.config for linear in linears]
    try:
        for linear in linears:
            linear.config = config
        return _replay_seconds(lambda: [linear(x) for linear in linears], other, weight.device) / len(linears)
    finally:
        for linear, kept in zip(linears, before, strict=True):
            linear.config = kept


def _num_bytes(linear: GpuLinear) -> int:
    return linear.weight.numel() * linear.weight.element_size()


@torch.inference_mode()
def _replay_seconds(call: Callable[[], object], other: torch.Tensor | None, device: torch.device) -> float:
    with torch.cuda.device(device):
        current, stream = torch.cuda.current_stream(), torch.cuda.Stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            call()  # compiles
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(current), torch.cuda.graph(graph, stream=stream, capture_error_mode=ERROR_MODE):  # as in graphs.py
            call()
        seconds = []
        for _ in range(REPEATS):
            if other is not None:
                other.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1000)
        return median(seconds[1:])
