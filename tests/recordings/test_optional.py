"""What a recording may have and need not: unknown drafts, no width, wall times, candidates, tables, promises."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from engine.analysis.metrics import lane_metrics, race_speedup, race_speedups, ratio_noise
from engine.core.errors import UsageError
from engine.core.events import steps
from engine.recordings import recording as recordings
from engine.recordings.check import check
from tests.helpers import races
from tests.helpers.races import spec_of


@given(races.many_lanes())
def test_drafts_count_whether_they_are_known_or_not(recording):
    """A server that tells only how many it drafted would seem to accept everything, or to draft nothing."""
    unknown = copy.deepcopy(recording)
    for step in unknown["events"]:
        if step["type"] == "step" and step["drafted"]:
            step.update(num_drafted=len(step["drafted"]), drafted=[], drafted_pieces=[])
    lanes = spec_of(recording).lanes
    (one, other) = (check(race)[1] for race in (recording, unknown))
    assert race_speedups(one, lanes) == race_speedups(other, lanes)
    for lane in lanes:
        assert lane_metrics(one, lane.name) == lane_metrics(other, lane.name)
        drafting = (lane.name, "plain", lane.name)
        assert race_speedup(one, *drafting) == race_speedup(other, *drafting), "a baseline that drafts is none"
        noises = [ratio_noise(steps(race, "plain"), steps(race, lane.name)) for race in (one, other)]
        assert noises[0] == noises[1]


DRAFTS = [[1] * 63, [], [2**31 - 1], [0], [5]]


def candidates(**change: Any) -> Callable[[dict[str, Any]], object]:
    return lambda r: r["candidates"].update(change)


def row(lane: str = "baseline", index: int = 0, r: int = 0, **change: Any) -> Callable[[dict[str, Any]], object]:
    """Change a row of a step; None takes a member away."""

    def apply(r_: dict[str, Any]) -> None:
        entry = r_["candidates"]["lanes"][lane][index][r]
        entry.update(change)
        for key in [key for key, value in change.items() if value is None]:
            del entry[key]

    return apply


def copied(*places: Any) -> Callable[[dict[str, Any]], object]:
    """Of the one step that drafted: its draft is [10, 11, 9], after a prompt of one token, 10, 11 committed."""

    def apply(r: dict[str, Any]) -> None:
        next(event for event in r["events"] if event.get("drafted")).update(copied=list(places))

    return apply


COSTS = {"verify_s": [0.5] * 64, "draft_s": {"eagle3": [*range(64)], "copies": [0] * 64}}
ORACLES = {"speculative": {"seconds": 0, "share": 0.0}, "plain": {"seconds": 0, "share": 0}}


def costs(**change: Any) -> Callable[[dict[str, Any]], object]:
    return lambda r: r["costs"].update(change)


def of_eagle3(*seconds: Any) -> Callable[[dict[str, Any]], object]:
    return costs(draft_s={**COSTS["draft_s"], "eagle3": list(seconds)})


WRONG = {
    "costs.verify_s must be a list of 1 to 64 times in seconds that never fall, not a list": costs(verify_s=[2, 1]),
    "costs.verify_s must be a list of 1 to 64 times .* never fall, not a list": costs(verify_s=[0.5] * 65),
    "costs of 'eagle3' must be a list of 1 to 64 times": of_eagle3(-1, *[1] * 63),
    "costs of 'eagle3' are 63, those of steps 64; .* than its longest draft has tokens, 63": of_eagle3(*[1] * 63),
    "costs of 'eagle3' are 64, those of steps 63": costs(verify_s=[1] * 63),
    "only one of them has 'eagle3'": costs(draft_s={"copies": [0] * 64}),
    "of the same drafters; only one of them has 'copies'": lambda r: r.pop("tables"),
    "the oracle of lane 'nobody', which the spec does not have": lambda r: r.update(
        oracles={"nobody": ORACLES["plain"]}
    ),
    "the oracle of lane 'plain' lacks 'share'": lambda r: r.update(oracles={"plain": {"seconds": 1}}),
    "took 1 seconds, which is not its share of the lane's own": lambda r: r["oracles"]["plain"].update(seconds=1),
    "the table of 'eagle3' has 6 drafts, but the baseline committed 5 tokens, and no lane more than 5": lambda r: (
        r.update(tables={"eagle3": [[]] * 6})
    ),
    "the table of 'plain' has 4 drafts, but": lambda r: r.update(tables={"plain": [[]] * 4}),
    "the table of 'plain'\\[\\] has 64 entries; at most 63 are allowed": lambda r: r.update(
        tables={"plain": [[1] * 64] * 5}
    ),
    "a token id from 0 to 2147483647, not 2147483648": lambda r: r.update(tables={"plain": [[2**31]] * 5}),
    "candidates are of 9 seeds; at most 8": candidates(seeds=[*range(9)]),
    "candidates of lane 'nobody', which the spec does not have": candidates(lanes={"nobody": []}),
    "candidates of lane 'baseline' do not have a row for each row": candidates(lanes={"baseline": []}),
    "candidates of lane 'speculative' do not have": lambda r: r["candidates"]["lanes"]["speculative"][0].pop(),
    "have 17 ids and 17 logits; need 1 to 16 distinct ids": row(ids=[*range(17)], logits=[0] * 17),
    "are not sorted by falling logit": row(ids=[10, 2], logits=[0, 1], log_z=5, noise=None),
    "have probabilities that sum to more than 1": row(ids=[10, 2], logits=[1, 1], log_z=1.1, noise=None),
    "lack the committed token": row(ids=[8, 7], logits=[0, 0], log_z=5, noise=None),
    "noise that does not match its tokens and the 2 seeds": row(noise=[[0, 0, 0, 0]]),
    "row 3 of step 0 have noise that does not match its tokens": row("speculative", r=3, noise=[[0] * 3, [0] * 3]),
    "imply a different token": row(ids=[10, 2], logits=[1, 1], log_z=5, noise=[[0, 0.02], [0, 0]]),
    "copied from place 3 of its draft on, which has 3": copied(3, 0),
    "must be two non-negative integers": copied(0),
    "copied from place 0 of the text, which has other tokens": copied(2, 0),
    "copied from place 9 of the text, which has other tokens": copied(2, 9),
    "table_parents of 'toString@tree'": lambda r: r.update(table_parents={"toString@tree": []}),
    "table_parents of 'copies'": lambda r: r.update(table_parents={"copies": [[]] * 5}),
    "a promise of lane 'nobody', which the spec does not have": lambda r: r.update(promises={"nobody": "x"}),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_contradicts_the_race_is_refused(words):
    """A table of another race, or scores of a token that nobody wrote, would be shown beside this one."""
    recording = races.fixed_race()
    good = {"tables": {"eagle3": DRAFTS, "copies": [[]] * 5}, "costs": COSTS, "oracles": ORACLES}
    recording.update(copy.deepcopy({**good, "promises": {"plain": ""}}))
    recording["spec"]["params"]["temperature"] = 0.5
    recording["candidates"] = races.candidates_of(recording, random.Random(0))
    assert recordings.checked(json.dumps(recording).encode()) == recording
    WRONG[words](recording)
    with pytest.raises(UsageError, match=words):
        recordings.checked(json.dumps(recording).encode())
