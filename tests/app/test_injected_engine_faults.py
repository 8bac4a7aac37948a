"""Faults injected into the engine under the page: each ends in a sentence, and the next race of the same process runs.

Damaged kernels and compilers are in tests/kernels/cpu/test_native_build.py, a damaged or full cache of the default model
in tests/loading/test_default_model.py, damaged memories of widths in tests/exactness/test_memory.py, drafters that
propose garbage in tests/engine/test_bad_drafters.py, servers in tests/remote/test_faults.py."""

from __future__ import annotations

import ast
import asyncio
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.catalogue.catalogue import Pair
from app.catalogue.request import RaceRequest, StudyRequest
from app.jobs.backend import TorchBackend
from app.jobs.loader import Loader
from app.jobs.queue import RaceQueue
from app.jobs.races import Stage
from app.jobs.study import Studies
from engine.drafters.ngram import NgramDrafter
from engine.loading.loading import load
from engine.spec import RaceSpec, SamplingParams, standard_lanes
from engine.studies.prompts.prompts import FilePrompt
from engine.text import Pieces, StopAt
from tests.helpers import ROOT
from tests.helpers.hub import ask_at, config_hub
from tests.helpers.staged import after
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, text_of, trained

NUM = 8


class Backend(TorchBackend):
    """The page's, on a target that is loaded once for all tests."""

    def __init__(self, loaded: Callable[..., Any] = lambda target, progress: trained()) -> None:
        super().__init__("float32", "cpu")
        self.loader = Loader(loaded)


def pair(target: str = str(TRAINED)) -> Pair:
    return Pair("trained", "trained", target, "ngram", 3, "", False)


def request(drafter: str = "ngram", target: str = str(TRAINED)) -> RaceRequest:
    spec = RaceSpec(standard_lanes(drafter, 3), SamplingParams(max_new_tokens=NUM))
    return RaceRequest("a race", PROMPTS[0], False, pair(target), spec)


def raced(backend: TorchBackend, wanted: RaceRequest) -> dict[str, Any]:
    """What the last frame of a race says, extras included; its recording is read."""

    async def watch() -> dict[str, Any]:
        stage = Stage(backend)
        async with aclosing(stage.frames("a", "at a", wanted)) as frames:
            seen = [json.loads(text) async for text in frames]
        seen += await after(stage, "a")
        recordings = [frame["recording"] for frame in seen if frame["recording"]]
        return {**seen[-1], "recording": json.loads(recordings[-1]) if recordings else None}

    return asyncio.run(watch())


def is_good(last: dict[str, Any]) -> bool:
    """Whether a race ran to its end with nothing to complain of."""
    verdicts = last["recording"]["verdicts"].values()
    return (last["state"], last["status"]["text"], last["complete"]) == ("finished", "Finished.", True) and all(
        each["kind"].startswith("identical") for each in verdicts
    )


def raises(error: BaseException, after: int = 0) -> Callable[..., Any]:
    """A function that raises this, from the call after so many on; those before return nothing."""
    calls = iter(range(after))

    def fail(*_: Any, **__: Any) -> None:
        if next(calls, None) is None:
            raise error

    return fail


def cut_then_raises(error: BaseException) -> Callable[..., Any]:
    """`StopAt.cut`, until its third call raises this: the race has steps by then."""
    right, fail = StopAt.cut, raises(error, 2)

    def cut(self: StopAt, token_ids: Any) -> Any:
        fail()
        return right(self, token_ids)

    return cut


@contextmanager
def not_numbers(model: Any) -> Iterator[None]:
    """The model's last norm is NaN."""
    weight = model.model.norm.weight.data
    before = weight.clone()
    weight.fill_(float("nan"))
    try:
        yield
    finally:
        weight.copy_(before)


NO_MEMORY = RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")
SECRET = ValueError("a secret of the machine")
FAULTS: dict[str, tuple[str, Any, str, str]] = {
    "memory in set-up": ("engine.session.set_up.choose_widths", raises(NO_MEMORY), "failed", "not enough memory on cpu"),
    "memory in a step": ("engine.text.StopAt.cut", cut_then_raises(MemoryError()), "failed", "not enough memory on cpu"),
    "memory in the extras": ("engine.what_if.ask.members", raises(NO_MEMORY), "finished", "Finished."),
    "the extras raise": ("engine.what_if.ask.members", raises(SECRET), "finished", "Finished."),
    "a bug in set-up": ("engine.session.set_up.warm_up", raises(SECRET), "failed", "a bug in Photofinish"),
    "a drafter at set-up": ("engine.session.lanes.make", raises(SECRET), "finished", "the drafter could not be made"),
    "a drafter at the prompt": ("engine.drafters.ngram.NgramDrafter.prefill", raises(SECRET), "finished", "Lane spec"),
    "a drafter in a draft": ("engine.drafters.ngram.NgramDrafter.propose", raises(SECRET), "finished", "Lane spec"),
    "the tokenizer at the prompt": ("app.jobs.backend.encode_prompt", raises(SECRET), "failed", "a bug in Photofinish"),
    "the tokenizer at a step": ("engine.text.Pieces.push", raises(SECRET), "failed", "a bug in Photofinish"),
    "the thread ends in a step": ("engine.text.StopAt.cut", cut_then_raises(SystemExit(3)), "failed", "a bug in"),
    "the verdict": ("engine.session.torch_race.compare", raises(SECRET), "failed", "a bug in Photofinish"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_sentence_and_the_next_race_runs(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor would see a traceback, or a race that never ends; or all later ones would fail or wait."""
    backend, (where, instead, state, words) = Backend(), FAULTS[fault]
    with monkeypatch.context() as patch:
        patch.setattr(where, instead)
        last = raced(backend, request())
    assert (last["state"], words in last["status"]["text"]) == (state, True), last["status"]
    assert "Traceback" not in json.dumps(last)
    assert is_good(raced(backend, request()))
