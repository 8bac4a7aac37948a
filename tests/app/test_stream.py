"""The stage: its frames come at a steady rate, a visitor sees how a preparation goes, and Stop frees the device at
once. The extras of a race that is over: later than its end, never at the cost of somebody's race, and at most once."""

import asyncio
import json
import time
from contextlib import aclosing
from itertools import pairwise
from typing import Any
from weakref import ref

import pytest

from app.catalogue.limits import PER_VISITOR
from app.jobs.queue import RaceQueue
from app.jobs.races import FRAME_S, HEARTBEAT_FRAMES, Stage
from app.jobs.worker import Worker
from engine.core.events import Started
from engine.recordings.event_json import from_json
from tests.helpers.races import events_of, fixed_race
from tests.helpers.staged import ORDER, StagedBackend, in_loop, over, until, watch

RACE = fixed_race()


def test_frames_keep_their_rate() -> None:
    """Twenty a second at most; and one now and then, or a visitor who left would never be noticed."""

    async def run() -> list[float]:
        times, stage = [], Stage(StagedBackend(RACE, step_s=0.03, prepare_s=0.6))
        async with aclosing(stage.frames("a", "at a", ORDER)) as frames:
            async for _ in frames:
                times.append(time.monotonic())
        return times

    times = asyncio.run(run())
    gaps = [b - a for a, b in pairwise(times)]
    assert len(times) <= (times[-1] - times[0]) / FRAME_S + 2
    assert max(gaps) < HEARTBEAT_FRAMES * FRAME_S + 0.3


@in_loop
async def test_stop_takes_the_waiting_ones_too() -> None:
    """A visitor who stops does not want the races they queued to start one after the other."""
    backend = StagedBackend(RACE, step_s=0.05)
    stage = Stage(backend)
    tasks = [asyncio.create_task(watch(stage, "a")) for _ in range(PER_VISITOR)]
    await asyncio.sleep(0.1)
    assert stage.stop("a") == PER_VISITOR
    assert {frames[-1]["state"] for frames in await asyncio.gather(*tasks)} == {"stopped"}
    assert len(backend.orders) == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_a_race_is_gone_before_its_place_on_the_device_is_free(stopped) -> None:
    """The next race would be set up while the memory of this one is still taken."""
    backend, gone = StagedBackend(RACE, step_s=0.01), []

    def prepare(progress):
        race = backend.prepare(ORDER, progress)
        gone.append(ref(race))
        return race

    device = RaceQueue().enter("a", "at a")
    device.leave = lambda: gone.append(gone[0]() is None)
    worker = Worker(prepare, backend.extras, device)
    worker.start()
    worker.shown()
    if stopped:
        while not backend.running:
            time.sleep(0.005)
        worker.stop()
    worker._thread.join(5)
    assert gone[1:] == [True]


class ReadingBackend(StagedBackend):
    """Its lanes read their prompts for `read_s` each before they start, telling the share; and once more later, as in a
    race of one lane after the other."""

    read_s = 0.1

    def prepare(self, order, progress):
        race = super().prepare(order, progress)
        right = race.events

        def events():
            for num, event in enumerate(right()):
                if isinstance(event.event, Started):
                    ends = time.monotonic() + self.read_s
                    while time.monotonic() < ends:
                        progress(f"reading the prompt: lane {event.lane}", 0.5)
                        time.sleep(0.01)
                if num == 5:
                    progress("reading the prompt of the next lane", 0.5)
                yield event

        race.events = events
        return race


def test_a_long_prompt_shows_how_much_of_it_is_read() -> None:
    """A race that runs and shows nothing for seconds, or looks as if it were prepared again."""
    lanes = {event.lane for event in events_of(RACE)}
    frames = asyncio.run(watch(Stage(ReadingBackend(RACE)), "a"))
    reading = [frame["status"] for frame in frames if frame["state"] == "preparing" and frame["status"]["share"] == 0.5]
    assert {status["text"] for status in reading} == {f"Reading the prompt: lane {lane}." for lane in lanes}
    states = [frame["state"] for frame in frames]
    assert "preparing" not in states[states.index("running") if "running" in states else -1 :]
    assert [from_json(event) for frame in frames for event in frame["events"]] == events_of(RACE)


@pytest.mark.parametrize("stage_of_it", ["racing", "preparing", "reading"])
@in_loop
async def test_stop_ends_it_within_a_step_and_lets_the_next_one_in(stage_of_it) -> None:
    """Stop that waits for the end of the race, or until all lanes have read their prompts, is no stop."""
    backend = ReadingBackend(RACE, step_s=0.1, prepare_s=30.0 if stage_of_it == "preparing" else 0.0)
    backend.read_s = 30.0 if stage_of_it == "reading" else 0.0
    stage = Stage(backend)
    first = asyncio.create_task(watch(stage, "a"))
    await asyncio.sleep(0.3)
    second = asyncio.create_task(watch(stage, "b"))
    await asyncio.sleep(0.1)
    backend.prepare_s = backend.read_s = 0.0  # of the second one
    started = time.monotonic()
    assert stage.stop("a") == 1
    frames = await first
    assert time.monotonic() - started < 0.5
    assert frames[-1]["state"] == "stopped"
    assert (await second)[-1]["state"] == "finished"


# ---- the extras

MEMBERS = {"tables": {"ngram": [[1, 2]] * 5}, "oracles": {}}
WITH_EXTRAS = {**RACE, **MEMBERS}
POSITION_S, SLACK_S = 0.02, 0.3


def asking(num_positions: int, **more: Any) -> StagedBackend:
    """A backend whose extras take this many positions."""
    backend = StagedBackend(RACE, **more)
    backend.members, backend.num_positions, backend.position_s = MEMBERS, num_positions, POSITION_S
    return backend


def sent(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recordings in these frames."""
    return [json.loads(frame["recording"]) for frame in frames if frame["recording"]]


@in_loop
async def test_the_end_is_shown_before_anything_is_made() -> None:
    """Numbers and verdict wait for tables; the recording is sent twice; a visitor's leaving goes unnoticed."""
    backend = asking(25)
    stage, frames = Stage(backend), list[dict[str, Any]]()
    async with aclosing(stage.frames("a", "at a", ORDER)) as source:
        async for text in source:
            frames.append(json.loads(text))
            if frames[-1]["recording"] and not backend.asked:
                await asyncio.sleep(5 * POSITION_S)  # a slow line to the browser
                assert not backend.asked and backend.running == 0
    end = frames.index(over(frames))
    later = frames[end + 1 :]
    assert sent(frames) == [RACE, WITH_EXTRAS] and frames[end]["recording"] and later[-1]["recording"]
    assert backend.asked == 25 and later[-1]["complete"] and len(later) > 2
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    assert not any(frame["complete"] for frame in frames[:-1])
    for frame in later:
        assert (frame["race"], frame["state"]) == (frames[0]["race"], "finished")
        assert (frame["events"], frame["header"]) == ([], None)


@pytest.mark.parametrize("why", ["stop", "nobody watches", "another waits", "the visitor's next race waits"])
@in_loop
async def test_it_is_given_up_at_once(why) -> None:
    """Stop would do nothing, tables be made for nobody, or a visitor wait for another one's tables."""
    backend = asking(1000)
    stage = Stage(backend, grace_s=0.15)
    making = asyncio.create_task(watch(stage, "a"))
    await until(lambda: backend.asked)
    given_up = time.monotonic()
    if why == "stop":
        assert stage.stop("a") == 1
    elif why == "nobody watches":
        making.cancel()
    else:
        backend.num_positions = 0
        visitor = "b" if why == "another waits" else "a"
        assert (await watch(stage, visitor))[-1]["state"] == "finished"
        assert len(backend.orders) == 2
    if why != "nobody watches":
        frames = await making
        assert frames[-1]["complete"] and sent(frames) == [RACE]
    await until(lambda: not stage.queue._tickets)
    assert time.monotonic() - given_up < 0.15 + 2 * POSITION_S + SLACK_S
    asked = backend.asked
    await asyncio.sleep(3 * POSITION_S)
    assert backend.asked == asked < 1000 and backend.most == 1


@in_loop
async def test_nothing_is_begun_while_another_race_waits() -> None:
    """Each of a long line's races would begin tables that nobody gets."""
    backend = asking(5, step_s=0.01)
    stage = Stage(backend)
    first = asyncio.create_task(watch(stage, "a"))
    await asyncio.sleep(0.02)
    second = asyncio.create_task(watch(stage, "b"))
    assert sent(await first) == [RACE] and not backend.asked
    assert sent(await second) == [RACE, WITH_EXTRAS]
