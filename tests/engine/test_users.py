"""The computed speed-up of users who share a device, against its definition written out."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from engine.events import Step
from engine.users import seconds_at, shared, stops_paying
from engine.why import Compared

COSTS = st.dictionaries(st.integers(1, 64), st.floats(1e-4, 1.0), min_size=2, max_size=8)
LANES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.floats(0, 0.01)), min_size=1, max_size=6)


def race_of(lane: list[tuple[int, int, float]]) -> Compared:
    done = [
        Step(i, 0, tuple(range(num)), min(kept, num), tuple(range(min(kept, num) + 1)), draft_s, 1.0, None)
        for i, (num, kept, draft_s) in enumerate(lane)
    ]
    return Compared([Step(0, 0, (), 0, (1,), 0.0, 1.0, None)], done, 1.0, (None, None))


@given(COSTS, st.floats(0.5, 200))
def test_a_step_costs_what_was_measured(step_s: dict[int, float], rows: float) -> None:
    """A wider step that is cheaper, a jump between two measured widths, or a measured one that is not on the line."""
    assert all(seconds_at(step_s, width) >= seconds - 1e-12 for width, seconds in step_s.items())
    assert math.isclose(seconds_at(step_s, max(step_s)), max(step_s.values()))
    assert seconds_at(step_s, rows) <= seconds_at(step_s, rows + 0.25) + 1e-12
    assert seconds_at(step_s, 0.1) == step_s[min(step_s)]


@given(COSTS, LANES, st.none() | st.floats(0, 0.01))
def test_the_speed_up_of_many(
    step_s: dict[int, float], lane: list[tuple[int, int, float]], cache_s: float | None
) -> None:
    """Another formula than the one that is told; users whose caches cost nothing; a curve that is called measured."""
    race = race_of(lane)
    told = shared(race, step_s, cache_s, 20)
    rows = 1 + sum(num for num, _, _ in lane) / len(lane)
    draft_s = sum(draft for _, _, draft in lane) / len(lane)
    tokens = sum(min(kept, num) + 1 for num, kept, _ in lane) / len(lane)
    for n, together, in_turn, measured in told:
        caches = (n - 1) * (cache_s or 0)
        plain, wide = seconds_at(step_s, n) + caches, seconds_at(step_s, n * rows) + caches
        assert math.isclose(together, tokens * plain / (wide + draft_s))
        assert math.isclose(in_turn, tokens * plain / (wide + n * draft_s))
        assert in_turn <= together <= tokens + 1e-9 and measured == (n * rows <= max(step_s))
    apart, at_once = stops_paying(told)
    assert apart == min((n for n, _, gain, _ in told if gain < 1), default=None)
    assert at_once == min((n for n, gain, _, _ in told if gain < 1), default=None)
    assert at_once is None or (apart is not None and apart <= at_once)


def test_one_width_tells_nothing() -> None:
    assert shared(race_of([(3, 2, 0.0)]), {1: 0.1}) == []
