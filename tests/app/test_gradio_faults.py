"""Gradio under hostile callers: whatever one of them sends, everyone else can still race and does not have to wait."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from gradio.queueing import Event, Queue
from gradio.server_messages import EstimationMessage, ProcessGeneratingMessage
from gradio_client import Client

from app.catalogue.catalogue import load
from app.catalogue.machine import Machine
from app.jobs.pool import MAX_JOBS, PER_ADDRESS, Jobs
from app.jobs.server_races import MixedBackend
from app.page import gradio_faults
from app.page.gradio_errors import SAME_ERROR_S, Errors
from app.page.gradio_faults import ADDRESS_CALLS, SESSION_CALLS, GuardedQueue, Mailbox
from app.page.ui import build
from engine.core.errors import UsageError
from tests.helpers.hostile_recordings import lanes, race, singly
from tests.helpers.pageserver import ORDER
from tests.helpers.staged import in_loop

# Its functions have the numbers of the served page's.
PAGE = build(load(Machine()), MixedBackend("auto", "auto", True), own=())
NUMBERS = {each.api_name: number for number, each in PAGE.fns.items()}
# Functions that go through the queue: the loaded model's line, a race, the default model's line.
LOADED, RACE, MODEL = (NUMBERS[name] for name in ("model_now", "race", "model"))
EXAMPLE = NUMBERS["named"]  # a function that does not: an example's button
ODD_NAMES = (" ", "a b", "a\n", "\0", "é", "x" * 101, "x" * 100_000, 7, None, [], {}, True)


def at_once(url: str, bodies: Sequence[dict[str, Any]]) -> list[int]:
    """The statuses of POSTs that are under way at the same time."""

    async def send() -> list[int]:
        async with httpx.AsyncClient(timeout=60) as client:
            answers = await asyncio.gather(*(client.post(url, json=body) for body in bodies))
            return [answer.status_code for answer in answers]

    return asyncio.run(send())


@pytest.mark.slow
def test_an_unusable_session_stops_nobody(server) -> None:
    """Six joins with an empty session name ended Gradio's worker task, and with it all races until a restart. The other
    way into the queue takes a session name too."""
    bodies: list[dict[str, Any]] = [
        *({"fn_index": number, "session_hash": ""} for number in (LOADED, RACE, MODEL)),
        *({"fn_index": LOADED, "session_hash": name} for name in ODD_NAMES),
        *({"fn_index": number, "session_hash": "a"} for number in (-1, 98, 99, 2**70, "race", None)),
        *({"fn_index": LOADED}, {"session_hash": "a"}),
    ]
    for body in bodies:
        statuses = at_once(f"{server.url}/gradio_api/queue/join", [{"data": [], **body}] * 6)
        assert all(400 <= status < 500 for status in statuses), (str(body)[:60], statuses)
    call = {"data": list(ORDER.values()), "session_hash": ""}
    assert set(at_once(f"{server.url}/gradio_api/call/race", [call] * 6)) == {400}
    assert server.visitor("ordinary").race()[-1]["state"] == "finished"


@contextmanager
def stranger(server: Any, number: int) -> Iterator[httpx.Client]:
    """A caller with an address of its own, so that it does not use up the limits of other tests."""
    transport = httpx.HTTPTransport(local_address=f"127.0.2.{number}")
    with httpx.Client(base_url=f"{server.url}/gradio_api", transport=transport, timeout=60) as client:
        yield client


def join(client: httpx.Client, number: int, session: str, data: Sequence[Any] = (), **event: Any) -> httpx.Response:
    body = {"data": list(data), "fn_index": number, "session_hash": session, "event_data": event}
    return client.post("/queue/join", json=body)


@pytest.mark.slow
def test_wrong_values_are_the_callers_mistake(server) -> None:
    """A fifth of such calls was answered "Internal Server Error", each kind with a traceback in the log: 2,400 of them
    wrote 100 MB. And Gradio downloads a URL of any size that is given as a file, by whoever, for whichever value."""
    before = server.log.stat().st_size
    with stranger(server, 1) as client:
        asked = [("run/predict", {"fn_index": number}) for number in (-1, 98, 2**70)] + [("run/predict", {})]
        for path, body in asked:
            answer = client.post(path, json={"data": [], **body})
            assert answer.status_code == 404 and "there is no function" in answer.text, body
        answer = client.post("call/v2/race", json={"nonsense": 1})
        assert answer.status_code == 400 and "nonsense" in answer.text
        for pair in ("no such pair", {"path": "http://localhost:1/x", "meta": {"_type": "gradio.FileData"}}):
            answer = client.post("run/predict", json={"data": [pair], "fn_index": EXAMPLE})
            assert answer.status_code == 400 and "unknown pair" in answer.json()["error"]
    assert server.log.read_text()[before:] == ""
    assert server.visitor("after-nonsense").race()[-1]["state"] == "finished"


@pytest.mark.slow
def test_files_of_strangers_make_nobody_wait(server) -> None:
    """Files were read in the event loop: another visitor's small request waited up to 60 s."""
    pair, waits, ended = [ORDER["pair"], "ngram", 0, 1, 0, []], list[float](), threading.Event()

    def poll() -> None:
        with httpx.Client(timeout=60) as client:
            while not ended.is_set():
                began = time.monotonic()
                client.get(f"{server.url}/gradio_api/queue/status")
                waits.append(time.monotonic() - began)
                time.sleep(0.02)

    other = threading.Thread(target=poll)
    other.start()
    with stranger(server, 2) as client:
        copies = singly([7] * 4_000, drafted=[7], copied=[0, 0], num_accepted=1)
        recording = json.dumps(race(lanes(s=copies), prompt=[7] * 200_000))
        assert client.post(f"{server.url}/recordings", content=recording).status_code == 200
        study = {"name": "a.txt", "limit": 1, "max_new_tokens": 8, "kept": None}
        join(client, NUMBERS["study"], "study", pair, text="a\n" * 1_400_000, **study)
        join(client, NUMBERS["study"], "lines", pair, text='{"prompt":"a"}\n' * 19_000, **study)
        answer = client.post(f"{server.url}/recordings", content="[" + "[]," * 990_000 + "[]]")
        assert answer.status_code == 400 and "brackets" in answer.text
        time.sleep(1)
    ended.set()
    other.join()
    assert len(waits) > 10 and max(waits) < 1.0, sorted(waits)[-3:]


@pytest.mark.slow
def test_one_caller_has_so_many_calls(server) -> None:
    """1,200 unread answers of 150 KB took 360 MB for as long as the page ran."""
    with stranger(server, 3) as client:
        assert [join(client, EXAMPLE, "a", [ORDER["pair"]]).status_code for _ in range(3)] == [400] * 3
        statuses = [join(client, MODEL, "a").status_code for _ in range(SESSION_CALLS + 1)]
        assert statuses == [200] * SESSION_CALLS + [400]
        statuses = [join(client, MODEL, f"b{i}").status_code for i in range(ADDRESS_CALLS)]
        assert statuses == [200] * (ADDRESS_CALLS - SESSION_CALLS) + [400] * SESSION_CALLS
        with client.stream("GET", "/queue/data", params={"session_hash": "a"}) as stream:
            assert "close_stream" in stream.read().decode()  # reading makes room again
        assert join(client, MODEL, "a").status_code == 200
    with stranger(server, 4) as client:
        assert join(client, MODEL, "a4").status_code == 200


def guarded() -> GuardedQueue:
    return GuardedQueue(PAGE, lambda: False)


def event_of(queue: GuardedQueue, session: str, address: str = "192.0.2.1") -> Event:
    """A call that the queue runs."""
    event = Event(session, PAGE.fns[LOADED], None, None)
    queue.active_jobs.append([event])
    queue.pending_messages_per_session.setdefault(session, Mailbox(address))
    queue.pending_event_ids_session.setdefault(session, set()).add(event._id)
    queue.event_ids_to_events[event._id] = event
    return event


def message(num_bytes: int) -> ProcessGeneratingMessage:
    return ProcessGeneratingMessage(output={"data": ["x" * num_bytes]}, success=True)


@in_loop
async def test_who_reads_nothing_is_told_no_more(monkeypatch) -> None:
    """Frames would pile up for a session that never opens its stream, or for many sessions of one address."""
    monkeypatch.setattr(gradio_faults, "SESSION_UNREAD", 10_000)
    monkeypatch.setattr(gradio_faults, "ADDRESS_UNREAD", 25_000)
    queue = guarded()
    alone, other, reads = (event_of(queue, name, name) for name in ("alone", "other", "reads"))
    for _ in range(12):
        queue.send_message(alone, message(1_000))
        queue.send_message(reads, message(1_000))
        await queue.pending_messages_per_session["reads"].get()
        await asyncio.sleep(0)
    assert not alone.alive and "alone" not in queue.pending_messages_per_session
    assert reads.alive and other.alive
    many = [event_of(queue, f"many {i}", "one address") for i in range(5)]
    for each in many:
        queue.send_message(each, message(8_000))
        await asyncio.sleep(0)
    assert all(each.alive for each in many)  # a first message is every session's share
    for each in many:
        queue.send_message(each, message(8_000))
        await asyncio.sleep(0)
    unread = sum(box.num_bytes for box in queue.pending_messages_per_session.values())
    assert not all(each.alive for each in many) and unread < 34_000


def test_what_nobody_reads_is_forgotten(monkeypatch) -> None:
    """Sessions that come once would take memory, and count against their address, for as long as the page runs."""
    monkeypatch.setattr(gradio_faults, "SWEEP_S", 0.01)
    monkeypatch.setattr(gradio_faults, "UNREAD_S", 0.1)

    async def run() -> None:
        queue = guarded()
        left, reads = event_of(queue, "left"), event_of(queue, "reads")
        reader = asyncio.create_task(read(queue.pending_messages_per_session["reads"]))
        queue.send_message(left, message(1_000))
        sweeper = asyncio.create_task(queue._sweep())
        await asyncio.sleep(0.3)
        assert list(queue.pending_messages_per_session) == ["reads"] == list(queue.pending_event_ids_session)
        assert not left.alive and reads.alive
        reader.cancel()
        sweeper.cancel()

    async def read(box: Mailbox) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(box.get(), 0.02)

    asyncio.run(run())


def test_a_caller_who_leaves_is_not_worked_for(monkeypatch) -> None:
    """The server would read a file, or draw a figure, for a tab that has been closed meanwhile."""
    drawn: list[str] = []

    def draw(name: str) -> None:
        time.sleep(0.2)
        drawn.append(name)

    async def run() -> None:
        queue, jobs = guarded(), Jobs()

        async def process(queue: Any, events: Any, *more: Any) -> None:
            await jobs.run("address", draw, events[0].session_hash)

        monkeypatch.setattr(Queue, "process_events", process)
        events = [event_of(queue, name) for name in ("first", "leaves", "last")]
        calls = [asyncio.create_task(queue.process_events([event], False, 0.0, event.fn)) for event in events]
        await asyncio.sleep(0.05)
        await queue.clean_events(session_hash="leaves")
        await asyncio.gather(*calls, return_exceptions=True)
        assert calls[1].cancelled() and not queue.pending_event_ids_session.get("leaves")

    asyncio.run(run())
    assert drawn == ["first", "last"]


@in_loop
async def test_jobs_of_one_address_are_few() -> None:
    """One caller's files would keep everyone else's figures waiting, or run in several threads next to a race."""
    jobs, running, most = Jobs(), 0, 0

    def work() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return most

    mine = [asyncio.create_task(jobs.run("a", work)) for _ in range(PER_ADDRESS)]
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match=str(PER_ADDRESS)):
        await jobs.run("a", work)
    assert await jobs.run("b", work) == 1 and await asyncio.gather(*mine) == [1] * PER_ADDRESS
    many = [asyncio.create_task(jobs.run(str(i), work)) for i in range(MAX_JOBS)]
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match=str(MAX_JOBS)):
        await jobs.run("c", work)
    for each in many:
        each.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    assert await jobs.run("a", work) == 1


@pytest.mark.slow
def test_programs_can_race_too(server) -> None:
    """The ways in that the API page documents: Gradio's Python client, and two kinds of requests."""
    client = Client(server.url, verbose=False, httpx_kwargs={"timeout": 60})
    last = json.loads(client.predict(**ORDER, api_name="/race"))
    assert last["state"] == "finished" and json.loads(last["recording"])["prompt"]["text"] == ORDER["prompt"]
    client.predict(api_name="/stop")
    for path, body in (("call/race", {"data": list(ORDER.values())}), ("call/v2/race", ORDER)):
        event_id = httpx.post(f"{server.url}/gradio_api/{path}", json=body).json()["event_id"]
        with httpx.stream("GET", f"{server.url}/gradio_api/{path}/{event_id}", timeout=60) as stream:
            assert "event: complete" in list(stream.iter_lines()), path


def test_an_error_is_told_whole_once_and_then_in_a_line(caplog) -> None:
    """An engineer would lose the traceback, or a new kind of error drown in an old one."""
    moment, errors = 0.0, Errors(lambda: moment)

    def fail(divisor: int) -> None:
        try:
            print([1][divisor], 1 // divisor)
        except Exception:
            errors.print_exc()

    for _ in range(50):
        fail(0)
    fail(1)
    said = caplog.text
    caplog.clear()
    assert said.count("Traceback") == 2 and "ZeroDivisionError" in said and "IndexError" in said
    moment = SAME_ERROR_S
    fail(0)
    said = caplog.text
    assert "Traceback" not in said and "again, 50 times" in said and "ZeroDivisionError" in said


def test_who_cannot_be_told_anything_ends_only_himself() -> None:
    """Gradio keeps the messages of 2,000 sessions. A message to a forgotten one raised in the task that serves all."""
    queue = guarded()
    event = Event("forgotten", PAGE.fns[LOADED], None, None)
    queue.send_message(event, EstimationMessage(queue_size=1))
    assert not event.alive


def test_the_queue_serves_on_after_a_fault_of_its_own(monkeypatch, caplog) -> None:
    """An exception that nobody foresaw may cost one call, but neither the race that runs nor those to come."""
    served, real = list[str](), Queue.get_events
    monkeypatch.setattr(gradio_faults, "RESTART_S", 0.01)

    def get_events(queue: Queue) -> Any:
        found = real(queue)
        if found and found[0][0].session_hash == "poison":
            raise ZeroDivisionError("planted")
        return found

    async def process(queue: Any, events: Any, *more: Any) -> None:
        while events[0].session_hash == "before" and not served:
            await asyncio.sleep(0.01)
        served.append(events[0].session_hash)

    monkeypatch.setattr(Queue, "get_events", get_events)
    monkeypatch.setattr(Queue, "process_events", process)

    async def run() -> None:
        queue = guarded()
        queue.stopped, queue.active_jobs = False, [None] * 3
        serving = asyncio.create_task(queue.start_processing())
        request = SimpleNamespace(client=None, scope={})
        for name in ("before", "poison", "after"):
            body = SimpleNamespace(fn_index=LOADED, session_hash=name, data=[None])
            took = await queue.push(body, request, None)
            assert took[0], took
        async with asyncio.timeout(10):
            while len(served) < 2:
                await asyncio.sleep(0.01)
        queue.close()
        await serving

    asyncio.run(run())
    assert served == ["after", "before"] and caplog.text.count("ZeroDivisionError: planted") == 1
