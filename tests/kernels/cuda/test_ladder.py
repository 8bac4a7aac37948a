"""Whatever fails on the device (a stand-in for CUDA), every race runs, on a lower rung where it must, or is refused in
one sentence, and the next one runs."""

import sys
from argparse import Namespace
from dataclasses import replace
from functools import partialmethod
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cache import ENVIRONMENT_VARIABLE
from engine.cli import run
from engine.core.errors import RaceError
from engine.core.events import Failed, Prompt, Step
from engine.core.spec import RaceSpec, SamplingParams, standard_lanes
from engine.kernels.cuda.available import SWITCH
from engine.kernels.cuda.graphs import FixedCall
from engine.loading.loading import LoadedModel
from engine.progress import silent
from engine.runner import kernel_trial
from engine.runner import prepare as preparing
from engine.runner import target as target_module
from engine.session import TorchRace, lanes, set_up
from tests.helpers.cuda_races import on_device, race_of, runs
from tests.helpers.fake_cuda import fake_cuda
from tests.helpers.fake_device import CudaGraph
from tests.helpers.trained import DRAFT, text_of

pytestmark = pytest.mark.usefixtures("quick")
NO_GRAPHS = "; no CUDA graphs: "
GONE = "the device says no"
ALWAYS = range(10**6)


def fail_at(patch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException, at: Any) -> None:
    """The calls of a method whose number is in `at`, counted from 0, raise `error`."""
    calls, method = count(), getattr(owner, name)

    def call(*arguments: Any, **more: Any) -> Any:
        if next(calls) in at:
            raise error
        return method(*arguments, **more)

    patch.setattr(owner, name, call)


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


def no_memory() -> Exception:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("where", [(target_module, "caches"), (FixedCall, "_capture")], ids=["set-up", "capture"])
def test_where_memory_runs_out_there_is_no_race(where, monkeypatch):
    """A race that is too large would end as a fault of this program, or every later one would."""
    with fake_cuda():
        loaded = on_device()
        assert loaded.prepared
        with monkeypatch.context() as patch:
            fail_at(patch, *where, no_memory(), ALWAYS)
            with pytest.raises(RaceError, match=r"needs at least .* GB .* GB are free; choose fewer new tokens"):
                race_of(loaded, plain=True)
        race = race_of(loaded, plain=True)
        assert set(outcome(race)) == {"plain", "baseline", "drafted"} and NO_GRAPHS not in runs(race)


def test_what_fails_in_a_step_ends_the_race_and_the_next_one_runs(monkeypatch):
    """A kernel that fails once would fail in every later race; or the lanes left race on over a broken device."""
    faults: list[tuple[Exception, str, str]] = [
        (no_memory(), "not enough memory", ""),
        (RuntimeError(GONE), f"{GONE}; the next race runs without what failed", f"{NO_GRAPHS}RuntimeError: {GONE}"),
    ]
    with fake_cuda():
        loaded = on_device()
        tokens = outcome(race_of(loaded))["baseline"]
        for error, sentence, then in faults:
            race = race_of(loaded)
            with monkeypatch.context() as patch, pytest.raises(RaceError, match=sentence):
                fail_at(patch, CudaGraph, "replay", error, [2])
                outcome(race)
            following = race_of(loaded)
            assert outcome(following) == {"baseline": tokens, "drafted": tokens}
            assert runs(following).endswith(then) and (NO_GRAPHS in runs(following)) == bool(then)


def test_a_capture_that_is_refused_at_a_new_length_moves_the_model_down_a_rung(monkeypatch):
    """Every race with a longer prompt would end before its first token; or each later race would try again."""
    refused = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    with fake_cuda():
        loaded = on_device()
        assert NO_GRAPHS not in runs(race_of(loaded))
        with monkeypatch.context() as patch:
            fail_at(patch, FixedCall, "_capture", refused, ALWAYS)
            race = race_of(loaded, room=300)
            assert len(set(outcome(race).values())) == 1 and NO_GRAPHS in runs(race) and "is capturing" in runs(race)
        race = race_of(loaded)
        assert len(set(outcome(race).values())) == 1 and NO_GRAPHS in runs(race)


def test_a_lost_device_is_named_at_set_up_and_in_a_step(monkeypatch):
    """The visitor would wait for a race that can never start, and nobody know that a restart is all it takes."""
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    for owner, name, in_a_race in ((FixedCall, "_capture", False), (CudaGraph, "replay", True)):
        with fake_cuda(), monkeypatch.context() as patch:
            loaded = on_device()
            assert loaded.prepared
            race = race_of(loaded) if in_a_race else None
            fail_at(patch, owner, name, lost, ALWAYS)
            fail_at(patch, torch.cuda, "synchronize", lost, ALWAYS)
            with pytest.raises(RaceError, match=r"context is lost .* started again"):
                outcome(race or race_of(loaded))


def test_what_kernels_do_not_fail_at_moves_no_model(monkeypatch):
    """A bug, or a refusal, would take the graphs from every later race, or end as a failure of the GPU."""
    with fake_cuda():
        loaded = on_device()
        kernels = loaded.prepared.kernels
        for error in (RaceError("the hub is away"), KeyboardInterrupt()):
            with monkeypatch.context() as patch, pytest.raises(type(error)):
                fail_at(patch, set_up, "choose_widths", error, [0])
                race_of(loaded)
        assert loaded.prepared.kernels is kernels


# What drafters fail at


def test_a_drafter_that_cannot_be_made_ends_its_lane_alone(monkeypatch):
    """One head that fails to load would end the race of all lanes as a fault of this program."""
    with fake_cuda():
        loaded = on_device()
        tokens = outcome(race_of(loaded))["baseline"]
        kernels = loaded.prepared.kernels
        with monkeypatch.context() as patch:
            fail_at(patch, lanes, "make", OSError("no such tensor"), range(1, 9))  # the baseline's is made
            race = race_of(loaded, text_of("eagle3"))
            outcomes = outcome(race)
        assert outcomes == {"baseline": tokens, "drafted": "the drafter could not be made: OSError: no such tensor"}
        assert race.result()["verdicts"]["drafted"] is not None and loaded.prepared.kernels is kernels
        assert outcome(race_of(loaded))["drafted"] == tokens


@pytest.mark.parametrize("kind", ["eagle3", "draft_model"])
def test_a_draft_that_cannot_be_captured_takes_all_models_a_rung_down(kind, monkeypatch):
    """The lane that the race is about would fail in every race."""
    capture = FixedCall._capture

    def refused(self: FixedCall[Any]) -> Any:
        if "draft" in self._name:
            raise RuntimeError(GONE)
        return capture(self)

    monkeypatch.setattr(FixedCall, "_capture", refused)
    with fake_cuda():
        loaded, draft = on_device(), on_device(DRAFT)
        draft = replace(draft, info=replace(draft.info, name=str(DRAFT)))
        loaded.attached(("companion", str(DRAFT)), lambda: draft)
        race = race_of(loaded, text_of(kind))
        outcomes = outcome(race)
        assert outcomes["baseline"] == outcomes["drafted"] and NO_GRAPHS in runs(race)
        assert draft.prepared.kernels.lower("") is None, "it is on the lowest rung"


# With nothing set by hand: what is tried when a model is loaded


def kernels_are_tried(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """As on a user's machine, with a cache of its own."""
    monkeypatch.delenv(SWITCH)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(cache))


def says(loaded: LoadedModel) -> str:
    """What the header of a race says of what runs its steps; both lanes must write the same."""
    race = race_of(loaded)
    assert len(set(outcome(race).values())) == 1
    return runs(race)


def refuse(self: FixedCall) -> None:
    raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


def spoilt(self: FixedCall, factor: float = -1.0) -> Any:
    self._graph = self._graph or self._capture()
    self._graph.replay()
    self._result[0].mul_(factor)
    return self._result


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (("_capture", refuse), "could not be captured as a CUDA graph: RuntimeError: CUDA error: operation not"),
        (("__call__", spoilt), "a step replayed from a CUDA graph has logits that differ from those of"),
    ],
    ids=["refused", "other numbers"],
)
def test_a_model_without_graphs_runs_eagerly_and_says_why(fault, why, monkeypatch, tmp_path):
    """Every race would end before its first token, or write what no eager step writes, and nobody would know why."""
    kernels_are_tried(monkeypatch, tmp_path)
    monkeypatch.setattr(FixedCall, *fault)
    with fake_cuda(tries=True):  # where nothing can be captured, nothing has to be tried
        loaded = on_device()
        for _ in range(2):
            _, no_graphs = says(loaded).split(NO_GRAPHS)
            assert why in no_graphs


def test_a_graph_that_rounds_differently_is_kept_and_named(monkeypatch):
    """cuBLAS may choose another kernel in a capture: for an idle check every race would run eagerly."""
    monkeypatch.setattr(FixedCall, "__call__", partialmethod(spoilt, 1.01))
    with fake_cuda():
        sentence = says(on_device())
    assert NO_GRAPHS not in sentence and "rows of a step round differently in a graph" in sentence


def test_widths_are_timed_once_where_steps_are_captured():
    """A new target's first step is its capture: 60 ms would be taken for a step's time, and each race wait for five."""
    with fake_cuda():
        loaded = on_device()
        first, then = (race_of(loaded, plain=True) for _ in range(2))
        assert outcome(first) == outcome(then) and first.widths.seconds == then.widths.seconds


def test_a_command_on_a_gpu_names_a_pair_that_is_worth_it(monkeypatch, capsys):
    """`engine race` would show what a toy gains on an H100, and nobody learn that a larger pair fits."""
    with fake_cuda():
        loaded = on_device()
        monkeypatch.setattr(run, "load_ready", lambda *unused: loaded)
        spec = RaceSpec(standard_lanes("ngram", 3), SamplingParams(max_new_tokens=4))
        for target in (None, "tests/fixtures/trained/target"):
            run.set_up(Namespace(target=target), spec, lambda unused: Prompt("", (1, 2, 3)), silent)
            assert ("a toy for a GPU" in capsys.readouterr().err) == (target is None)


def test_without_triton_races_run_on_torchs_kernels_and_say_why(monkeypatch, tmp_path):
    """A build of torch without Triton, or a broken one, would end every load."""
    kernels_are_tried(monkeypatch, tmp_path)
    monkeypatch.setitem(sys.modules, "triton", None)
    with fake_cuda() as device:
        loaded = on_device()
        for _ in range(2):
            assert "; no Triton decoder: triton cannot be imported (" in says(loaded)
        assert device.captured


def test_a_device_lost_to_a_kernel_is_named_and_a_restart_goes_on_without_it(monkeypatch, tmp_path):
    """The page would say that a model is ready, and every race would fail, after a restart again."""
    kernels_are_tried(monkeypatch, tmp_path)

    def lost(*unused: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def loses_it(unused: Any) -> None:
        patch.setattr(torch.cuda, "synchronize", lost)
        lost()

    monkeypatch.setattr(preparing, "_check_faithful", lambda *unused: None)
    monkeypatch.setattr(preparing, "check_agreement", loses_it)
    with fake_cuda(), monkeypatch.context() as patch:
        loaded = on_device()
        with pytest.raises(RaceError, match=r"context is lost .*illegal memory access.*, and then the Triton kernels"):
            _ = loaded.prepared
    monkeypatch.setattr(kernel_trial, "COMMAND", ("false",))
    with fake_cuda(tries=True):
        loaded = on_device()
        for _ in range(2):
            why = "; no Triton decoder: the GPU's context was lost while it ran: RuntimeError: CUDA error: "
            assert why in says(loaded)
