"""Finds the fastest tiles of linears on this GPU by trying, to measure what other defaults would gain. Not used when a
model is loaded."""

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
from .tiles import Config

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget

log = logging.getLogger(__name__)
TIMED_ROWS = 8
COLD_BYTES = 256 << 20
"""Weights in one timing, or bytes written before it: several times the size of any L2 cache."""
LEAST_COLD_BYTES = 64 << 20
REPEATS = 15

Timer = Callable[[Sequence[GpuLinear], Config], float]
"""timer(linears, config): seconds for linears of one shape. Raises TritonError or RuntimeError if it cannot run."""


@dataclass(frozen=True, slots=True)
class ToCompile:
    """One candidate of a shape, for a process without a device."""

    target: GPUTarget
    dtype: torch.dtype
    n: int
    k: int
    act: str | None
    bias: bool
    config: Config


def compile_all(linears: Sequence[GpuLinear]) -> int:
    """Have every candidate of every shape compiled into Triton's cache folder, by one process per core, so that `tune`
    does not compile them one by one; returns how many. A candidate that does not compile is left to `tune`. Nothing is
    compiled for the interpreter.

    Processes, because Triton 3.6 holds Python's lock during most of a compilation. Each imports the caller's main
    module again: a script must guard its work with `if __name__ == "__main__"`."""
    if INTERPRETED:
        return 0
    target = driver.active.get_current_target()
    jobs = []
    for first, *_ in _by_shape(linears):
        shape = (first.out_features, first.in_features, first.act, first.bias is not None)
        jobs += [ToCompile(target, first.weight.dtype, *shape, config) for config in first.candidates]
    if not jobs:
        return 0
    num_processes = min(len(os.sched_getaffinity(0)), len(jobs))
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for job, error in zip(jobs, pool.map(_compile, jobs), strict=True):
            if error:
                log.info("no kernel of %s: %s", job.config, error)
    return len(jobs)


def _compile(job: ToCompile) -> str:
    """Returns why it did not compile, or nothing."""
    driver.set_active(NoDevice(job.target))
    whole = nn.Linear(job.k, job.n * (1 if job.act is None else 2), job.bias, device="meta", dtype=job.dtype)
    linear = GpuLinear(whole, job.act)
    linear.config = job.config
    try:
        linear.compile_kernel()
    except (TritonError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


class NoDevice:
    """As much of a Triton driver as is needed to compile for a device of another process."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def tune(linears: Sequence[GpuLinear], progress: Progress = silent, timer: Timer | None = None) -> list[dict[str, Any]]:
    """For each shape of these linears {"dtype", "n" outputs, "k" inputs, "gated", "bias", "config": its fastest
    candidate, "seconds" of a call, "default_seconds": with the first candidate}. The linears stay as they are. A
    candidate that cannot run is left out (None in "default_seconds"); so is a shape without any. Without a `timer`, by
    the GPU's own clock. Call it after `compile_all`, on an idle device."""
    timer, groups = timer or graph_seconds, _by_shape(linears)
    found = []
    for done, group in enumerate(groups):
        first = group[0]
        progress(f"finding the fastest tiles of {first.shape}", done / len(groups))
        timed = _timed(group, timer)
        if not timed:
            log.warning("no tiles of %s could be timed", first.shape)
            continue
        config = min(timed, key=lambda config: timed[config])
        found.append(
            {
                "dtype": str(first.weight.dtype).removeprefix("torch."),
                "n": first.out_features,
                "k": first.in_features,
                "gated": first.act is not None,
                "bias": first.bias is not None,
                "config": asdict(config),
                "seconds": timed[config],
                "default_seconds": timed.get(first.candidates[0]),
            }
        )
    return found


def _by_shape(linears: Sequence[GpuLinear]) -> list[list[GpuLinear]]:
    groups: dict[str, list[GpuLinear]] = {}
    for linear in linears:
        groups.setdefault(linear.shape, []).append(linear)
    return list(groups.values())


def _timed(group: Sequence[GpuLinear], timer: Timer) -> dict[Config, float]:
    timed: dict[Config, float] = {}
    for config in group[0].candidates:
        try:
            timed[config] = timer(group, config)
        except (TritonError, RuntimeError, RaceError) as error:
            log.info("no kernel of %s: %s", config, error)
    return timed


def graph_seconds(group: Sequence[GpuLinear], config: Config) -> float:
    """Seconds of a call of 8 rows, in a captured graph that cycles through different weights; if those would stay in
    the L2 cache, it is overwritten before every replay. The median of some replays."""
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
        seconds = _replay_seconds(lambda: [linear(x) for linear in linears], other, weight.device) / len(linears)
        if linears[0].config != config:
            raise RuntimeError("the device has no room for these tiles")
        return seconds
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
