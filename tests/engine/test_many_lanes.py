"""Any number of speculative lanes in one race: each writes the baseline's tokens, and each is judged for itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.interfaces import Acceptance, Draft, Drafter
from engine.recordings.check import check
from engine.recordings.recording import build
from engine.session import TorchRace
from engine.spec import LaneSpec, RaceSpec, SamplingParams, lanes_of
from engine.text import encode_prompt
from tests.helpers.trained import PROMPTS, text_of, trained

NUM_NEW = 24
DRAFTERS = ("none", "ngram", "draft_model", "eagle3", "dflash", "synthetic", "hybrid")
asked = st.lists(st.tuples(st.sampled_from(DRAFTERS), st.sampled_from(["auto", 3, 7])), min_size=1, max_size=6)


class Broken(Drafter):
    """Drafts nothing once and then raises."""

    def __init__(self) -> None:
        self.asked = 0

    def prefill(self, prompt_ids: Any, hidden: Any) -> None: ...

    def propose(self, token_ids: Any, hidden: Any, k: int) -> Draft:
        self.asked += 1
        if self.asked > 1:
            raise ZeroDivisionError("broken")
        return Draft()


class Wrong:
    """The right rule but for the token at one position, which it turns into its neighbour: a planted fault."""

    guarantee = "same tokens"

    def __init__(self, right: Any, at: int) -> None:
        self.right, self.at = right, at

    def __call__(self, draft: Draft, logits: Any, position: int) -> Acceptance:
        found = self.right(draft, logits, position)
        ids, at = list(found.token_ids), self.at - position
        if not 0 <= at < len(ids):
            return found
        ids[at] ^= 1
        return Acceptance(min(found.num_accepted, at), tuple(ids[: at + 1]))


def race_of(lanes: tuple[LaneSpec, ...], temperature: float = 0.8) -> TorchRace:
    params = SamplingParams(temperature, seed=5, max_new_tokens=NUM_NEW)
    prompt = encode_prompt(trained().tokenizer, PROMPTS[0], False)
    return TorchRace(trained(), RaceSpec(lanes, params, audit=True), prompt)


def written(race: TorchRace, name: str) -> list[tuple[int, int]]:
    """Every token of a lane, with its row's checksum."""
    return [pair for step in race.lanes[name].steps for pair in zip(step.token_ids, step.checksums, strict=True)]


@pytest.mark.slow
@settings(max_examples=5)
@given(asked, st.sampled_from([0.0, 0.8]))
def test_every_lane_writes_the_baseline_s_tokens_and_rows(drafting, temperature):
    """A lane would write otherwise beside others than alone: by their widths, their pool, or their order."""
    race = race_of(lanes_of((str(i), text_of(each), k) for i, (each, k) in enumerate(drafting)), temperature)
    recording = check(build(race.header(), list(race.events()), race.result()))
    truth = written(race, "baseline")
    assert len(truth) == NUM_NEW
    for i in range(len(drafting)):
        assert written(race, str(i)) == truth
        verdict = recording["verdicts"][str(i)]
        assert (verdict["kind"], verdict["rows_compared"], verdict["rows_different"]) == ("identical_bits", NUM_NEW, 0)


@pytest.mark.slow
@settings(max_examples=8)
@given(
    st.lists(st.none() | st.just("fails") | st.integers(0, NUM_NEW - 1), min_size=2, max_size=5),
    st.sampled_from(["ngram", "synthetic"]),
)
def test_each_lane_is_judged_for_itself(faults, drafter):
    """A fault would hide behind a later one (explaining it moves the baseline's cache), or be told of another lane."""
    race = race_of(lanes_of((str(i), text_of(drafter), 3) for i in range(len(faults))))
    for i, fault in enumerate(faults):
        lane = race.lanes[str(i)]
        if fault == "fails":
            lane.drafter = Broken()
        elif fault is not None:
            lane.accept = Wrong(lane.accept, fault)
    list(race.events())
    verdicts = race.result()["verdicts"]
    assert list(verdicts) == ["plain", *map(str, range(len(faults)))]
    for i, fault in enumerate(faults):
        verdict, name = verdicts[str(i)], f"baseline and {i}"
        assert name in verdict["sentence"]
        if isinstance(fault, int):
            assert (verdict["kind"], verdict["first_difference"]["position"]) == ("different", fault)
            right = written(race, "baseline")[fault][0]
            assert list(verdict["first_difference"]["tokens"]) == [right, right ^ 1]
        else:
            assert verdict["kind"] in ("identical_bits", "identical_tokens")
            assert (verdict["rows_compared"] < NUM_NEW) == (fault == "fails")


def test_a_race_without_a_baseline_has_no_verdict():
    """It would be compared with a lane that promises nothing, or fail at the end."""
    race = race_of((LaneSpec("plain", width="fastest"), LaneSpec("a", "ngram", 3)))
    list(race.events())
    assert race.result()["verdicts"] == {}


def test_widths_are_probed_for_every_lane(few_rows):
    """Beside a lane with long drafts the steps of a lane with short ones would be wider than alone, and so slower."""
    race = race_of(lanes_of([("a", "ngram", 2), ("b", "ngram", 4), ("c", "ngram", 15)]))
    assert {3, 5, 16} <= race.widths.seconds.keys()
