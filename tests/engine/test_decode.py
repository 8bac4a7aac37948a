"""The loop: its invariant, its events and its clock. (What becomes of bad drafters: test_bad_drafters.py.)"""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.events import Finished, LaneEvent, Started, Step
from engine.core.interfaces import Choice, Draft
from engine.core.sampling.accept import Coupled
from engine.recordings.event_json import from_json, to_json
from tests.helpers.fakes import Adversarial, Empty, FakeClock, FakeTarget, Oracle, Random, races, run, tokens_of

GOOD = {
    "empty": lambda truth, seed: Empty(),
    "random": lambda truth, seed: Random(seed),
    "often right": lambda truth, seed: Random(seed, truth),
    "oracle": lambda truth, seed: Oracle(truth),
    "adversarial": lambda truth, seed: Adversarial(truth),
}  # drafters that keep their contract


def summary(events):
    """What must be equal in every lane, whatever was drafted."""
    return (
        tokens_of(events),
        [c for e in events if isinstance(e, Step) for c in e.checksums],
        (events[-1].reason, events[-1].num_tokens),
    )


@given(races(), st.sampled_from(sorted(GOOD)), st.integers(0, 99))
def test_a_drafter_changes_steps_never_tokens(race, name, seed):
    """The speculative lane would write something else than the baseline."""
    lane, table, truth = race
    events = list(run(FakeTarget(table), GOOD[name](tokens_of(truth), seed), **lane, audit=True))
    assert summary(events) == summary(truth)


@given(races(), st.sampled_from(sorted(GOOD)), st.integers(0, 99))
def test_the_cache_holds_all_but_the_last_token(race, name, seed):
    """The invariant of the loop: a rollback off by one, or a prefill too long, is a wrong context from there on."""
    lane, table, truth = race
    target = FakeTarget(table)
    committed = list(lane["prompt"])
    for event in run(target, GOOD[name](tokens_of(truth), seed), **lane):
        if isinstance(event, Step):
            committed += event.token_ids
        if not isinstance(event, Finished):
            # A stop inside a draft cuts the step's tokens after the target has kept them: the cache may then be longer,
            # never different.
            assert target.cache[: len(committed) - 1] == committed[:-1]
        if isinstance(event, Started) or (isinstance(event, Step) and len(event.token_ids) > event.num_accepted):
            assert len(target.cache) == len(committed) - 1


@given(races(), st.sampled_from(sorted(GOOD)), st.integers(0, 99))
def test_steps_add_up(race, name, seed):
    """Positions, accepted counts, widths or the length limit would contradict each other, in every figure."""
    lane, table, truth = race
    k, limit = lane["k"], lane["max_new_tokens"]
    target = FakeTarget(table)
    drafter = GOOD[name](tokens_of(truth), seed)
    started, *steps, finished = run(target, drafter, **lane, audit=True)
    assert started.num_prompt_tokens == len(lane["prompt"]) and isinstance(finished, Finished)
    position = 0
    for index, step in enumerate(steps):
        num = step.num_accepted
        assert (step.index, step.position) == (index, position)
        assert len(step.drafted) <= drafter.asked[index] == min(k, limit - position - 1)
        assert step.drafted[:num] == step.token_ids[:num] and len(step.checksums) == len(step.token_ids) >= 1
        assert step.width == target.width_for(len(step.drafted) + 1)
        if step is not steps[-1]:
            assert len(step.token_ids) == num + 1
            assert num == len(step.drafted) or step.token_ids[num] != step.drafted[num]
        assert from_json(to_json(LaneEvent("a", 0.0, step))) == LaneEvent("a", 0.0, step)
        position += len(step.token_ids)
    tokens = tokens_of(steps)
    ended = tokens[-1] in lane["end_ids"]
    assert not set(tokens[:-1]) & set(lane["end_ids"])
    assert finished.num_tokens == position == len(tokens) <= limit
    assert finished.reason == ("stop" if ended else "length") and (ended or position == limit)
    assert finished.decode_s == pytest.approx(sum(s.seconds for s in steps))


@given(races(), st.integers(0, 99))
def test_a_drafter_sees_each_hidden_row_once_and_of_committed_tokens_only(race, seed):
    """A draft head would read states of rejected tokens, twice or never."""
    lane, table, truth = race
    drafter = Random(seed, tokens_of(truth))
    events = list(run(FakeTarget(table, hidden=True), drafter, **lane))
    assert drafter.hidden == list(enumerate([*lane["prompt"], *tokens_of(events)]))[: len(drafter.hidden)]
    last = [e for e in events if isinstance(e, Step)][-1]
    assert len(drafter.hidden) == len(lane["prompt"]) + last.position - 1


@given(races(), st.integers(0, 12))
def test_closing_ends_the_lane_within_one_step(race, num_events):
    """A visitor's stop would keep the device busy for others."""
    lane, table, truth = race
    target = FakeTarget(table)
    events = run(target, Oracle(tokens_of(truth)), **lane)
    for _ in range(num_events):
        if next(events, None) is None:
            break
    calls = list(target.calls)
    events.close()
    assert target.calls == calls and next(events, None) is None


@given(races(), st.lists(st.floats(0, 3), min_size=6, max_size=6))
def test_the_clock_counts_each_part_where_it_belongs(race, costs):
    """Draft time, on the device too, would count as verification, late work as the next step's, prefill as decoding."""
    lane, table, truth = race
    draft_s, queued_s, prefill_s, extend_s, rollback_s, reader_s = costs
    clock = FakeClock()
    queue = []  # seconds of the device's work, which pass when somebody waits for it

    class Queued(FakeTarget):
        def extend(self, *ids, **more):
            queue.append(extend_s)
            return super().extend(*ids, **more)

        def rollback(self, length):
            queue.append(rollback_s)
            super().rollback(length)

        def synchronize(self):
            clock.spend(sum(queue))
            queue.clear()

    class Slow(Oracle):
        def prefill(self, prompt_ids, hidden):
            super().prefill(prompt_ids, hidden)
            queue.append(prefill_s)

        def guess(self, done, k):
            queue.append(queued_s)
            clock.spend(draft_s)
            return super().guess(done, k)

    for event in run(Queued(table), Slow(tokens_of(truth)), **lane, clock=clock):
        if isinstance(event, Started):
            assert event.prefill_s == pytest.approx(extend_s + prefill_s)
        elif isinstance(event, Step):
            assert event.draft_s == pytest.approx(draft_s + queued_s)
            assert event.verify_s == pytest.approx(extend_s + rollback_s)
        clock.spend(reader_s)  # the consumer takes its time: nobody's


def test_the_steps_are_all_the_time_a_lane_takes():
    """Tokens per second would leave out part of the work: a lane alone has no time outside its steps."""

    class Works(FakeTarget):
        def extend(self, token_ids, num_logits, *, parents=()):
            time.sleep(4e-3)
            return super().extend(token_ids, num_logits)

    class Thinks(Oracle):
        def guess(self, done, k):
            time.sleep(1e-3)
            return super().guess(done, k)

    def share_outside() -> float:
        events = run(Works(width=8), Thinks([3] * 400), list(range(8)), 100, 7)
        next(events)
        started = time.perf_counter()
        steps = [e for e in events if isinstance(e, Step)]
        wall = time.perf_counter() - started
        return 1 - sum(s.seconds for s in steps) / wall

    shares = []
    while len(shares) < 3 and not any(share < 0.01 for share in shares):
        shares.append(share_outside())
    assert 0 <= min(shares) < 0.01, shares


@given(st.integers(0, 5), st.lists(st.integers(0, 4), max_size=5), st.lists(st.integers(0, 4), min_size=6, max_size=6))
def test_coupled_accepts_the_longest_right_prefix_and_looks_no_further(position, drafted, choices):
    """A token after a wrong one would stand, or rows be sampled (2 ms each) that nobody needs."""
    looked = []

    class Looks(Choice):
        def __call__(self, row, position):
            looked.append((row, position))
            return choices[row]

    acceptance = Coupled(Looks())(Draft(tuple(drafted)), range(6), position)
    num = next((i for i, t in enumerate(drafted) if t != choices[i]), len(drafted))
    assert (acceptance.num_accepted, acceptance.token_ids) == (num, tuple(choices[: num + 1]))
    assert looked == [(i, position + i) for i in range(num + 1)]
