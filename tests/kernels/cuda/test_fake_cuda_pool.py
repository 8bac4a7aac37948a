"""Lanes whose graphs share one pool, on a stand-in for CUDA that spoils shared memory (`fake_cuda.py`): nobody reads
what another lane has overwritten."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cache import ENVIRONMENT_VARIABLE
from engine.drafters.auto import AutoDrafter
from engine.events import Failed, Prompt, Step
from engine.exactness import probe as exactness
from engine.kernels.cpu.build import has_kernels
from engine.kernels.cuda import graphs
from engine.kernels.cuda.available import SWITCH
from engine.kernels.cuda.graphs import FixedCall, GraphPool
from engine.models.loading import LoadedModel
from engine.session import TorchRace, torch_race
from engine.session import set_up as backend
from engine.spec import LaneSpec, RaceSpec, SamplingParams
from tests.helpers.cuda_races import LANES, PROMPT, trained
from tests.helpers.fake_cuda import CUDA, fake_cuda
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


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the probe finds of the target is the same in all of these tests: it runs in the first of them."""
    has_kernels()  # compiled once for all tests, not into this folder
    return tmp_path_factory.mktemp("probed")


@pytest.fixture
def steady(monkeypatch, few_rows, probed) -> None:
    """Races of widths 1, 2 and 4 in which no decision hangs on a measured time."""
    monkeypatch.setenv(SWITCH, "0")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(probed))
    monkeypatch.setattr(graphs, "WARM_UPS", 1)  # test_fake_cuda.py captures with all three
    monkeypatch.setattr(exactness, "MIN_ROWS", 4)
    monkeypatch.setattr(backend, "candidates", lambda *unused, **more: (1, 2, 4))
    monkeypatch.setattr(backend, "time_widths", lambda *unused: dict(STEP_S))
    monkeypatch.setattr(torch_race, "read_roofline", lambda *unused: None)
    monkeypatch.setattr(
        backend,
        "AutoDrafter",
        type(
            "Steady",
            (AutoDrafter,),
            {"__init__": lambda self, *a, **k: AutoDrafter.__init__(self, *a, **k, clock=ticking())},
        ),
    )
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


def test_what_a_graph_returned_is_gone_once_another_of_its_pool_ran():
    """The tests below would find nothing: on a GPU graphs of a pool use the same memory."""
    with fake_cuda(), torch.inference_mode():
        pool, place = GraphPool(CUDA), torch.ones(2, device=CUDA)
        first, second, apart = (
            FixedCall(lambda: place + 1, CUDA, pool),
            FixedCall(lambda: place * 3, CUDA, pool),
            FixedCall(lambda: place * 5, CUDA),
        )
        one = first()
        assert one.tolist() == [2, 2]
        assert apart().tolist() == [5, 5] and one.tolist() == [2, 2]
        assert second().tolist() == [3, 3] and one.isnan().all().item()
        assert first().tolist() == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [("eagle3",), ("dflash", "eagle3", "draft_model"), ("auto", "dflash"), ("hybrid", "auto hybrid")],
    ids="-".join,
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
