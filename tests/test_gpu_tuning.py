"""Which tiles linears take: sensible guesses, and a choice that is remembered and never believed blindly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import gpu_kernels  # noqa: F401  first: it switches the interpreter on
import pytest
import torch
from torch import nn
from triton.runtime.errors import OutOfResources

from engine.cache import ENVIRONMENT_VARIABLE
from engine.gpu.linear import GpuLinear
from engine.gpu.tuning import ENOUGH, LEAST_BLOCK_N, MOST_CANDIDATES, NUM_SMS, Config, candidates, default, tune

SHAPES = [(6144, 4096, False), (4096, 4096, False), (12288, 4096, True), (4096, 12288, False), (151936, 4096, False), (1024, 4096, False)]
SMALL = [(1536, 640, False), (640, 1024, False), (2048, 640, True), (640, 2048, False), (262144, 640, False), (33, 48, False)]
SHARED_BYTES = 163 << 10
"""Of an A100's SM; an H100 has more."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("shape", SHAPES + SMALL, ids=str)
def test_candidates_can_run(shape: tuple[int, int, bool]) -> None:
    """Too much shared memory, tiles no tensor core takes, counters for fewer tiles than there are."""
    n, k, gated = shape
    found = candidates(n, k, gated)
    assert 1 <= len(found) == len(set(found)) <= MOST_CANDIDATES and found[0] == default(n, k, gated)
    for config in found:
        assert config.shared_bytes(gated) <= SHARED_BYTES
        assert config.block_n >= LEAST_BLOCK_N and config.block_n & (config.block_n - 1) == 0 and config.block_k in (64, 128, 256) and config.split_k in (1, 2, 4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_guess_keeps_a_gpu_busy(shape: tuple[int, int, bool]) -> None:
    """SMs without a program, or too few bytes on their way to hide the memory's latency."""
    n, k, gated = shape
    config = default(n, k, gated)
    assert config.num_programs(n) >= ENOUGH * NUM_SMS
    assert config.shared_bytes(gated) * min(config.num_programs(n) / NUM_SMS, (227 << 10) // config.shared_bytes(gated)) >= 48 << 10


def linears() -> list[GpuLinear]:
    sizes = [(64, 32, None), (96, 32, None), (64, 32, None), (64, 32, "silu")]
    return [GpuLinear(nn.Linear(k, n).bfloat16(), act) for n, k, act in sizes]


class Clock:
    """Times that a configuration's place among the candidates gives; the first cannot run."""

    def __init__(self) -> None:
        self.groups: list[int] = []

    def __call__(self, group: Sequence[GpuLinear], config: Config) -> float:
        first = group[0]
        place = candidates(first.out_features, first.in_features, first.act is not None).index(config)
        if place == 0:
            self.groups.append(len(group))
            raise OutOfResources(1, 0, "shared memory")
        return abs(place - 2) + 1.0


def third(linear: GpuLinear) -> Config:
    return candidates(linear.out_features, linear.in_features, linear.act is not None)[2]


def test_one_choice_for_a_shape_and_only_one_timing() -> None:
    """Equal linears of two layers under two configurations are timed twice for nothing; a candidate that cannot run must not end a start."""
    clock, told = Clock(), []
    first = linears()
    tune(first, lambda sentence, share: told.append(sentence), clock)
    assert clock.groups == [2, 1, 1] and len(told) == 3
    assert all(linear.config == third(linear) for linear in first)
    again = linears()
    tune(again, timer=clock)
    assert clock.groups == [2, 1, 1]
    assert [linear.config for linear in again] == [linear.config for linear in first]


@pytest.mark.parametrize("damage", [{"config": {"block_n": 48}}, {"key": {}}, {"more": 1}, {"config": None}], ids=str)
def test_a_damaged_choice_is_made_anew(damage: dict, folder: Path) -> None:
    """A file of another kernel, or one somebody wrote, would launch anything."""
    tune(linears(), timer=Clock())
    for file in folder.iterdir():
        file.write_text(json.dumps(json.loads(file.read_text()) | damage))
    clock, found = Clock(), linears()
    tune(found, timer=clock)
    assert len(clock.groups) == 3 and all(linear.config == third(linear) for linear in found)


def test_the_guess_stays_where_nothing_can_be_timed(folder: Path) -> None:
    """Neither an error nor a file that says so for ever; and on the CPU nothing is timed at all."""

    def fails(group: Sequence[GpuLinear], config: Config) -> float:
        raise RuntimeError("no")

    for timer in (fails, None):
        found = linears()
        tune(found, timer=timer)
        assert all(linear.config == default(linear.out_features, linear.in_features, linear.act is not None) for linear in found)
        assert not list(folder.iterdir())


def test_the_guess_runs() -> None:
    """A shape's default that the kernel does not take."""
    for linear in linears():
        x = torch.ones(1, 32, dtype=torch.bfloat16)
        with torch.inference_mode():
            assert linear(x).isfinite().all()
