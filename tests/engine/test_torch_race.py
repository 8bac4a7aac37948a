"""A race on this machine: its memory, widths, threads and warm-up, and verdicts lane by lane."""

import re
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.analysis.same import IDENTICAL
from engine.core.errors import RaceError, is_out_of_memory
from engine.core.events import Failed
from engine.core.interfaces import Acceptance, Draft
from engine.core.spec import LaneSpec, RaceSpec, lanes_of
from engine.drafters.head_drafter import HeadDrafter
from engine.kernels.torch import Kernels
from engine.runner.target import StaticTarget
from engine.session import TorchRace, set_up, threads
from engine.text import encode_prompt
from tests.helpers.fakes import Empty
from tests.helpers.tiny import prepared
from tests.helpers.tokenizers_of import sentencepiece
from tests.helpers.trained import race, race_of, text_of, trained, written

NUM_NEW = 24
SAMPLED = {"temperature": 0.8, "seed": 5, "max_new_tokens": NUM_NEW, "audit": True}


# Verdicts


class Wrong:
    """The right rule, but the token at one position becomes its neighbour: a planted fault."""

    guarantee = "same tokens"

    def __init__(self, right: Any, at: int) -> None:
        self.right, self.at = right, at

    def __call__(self, draft: Draft, logits: Any, position: int) -> Acceptance:
        acceptance = self.right(draft, logits, position)
        ids, at = list(acceptance.token_ids), self.at - position
        if not 0 <= at < len(ids):
            return acceptance
        ids[at] ^= 1
        return Acceptance(min(acceptance.num_accepted, at), tuple(ids[: at + 1]))


@settings(max_examples=4)
@given(
    st.lists(st.none() | st.just("fails") | st.integers(0, NUM_NEW - 1), min_size=2, max_size=5),
    st.sampled_from(["ngram", "synthetic"]),
)
def test_each_lane_is_judged_for_itself(faults, drafter):
    """A fault would hide behind a later one (explaining it moves the baseline's cache), or be told of another lane."""
    race = race_of(lanes_of((str(i), text_of(drafter), 3) for i in range(len(faults))), **SAMPLED)
    for i, fault in enumerate(faults):
        lane = race.lanes[str(i)]
        if fault == "fails":
            lane.drafter = Empty()
            lane.drafter.guess = Mock(side_effect=[Draft(), ZeroDivisionError("broken")])
        elif fault is not None:
            lane.accept = Wrong(lane.accept, fault)
    list(race.events())
    verdicts = race.result()["verdicts"]
    assert list(verdicts) == ["plain", *map(str, range(len(faults)))]
    for i, fault in enumerate(faults):
        verdict, name = verdicts[str(i)], f"baseline and {i}"
        assert (f"{i} failed after" if fault == "fails" else name) in verdict["sentence"]
        if isinstance(fault, int):
            assert (verdict["kind"], verdict["first_difference"]["position"]) == ("different", fault)
            right = written(race, "baseline")[fault][0]
            assert list(verdict["first_difference"]["tokens"]) == [right, right ^ 1]
        else:
            assert verdict["kind"] in (["not_compared"] if fault == "fails" else IDENTICAL)
            assert (verdict["rows_compared"] < NUM_NEW) == (fault == "fails")


def test_widths_are_probed_for_every_lane(few_rows):
    """Beside a lane with long drafts the steps of a lane with short ones would be wider than alone, and so slower."""
    race = race_of(lanes_of([("a", "ngram", 2), ("b", "ngram", 4), ("c", "ngram", 15)]), **SAMPLED)
    assert {3, 5, 16} <= race.widths.seconds.keys()


# Widths, warm-up, memory


def test_a_later_race_keeps_the_best(monkeypatch):
    """One busy moment would decide the widths of all races to come."""
    first = race()
    measure = StaticTarget.time_widths

    def slow(target, *given, **more):
        return {width: value + 1.0 for width, value in measure(target, *given, **more).items()}

    monkeypatch.setattr(StaticTarget, "time_widths", slow)
    second = race()
    assert second.widths.seconds == first.widths.seconds  # each second longer: nothing was learned

    def quick(target, *given, **more):
        return dict.fromkeys(measure(target, *given, **more), 1e-9)

    monkeypatch.setattr(StaticTarget, "time_widths", quick)
    assert set(race().widths.seconds.values()) == {1e-9}
    timed = ("seconds", second.widths.length, tuple(sorted(second.widths.seconds)), torch.get_num_threads())
    trained().attached(timed, dict).clear()


def test_every_width_of_a_race_runs_untimed_before_it(monkeypatch):
    """The first step of a lane would be timed cold."""
    ran: set[int] = set()
    step = StaticTarget._step
    monkeypatch.setattr(StaticTarget, "_step", lambda target, width: ran.add(width) or step(target, width))
    for _ in range(2):
        ran.clear()
        made = race()
        assert ran >= {width for lane in made.lanes.values() for width in lane.target.widths}


@pytest.mark.parametrize("fill", [0.0, float("nan")])
def test_a_new_sequence_begins_with_zeros(fill):
    """Memory that is not cleared can hold NaN, and NaN times a masked weight of 0 is NaN."""
    made = race()
    size = (1, made.prepared.shape.num_kv_heads, made.widths.length, made.prepared.shape.head_dim)
    junk = [torch.full(size, fill, dtype=made.prepared.dtype) for _ in range(64)]
    del junk
    target = StaticTarget(made.prepared, made.widths.length, (4,))
    assert all(bool((side == 0).all()) for layer in target.kv for side in layer)


def small_race(drafter: str, room: int = 0) -> TorchRace:
    plain, baseline = LaneSpec("plain", width="fastest"), LaneSpec("baseline", width=4)
    lanes = plain, baseline, LaneSpec("drafted", drafter=drafter, k=3, width=4)
    return race_of(lanes, audit=True, room=room, max_new_tokens=8)


@pytest.mark.parametrize("name", ["ngram", "eagle3", "dflash", "draft_model"])
def test_what_a_race_is_said_to_need_is_what_it_takes(narrow, name):
    """A race that fits would be refused; or one that does not be set up for minutes, and fail in the middle."""
    race = small_race(text_of(name))
    sequences = [lane.target for lane in race.lanes.values()]
    drafter: Any = race.lanes["drafted"].drafter
    taken = sum(side.nbytes for target in sequences for layer in target.kv for side in layer)
    if isinstance(drafter, HeadDrafter):
        taken += sum(tensor.nbytes for tensor in drafter.buffers.tensors())
    elif name == "draft_model":
        taken += sum(side.nbytes for layer in drafter._model.kv for side in layer)
    logits = 3 * (1 + 4) * race.prepared.vocab_size * race.prepared.dtype.itemsize
    assert taken + logits == pytest.approx(race.ready.needed, rel=0.01)


def test_a_race_that_does_not_fit_is_refused_before_anything_is_made(narrow, monkeypatch):
    """It would be probed and timed for seconds and then end in a sentence that names nothing to choose."""
    race = small_race("ngram")
    with monkeypatch.context() as patch:
        patch.setattr(set_up, "StaticTarget", lambda *unused, **more: pytest.fail("a cache was made"))
        patch.setattr(Kernels, "free_bytes", lambda self: 1000)
        with pytest.raises(RaceError) as refused:
            small_race("ngram")
    needed, free = (float(size) for size in re.findall(r"(\S+) GB", str(refused.value)))
    assert needed * 1e9 == pytest.approx(race.ready.needed, rel=0.01) and free * 1e9 == pytest.approx(1000)
    assert "choose fewer new tokens" in str(refused.value)


def test_where_a_race_does_not_fit_its_cache_is_shorter(narrow, monkeypatch):
    """A race would be refused for a length that it shares with others."""
    whole = small_race("ngram")
    monkeypatch.setattr(Kernels, "free_bytes", lambda self: whole.ready.needed)
    race = small_race("ngram", room=4096)
    assert race.widths.length == whole.widths.length
    assert not [event for event in race.events() if isinstance(event.event, Failed)]


def test_a_prompt_that_begins_twice_is_noted_with_what_ran():
    """A pasted log's acceptance would be quoted for what servers are sent."""
    loaded, spec = replace(trained(), tokenizer=sentencepiece(strip=False)), RaceSpec((LaneSpec("baseline", width=1),))
    for text, is_noted in (("<bos>and", True), ("and<bos><bos>", False)):
        says = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, text)).header()["runs"]["sentence"]
        assert ("; the prompt begins with <bos> twice" in says) == is_noted


@pytest.mark.parametrize("allocate", [torch.empty, numpy.empty])
def test_memory_that_runs_out_here_is_known_for_what_it_is(allocate):
    """torch's CPU allocator says so in a RuntimeError like any other: it would be called a fault of this program."""
    with pytest.raises((RuntimeError, MemoryError)) as ran_out:
        allocate(2**50)
    assert is_out_of_memory(ran_out.value) and not is_out_of_memory(RuntimeError("shapes do not match"))


# Threads


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_what_was_chosen_is_what_torch_uses(two_threads):
    """A race would run with another number of threads than its fingerprint says."""
    assert threads.settle(prepared("qwen3", torch.float32)) == torch.get_num_threads() in (1, 2)


def test_a_stalling_machine_gets_one_thread_fewer(two_threads, monkeypatch):
    """Barriers that stall would go unnoticed, and each step take ten times as long."""
    extend = threads.StaticTarget.extend

    def stalling(self, token_ids, num_logits, width=None):
        if torch.get_num_threads() == 2:
            threads.time.sleep(0.05)
        return extend(self, token_ids, num_logits, width)

    monkeypatch.setattr(threads.StaticTarget, "extend", stalling)
    assert threads.settle(prepared("qwen3", torch.float32)) == 1


def test_a_wish_for_threads_is_respected(monkeypatch):
    """OMP_NUM_THREADS would be overruled silently."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(threads, "StaticTarget", None)
    assert threads.settle(prepared("qwen3", torch.float32)) == torch.get_num_threads()
