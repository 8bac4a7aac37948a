"""`python -m tools.soak`: a difference is found, counted and kept with what it takes to race it again."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from engine.core.spec import RaceSpec, SamplingParams, lanes_of
from engine.drafters import DRAFTERS
from engine.loading.loading import load
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS
from tools import soak

SEGMENT = soak.Segment("fixture", "float32", "compiled")


@pytest.fixture
def race(few_rows) -> TorchRace:
    """A finished race of two drafting lanes."""
    loaded, lanes = load(str(TRAINED), "float32", "cpu"), lanes_of([("a", "ngram", 3), ("b", "ngram", 2)])
    spec = RaceSpec(lanes[1:], SamplingParams(max_new_tokens=12), audit=True)
    made = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, PROMPTS[0], False))
    list(made.events())
    return made


def test_equal_lanes_leave_no_problem(race):
    """Every lane would be a problem, or none be counted."""
    rows = list(soak.rows_of(SEGMENT, race))
    assert [row["problem"] for row in rows] == [None, None]
    assert all(row["counts"] == {"tokens": 12, "trees": 0, "tokens_different": 0, "rows_compared": 12,
                                 "rows_different": 0} for row in rows)  # fmt: skip


@pytest.mark.parametrize("what", ["token", "row", "end", "failure"])
def test_a_planted_difference_is_counted_and_kept(race, what):
    """A million tokens would say nothing."""
    lane = race.lanes["b"]
    last = lane.steps[-1]
    if what == "token":
        lane.steps[-1] = replace(last, token_ids=(*last.token_ids[:-1], last.token_ids[-1] + 1))
    elif what == "row":
        lane.steps[-1] = replace(last, checksums=(*last.checksums[:-1], last.checksums[-1] + 1))
    elif what == "end":
        lane.steps.pop()
    else:
        lane.state = "failed"
    totals = soak.Totals()
    for row in soak.rows_of(SEGMENT, race):
        totals.add(json.loads(json.dumps(row)), 7)
    (problem,) = json.loads(json.dumps(totals.to_json()))["problems"]
    assert (problem["segment"], problem["lane"], problem["prompt"]) == (7, "b", list(race.prompt.token_ids))
    assert RaceSpec(**problem["spec"] | {"lanes": race.spec.lanes, "params": race.spec.params}) == race.spec
    missing = len(last.token_ids) if what == "end" else 0
    wanted = {"token": 1, "row": 0, "end": missing, "failure": 0}[what]
    assert totals.all["tokens_different"] == problem["tokens_different"] == wanted
    assert totals.all["rows_different"] == (what == "row") and bool(problem["failed"]) == (what == "failure")
    assert totals.all["tokens"] == sum(sums["tokens"] for sums in totals.by["drafter"].values()) == 24 - missing


def test_every_drafter_dtype_rule_and_kind_of_draft_is_raced():
    """What is not drawn is not soaked."""
    segments = [soak.Segment.of(number) for number in range(300)]
    assert {(s.target, s.dtype, s.kernels) for s in segments} >= {
        (target, dtype, kernels)
        for target in soak.ROOMS
        for dtype, kernels in (("bfloat16", "compiled"), ("bfloat16", "torch"), ("int8", "compiled"))
    }
    assert {s.dtype for s in segments} == {"bfloat16", "int8", "float32"}
    draw, seen, text = random.Random(1), set(), "a" * 9000
    for segment in segments[:6] * 5:
        spec, prompt = soak.random_race(draw, segment, lambda cut, **_: {"input_ids": list(cut.encode())}, [text])
        seen |= {(lane.drafter.partition(":")[0], lane.rule) for lane in spec.lanes}
        assert spec.params.max_new_tokens >= 100 and prompt.token_ids
    assert {name for name, _ in seen} == set(DRAFTERS)  # "none" is the baseline's
    assert {rule for _, rule in seen} == {"coupled", "rejection"}
