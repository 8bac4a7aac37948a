"""Lanes whose graphs share one pool, on a stand-in for CUDA that spoils shared memory (`fake_cuda.py`): nobody reads
what another lane has overwritten."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from engine.drafters.auto import AutoDrafter
from engine.drafters.by_rate import ByRateDrafter
from engine.events import Failed, Prompt, Step
from engine.kernels.cuda.available import SWITCH
from engine.loading.loading import LoadedModel
from engine.session import TorchRace, lanes
from engine.session import set_up as backend
from engine.spec import LaneSpec, RaceSpec, SamplingParams
from tests.helpers.cuda_races import LANES, PROMPT, quick_races, trained
from tests.helpers.fake_cuda import fake_cuda
from tests.helpers.head_fixtures import HEADS
from tests.helpers.tiny import TRAINED

EXACT = {"plain": LaneSpec("plain", width="fastest"), "baseline": LaneSpec("baseline")}
SPECULATIVE = {
    "eagle3": LaneSpec("eagle3", drafter=LANES["eagle3"], k=3),
    "dflash": LaneSpec("dflash", drafter=LANES["dflash"], k=3),
    "draft_model": LaneSpec("draft_model", drafter=LANES["draft_model"], k=3),
    "hybrid": LaneSpec("hybrid", drafter=f"hybrid:ngram+{LANES['eagle3']}", k=3),
    "auto": LaneSpec("auto", drafter=f"eagle3:{HEADS['eagle3']}", k="auto"),
    "auto hybrid": LaneSpec("auto hybrid", drafter=f"hybrid:ngram+{LANES['eagle3']}", k="auto"),
}
STEP_S = {1: 0.0100, 2: 0.0101, 4: 0.0102}


def ticking() -> Any:
    """A clock on which every look takes as long: `auto` decides the same in every run."""
    ticks = count()
    return lambda: next(ticks) * 1e-4


def steady_kind(kind: Any) -> Any:
    """That drafter on a clock that ticks once per look."""
    return type("Steady", (kind,), {"__init__": lambda self, *a, **k: kind.__init__(self, *a, **k, clock=ticking())})


@pytest.fixture
def steady(monkeypatch, few_rows, tmp_path_factory) -> None:
    """Races of widths 1, 2 and 4 in which no decision depends on a measured time."""
    quick_races(monkeypatch, tmp_path_factory.getbasetemp() / "quick_races")
    monkeypatch.setenv(SWITCH, "0")
    monkeypatch.setattr(backend, "candidates", lambda *unused, **more: (1, 2, 4))
    monkeypatch.setattr(backend, "time_widths", lambda *unused: dict(STEP_S))
    for kind in (AutoDrafter, ByRateDrafter):
        monkeypatch.setattr(lanes, kind.__name__, steady_kind(kind))
    monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: trained(TRAINED.parent / "draft"))


def steps_of(loaded: LoadedModel, lanes: tuple[LaneSpec, ...], solo: bool) -> dict[str, list[Step]]:
    params = SamplingParams(temperature=0.7, seed=2, max_new_tokens=24)
    race = TorchRace(loaded, RaceSpec(lanes, params, audit=True, solo=solo), Prompt("", PROMPT))
    found: dict[str, list[Step]] = {}
    for event in race.events():
        assert not isinstance(event.event, Failed), f"{event.lane}: {event.event}"
        if isinstance(event.event, Step):
            found.setdefault(event.lane, []).append(event.event)
    return found


def told(steps: list[Step]) -> list[Any]:
    """All of a lane but its times."""
    return [replace(step, draft_s=0.0, verify_s=0.0) for step in steps]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [("dflash", "eagle3", "draft_model"), ("hybrid", "auto", "auto hybrid")], ids="-".join
)
def test_drafts_are_the_same_among_other_lanes_and_alone(names, steady):
    """A drafter would read hidden states that another lane's graph has overwritten: acceptance drops, and no audit sees
    it, since tokens stay exact."""
    lanes = (*EXACT.values(), *(SPECULATIVE[name] for name in names))
    with fake_cuda():
        loaded = trained()
        among, alone = (steps_of(loaded, lanes, solo) for solo in (False, True))
        for name in names:
            assert told(among[name]) == told(alone[name]) and sum(step.num_accepted for step in alone[name]) > 0, name
