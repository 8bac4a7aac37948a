"""A race whose page is loaded again: it goes on for a while, whoever knows its id sees all of it, and nothing of it is
left behind where nobody comes back."""

import asyncio
import json
import time
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.catalogue.catalogue import load
from app.catalogue.machine import Machine
from app.jobs.backend import TorchBackend
from app.jobs.races import LOST, Stage
from app.page.handlers import Handlers
from app.page.stream import Asked
from engine.recordings.event_json import from_json
from tests.helpers.races import events_of, fixed_race, recordings
from tests.helpers.staged import ORDER, StagedBackend, in_loop, over, watch

RACE = fixed_race()
MEMBERS = {"tables": {"ngram": [[7], []]}}
STEP_S, SLACK_S = 0.05, 0.4


async def seen(source: Any, num: int | None = None) -> list[dict[str, Any]]:
    """The first `num` frames, None: all; then the tab is closed."""
    frames = []
    async with aclosing(source):
        async for text in source:
            frames.append(json.loads(text))
            if len(frames) == num:
                break
    return frames


@settings(max_examples=20)
@given(recordings(failing=True), st.lists(st.integers(1, 4), max_size=3), st.sampled_from([0.0, 0.003]))
def test_whoever_comes_back_sees_the_whole_race(recording, leaves, step_s) -> None:
    """A page, loaded once or again, would lack what happened before or meanwhile, or extras; or show another race."""

    async def run() -> list[list[dict[str, Any]]]:
        backend = StagedBackend(recording, step_s=step_s)
        backend.members = MEMBERS
        stage = Stage(backend)
        source, visits = stage.frames("visitor", "here", ORDER), []
        for number, num in enumerate([*leaves, None]):
            visits.append(await seen(source, num))
            source = stage.resume(f"visit {number}", visits[0][0]["race"])
        return visits

    visits, whole = asyncio.run(run()), {**recording, **MEMBERS}
    assert len({(frame["race"], frame["name"]) for frames in visits for frame in frames}) == 1
    for frames in visits:
        assert [frame["seq"] for frame in frames] == list(range(len(frames)))
        events = [from_json(event) for frame in frames for event in frame["events"]]
        assert events == events_of(recording)[: len(events)]
    assert len(events) == len(events_of(recording))
    assert visits[-1][-1]["complete"] and visits[0][0]["name"] == ORDER.name
    sent = [json.loads(frame["recording"]) for frame in visits[-1] if frame["recording"]]
    assert over(visits[-1])["state"] == "finished" and sent in ([recording, whole], [whole])


@pytest.mark.parametrize("left", ["racing", "preparing", "waiting", "not even begun"])
@in_loop
async def test_where_nobody_comes_back_nothing_is_left(left) -> None:
    """A closed tab would hold the device or a place in the line, and each one a little memory."""
    backend = StagedBackend(RACE, step_s=STEP_S, prepare_s=30.0 if left == "preparing" else 0.0)
    stage = Stage(backend, grace_s=0.3)
    before = asyncio.create_task(watch(stage, "a")) if left == "waiting" else None
    await asyncio.sleep(0.01)
    frames = stage.frames("b", "at b", ORDER)
    if left != "not even begun":
        await seen(frames, 4)
    await frames.aclose()
    closed = time.monotonic()
    await asyncio.sleep(0.15)
    assert len(stage._runs) == (2 if before else 1)
    if left == "racing":
        assert backend.running == 1
    if before:
        stage.stop("a")
        assert (await before)[-1]["state"] == "stopped"
    while stage._runs or stage.queue._tickets or backend.running:
        assert time.monotonic() - closed < 0.3 + STEP_S + SLACK_S
        await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == 1 and stage.stop("b") == 0
    backend.prepare_s = backend.step_s = 0.0
    assert (await watch(stage, "c"))[-1]["state"] == "finished" and backend.most == 1


@in_loop
async def test_the_race_is_whose_it_is_now() -> None:
    """Stop would do nothing on the page that was loaded again, or the page that was left end its race."""
    backend = StagedBackend(RACE, step_s=STEP_S)
    stage = Stage(backend, grace_s=0.1)
    first = stage.frames("old", "here", ORDER)
    race = json.loads(await anext(first))["race"]
    task = asyncio.create_task(seen(stage.resume("new", race)))
    await asyncio.sleep(0.1)
    await first.aclose()  # later than the other one came
    await asyncio.sleep(0.3)
    assert backend.running == 1
    assert stage.stop("old") == 0
    asked = time.monotonic()
    assert stage.stop("new") == 1
    frames = await task
    assert frames[-1]["state"] == "stopped" and time.monotonic() - asked < STEP_S + SLACK_S
    recording = json.loads(frames[-1]["recording"])
    assert recording["stopped"] and recording["events"] == [event for frame in frames for event in frame["events"]]


@in_loop
async def test_a_guess_finds_nothing() -> None:
    """Anybody can send anything as a race's id: it must neither show somebody's race nor be an error."""
    guesses: list[Any] = ["none", "0" * 16, None, 7, [], {"race": 1}, ["x"] * 1000, True, "\ud800"]
    handlers = Handlers(load(Machine()), TorchBackend())
    handlers.stage = Stage(StagedBackend(RACE, step_s=0.01))
    task = asyncio.create_task(watch(handlers.stage, "a"))
    await asyncio.sleep(0.1)
    for guess in guesses:
        events = await handlers.runs()["resume"](Asked("b", "here", {}, {"race": guess}))
        assert [value async for name, value in events if not name] == [LOST]
    assert (await task)[-1]["state"] == "finished"
