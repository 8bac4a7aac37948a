"""The fastest tiles of the linears on this GPU, by trying: what other defaults would gain. A load never does this."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import nn
from triton.runtime.driver import driver
from triton.runtime.errors import TritonError

from engine.errors import RaceError
from engine.kernels.cuda.graphs import FixedCall
from engine.kernels.cuda.linear import GpuLinear
from engine.kernels.cuda.runtime import INTERPRETED
from engine.kernels.cuda.tiles import Config
from engine.loading.loading import give_back_memory
from tools.gpu.big import LENGTHS, curve, forced, ready
from tools.gpu.part import Part
from tools.gpu.shapes import HYBRID, TARGET

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget

TIMED_ROWS = 8
COLD_BYTES = 256 << 20
"""Weights in one timing, or bytes written before it: several times the size of any L2 cache."""
LEAST_COLD_BYTES = 64 << 20
REPEATS = 15
Timer = Callable[[Sequence[GpuLinear], Config], float]
"""timer(linears, config): seconds for linears of one shape. Raises TritonError or RuntimeError if it cannot run."""


def tune(part: Part) -> None:
    """For both models: how much faster each linear gets, and steps with default and tuned tiles."""
    for name in part.each((TARGET, HYBRID)):
        part.attempt(name, _tune, part, name)
        give_back_memory()


def _tune(part: Part, name: str) -> None:
    with forced(part):
        prepared = ready(part, name).prepared
    groups = by_shape([module for module in prepared.model.modules() if isinstance(module, GpuLinear)])
    started, num = time.monotonic(), compile_all(groups)
    part.row(f"{name}: {num} candidates compiled in {time.monotonic() - started:.0f} s, for {len(groups)} shapes")
    curve(part, prepared, LENGTHS[0])
    for group in groups:
        if not (seconds := timed(group)):
            part.row(f"{name}, {group[0].shape}: no tiles could be timed")
            continue
        best, default = min(seconds, key=seconds.__getitem__), group[0].candidates[0]
        by_default = seconds.get(default)
        gain = f"{by_default / seconds[best]:.2f}x the default's speed" if by_default else "the default cannot run"
        says = f"{name}, {group[0].shape}: {1e6 * seconds[best]:.1f} us, {gain}: {asdict(best)}"
        part.row(says, shape=group[0].shape, config=asdict(best), seconds=seconds[best])
        for linear in group:
            linear.config = best
    curve(part, prepared, LENGTHS[0])


def by_shape(linears: Sequence[GpuLinear]) -> list[list[GpuLinear]]:
    groups: dict[str, list[GpuLinear]] = {}
    for linear in linears:
        groups.setdefault(linear.shape, []).append(linear)
    return list(groups.values())


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


def compile_all(groups: Sequence[Sequence[GpuLinear]]) -> int:
    """Have every candidate of every shape compiled into Triton's cache folder, by one process per core, rather than one
    by one; returns how many. One that does not compile cannot be timed either. Nothing is compiled for the interpreter.

    Processes, because Triton 3.6 holds Python's lock during most of a compilation."""
    if INTERPRETED:
        return 0
    target = driver.active.get_current_target()
    jobs = []
    for first, *_ in groups:
        shape = (first.out_features, first.in_features, first.act, first.bias is not None)
        jobs += [ToCompile(target, first.weight.dtype, *shape, config) for config in first.candidates]
    num_processes = max(1, min(len(os.sched_getaffinity(0)), len(jobs)))
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for job, error in zip(jobs, pool.map(_compile, jobs), strict=True):
            if error:
                print(f"no kernel of {job.config}: {error}")
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


def timed(group: Sequence[GpuLinear], timer: Timer | None = None) -> dict[Config, float]:
    """Seconds of a call by candidate, of linears of one shape, which stay as they are; without candidates that cannot
    run. Without a `timer`, by the GPU's own clock."""
    found: dict[Config, float] = {}
    for config in group[0].candidates:
        try:
            found[config] = (timer or graph_seconds)(group, config)
        except (TritonError, RuntimeError, RaceError) as error:
            print(f"no kernel of {config}: {error}")
    return found


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
