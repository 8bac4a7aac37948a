"""The stage: its frames come at a steady rate, a visitor sees how a preparation goes, and Stop frees the device at
once."""

import asyncio
import time
from contextlib import aclosing
from itertools import pairwise
from weakref import ref

import pytest

from app.catalogue.limits import PER_VISITOR
from app.jobs.queue import RaceQueue
from app.jobs.races import FRAME_S, HEARTBEAT_FRAMES, Stage
from app.jobs.worker import Worker
from engine.core.events import Started
from engine.recordings.event_json import from_json
from tests.helpers.races import events_of, fixed_race
from tests.helpers.staged import ORDER, StagedBackend, in_loop, watch

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
