"""The trained fixture as a race's target, and what each drafter is tested with on it."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from engine.core.events import LaneEvent, Prompt
from engine.core.sampling.sampler import Sampler
from engine.core.spec import LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.drafters import DrafterContext
from engine.loading.loading import LoadedModel, load
from engine.progress import silent
from engine.recordings.recording import Recording, build
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers.tiny import LENGTH, PACKED, TRAINED

DRAFT = TRAINED.parent / "draft"
# What each drafter is tested with. A new one needs a line here.
ARGUMENTS = {
    "none": "",
    "ngram": ":2",
    "draft_model": f":{DRAFT}",
    "synthetic": ":0.7",
    "hybrid": f":ngram:2+draft_model:{DRAFT}",
} | {n: f":{TRAINED.parent / n}" for n in ("eagle3", "dflash")}
NUM_NEW = 48
PROMPTS = (
    "class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def ",
    "import os\n\n",
)


def text_of(name: str) -> str:
    return name + ARGUMENTS[name]


@cache
def trained(dtype: str = "float32") -> LoadedModel:
    return load(str(TRAINED), dtype, "cpu")


def context(
    loaded: LoadedModel,
    k: int,
    prompt: Sequence[int] = (1, 2, 3),
    temperature: float = 0.0,
    num_new: int = NUM_NEW,
    reference: Any = None,
    **more: Any,
) -> DrafterContext:
    """A race's context on that target."""
    params = SamplingParams(temperature=temperature, seed=5, max_new_tokens=num_new)
    sample = Sampler(params, loaded.prepared.vocab_size, PACKED)
    return DrafterContext(loaded, params, k, LENGTH, sample, Prompt("", tuple(prompt)), reference, silent, **more)


def race_of(
    lanes: Iterable[LaneSpec],
    text: str = PROMPTS[0],
    dtype: str = "float32",
    audit: bool = False,
    solo: bool = False,
    room: int = 0,
    **params: Any,
) -> TorchRace:
    loaded, spec = trained(dtype), RaceSpec(tuple(lanes), SamplingParams(**params), audit, solo)
    return TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, text), room=room)


def race(drafter: str = "ngram", max_new_tokens: int = 16, solo: bool = False) -> TorchRace:
    return race_of(standard_lanes(drafter, 3), solo=solo, max_new_tokens=max_new_tokens)


def recorded(race: TorchRace, events: Iterable[LaneEvent] | None = None) -> Recording:
    """The recording of a race, which is run for it if its events are not given."""
    header = race.header()
    return build(header, list(race.events() if events is None else events), race.result())


def written(race: TorchRace, name: str) -> list[tuple[int, int]]:
    """Every token of a lane, with its row's checksum."""
    return [pair for step in race.lanes[name].steps for pair in zip(step.token_ids, step.checksums, strict=True)]
