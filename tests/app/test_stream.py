"""The stage: frames in order and at their rate, one race at a time, first come first served, and a device that is free
when nobody watches."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import fastapi
import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.handlers import _address
from app.race_queue import PER_ADDRESS, PER_VISITOR, RaceQueue
from app.stream import FRAME_S, HEARTBEAT_FRAMES, Stage, first_frame
from app.ui import SPACE_PROXIES
from engine.errors import RaceError, UsageError
from engine.events import from_json
from engine.recordings.recording import events_of
from tests.helpers.races import fixed_race, recordings
from tests.helpers.staged import StagedBackend

RACE = fixed_race()
ORDER: Any = "an order"


async def watch(stage: Stage, visitor: str, address: str = "") -> list[dict[str, Any]]:
    async with aclosing(stage.frames(visitor, address or f"at {visitor}", ORDER)) as frames:
        return [json.loads(text) async for text in frames]


def until(condition, seconds: float = 2.0) -> float:
    """Seconds until it holds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it never happened"
        time.sleep(0.005)
    return time.monotonic() - started


@given(recordings(failing=True))
def test_a_browser_gets_the_whole_race(recording) -> None:
    """Frames that lose an event between two ticks show highlights that never were."""
    frames = asyncio.run(watch(Stage(StagedBackend(recording)), "a"))
    assert [from_json(event) for frame in frames for event in frame["events"]] == events_of(recording)
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    assert frames[-1]["state"] == "finished" and frames[-1]["recording"] == recording
    assert len({frame["race"] for frame in frames}) == 1


def test_frames_keep_their_rate() -> None:
    """Twenty a second at most, and one now and then when nothing happens, or a visitor who left would never be
    noticed."""

    async def run() -> list[float]:
        times = []
        async with aclosing(
            Stage(StagedBackend(RACE, step_s=0.03, prepare_s=0.6)).frames("a", "at a", ORDER)
        ) as frames:
            async for _ in frames:
                times.append(time.monotonic())
        return times

    times = asyncio.run(run())
    gaps = [b - a for a, b in pairwise(times)]
    assert len(times) <= (times[-1] - times[0]) / FRAME_S + 2
    assert max(gaps) < HEARTBEAT_FRAMES * FRAME_S + 0.3


def test_one_race_at_a_time_first_come_first_served() -> None:
    """Two races at once on one device slow each other, and neither number is true."""

    async def run() -> list[str]:
        ended = []
        backend = StagedBackend(RACE, step_s=0.01)
        stage = Stage(backend)

        async def one(visitor: str) -> None:
            frames = await watch(stage, visitor)
            ended.append(visitor)
            assert frames[-1]["state"] == "finished"
            if visitor != "a":
                assert frames[0]["state"] == "waiting" and "before yours" in frames[0]["status"]["text"]

        tasks = []
        for visitor in "abcd":
            tasks.append(asyncio.create_task(one(visitor)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert backend.most == 1
        return ended

    assert asyncio.run(run()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("prepare_s", [0.0, 30.0], ids=["racing", "preparing"])
def test_stop_ends_it_within_a_step_and_lets_the_next_one_in(prepare_s) -> None:
    """Stop that waits for the end of the race is no stop."""

    async def run() -> None:
        backend = StagedBackend(RACE, step_s=0.1, prepare_s=prepare_s)
        stage = Stage(backend)
        first = asyncio.create_task(watch(stage, "a"))
        await asyncio.sleep(0.3)
        second = asyncio.create_task(watch(stage, "b"))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        assert stage.stop("a") == 1
        frames = await first
        assert time.monotonic() - started < 0.5
        assert frames[-1]["state"] == "stopped"
        backend.prepare_s = 0.0
        if prepare_s == 0.0:
            assert (await second)[-1]["state"] == "finished"
        else:
            assert stage.stop("b") == 1 and (await second)[-1]["state"] == "stopped"

    asyncio.run(run())


def test_stop_takes_the_waiting_ones_too() -> None:
    """A visitor who stops does not want the races they queued to start one after the other."""

    async def run() -> None:
        backend = StagedBackend(RACE, step_s=0.05)
        stage = Stage(backend)
        tasks = [asyncio.create_task(watch(stage, "a")) for _ in range(PER_VISITOR)]
        await asyncio.sleep(0.1)
        assert stage.stop("a") == PER_VISITOR
        assert {frames[-1]["state"] for frames in await asyncio.gather(*tasks)} == {"stopped"}
        assert len(backend.orders) == 1

    asyncio.run(run())


@pytest.mark.parametrize("prepare_s", [0.0, 30.0], ids=["racing", "preparing"])
def test_who_leaves_frees_the_device(prepare_s) -> None:
    """A closed tab must not decode for nobody while others wait."""

    async def run() -> StagedBackend:
        backend = StagedBackend(RACE, step_s=0.05, prepare_s=prepare_s)
        stage = Stage(backend)
        frames = stage.frames("a", "at a", ORDER)
        async for _ in frames:
            if backend.orders and (prepare_s or backend.running):
                break
        await frames.aclose()
        backend.prepare_s = 0.0
        started = time.monotonic()
        assert (await watch(stage, "b"))[-1]["state"] == "finished"
        assert time.monotonic() - started < 1.5
        return backend

    backend = asyncio.run(run())
    assert backend.running == 0 and backend.most == 1


def test_a_visitor_has_three_races_at_most() -> None:
    """One visitor must not fill the queue."""

    async def run() -> None:
        stage = Stage(StagedBackend(RACE, step_s=0.03))
        tasks = [asyncio.create_task(watch(stage, "a")) for _ in range(PER_VISITOR)]
        await asyncio.sleep(0.05)
        with pytest.raises(UsageError, match="already have 3 races"):
            await watch(stage, "a")
        other = await watch(stage, "b")
        assert other[-1]["state"] == "finished"
        assert all(frames[-1]["state"] == "finished" for frames in await asyncio.gather(*tasks))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UsageError("the prompt is too long"), "The prompt is too long."),
        (RaceError("out of memory"), "Out of memory."),
        (ZeroDivisionError("secret"), "a fault of this program"),
    ],
)
def test_a_failure_is_one_sentence_and_the_next_race_works(error, words) -> None:
    """A visitor reads what to do, never a traceback, and an error must not keep the device."""

    def fail() -> None:
        raise error

    async def run() -> None:
        backend = StagedBackend(RACE, failing=fail)
        stage = Stage(backend)
        frames = await watch(stage, "a")
        assert (
            frames[-1]["state"] == "failed"
            and words in frames[-1]["status"]["text"]
            and "secret" not in json.dumps(frames)
        )
        backend.fail = lambda: None
        assert (await watch(stage, "a"))[-1]["state"] == "finished"

    asyncio.run(run())


def test_the_last_race_is_remembered_until_its_visitor_leaves() -> None:
    """Charts and cost belong to the race on screen."""

    async def run() -> None:
        stage = Stage(StagedBackend(RACE))
        assert stage.last("a") is None
        await watch(stage, "a")
        view = stage.last("a")
        assert view is not None and list(view.events) == events_of(RACE)
        assert stage.last("b") is None
        stage.leave("a")
        assert stage.last("a") is None

    asyncio.run(run())


def test_an_address_has_twelve_races_at_most() -> None:
    """Twenty made-up names from one address took most of the line of fifty, and a script makes up as many as it
    likes."""

    async def run() -> None:
        stage = Stage(StagedBackend(RACE, step_s=0.01))
        tasks = [asyncio.create_task(watch(stage, f"name {i}", "one address")) for i in range(20)]
        await asyncio.sleep(0.05)
        other = asyncio.create_task(watch(stage, "b", "another address"))
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in ended] == [list] * PER_ADDRESS + [UsageError] * (20 - PER_ADDRESS)
        assert "from your address" in str(ended[-1])
        assert (await other)[-1]["state"] == "finished"

    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("xy"), st.booleans()), max_size=60))
def test_the_queue_is_a_line(moves) -> None:
    """Whoever came first goes first, whatever leaves from the middle; a place counts exactly those before it."""
    queue, line = RaceQueue(), []
    for number, address, enters in moves:
        visitor = f"{number} at {address}"
        if enters:
            mine = sum(ticket.visitor == visitor for ticket in line)
            if mine < PER_VISITOR and sum(ticket.address == address for ticket in line) < PER_ADDRESS:
                line.append(queue.enter(visitor, address))
            else:
                with pytest.raises(UsageError):
                    queue.enter(visitor, address)
        elif tickets := [ticket for ticket in line if ticket.visitor == visitor]:
            tickets[0].leave()
            tickets[0].leave()
            line.remove(tickets[0])
            assert tickets[0].place is None
        assert [ticket.place for ticket in line] == list(range(len(line)))


def test_the_expected_wait_is_learnt() -> None:
    """A wait that is shown has to come from races that were held."""
    now = [0.0]
    queue = RaceQueue(lambda: now[0])
    first, second, third = (queue.enter(visitor, "here") for visitor in "abc")
    assert second.expected_s is None
    now[0] = 10.0
    first.leave()
    assert (second.place, second.expected_s, third.expected_s) == (0, 0.0, 10.0)
    now[0] = 14.0
    assert third.expected_s == 6.0


def test_a_frame_holds_no_markup() -> None:
    """Gradio looks for script tags in what a gr.HTML is given; hostile text must come through exactly, as text."""
    hostile = "</script><img onerror=x>${x}{{y}}`"
    recording = json.loads(json.dumps(RACE).replace('"end"', json.dumps(hostile)))
    frames = asyncio.run(watch(Stage(StagedBackend(recording)), "a"))
    assert hostile in [piece for frame in frames for event in frame["events"] for piece in event.get("pieces", ())]
    assert "<" not in first_frame(None)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("198.51.100.1", "", "198.51.100.1"),
        ("198.51.100.1", "203.0.113.7", "198.51.100.1"),
        ("10.16.3.80", "203.0.113.7", "203.0.113.7"),
        ("10.16.3.80", "198.51.100.66, 203.0.113.7, 10.1.2.3", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::"),
        ("::ffff:203.0.113.7", "", "203.0.113.7"),
        ("10.16.3.80", "unknown", "unknown"),
    ],
)
def test_an_address_is_not_made_up(peer, forwarded, address) -> None:
    """Only the Space's proxies are believed, and of what they send only what they wrote themselves."""
    seen: list[str] = []

    async def app(scope, receive, send) -> None:
        seen.append(_address(gr.Request(fastapi.Request(scope))))

    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    scope: Any = {"type": "http", "client": (peer, 5), "headers": headers}
    asyncio.run(ProxyHeadersMiddleware(app, SPACE_PROXIES)(scope, None, None))  # type: ignore[arg-type]
    assert seen == [address]
