"""Recordings know their lanes by role, in any number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.analysis.metrics import speedup
from engine.cli.commands import check_outcome
from engine.core.errors import RaceError, UsageError
from engine.core.events import Finished, LaneEvent, Started, steps
from engine.core.spec import LaneSpec, RaceSpec
from engine.recordings import recording as recordings
from engine.recordings.check import check
from engine.recordings.recording import Recording
from tests.helpers import races
from tests.helpers.races import events_of, spec_of


@given(races.many_lanes())
def test_each_lane_has_its_own_verdict_and_ratio(recording):
    """A verdict or a ratio of one lane would stand at another; or a reader of `verdict` take one for all."""
    summary, events = recordings.summary(Recording.of(recording)), events_of(recording)
    names = spec_of(recording).named("speculative")
    assert list(summary["verdicts"]) == list(summary["speedups"]) == names
    plain, baseline = (steps(events, name) for name in ("plain", "baseline"))
    undrafted = [plain] if any(step.drafted for step in baseline) else [plain, baseline]
    for name in names:
        assert summary["speedups"][name] == min(speedup(lane, steps(events, name)) for lane in undrafted)
        kind = "identical_bits" if summary["audit"] else "identical_tokens"
        assert summary["verdicts"][name]["kind"] == kind
    only = names[0] if len(names) == 1 else None
    assert summary["verdict"] == summary["verdicts"].get(only) and summary["speedup"] == summary["speedups"].get(only)


@given(races.recordings(names=("a", "b", "c")), st.data())
def test_a_fault_of_any_lane_is_a_failure(recording, data):
    """The exit status would be that of the last lane; the plain lane's rounding is no fault."""
    check_outcome(Recording.of(recording))
    recording["verdicts"]["plain"]["kind"] = "different"
    check_outcome(Recording.of(recording))
    wrong = data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
    for name in wrong:
        recording["verdicts"][name].update(kind="different", sentence=f"a fault of {name}")
    with pytest.raises(RaceError) as caught:
        check_outcome(Recording.of(recording))
    assert all((f"a fault of {name}" in str(caught.value)) == (name in wrong) for name in "abc")


def test_a_verdict_needs_a_baseline():
    """Without one it compares with nothing; a lane may also have none."""
    recording = races.fixed_race()
    del recording["verdicts"]["plain"]
    assert recordings.summary(Recording.of(recording))["plain_verdict"] is None
    recording["spec"]["lanes"][1].update(role="speculative", name="other")
    for event in recording["events"]:
        event["lane"] = event["lane"].replace("baseline", "other")
    with pytest.raises(UsageError, match="a verdict on 'speculative'"):
        check(recording)
    check({**recording, "verdicts": {}})


def test_a_role_does_not_need_its_own_name():
    """A baseline of another name would be taken for a lane that drafts, and the ratio be against nothing."""
    spec = RaceSpec((LaneSpec("p", role="plain"), LaneSpec("b", role="baseline"), LaneSpec("s", "ngram", 3)))
    events: list[LaneEvent] = []
    for lane in spec.lanes:
        step = races.a_step(seconds=0.1 if lane.name == "s" else 0.3)
        events += [LaneEvent(lane.name, 0.0, Started(1, 0.1)), LaneEvent(lane.name, step.seconds, step)]
        events.append(LaneEvent(lane.name, step.seconds, Finished("length", 1, step.seconds)))
    summary = recordings.summary(Recording.of(races.recording(spec, [1], events)))
    assert summary["speedups"] == {"s": pytest.approx(3.0)} and list(summary["verdicts"]) == ["s"]
    assert summary["plain_verdict"]["kind"] == "identical_tokens"
