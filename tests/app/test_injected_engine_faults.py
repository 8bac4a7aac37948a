"""Faults injected into the engine under the page: each ends in a sentence, and the next race of the same process runs.

Damaged kernels, full disks, and compilers that are missing, fail or hang, are in
tests/kernels/cpu/test_native_build.py; the cache of the default model, damaged or on a full disk, in
tests/loading/test_default_model.py; damaged memories of widths, and caches that cannot be written, in
tests/exactness/test_memory.py; folders that are no model in tests/loading/test_loading.py; drafters that propose
garbage, and models that fail, in tests/engine/test_bad_drafters.py; servers in tests/remote/test_faults.py; hanging
races and threads that end in test_injected_faults.py."""

import ast
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.catalogue.catalogue import Pair
from app.catalogue.request import RaceRequest
from app.jobs.backend import TorchBackend
from app.jobs.loader import Loader
from app.jobs.races import Stage
from engine.core.errors import RaceError
from engine.core.spec import RaceSpec, SamplingParams, standard_lanes
from engine.loading.loading import load
from engine.studies.prompts.rows import Row
from engine.studies.prompts.study_file import StudyFile
from engine.text import StopAt
from tests.helpers import ROOT, full_disk
from tests.helpers.hub import ask_at, config_hub
from tests.helpers.staged import watch
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, trained


class Backend(TorchBackend):
    """The page's, on a target that is loaded once for all tests."""

    def __init__(self, loaded: Callable[..., Any] = lambda target, progress: trained()) -> None:
        super().__init__("float32", "cpu")
        self.loader = Loader(loaded)


def request(target: str = str(TRAINED)) -> RaceRequest:
    spec = RaceSpec(standard_lanes("ngram", 3), SamplingParams(max_new_tokens=8))
    return RaceRequest("a race", PROMPTS[0], False, Pair("trained", "trained", target, "ngram", 3, "", False), spec)


def raced(backend: TorchBackend, wanted: RaceRequest) -> dict[str, Any]:
    """What a race's last frame says, extras included; the recording is read."""
    frames = asyncio.run(watch(Stage(backend), "a", order=wanted))
    recordings = [frame["recording"] for frame in frames if frame["recording"]]
    return {**frames[-1], "recording": json.loads(recordings[-1]) if recordings else None}


def is_good(last: dict[str, Any]) -> bool:
    """Whether a race ran to its end with nothing to complain of."""
    verdicts = last["recording"]["verdicts"].values()
    return (last["state"], last["status"]["text"], last["complete"]) == ("finished", "Finished.", True) and all(
        verdict["kind"].startswith("identical") for verdict in verdicts
    )


def raises(error: BaseException, after: int = 0, right: Callable[..., Any] = print) -> Callable[..., Any]:
    """A function that raises this, from the call after so many on; those before are calls of `right`."""
    calls = iter(range(after))

    def fail(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return right(*arguments, **options)

    return fail


NO_MEMORY = RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")
SECRET = ValueError("a secret of the machine")
NO_ROOM, BUG = "not enough memory on cpu", "a bug in Photofinish"
OF_A_DRAFTER = "engine.drafters.ngram.NgramDrafter"
CUT = "engine.text.StopAt.cut"  # whose third call is in a step of the race
FAULTS: dict[str, tuple[str, Any, str, str]] = {
    "memory in set-up": ("engine.session.set_up.choose_widths", raises(NO_MEMORY), "failed", NO_ROOM),
    "memory in a step": (CUT, raises(MemoryError(), 2, StopAt.cut), "failed", NO_ROOM),
    "memory in the extras": ("engine.what_if.ask.members", raises(NO_MEMORY), "finished", "Finished."),
    "the extras raise": ("engine.what_if.ask.members", raises(SECRET), "finished", "Finished."),
    "a bug in set-up": ("engine.session.set_up.warm_up", raises(SECRET), "failed", BUG),
    "a drafter at set-up": ("engine.session.lanes.make", raises(SECRET), "finished", "the drafter could not be made"),
    "a drafter at the prompt": (f"{OF_A_DRAFTER}.prefill", raises(SECRET), "finished", "Lane spec"),
    "a drafter in a draft": (f"{OF_A_DRAFTER}.propose", raises(SECRET), "finished", "Lane spec"),
    "the tokenizer at the prompt": ("app.jobs.backend.encode_prompt", raises(SECRET), "failed", BUG),
    "the tokenizer at a step": ("engine.text.Pieces.push", raises(SECRET), "failed", BUG),
    "the thread ends in a step": (CUT, raises(SystemExit(3), 2, StopAt.cut), "failed", "a bug in"),
    "the verdict": ("engine.session.torch_race.compare", raises(SECRET), "failed", BUG),
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


@pytest.mark.parametrize("how", ["drops", "is silent"])
def test_a_model_that_comes_in_part_is_loaded_once_it_is_whole(how: str, tmp_path: Path, monkeypatch: Any) -> None:
    """An interrupted download would end every race of the page, or hang it; or half a file be taken for a model."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=lambda _: None))
    backend, wanted = Backend(lambda target, progress: load(target, "float32", "cpu", progress)), request("owner/tiny")
    with config_hub(monkeypatch, {"owner/tiny": TRAINED}) as hub:
        ask_at(monkeypatch, hub.address, tmp_path / "hub")
        hub.fault = how
        last = raced(backend, wanted)
        words = "cannot fetch 'owner/tiny' from the hub"
        assert last["state"] == "failed" and words in last["status"]["text"].lower(), last["status"]
        hub.fault = ""
        assert is_good(raced(backend, wanted))


# Disks and caches


def test_a_full_disk_keeps_what_was_saved(tmp_path: Path) -> None:
    """A study that was on the disk would be gone, or half of one be there (recordings: tests/recordings)."""
    path = tmp_path / "study.jsonl"
    rows = [Row(i, "p", "k", "ngram", "auto", 2.0, 0.1, 0.5, 2.0, 8, True) for i in range(9)]
    study = StudyFile(str(path), {"target": "a"})
    study.begin((), {"weights": "w"}, {})
    study.append(rows[:1])
    with full_disk(len(path.read_bytes()) + 30), pytest.raises(RaceError, match=r"cannot write .*study\.jsonl"):
        study.append(rows[1:])
    assert [*tmp_path.iterdir()] == [path]
    again = StudyFile(str(path), {"target": "a"})
    assert again.rows == rows[:1]
    again.begin(rows[:1], {"weights": "w"}, {})
    again.append(rows[1:])
    assert StudyFile(str(path), {"target": "a"}).rows == rows


# Clocks and studies


def test_nothing_measures_with_a_clock_that_jumps() -> None:
    """A server whose clock is set would show negative times, or wait for an hour."""
    for path in [*ROOT.glob("engine/**/*.py"), *ROOT.glob("app/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "time"), path
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            assert name not in ("time.time", "time.time_ns", "datetime.now", "datetime.datetime.now"), path
