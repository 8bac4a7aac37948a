"""The trained fixtures on the stand-in for CUDA, and short races there."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

from engine.core.spec import LaneSpec, RaceSpec, SamplingParams
from engine.loading.loading import LoadedModel, load
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers.fake_cuda import on_cuda
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS


@cache
def read(folder: Path) -> LoadedModel:
    """A fixture on the CPU; copies of it go to the device."""
    return load(str(folder), "bfloat16", "cpu")


def on_device(folder: Path = TRAINED) -> LoadedModel:
    """A fixture on the device; what other tests made ready of it is not attached."""
    fixture = read(folder)
    model, info = on_cuda(copy.deepcopy(fixture.model)), replace(fixture.info, device="cuda:0")
    return replace(fixture, model=model, info=info, _attached={})


def race_of(loaded: LoadedModel, drafter: str = "ngram", plain: bool = False, room: int = 0) -> TorchRace:
    lanes = (LaneSpec("baseline", width=4), LaneSpec("drafted", drafter=drafter, k=3, width=4))
    lanes = (LaneSpec("plain", width="fastest"), *lanes) if plain else lanes
    params = SamplingParams(temperature=0.7, seed=2, max_new_tokens=4)
    return TorchRace(loaded, RaceSpec(lanes, params), encode_prompt(loaded.tokenizer, PROMPTS[0]), room=room)


def runs(race: TorchRace) -> str:
    return race.header()["runs"]["sentence"]
