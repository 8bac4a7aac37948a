"""Races one after the other in one process: nothing is left of one for the next; what is said of a failed capture."""

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any
from unittest.mock import Mock
from weakref import ref

import pytest
import torch

from engine.core.errors import CaptureError, RaceError, UnsupportedModel
from engine.core.events import Step
from engine.drafters.head_drafter import HeadBuffers
from engine.kernels.cuda.graphs import FixedCall, GraphPool
from engine.loading.loading import LoadedModel, load
from engine.runner.target import StaticTarget
from engine.runner.whole_step import DeviceStep
from engine.session import TorchRace, set_up
from tests.helpers.cuda_races import on_device, race_of, runs
from tests.helpers.fake_cuda import CUDA, fake_cuda
from tests.helpers.fake_device import CudaGraph
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import DRAFT, text_of

OF_A_RACE = (StaticTarget, DeviceStep, FixedCall, GraphPool, HeadBuffers, TorchRace)
ENDINGS = ("finished", "stopped", "failed", "failed at set-up")
pytestmark = pytest.mark.usefixtures("quick")
NO_GRAPHS = "; no CUDA graphs: "


@pytest.mark.parametrize("is_cuda", [True, False], ids=["CUDA", "CPU"])
def test_nothing_of_a_race_is_left_when_the_next_begins(is_cuda, no_chance, monkeypatch):
    """Each race would keep its caches and graphs, which break a later capture when they go at last."""
    drafters = [*map(text_of, ("eagle3", "dflash", "draft_model", "ngram")), f"hybrid:ngram+{text_of('eagle3')}"]
    with fake_cuda() if is_cuda else nullcontext() as device:
        at_hand = on_device if is_cuda else lambda folder: load(str(folder), "bfloat16", "cpu")
        loaded, draft = map(at_hand, (TRAINED, DRAFT))
        monkeypatch.setattr(LoadedModel, "companion", lambda self, name, progress: draft)
        assert loaded.prepared and draft.prepared, "made ready before anything is counted"
        monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest keeps an error's frames
        gc.collect()
        before, caches = counted(), []
        for i in range(len(drafters)):
            caches += ended(loaded, drafters[i % len(drafters)], ENDINGS[i % len(ENDINGS)], monkeypatch)
            left = counted() - before
            assert not left and not [cache for cache in caches if cache() is not None], (i, left)
            assert device is None or not device.graphs


def counted() -> Counter[str]:
    return Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing) in OF_A_RACE)


def ended(loaded: LoadedModel, drafter: str, ending: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run a race that ends so; weak references to its lanes' caches."""

    def fail(*unused: Any) -> None:
        raise MemoryError

    caches: list[Any] = []
    with monkeypatch.context() as patch:
        if ending == "failed at set-up":
            patch.setattr(set_up, "warm_up", fail)
        is_over = False
        try:
            race = race_of(loaded, drafter)
            caches += [ref(side) for lane in race.lanes.values() for layer in lane.target.kv for side in layer]
            with closing(race.events()) as events:
                for event in events:
                    if isinstance(event.event, Step) and ending == "failed":
                        patch.setattr(StaticTarget, "rollback", fail)
                    elif isinstance(event.event, Step) and ending == "stopped":
                        break
            is_over = True
        except RaceError as error:  # pytest.raises would keep it
            assert "not enough memory" in str(error)
        assert is_over == (ending in ENDINGS[:2])
    return caches


def leave(what: Any) -> None:
    """What nothing refers to any more but itself, as an error's frames do."""
    cycle = [what]
    cycle.append(cycle)


@pytest.fixture
def no_chance() -> Iterator[None]:
    """Nothing is collected but where the engine or the test says so."""
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    yield
    gc.set_threshold(*thresholds)


def test_what_is_left_of_a_race_that_failed_is_freed_before_the_next_is_set_up(no_chance):
    """Until a collection comes by chance two races would share the memory of one."""
    with fake_cuda() as device:
        loaded = on_device()
        leave(race_of(loaded))
        graphs = [ref(graph) for graph in device.graphs]
        race_of(loaded)
        assert graphs and not [graph for graph in graphs if graph() is not None]


def test_a_collection_that_comes_in_the_middle_of_a_capture_breaks_none(no_chance, monkeypatch):
    """A graph that goes then breaks the capture: races would fail by chance, from the second on."""
    with fake_cuda():
        loaded, capture = on_device(), torch.cuda.graph

        def leave_a_graph() -> None:
            call = FixedCall(lambda: torch.zeros(1, device=CUDA), CUDA)
            call()
            leave(call)

        @contextmanager
        def collecting(*arguments: Any, **more: Any) -> Any:
            with capture(*arguments, **more):
                if gc.isenabled():
                    gc.collect()
                yield

        leave_a_graph()
        with pytest.raises(RuntimeError, match="a graph is freed"), collecting(CudaGraph()):
            pass
        leave_a_graph()
        monkeypatch.setattr(torch.cuda, "graph", collecting)
        assert NO_GRAPHS not in runs(race_of(loaded))


@pytest.mark.parametrize(
    ("step", "kind", "says"),
    [
        (
            lambda: torch.cuda.synchronize(),
            CaptureError,
            "x could not be captured as a CUDA graph: RuntimeError: CUDA error: operation not permitted when stream is "
            "capturing: synchronize",
        ),
        (Mock(side_effect=MemoryError()), CaptureError, "x could not be captured as a CUDA graph: MemoryError"),
        (Mock(side_effect=UnsupportedModel("it does something else")), UnsupportedModel, "it does something else"),
    ],
    ids=["not allowed", "no memory", "refused"],
)
def test_a_capture_that_fails_names_its_first_cause(step, kind, says):
    """A lane would fail with CUDA's last words, a refusal be buried in others, or one fault be blamed on another."""
    try:
        raise UnsupportedModel("the one before")
    except UnsupportedModel:
        with fake_cuda(), pytest.raises(kind, match=f"^{says}$"):
            FixedCall(step, CUDA, name="x")()
    assert gc.isenabled()
