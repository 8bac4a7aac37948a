"""The fastest tiles of the linears on this GPU, by trying."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from engine.kernels.cuda.linear import GpuLinear
from engine.kernels.cuda.tiles import Config
from engine.kernels.cuda.tuning import compile_all
from engine.kernels.cuda.tuning import tune as fastest
from engine.loading.loading import give_back_memory
from tools.gpu.big import LENGTHS, curve, forced, ready
from tools.gpu.part import Part
from tools.gpu.shapes import HYBRID, TARGET


def tune(part: Part) -> None:
    """For both models: how much faster each linear gets, and steps with default and tuned tiles."""
    for name in part.each((TARGET, HYBRID)):
        part.attempt(name, _tune, part, name)
        give_back_memory()


def _tune(part: Part, name: str) -> None:
    with forced(part):
        prepared = ready(part, name).prepared
    linears = [module for module in prepared.model.modules() if isinstance(module, GpuLinear)]
    started = time.monotonic()
    num = compile_all(linears)
    part.row(f"{name}: {num} candidates compiled in {time.monotonic() - started:.0f} s, for {len(linears)} linears")
    curve(part, prepared, LENGTHS[0])
    best: dict[tuple[Any, ...], Config] = {}
    for entry in fastest(linears):
        shape = tuple(entry[key] for key in ("n", "k", "gated", "bias"))
        best[shape] = Config(**entry["config"])
        by_default = entry["default_seconds"]
        gain = f"{by_default / entry['seconds']:.2f}x the default's speed" if by_default else "the default cannot run"
        part.row(f"{name}, {shape}: {1e6 * entry['seconds']:.1f} us, {gain}: {asdict(best[shape])}", **entry)
    for linear in linears:
        shape = (linear.out_features, linear.in_features, linear.act is not None, linear.bias is not None)
        linear.config = best.get(shape, linear.config)
    curve(part, prepared, LENGTHS[0])
