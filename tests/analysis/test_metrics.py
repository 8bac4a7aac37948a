"""The numbers mean what docs/read_a_race.md says they mean."""

import math
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.analysis.metrics import MIN_STEPS_TO_JUDGE, cost_per_million, disturbance, lane_metrics, percentile, speedup
from engine.core.events import Finished, LaneEvent, Started, Step, steps
from tests.helpers.races import events_of, on_servers, recordings


def make_lane(*rows: tuple[int, int, int, float]) -> list[LaneEvent]:
    """A lane from (drafted, accepted, committed, seconds) per step; the ids only need to agree with each other."""
    events, position, clock = [LaneEvent("a", 0.0, Started(3, 1.0))], 0, 0.0
    for index, (drafted, accepted, committed, seconds) in enumerate(rows):
        ids = tuple(range(position, position + committed))
        draft = ids[:accepted] + tuple(1000 + i for i in range(drafted - accepted))
        position, clock = position + committed, clock + seconds
        step = Step(index, position - committed, draft, accepted, ids, seconds / 4, 3 * seconds / 4, 8)
        events.append(LaneEvent("a", clock, step))
    return [*events, LaneEvent("a", clock, Finished("length", position, clock))]


def test_a_lane_by_hand():
    """Each formula on numbers to check in the head: prefill apart, empty and short drafts and the end token counted."""
    m = lane_metrics(make_lane((3, 3, 4, 0.2), (3, 1, 2, 0.2), (0, 0, 1, 0.1), (1, 1, 2, 0.4)), "a")
    assert (m.num_tokens, m.num_steps, m.per_step_drafted, m.per_step_accepted) == (9, 4, (3, 3, 0, 1), (3, 1, 0, 1))
    assert m.prefill_s == 1.0
    assert m.decode_s == pytest.approx(0.9)
    assert m.tokens_per_s == pytest.approx(10)
    assert m.ttft_s == pytest.approx(1.2)
    assert m.tpot_s == pytest.approx(0.1)
    assert m.itl_p50_s == pytest.approx(0.2)
    assert m.itl_p95_s == pytest.approx(0.37)
    assert m.acceptance_rate == pytest.approx(5 / 7)
    assert m.mean_acceptance_length == 9 / 4
    assert m.acceptance_by_position == pytest.approx((1.0, 1 / 3, 1 / 3)), "a short draft lowers it"
    assert m.conditional_acceptance_by_position == pytest.approx((1.0, 1 / 2, 1.0)), "and this one not"
    m = lane_metrics(make_lane((2, 0, 1, 0.1)), "a")
    assert m.acceptance_by_position == (0.0, 0.0)
    assert m.conditional_acceptance_by_position == (0.0, None), "no draft reached it"


@given(recordings())
def test_numbers_of_random_races_agree_with_each_other(recording):
    """Rates, counts and times would contradict each other, or another lane leak in."""
    events = events_of(recording)
    for lane in ("plain", "baseline", "speculative"):
        m = lane_metrics(events, lane)
        end = next(e.event for e in events if e.lane == lane and isinstance(e.event, Finished))
        assert m == lane_metrics([e for e in events if e.lane == lane], lane)
        assert m.num_tokens == end.num_tokens and m.decode_s == pytest.approx(end.decode_s)
        assert m.tokens_per_s * m.tpot_s == pytest.approx(1)
        seconds = [step.seconds for step in steps(events, lane)]
        assert min(seconds) <= m.itl_p50_s <= m.itl_p95_s <= max(seconds)
        assert 1 <= m.mean_acceptance_length <= 8
        assert (m.acceptance_rate is None) == (sum(m.per_step_drafted) == 0)
        assert all(a >= b for a, b in pairwise(m.acceptance_by_position)), "accepting token i needs all before it"
        drafts = sum(d > 0 for d in m.per_step_drafted)
        assert sum(m.acceptance_by_position) * drafts == pytest.approx(sum(m.per_step_accepted))
        assert all(math.isfinite(v) for v in asdict(m).values() if isinstance(v, float))


def test_speedup_compares_the_same_number_of_tokens():
    """A lane that went on for longer is judged by its first n tokens: what came after, however slow, does not count."""
    short = steps(make_lane((0, 0, 1, 0.1), (0, 0, 1, 0.1)), "a")
    long = steps(make_lane((0, 0, 1, 0.1), (2, 1, 2, 0.5), (0, 0, 1, 100.0)), "a")
    assert speedup(short, long) == pytest.approx(0.5)
    assert speedup(long, short) == pytest.approx(2.0)
    assert speedup([], long) is None and speedup(long, []) is None


def test_cost_reproduces_the_published_figures_and_not_the_wrong_one():
    """Red Hat's article and the popular thread: the formula gives $4.41, $3.56, 19.4 % less, and $0.0139, not $0.05."""
    before, after = cost_per_million(2620.89, 41.62), cost_per_million(3250.07, 41.62)
    assert round(before, 2) == 4.41 and round(after, 2) == 3.56
    assert round(100 * (1 - after / before), 1) == 19.4
    assert round(cost_per_million(100, 5) / 1000, 4) == 0.0139
    assert 1 - cost_per_million(250, 5) / cost_per_million(100, 5) == pytest.approx(0.6)


@pytest.mark.parametrize(
    "speed, price",
    [(None, 1.0), (0.0, 1.0), (1.0, None), (float("nan"), 1.0), (1.0, float("inf")), (1e-320, 1.0), (1.0, -1.0)],
)
def test_no_cost_rather_than_nonsense(speed, price):
    """No infinity, NaN or negative price reaches the screen."""
    assert cost_per_million(speed, price) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentiles_lie_among_the_values(values, share):
    """The ends are the smallest and the largest, and nothing lies outside; of nothing there is none."""
    assert percentile([], share) is None
    assert min(values) <= percentile(values, share) <= max(values)
    assert percentile(values, 0) == min(values) and percentile(values, 1) == max(values)


@given(st.lists(st.floats(0.01, 0.029), min_size=MIN_STEPS_TO_JUDGE, max_size=60))
def test_a_quiet_machine_gets_no_warning(seconds):
    """A warning that always stands there is read by nobody: times within a factor of three never raise it."""
    assert not disturbance(make_lane(*((0, 0, 1, value) for value in seconds)))


@given(st.integers(MIN_STEPS_TO_JUDGE, 200), st.floats(1e-3, 1.0), st.floats(3.1, 1000.0), st.randoms())
def test_a_disturbed_machine_is_named_with_its_lane_and_both_figures(count, median, factor, rng):
    """One busy run showed "82x", and nothing said so; or a server, which tells no widths, passes for this machine."""
    stalled = set(rng.sample(range(count), count // 10 + 1))
    times = [median * factor if i in stalled else median for i in range(count)]
    usual, slow = (f"{1000 * percentile(times, share):.1f} ms" for share in (0.5, 0.95))
    lane = make_lane(*((0, 0, 1, value) for value in times))
    assert f"lane a of width 8 took {usual} at the median and {slow} at" in disturbance(lane)
    served = [replace(e, event=replace(e.event, width=None)) for e in lane[1:-1]]
    assert disturbance(served).startswith(f"Pieces of lane a arrived {usual} at the median and {slow} at")


def test_only_steps_of_equal_width_are_compared():
    """A lane that drafts at width 8 and coasts at width 1, or of a few steps, would be called disturbed."""
    wide = make_lane(*((0, 0, 1, 0.1) for _ in range(30)))
    narrow = [
        LaneEvent("a", e.clock_s, Step(30 + i, 30 + i, (), 0, (1,), 0.0, 0.01, 1)) for i, e in enumerate(wide[1:-1])
    ]
    assert not disturbance([*wide[:-1], *narrow])
    assert not disturbance(make_lane(*((0, 0, 1, 0.01 if i % 2 else 1.0) for i in range(MIN_STEPS_TO_JUDGE - 1))))


@given(recordings())
def test_what_came_first_from_a_server_is_the_prompts(recording):
    """A server that sends ten tokens in its first chunk would look ten tokens faster."""
    lanes = ("plain", "baseline", "speculative")
    assume(min(len(steps(events_of(recording), lane)) for lane in lanes) > 3)
    events = events_of(on_servers(recording))
    for lane in lanes:
        (first, *later), m = steps(events, lane), lane_metrics(events, lane)
        counted, decode_s = sum(len(step.token_ids) for step in later), sum(step.seconds for step in later)
        assert m.tokens_per_s == pytest.approx(counted / decode_s) and m.tpot_s == pytest.approx(decode_s / counted)
        assert m.itl_p50_s == pytest.approx(percentile([step.seconds for step in later], 0.5))
        assert (m.ttft_s, first.seconds) == (m.prefill_s, 0.0) and m.num_tokens == len(first.token_ids) + counted
