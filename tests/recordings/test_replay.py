"""A recorded race is played at the pace at which it ran."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.recordings.recording import Recording
from engine.recordings.replay import replay
from tests.helpers import races
from tests.helpers.races import events_of


class Wall:
    """A clock, and a sleep that always sleeps a little too long."""

    def __init__(self, oversleep: float = 0.0) -> None:
        self.now, self.oversleep, self.num_sleeps = 100.0, oversleep, 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds + self.oversleep
        self.num_sleeps += 1


@given(races.recordings(), st.sampled_from([0.5, 1.0, 4.0]), st.floats(0, 0.05))
def test_every_event_comes_at_its_lane_time(recording, speed, oversleep):
    """No event early; a sleep that is always late, or a slow consumer, shifts single events and never adds up."""
    wall = Wall(oversleep)
    for event in replay(Recording.of(recording), speed, wall.sleep, wall):
        late = wall.now - 100.0 - event.clock_s / speed
        assert -1e-9 <= late <= oversleep + 0.015 + 1e-9
        wall.now += 0.01 if late < 0.005 else 0.0


@given(races.recordings() | races.recordings(failing=True), st.sampled_from([0, math.inf, 1e6]))
def test_replay_keeps_all_events_and_each_lane_in_order(recording, speed):
    """Nothing is lost or doubled, lanes keep their order and share one time, and full speed never sleeps."""
    wall = Wall()
    played, recorded = list(replay(Recording.of(recording), speed, wall.sleep, wall)), events_of(recording)
    for lane in {event.lane for event in recorded}:
        assert [e for e in played if e.lane == lane] == [e for e in recorded if e.lane == lane]
    assert len(played) == len(recorded)
    assert [e.clock_s for e in played] == sorted(e.clock_s for e in recorded)
    assert wall.num_sleeps == 0 or speed == 1e6


@pytest.mark.parametrize("speed", [-1.0, math.nan, -math.inf, 1e-9, 1e9, "2", True, None])
def test_a_speed_that_cannot_be_played_is_refused_at_once(speed):
    """The error comes from the call, not from the first event, and names the limits."""
    with pytest.raises(UsageError, match=r"speed must be a number from 0\.001 to 1000000"):
        replay(Recording.of(races.fixed_race()), speed)
