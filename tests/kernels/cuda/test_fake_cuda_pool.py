"""Races captured in graphs that share one pool, on a stand-in for CUDA that spoils shared memory (`fake_cuda.py`): they
are the races of torch's kernels on the CPU, where nothing is captured."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine.core.events import Failed, Prompt, Step
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.drafters.auto import AutoDrafter
from engine.loading.loading import LoadedModel
from engine.runner.prepare import prepare
from engine.session import TorchRace, lanes
from engine.session import set_up as backend
from tests.helpers.cuda_races import LANES, PROMPT, read, trained
from tests.helpers.fake_cuda import fake_cuda
from tests.helpers.tiny import TORCH, TRAINED

EXACT = (LaneSpec("plain", width="fastest"), LaneSpec("baseline"))
HYBRID = f"hybrid:ngram+{LANES['eagle3']}"
SPECULATIVE = {
    **{name: LaneSpec(name, drafter=LANES[name], k=3) for name in ("eagle3", "dflash", "draft_model")},
    "hybrid": LaneSpec("hybrid", drafter=HYBRID, k=3),
    "auto": LaneSpec("auto", drafter=LANES["eagle3"], k="auto"),
    "auto hybrid": LaneSpec("auto hybrid", drafter=HYBRID, k="auto"),
}
FIXED, AUTO = tuple(SPECULATIVE)[:4], tuple(SPECULATIVE)[4:]
STEP_S = {1: 0.0100, 2: 0.0101, 4: 0.0102}
DRAFT = TRAINED.parent / "draft"


def ticking() -> Any:
    """A clock on which every look takes as long: `auto` decides the same in every run."""
    ticks = count()
    return lambda: next(ticks) * 1e-4


class SteadyAuto(AutoDrafter):
    """On a clock that ticks once per look."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, clock=ticking())


@cache
def on_cpu(folder: Path) -> LoadedModel:
    """A fixture on the CPU, run by torch's kernels."""
    loaded = read(str(folder))
    loaded = replace(loaded, model=copy.deepcopy(loaded.model), _attached={})
    loaded.attached("prepared", lambda: prepare(loaded.model, TORCH))
    return loaded


@pytest.fixture
def steady(quick, monkeypatch) -> None:
    """Races of widths 1, 2 and 4 in which no decision depends on a measured time."""
    monkeypatch.setattr(backend, "candidates", lambda *unused, **more: (1, 2, 4))
    monkeypatch.setattr(backend, "time_widths", lambda *unused: dict(STEP_S))
    monkeypatch.setattr(lanes, "AutoDrafter", SteadyAuto)


def steps_of(
    loaded: LoadedModel, names: tuple[str, ...], params: SamplingParams, solo: bool = False
) -> dict[str, list[Step]]:
    """The steps of each lane, without times and bits."""
    lanes = (*EXACT, *(SPECULATIVE[name] for name in names))
    race = TorchRace(loaded, RaceSpec(lanes, params, audit=True, solo=solo), Prompt("", PROMPT))
    found: dict[str, list[Step]] = {}
    for event in race.events():
        assert not isinstance(event.event, Failed), f"{event.lane}: {event.event}"
        if isinstance(event.event, Step):
            step = replace(event.event, draft_s=0.0, verify_s=0.0, checksums=())
            found.setdefault(event.lane, []).append(step)
    return found


def assert_equal(found: dict[str, list[Step]], expected: dict[str, list[Step]], names: tuple[str, ...]) -> None:
    for name in names:
        assert found[name] == expected[name] and sum(step.num_accepted for step in expected[name]) > 0, name


def test_a_captured_race_drafts_and_writes_what_one_on_the_cpu_does(steady, monkeypatch):
    """A draft would be that of the place where it was captured, or of hidden states that another lane's graph has
    overwritten: acceptance drops, and no audit sees it, since tokens stay exact."""
    names, params = FIXED, SamplingParams(0.7, 20, 0.9, seed=2, max_new_tokens=16)
    monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: on_cpu(DRAFT))
    expected = steps_of(on_cpu(TRAINED), names, params)
    monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: trained(DRAFT))
    with fake_cuda():
        assert_equal(steps_of(trained(), names, params), expected, names)


def test_auto_drafts_the_same_among_other_lanes_and_alone(steady):
    """As above, where tokens are drafted one by one."""
    params = SamplingParams(0.7, seed=2, max_new_tokens=16)
    with fake_cuda():
        among, alone = (steps_of(trained(), (*AUTO, "hybrid"), params, solo) for solo in (False, True))
    assert_equal(among, alone, AUTO)
