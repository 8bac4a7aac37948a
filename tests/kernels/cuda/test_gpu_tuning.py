"""Tuning, which is asked for: it times each shape once, and gives the table's entries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn
from triton.runtime.errors import OutOfResources

from engine.kernels.cuda import tuning
from engine.kernels.cuda.install import put_kernels
from engine.kernels.cuda.linear import GpuLinear
from engine.kernels.cuda.table import VARIABLE, put_tiles
from engine.kernels.cuda.tiles import ENOUGH, H100, LEAST_BLOCK_N, MOST_CANDIDATES, Config, candidates, default
from engine.kernels.cuda.tuning import compile_all, tune
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import fake_cuda, on_cuda

SHAPES = [
    (6144, 4096, False),
    (4096, 4096, False),
    (12288, 4096, True),
    (4096, 12288, False),
    (151936, 4096, False),
    (1024, 4096, False),
]
SMALL = [
    (1536, 640, False),
    (640, 1024, False),
    (2048, 640, True),
    (640, 2048, False),
    (262144, 640, False),
    (33, 48, False),
]
SHARED_BYTES = 163 << 10
"""Of an A100's SM; an H100 has more."""


@pytest.mark.parametrize("shape", SHAPES + SMALL, ids=str)
def test_candidates_can_run(shape: tuple[int, int, bool]) -> None:
    """Too much shared memory, tiles no tensor core takes, counters for fewer tiles than there are."""
    n, k, gated = shape
    found = candidates(n, k, gated)
    assert 1 <= len(found) == len(set(found)) <= MOST_CANDIDATES and found[0] == default(n, k, gated)
    for config in found:
        assert config.shared_bytes(gated) <= SHARED_BYTES
        assert (
            config.block_n >= LEAST_BLOCK_N
            and config.block_n & (config.block_n - 1) == 0
            and config.block_k in (64, 128, 256)
            and config.split_k in (1, 2, 4)
        )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_default_keeps_a_gpu_busy(shape: tuple[int, int, bool]) -> None:
    """SMs without a program, or too few bytes on their way to hide the memory's latency."""
    n, k, gated = shape
    config = default(n, k, gated)
    assert config.num_programs(n) >= ENOUGH * H100.num_sms
    programs = min(config.num_programs(n) / H100.num_sms, H100.shared_bytes // config.shared_bytes(gated))
    assert config.shared_bytes(gated) * programs >= 48 << 10


def linears() -> list[GpuLinear]:
    sizes = [(64, 32, None), (96, 32, None), (64, 32, None), (64, 32, "silu")]
    return [GpuLinear(nn.Linear(k, n).bfloat16(), act) for n, k, act in sizes]


class Clock:
    """Times that a configuration's place among the candidates gives: the first cannot run, the third is the fastest."""

    def __init__(self) -> None:
        self.groups: list[int] = []

    def __call__(self, group: Sequence[GpuLinear], config: Config) -> float:
        first = group[0]
        place = candidates(first.out_features, first.in_features, first.act is not None).index(config)
        if place == 0:
            self.groups.append(len(group))
            raise OutOfResources(1, 0, "shared memory")
        return abs(place - 2) + 1.0


def test_a_tuned_table_gives_every_linear_its_fastest_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured must be what the next start takes: an entry for another key, or of another form, would be lost.
    Equal linears of two layers need one timing; a candidate that cannot run must not end the tuning."""
    clock, told, found = Clock(), [], linears()
    before = [linear.config for linear in found]
    entries = tune(found, lambda sentence, share: told.append(sentence), clock)
    assert clock.groups == [2, 1, 1] and len(told) == len(entries) == 3
    assert [linear.config for linear in found] == before
    assert all((entry["seconds"], entry["default_seconds"]) == (1.0, None) for entry in entries)
    file = tmp_path / "tiles.json"
    file.write_text(json.dumps(entries))
    monkeypatch.setenv(VARIABLE, str(file))
    put_tiles(found)
    assert all(
        linear.config == candidates(linear.out_features, linear.in_features, linear.act is not None)[2]
        for linear in found
    )


def test_the_gpus_own_clock_times_captured_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stand-in for CUDA refuses to capture, a GPU would; then the only tuning there is would find nothing."""
    monkeypatch.setattr(tuning, "COLD_BYTES", 1 << 10)
    monkeypatch.setattr(tuning, "REPEATS", 2)
    with fake_cuda() as device:
        made = on_cuda(nn.Sequential(*(nn.Linear(32, n).bfloat16() for n in (64, 96, 64))))
        put_kernels(made)
        entries = tune(list(made.children()))
        num_timed = sum(len(candidates(n, 32, False)) for n in (64, 96))
        assert len(device.graphs) == 2 * num_timed  # each with the one that keeps its pool open
        assert set(device.launched) == {"linear_rows"}
    assert [(entry["chip"], entry["n"], entry["bias"]) for entry in entries] == [
        ("a pretended GPU", n, True) for n in (64, 96)
    ]
    assert all(entry["seconds"] > 0 and entry["default_seconds"] > 0 for entry in entries)


def test_a_shape_of_which_no_tiles_can_be_timed_has_no_entry() -> None:
    """An entry that nobody measured would look like one that somebody did."""

    def fails(group: Sequence[GpuLinear], config: Config) -> float:
        raise RuntimeError("no")

    assert tune(linears(), timer=fails) == []


def test_nothing_is_compiled_where_kernels_are_interpreted() -> None:
    """The dry run of a session on a machine without a GPU would start processes that fail."""
    assert compile_all(linears()) == 0


def test_the_default_runs() -> None:
    """A shape's default that the kernel does not take."""
    for linear in linears():
        x = torch.ones(1, 32, dtype=torch.bfloat16)
        with torch.inference_mode():
            assert linear(x).isfinite().all()
