"""Drafters (and models) that break their contract: their lane fails in words, and the tokens never change."""

import logging
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import RaceError
from engine.core.events import Failed, Started, Step
from engine.core.interfaces import Draft
from tests.helpers.fakes import VOCAB, Empty, FakeTarget, Oracle, races, run, tokens_of


class Breaks(Oracle):
    """The truth for `good` proposals, then what `instead` gives for k, or raises."""

    def __init__(self, truth: Sequence[int], good: int, instead: Callable[[int], Any]) -> None:
        super().__init__(truth)
        self.good, self.instead = good, instead

    def guess(self, done: int, k: int) -> Any:
        return self.instead(k) if self.num_proposals > self.good else super().guess(done, k)


GARBAGE = [-1, VOCAB, 10**30, 1.0, float("nan"), True, None, "1", (1,)]


@given(races().filter(lambda race: race[0]["k"] > 0), st.sampled_from(GARBAGE), st.integers(0, 3))
def test_garbage_fails_its_lane_in_words_and_the_tokens_before_stand(race, value, good):
    """A drafter's garbage would reach the embedding (an index error, or another token), or be taken for a draft."""
    lane, table, truth = race
    drafter = Breaks(tokens_of(truth), good, lambda k: Draft((value,) if k else ()))
    _, *steps, last = run(FakeTarget(table), drafter, **lane)
    tokens = tokens_of(truth)
    if isinstance(last, Failed):
        assert repr(value) in last.message and str(VOCAB - 1) in last.message and "drafter" in last.message
        assert len(steps) >= good and tokens_of(steps) == tokens[: len(tokens_of(steps))]
    else:
        assert tokens_of(steps) == tokens


@given(races().filter(lambda race: race[0]["k"] > 0))
def test_a_draft_beyond_what_was_asked_for_fails_the_lane(race):
    """It would not fit the step's width, or run past the length limit."""
    lane, table, truth = race
    drafter = Breaks([], 0, lambda k: Draft(tuple([*tokens_of(truth), *[0] * (k + 1)][: k + 1])))
    _, *steps, last = run(FakeTarget(table), drafter, **lane)
    assert steps == [] and isinstance(last, Failed)
    k = min(lane["k"], lane["max_new_tokens"] - 1)
    assert str(k + 1) in last.message and f"at most {k}" in last.message


ERRORS = [ValueError("no such thing"), KeyError("k"), RaceError("gone"), AssertionError(), RecursionError("deep")]


@given(races(), st.sampled_from(ERRORS), st.integers(0, 4))
def test_a_drafter_that_raises_fails_its_lane_only(race, error, at):
    """One drafter's bug would end the whole race with a traceback, or leave its lane waiting for ever."""
    lane, table, truth = race
    drafter = Breaks(tokens_of(truth), at - 1, Mock(side_effect=error))
    if at == 0:
        drafter.prefill = Mock(side_effect=error)
    *events, last = run(FakeTarget(table), drafter, **lane)
    steps = [e for e in events if isinstance(e, Step)]
    if isinstance(last, Failed):
        assert type(error).__name__ in last.message and str(error) in last.message and "drafter" in last.message
        assert len(steps) == max(0, at - 1) and isinstance(events[0] if events else Started(0, 0), Started)
        assert bool(events) == (at > 0)
    assert tokens_of(events) == tokens_of(truth)[: len(tokens_of(events))]
    assert isinstance(last, Failed) or tokens_of(events) == tokens_of(truth)


NO_DRAFTS = [None, [1, 2], (1, 2), "12", 3, Draft(None), Draft(3), Draft([1, 2]), Draft((1,), parents=5)]
NO_DRAFTS += [Draft((numpy.int64(3),)), Draft((torch.tensor(3),))]


@pytest.mark.parametrize("value", NO_DRAFTS, ids=repr)
def test_what_is_no_draft_fails_the_lane(value):
    """A drafter's list, or nothing, would end the race with a traceback; integers of numpy or torch are no JSON."""
    _, *steps, last = run(FakeTarget(), Breaks([1] * 9, 0, lambda k: value), [1, 2], 8, 3)
    assert steps == [] and isinstance(last, Failed) and "drafter" in last.message


def test_a_lane_that_fails_keeps_its_cause_for_the_engineer(caplog):
    """`--debug` could not show where a drafter raised."""
    error = ValueError("no such thing")
    with caplog.at_level(logging.DEBUG, "engine.core.decode"):
        list(run(FakeTarget(), Breaks([], 0, Mock(side_effect=error)), [1, 2], 8, 3))
    assert any(record.exc_info and record.exc_info[1].__cause__ is error for record in caplog.records)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), RaceError("NaN")], ids=repr)
def test_a_model_that_fails_fails_its_lane_only(error):
    """Memory that runs out in one lane would end the race with a traceback, though `decode` promises Failed."""

    class Ends(FakeTarget):
        def extend(self, token_ids, num_logits, *, parents=()):
            if self.calls.count("extend") == 3:
                raise error
            return super().extend(token_ids, num_logits)

    *steps, last = run(Ends(), Empty(), [1, 2], 8, 0)
    assert isinstance(last, Failed) and str(error) in last.message
    assert tokens_of(steps) == tokens_of(list(run(FakeTarget(), Empty(), [1, 2], 8, 0)))[:2]
