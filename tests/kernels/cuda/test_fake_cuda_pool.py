"""Races captured in graphs that share one pool, on a stand-in for CUDA that spoils shared memory (`fake_cuda.py`): they
are the races of torch's kernels on the CPU, where nothing is captured."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

from engine.core.events import Failed, Prompt, Step
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.loading.loading import LoadedModel
from engine.runner.prepare import prepare
from engine.session import TorchRace
from engine.session import set_up as backend
from tests.helpers.cuda_races import LANES, PROMPT, read, trained
from tests.helpers.fake_cuda import fake_cuda
from tests.helpers.tiny import TORCH, TRAINED

EXACT = (LaneSpec("plain", width="fastest"), LaneSpec("baseline"))
SPECULATIVE = {
    **{name: LaneSpec(name, drafter=LANES[name], k=3) for name in ("eagle3", "dflash", "draft_model")},
    "hybrid": LaneSpec("hybrid", drafter=f"hybrid:ngram+{LANES['eagle3']}", k=3),
}
DRAFT = TRAINED.parent / "draft"


@cache
def on_cpu(folder: Path) -> LoadedModel:
    """A fixture on the CPU, run by torch's kernels."""
    loaded = read(str(folder))
    loaded = replace(loaded, model=copy.deepcopy(loaded.model), _attached={})
    loaded.attached("prepared", lambda: prepare(loaded.model, TORCH))
    return loaded


def steps_of(loaded: LoadedModel) -> dict[str, list[Step]]:
    """The steps of each lane, without times and bits."""
    params = SamplingParams(0.7, 20, 0.9, seed=2, max_new_tokens=16)
    race = TorchRace(loaded, RaceSpec((*EXACT, *SPECULATIVE.values()), params, audit=True), Prompt("", PROMPT))
    by_lane: dict[str, list[Step]] = {}
    for event in race.events():
        assert not isinstance(event.event, Failed), f"{event.lane}: {event.event}"
        if isinstance(event.event, Step):
            step = replace(event.event, draft_s=0.0, verify_s=0.0, checksums=())
            by_lane.setdefault(event.lane, []).append(step)
    return by_lane


def test_a_captured_race_drafts_and_writes_what_one_on_the_cpu_does(quick, monkeypatch):
    """A draft would be that of the place where it was captured, or of hidden states that another lane's graph has
    overwritten: acceptance drops, and no audit sees it, since tokens stay exact."""
    monkeypatch.setattr(backend, "candidates", lambda *unused, **more: (1, 2, 4))
    monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: on_cpu(DRAFT))
    expected = steps_of(on_cpu(TRAINED))
    monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: trained(DRAFT))
    with fake_cuda():
        steps = steps_of(trained())
    for name in SPECULATIVE:
        assert steps[name] == expected[name] and sum(step.num_accepted for step in expected[name]) > 0, name
