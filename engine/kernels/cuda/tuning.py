"""Finds the fastest tiles of linears on this GPU, by trying, for the table of `table.py`. Nothing here runs when a
model is loaded: tuning is asked for."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from triton.runtime.driver import driver
from triton.runtime.errors import TritonError

from ...errors import RaceError
from ...progress import Progress, silent
from .graphs import FixedCall
from .linear import GpuLinear
from .runtime import INTERPRETED
from .table import Key
from .tiles import Chip, Config, candidates

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget

log = logging.getLogger(__name__)
TIMED_ROWS = 8
COLD_BYTES = 256 << 20
"""Of different weights in one timing, or written before it: several times what any L2 cache holds."""
LEAST_COLD_BYTES = 64 << 20
REPEATS = 15

Timer = Callable[[Sequence[GpuLinear], Config], float]
"""Seconds that linears of one shape take under a configuration. Raises TritonError or RuntimeError where it
cannot run."""


@dataclass(frozen=True, slots=True)
class ToCompile:
    """One candidate of a shape, for a process that has no device."""

    target: GPUTarget
    dtype: torch.dtype
    n: int
    k: int
    act: str | None
    bias: bool
    early: bool
    config: Config


def compile_all(linears: Sequence[GpuLinear]) -> int:
    """Have every candidate of every shape compiled into Triton's cache folder, by as many processes as there are
    cores, so that `tune` need not compile them one by one; returns how many. A candidate that does not compile is left
    to `tune`. Nothing is compiled where kernels are interpreted.

    They are processes because Triton 3.6 holds Python's lock during most of a compilation. Each one imports the
    caller's main module again: a script must keep its work under `if __name__ == "__main__"`."""
    if INTERPRETED:
        return 0
    target = driver.active.get_current_target()
    jobs = []
    for key, (first, *_) in _by_shape(linears).items():
        shape = (target, first.weight.dtype, key.n, key.k, first.act, key.bias, first.early)
        jobs += [ToCompile(*shape, config) for config in _candidates_of(first)]
    if not jobs:
        return 0
    num_processes = min(len(os.sched_getaffinity(0)), len(jobs))
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for job, error in zip(jobs, pool.map(_compile, jobs), strict=True):
            if error:
                log.info("no kernel of %s: %s", job.config, error)
    return len(jobs)


def _compile(job: ToCompile) -> str:
    """Returns why it did not compile; nothing if it did."""
    driver.set_active(NoDevice(job.target))
    whole = nn.Linear(job.k, job.n * (1 if job.act is None else 2), job.bias, device="meta", dtype=job.dtype)
    linear = GpuLinear(whole, job.act)
    linear.config, linear.early = job.config, job.early
    try:
        linear.compile_kernel()
    except (TritonError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


class NoDevice:
    """Enough of one of Triton's drivers to compile for a device of another process."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def tune(linears: Sequence[GpuLinear], progress: Progress = silent, timer: Timer | None = None) -> list[dict[str, Any]]:
    """The table's entries for these linears on this device: for each shape the fastest of its candidates. The linears
    stay as they are. An entry also tells the `seconds` of a call and `default_seconds`, those of the default tiles
    (None where they cannot run), for readers. A candidate that cannot run is left out; a shape of which none can has no
    entry. Without a `timer`, by the GPU's own clock. Call it after `compile_all`, on a device that is idle otherwise.
    """
    timer, groups = timer or graph_seconds, _by_shape(linears)
    entries = []
    for done, (key, group) in enumerate(groups.items()):
        progress(f"finding the fastest tiles of {key}", done / len(groups))
        timed = _timed(group, timer)
        if not timed:
            log.warning("no tiles of %s could be timed", key)
            continue
        config, first = min(timed, key=lambda config: timed[config]), _candidates_of(group[0])[0]
        entry = {**asdict(key), "capability": list(key.capability), "config": asdict(config)}
        entries.append({**entry, "seconds": timed[config], "default_seconds": timed.get(first)})
    return entries


def _by_shape(linears: Sequence[GpuLinear]) -> dict[Key, list[GpuLinear]]:
    groups: dict[Key, list[GpuLinear]] = {}
    for linear in linears:
        groups.setdefault(Key.of(linear), []).append(linear)
    return groups


def _candidates_of(linear: GpuLinear) -> list[Config]:
    """The default tiles first."""
    return candidates(linear.out_features, linear.in_features, linear.act is not None, Chip.on(linear.weight.device))


def _timed(group: Sequence[GpuLinear], timer: Timer) -> dict[Config, float]:
    timed: dict[Config, float] = {}
    for config in _candidates_of(group[0]):
        try:
            timed[config] = timer(group, config)
        except (TritonError, RuntimeError, RaceError) as error:
            log.info("no kernel of %s: %s", config, error)
    return timed


def graph_seconds(group: Sequence[GpuLinear], config: Config) -> float:
    """Seconds a call of 8 rows, in a captured graph that goes through different weights in turn; where those would stay
    in the L2 cache, it is filled with something else before every replay. The median of some replays."""
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
        call()  # compiles
        replay = FixedCall(call, device)
        replay()
        seconds = []
        for _ in range(REPEATS):
            if other is not None:
                other.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            replay()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1000)
        return median(seconds[1:])
