"""The fair clock: lanes take turns, and the next step goes to the lane that is behind."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.events import Event, Failed, Finished, LaneEvent, Started, Step
from engine.core.race import race

durations = st.lists(st.floats(1e-4, 10) | st.sampled_from([0.5, 1.0]), max_size=12)
fields = st.lists(st.tuples(durations, st.booleans()), min_size=1, max_size=5)


class Course:
    """Lanes of given step durations that keep their own clocks, watch each other's, and may fail at the end."""

    def __init__(self, lanes: list[tuple[list[float], bool]]) -> None:
        self.durations = {f"lane {i}": steps for i, (steps, _) in enumerate(lanes)}
        self.fails = {f"lane {i}": fails for i, (_, fails) in enumerate(lanes)}
        self.clocks = dict.fromkeys(self.durations, 0.0)
        self.started: set[str] = set()
        self.over: set[str] = set()
        self.closed: list[str] = []
        self.watch = True

    def lane(self, name: str) -> Iterator[Event]:
        try:
            self.started.add(name)
            yield Started(3, 0.25)
            for index, duration in enumerate(self.durations[name]):
                if self.watch:
                    assert self.started == set(self.clocks), "a step before every lane's prefill"
                    running = self.clocks.keys() - self.over
                    behind = [other for other in running if self.clocks[other] < self.clocks[name]]
                    assert not behind, f"{name} starts a step while {behind} are behind"
                draft_s = duration / 4
                step = Step(index, index, (), 0, (1,), draft_s, duration - draft_s, 1)
                self.clocks[name] += step.seconds
                yield step
            self.over.add(name)
            end = Finished("length", len(self.durations[name]), self.clocks[name])
            yield Failed("out of breath") if self.fails[name] else end
        finally:
            self.closed.append(name)

    def run(self, solo: bool = False) -> Iterator[LaneEvent]:
        self.watch = not solo
        return race({name: self.lane(name) for name in self.durations}, solo)


def last_step(events: list[LaneEvent], lane: str) -> float:
    return next((e.event.seconds for e in reversed(events) if e.lane == lane and isinstance(e.event, Step)), 0.0)


@given(fields)
def test_no_lane_runs_ahead_by_more_than_one_step(lanes):
    """The page would show one lane at a later lane time than another."""
    course, seen = Course(lanes), []
    for event in course.run():
        seen.append(event)
        assert event.clock_s == course.clocks[event.lane]
        running = [name for name in course.clocks if name not in course.over]
        for a in running:
            for b in running:
                assert course.clocks[a] - course.clocks[b] <= last_step(seen, a) * (1 + 1e-9)
    assert course.over == set(course.clocks)


@given(fields, st.booleans())
def test_every_lane_runs_to_its_own_end(lanes, solo):
    """A lane that finishes or fails early would take the others with it, or be asked again."""
    course = Course(lanes)
    seen = []
    for event in course.run(solo):
        seen.append(event)
        assert isinstance(event.event, Started | Step) or event.lane in course.closed  # else it keeps its memory
    for name, steps in course.durations.items():
        mine = [e.event for e in seen if e.lane == name]
        assert [type(e) for e in mine] == [Started, *[Step] * len(steps), Failed if course.fails[name] else Finished]
        assert [e.seconds for e in mine[1:-1]] == pytest.approx(steps)
    assert sorted(course.closed) == sorted(course.clocks)


@given(st.integers(1, 5), st.integers(1, 5))
def test_ties_go_to_the_lane_named_first(num_lanes, num_steps):
    """Two runs of one race could show another order of events."""
    course = Course([([1.0] * num_steps, False)] * num_lanes)
    assert [e.lane for e in course.run() if isinstance(e.event, Step)] == list(course.clocks) * num_steps


@given(fields)
def test_solo_lanes_run_whole_in_the_order_given(lanes):
    """A lane for figures to quote would share the device's caches with another."""
    course = Course(lanes)
    order = [e.lane for e in course.run(solo=True)]
    assert order == [name for name, steps in course.durations.items() for _ in range(len(steps) + 2)]


@given(fields, st.booleans(), st.data())
def test_closing_a_race_closes_every_lane_that_began(lanes, solo, data):
    """A stopped race would go on holding the device, or a later one find a lane half done."""
    course = Course(lanes)
    running = course.run(solo)
    for _ in range(data.draw(st.integers(1, 10))):
        if next(running, None) is None:
            break
    steps_before = dict(course.clocks)
    running.close()
    assert sorted(course.closed) == sorted(course.started) and course.clocks == steps_before


def test_a_lane_that_will_not_close_leaves_none_open():
    """One lane's error while it is stopped would leave the lanes after it holding the device."""
    closed = []

    def lane(name):
        try:
            while True:
                yield Started(1, 0.0)
        finally:
            closed.append(name)
            if name != "c":
                raise RuntimeError(name)

    running = race({name: lane(name) for name in "abc"})
    for _ in range(3):
        next(running)
    with pytest.raises(RuntimeError):
        running.close()
    assert sorted(closed) == ["a", "b", "c"]
