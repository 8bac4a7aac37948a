"""Tiny models, the trained fixture and its drafters on the stand-in for CUDA, and short races there."""

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.cache import ENVIRONMENT_VARIABLE
from engine.core.events import Failed, Prompt, Step
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.kernels.cpu.build import has_kernels
from engine.kernels.cuda import graphs
from engine.loading.loading import LoadedModel, load
from engine.session import TorchRace, set_up
from tests.helpers import FIXTURES
from tests.helpers.fake_cuda import on_cuda
from tests.helpers.heads import HEADS
from tests.helpers.tiny import TRAINED


@cache
def read(folder: str) -> LoadedModel:
    """A model on the CPU; copies of it go to the device."""
    return load(folder, "bfloat16", "cpu")


PROMPT = tuple(json.loads((FIXTURES / "golden.json").read_text())["prompt_token_ids"])
LANES = {
    "eagle3": f"eagle3:{HEADS['eagle3']}",
    "dflash": f"dflash:{HEADS['dflash']}",
    "draft_model": f"draft_model:{TRAINED.parent / 'draft'}",
    "ngram": "ngram",
}


def quick_races(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """Races that are set up fast, of widths 1 and 4, whose probes are kept in `cache`."""
    has_kernels()  # the CPU's are compiled once for all tests, not into this cache
    patch.setenv(ENVIRONMENT_VARIABLE, str(cache))
    patch.setattr(graphs, "WARM_UPS", 1)
    patch.setattr("engine.exactness.probe.MIN_ROWS", 4)
    patch.setattr(set_up, "candidates", lambda *unused, **more: (1, 4))
    patch.setattr(set_up, "roofline_figures", lambda *unused: None)


def on_device(folder: Any = TRAINED) -> LoadedModel:
    """A trained fixture on the device, the target if no other is named; what other tests made ready of it is not
    attached."""
    fixture = read(str(folder))
    model, info = on_cuda(copy.deepcopy(fixture.model)), replace(fixture.info, device="cuda:0")
    return replace(fixture, model=model, info=info, _attached={})


def race_of(loaded: LoadedModel, drafter: str = "ngram", plain: bool = False, room: int = 0) -> TorchRace:
    lanes = (LaneSpec("baseline", width=4), LaneSpec("drafted", drafter=drafter, k=3, width=4))
    lanes = (LaneSpec("plain", width="fastest"), *lanes) if plain else lanes
    params = SamplingParams(temperature=0.7, seed=2, max_new_tokens=4)
    return TorchRace(loaded, RaceSpec(lanes, params), Prompt("", PROMPT), room=room)


def outcome(race: TorchRace) -> dict[str, Any]:
    """What each lane ended with: its tokens, or why it failed."""
    outcomes: dict[str, Any] = dict.fromkeys(race.lanes, ())
    for event in race.events():
        if isinstance(event.event, Step):
            outcomes[event.lane] += event.event.token_ids
        elif isinstance(event.event, Failed):
            outcomes[event.lane] = event.event.message
    race.result()
    return outcomes


def runs(race: TorchRace) -> str:
    return race.header()["runs"]["sentence"]
