"""The page's state: what a browser has after all frames is what happened, whatever the frames' cuts."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.frames import (
    RUNNING_TEXT,
    Ended,
    Extras,
    News,
    Prepared,
    Preparing,
    RaceView,
    Waiting,
    fold,
    fold_all,
    frame,
    frame_json,
)
from engine.core.events import LaneEvent
from engine.recordings.event_json import from_json
from engine.recordings.recording import Recording
from tests.helpers.races import events_of, fixed_race, recordings

KEYS = {*("race", "name", "seq", "state", "status", "ribbon", "header", "events", "recording"), "complete", "again"}
MEMBERS = {"tables": {"ngram": [[7], []]}}


def header_of(recording: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recording.items() if key not in ("schema", "format", "events", "verdicts")}


def history(recording: dict[str, Any]) -> list[News]:
    """All that happens in a race that waits, is prepared, runs to its end and gets its extras."""
    waits = Waiting(2, None), Waiting(1, 12.0)
    before: list[News] = [*waits, Preparing("reading the weights", 0.5), Prepared(header_of(recording))]
    whole = Recording.of(recording)
    return [*before, *events_of(recording), Ended("finished", "Finished.", whole), Extras(whole.adding(MEMBERS))]


@given(recordings(failing=True), st.lists(st.integers(0, 9), max_size=30))
def test_frames_add_up_to_the_race_however_they_are_cut(recording, cuts) -> None:
    """A frame that drops or repeats an event, or a fold that depends on the cuts; or extras that are never sent."""
    news = history(recording)
    view, sent, frames = RaceView("r"), None, []
    for count in [*cuts, len(news)]:
        batch, news = news[:count], news[count:]
        view = fold_all(view, batch)
        frames.append(json.loads(json.dumps(frame(sent, view, len(frames)), allow_nan=False)))
        sent = view
    assert [from_json(event) for message in frames for event in message["events"]] == events_of(recording)
    assert [message["seq"] for message in frames] == list(range(len(frames)))
    assert all(set(message) == KEYS for message in frames)
    headers = [message["header"] for message in frames if message["header"] is not None]
    assert headers == [header_of(recording)]
    sent_whole = [json.loads(message["recording"]) for message in frames if message["recording"] is not None]
    assert sent_whole[-1] == {**recording, **MEMBERS} and sent_whole[:-1] in ([], [recording])
    assert all(message["state"] == "finished" for message in frames if message["recording"])
    assert [message["complete"] for message in frames].index(True) == len(frames) - 1 or not frames[-1]["recording"]


@given(recordings(), st.sampled_from(["finished", "stopped", "failed"]))
def test_nothing_changes_a_race_that_is_over(recording, state) -> None:
    """A step that arrives after Stop would write into a verdict that has been given."""
    view = fold(RaceView("r"), Ended(state, "over"))
    news = history(recording)
    assert fold_all(view, news[:-1]) == view
    assert fold_all(view, events_of(recording)) == view
    assert fold_all(view, news).has_extras == (state == "finished")
    assert fold_all(view, news).complete and fold(RaceView("r"), news[-1]) == RaceView("r")


def test_states_follow_each_other() -> None:
    """Queue, preparation and race each have their state and sentence; the bar goes when nothing is left to wait for.
    Drafts that were taken from the answer never pass for real ones."""
    news = history(fixed_race())
    seen = []
    view = RaceView("r")
    for item in news:
        view = fold(view, item)
        if not seen or seen[-1][0] != view.state or not isinstance(item, LaneEvent):
            seen.append((view.state, view.text, view.share))
    assert [state for state, _, _ in seen] == ["waiting", "waiting", "preparing", "running", "finished", "finished"]
    assert seen[2][1:] == ("Reading the weights.", 0.5)
    assert seen[3][1:] == (RUNNING_TEXT, None) and view.ribbon == ""
    made_up = {**header_of(fixed_race()), "synthetic": ["speculative"]}
    assert fold(RaceView("r"), Prepared(made_up)).ribbon == "SYNTHETIC"


@given(st.integers(1, 50), st.none() | st.just(math.inf) | st.floats(0.0, 1e4))
def test_a_wait_is_told_as_it_is(place, expected_s) -> None:
    """A waiting visitor reads how many are before him and for how long, or why nobody knows how long."""
    view = fold(RaceView("r"), Waiting(place, expected_s))
    status = json.loads(frame_json(frame(None, view, 0)))["status"]
    assert status["text"].startswith("1 race ahead of you." if place == 1 else f"{place} races ahead of you.")
    known = expected_s is not None and expected_s < math.inf
    assert status["left_s"] == (max(1, round(expected_s)) if known else None)
    assert ("No estimate yet" in status["text"]) == (expected_s is None)
    assert ("longer than usual" in status["text"]) == (expected_s == math.inf)
    for news in (Prepared(header_of(fixed_race())), Ended("stopped", "Stopped.")):
        assert fold(view, news).left_s is None


def test_a_frame_has_no_script_tag_and_no_nan() -> None:
    """gr.HTML warns at script tags in a value; NaN is no JSON and would stop the page."""
    assert "<" not in frame_json({"text": "<script>"})
    assert json.loads(frame_json({"text": "<script>\u2028"})) == {"text": "<script>\u2028"}
    with pytest.raises(ValueError):
        frame_json({"speedup": float("nan")})
