"""Where a race's speed comes from: sums that are whole, a curve on which the race lies, and the ways to cheat."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.analysis.breakdown import compared, origins
from engine.analysis.inflate import CHUNK_S, STRETCHES, SWITCHES, inflated, stretches
from engine.analysis.loops import SHORTEST, loop_start
from engine.analysis.metrics import lane_metrics, race_speedup
from engine.core.events import Step, steps
from tests.helpers.races import a_race, events_of, recordings

ON = st.sets(st.sampled_from(SWITCHES))
EAGER = 4.0


@given(recordings())
def test_the_parts_are_the_lanes_time(recording) -> None:
    """A stack would lose or invent time."""
    events = events_of(recording)
    race, numbers = compared(events), lane_metrics(events, "speculative")
    assert race is not None
    assert race.speedup == race_speedup(events)
    assert sum(race.costs()) == pytest.approx(numbers.decode_s, rel=1e-9)
    gap = numbers.decode_s - numbers.num_steps * race.plain_s
    assert sum(race.costs()[1:]) == pytest.approx(gap, rel=1e-9, abs=1e-9)
    assert race.costs().drafting_s == pytest.approx(sum(step.draft_s for step in steps(events, "speculative")))
    assert race.tokens_per_step == numbers.mean_acceptance_length


@given(st.integers(1, 8), st.integers(1, 20), st.floats(1e-3, 0.1))
def test_steps_of_one_width_cost_their_median(num, num_steps, plain_s) -> None:
    """Noise would be told of a race without any."""
    race = compared(events_of(a_race([(num - 1, num - 1)] * num_steps, plain_s, num * plain_s, plain_s / 10)))
    assert race is not None and race.speedup == pytest.approx(1.0)
    assert race.costs().rest_s == pytest.approx(0.0, abs=1e-9)


@given(st.floats(0.0, 1.0), st.integers(1, 30))
def test_reading_the_prompt_is_charged_to_both(longer_s, num_steps) -> None:
    """A first token that comes later would be forgotten."""
    race = compared(events_of(a_race([(3, 2)] * num_steps, 0.01, 0.012, prefill_s=(0.1, 0.1 + longer_s))))
    assert race is not None
    assert race.with_prefill == pytest.approx((0.1 + 0.03 * num_steps) / (0.1 + longer_s + 0.012 * num_steps))


def test_without_a_race_to_compare_there_is_nothing() -> None:
    """A division by the time of a lane that is not there."""
    events = events_of(a_race([(3, 2)] * 4))
    assert compared([event for event in events if event.lane != "speculative"]) is None
    assert compared([event for event in events if event.lane == "speculative"]) is None
    assert compared([event for event in events if event.lane != "plain"]) is None, "its baseline is not what is shown"
    assert compared([event for event in events if event.lane != "baseline"]) == compared(events)
    assert compared(events, baseline="speculative") == compared(events), "a baseline that drafts is none"
    assert compared(()) is None


@given(st.randoms(use_true_random=False), st.integers(0, 40), st.integers(1, 40))
def test_every_token_has_one_origin(rng: random.Random, num_prompt, num_steps) -> None:
    """A token would count twice or never, or a copy of the completion pass for one of the prompt."""
    done, wanted = [], {"prompt": 0, "completion": 0, "guessed": 0, "target": 0}
    position = 0
    for index in range(num_steps):
        drafted = rng.randrange(8)
        accepted = rng.randrange(drafted + 1)
        copied: tuple[int, ...] = ()
        if drafted and num_prompt + position and rng.random() < 0.7:
            copied = (rng.randrange(drafted), rng.randrange(num_prompt + position))
        for place in range(accepted):
            if copied and place >= copied[0]:
                wanted["prompt" if copied[1] + place - copied[0] < num_prompt else "completion"] += 1
            else:
                wanted["guessed"] += 1
        wanted["target"] += 1
        ids = tuple(range(accepted))
        done.append(Step(index, position, tuple(range(drafted)), accepted, (*ids, 9), 0.1, 0.1, 8, copied=copied))
        position += accepted + 1
    counts = origins(done, num_prompt, "hybrid:ngram+eagle3")
    if counts is None:
        assert not any(step.copied for step in done if step.num_accepted)
    else:
        assert counts._asdict() == wanted
        assert sum(counts[:3]) == sum(step.num_accepted for step in done) and sum(counts) == position


def test_what_nobody_noted_is_not_known() -> None:
    """Copies of an old file would be called guesses of a model."""
    done = steps(events_of(a_race([(3, 2)] * 4)), "speculative")
    for drafter in ("ngram", "hybrid:ngram+eagle3", "synthetic:0.8"):
        assert origins(done, 3, drafter) is None
    assert origins([replace(step, drafted=(), num_unknown=3) for step in done], 3, "eagle3") is None
    assert origins(done, 3, "eagle3:some/ngram-head") == (0, 0, 8, 4)
    assert origins(steps(events_of(a_race([(3, 0)] * 4)), "speculative"), 3, "ngram") == (0, 0, 0, 4)


@given(st.integers(0, 30), st.integers(SHORTEST, 20), st.integers(4, 6))
def test_the_ratio_before_the_loop_is_that_of_a_race_that_ends_there(num_before, size, times) -> None:
    """A loop that goes on being counted; or the wrong tokens left out, or a loop blamed where there is none."""
    ids = [*range(1000, 1000 + num_before), *list(range(100, 100 + size)) * times]
    slow = num_before + size
    fast, left = divmod(len(ids) - slow, 5)
    rows = [(2, 0)] * slow + [(4, 4)] * fast + [(4, left - 1)] * bool(left)
    race = compared(events_of(a_race(rows, token_ids=ids)))
    assert race is not None
    assert loop_start(ids) == slow
    beginning = race.before_the_loop()
    assert beginning == (slow, pytest.approx(0.01 / 0.012))
    assert race.speedup > beginning[1]
    other = compared(events_of(a_race(rows)))
    assert other is not None and other.before_the_loop() is None


def ratio_with(race, on) -> float:
    (ratio,) = inflated(race, EAGER, [on])
    return ratio


@given(recordings(), ON, ON)
def test_no_switch_lowers_the_ratio(recording, some, more) -> None:
    """A way to cheat that makes the number honest, or smaller beside another."""
    race = compared(events_of(recording))
    assert race is not None
    assert ratio_with(race, some | more) >= ratio_with(race, some) * (1 - 1e-12)
    assert ratio_with(race, ()) == pytest.approx(race.speedup)


@given(recordings())
def test_each_switch_does_what_it_says(recording) -> None:
    """A simulated number that follows from another formula than the page tells."""
    race = compared(events_of(recording))
    assert race is not None
    alone_s, lane_s = (sum(step.seconds for step in lane) for lane in (race.plain, race.lane))
    num = sum(len(step.token_ids) for step in race.plain)
    assert ratio_with(race, {"eager"}) == pytest.approx(EAGER * race.speedup)
    assert ratio_with(race, {"prefill"}) == pytest.approx((alone_s + race.prefill_s[0]) / lane_s)
    assert ratio_with(race, {"chunks"}) == pytest.approx(max(CHUNK_S * num, alone_s) / lane_s)
    assert ratio_with(race, {"best"}) == pytest.approx(max([race.speedup, *stretches(race)]))
    kept = max((k + 1) / (lane_s_of(race.lane, k)) for k in {step.num_drafted for step in race.lane})
    assert ratio_with(race, {"loop"}) == pytest.approx(max(race.speedup, kept * alone_s / num))
    assert len(stretches(race)) == (STRETCHES if num >= STRETCHES else 0)


def lane_s_of(lane, k: int) -> float:
    seconds = [step.seconds for step in lane if step.num_drafted == k]
    return sum(seconds) / len(seconds)
