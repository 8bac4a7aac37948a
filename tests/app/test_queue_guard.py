"""Gradio's queue under hostile callers: whatever one of them sends, everybody else can still race."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from gradio.queueing import Event
from gradio.server_messages import EstimationMessage

from app.backend import TorchBackend
from app.catalogue import load
from app.machine import Machine
from app.quiet_log import AGAIN_S, Errors
from app.ui import build
from tests.helpers.pageserver import LONG, ORDER, TARGET, Watched, served

NUMBERS = {each.api_name: number for number, each in build(load(Machine()), TorchBackend()).fns.items()}
LOADED, RACE, MODEL, CHARTS = (NUMBERS[name] for name in ("model_now", "race", "model", "charts"))
"""Functions that go through the queue: the loaded model's line, a race, the default model's line, a race's charts."""
ODD_NAMES = (" ", "a b", "a\n", "\0", "é", "x" * 101, "x" * 100_000, 7, None, [], {}, True)
FAULTY = """
import runpy
from gradio.queueing import Queue
real = Queue.get_events
def get_events(queue):
    found = real(queue)
    if found and found[0][0].session_hash == "poison":
        raise ZeroDivisionError("planted")
    return found
Queue.get_events = get_events
runpy.run_path("app.py", run_name="__main__")
"""


def at_once(url: str, bodies: Sequence[dict[str, Any]]) -> list[int]:
    """The statuses of POSTs that are under way at the same time."""

    async def send() -> list[int]:
        async with httpx.AsyncClient(timeout=60) as client:
            answers = await asyncio.gather(*(client.post(url, json=body) for body in bodies))
            return [answer.status_code for answer in answers]

    return asyncio.run(send())


@pytest.mark.slow
@pytest.mark.parametrize(
    "bodies",
    [
        [{"fn_index": LOADED, "session_hash": ""}],
        [{"fn_index": number, "session_hash": ""} for number in (RACE, MODEL)],
        [{"fn_index": LOADED, "session_hash": name} for name in ODD_NAMES],
        [
            {"fn_index": LOADED},
            {"session_hash": "a"},
            *({"fn_index": number, "session_hash": "a"} for number in (-1, 98, 99, 2**70, "race", None)),
        ],
    ],
    ids=["empty", "empty, others", "odd", "numbers"],
)
def test_an_unusable_session_stops_nobody(server, bodies) -> None:
    """Six joins with an empty session name ended Gradio's worker task, and with it all races until a restart."""
    for body in bodies:
        statuses = at_once(f"{server.url}/gradio_api/queue/join", [{"data": [], **body}] * 6)
        assert all(400 <= status < 500 for status in statuses), (str(body)[:60], statuses)
    assert server.visitor("ordinary").race()[-1]["state"] == "finished"


@pytest.mark.slow
def test_a_call_with_an_empty_session_stops_nobody(server) -> None:
    """The other way into the queue takes a session name too; a call without one gets a name of its own, and works."""
    call = f"{server.url}/gradio_api/call/race"
    assert set(at_once(call, [{"data": list(ORDER.values()), "session_hash": ""}] * 6)) == {400}
    event_id = httpx.post(call, json={"data": list(ORDER.values())}).json()["event_id"]
    with httpx.stream("GET", f"{call}/{event_id}", timeout=60) as stream:
        assert "event: complete" in list(stream.iter_lines())


@pytest.mark.slow
def test_a_function_that_is_not_there_is_the_callers_mistake(server) -> None:
    """Each was answered "Internal Server Error", with a traceback of 40 lines in the log."""
    before = server.log.stat().st_size
    asked = [("run/predict", number) for number in (-1, 98, 2**70)] + [("call/nothing", None), ("run/nothing", None)]
    for path, number in asked:
        body = {"data": [], "fn_index": number, "session_hash": "a"}
        answer = httpx.post(f"{server.url}/gradio_api/{path}", json=body)
        assert answer.status_code == 404 and "this page has no function" in answer.text, (path, number)
    assert "Traceback" not in server.log.read_text()[before:]


@pytest.mark.slow
def test_nonsense_does_not_fill_the_disk(server) -> None:
    """Each malformed call wrote a traceback of 100 lines: 2,400 of them made 100 MB. The first one must stand there."""
    before = server.log.stat().st_size
    for number in (RACE, LOADED, MODEL, CHARTS):
        for _ in range(5):
            bodies = [{"data": data, "fn_index": number} for data in ([], [{}] * 40, [None] * 3)]
            at_once(f"{server.url}/gradio_api/run/predict", bodies * 4)
    written = server.log.read_text()[before:]
    assert written.count("Traceback (most recent call last)") in range(1, 10), written[-2000:]
    assert len(written) < 60_000, len(written)
    assert server.visitor("after-nonsense").race()[-1]["state"] == "finished"


@pytest.mark.slow
def test_nobody_can_leave_files_here(server) -> None:
    """Gradio keeps whatever is posted to its upload route; the page has no use for files."""
    for path in ("/gradio_api/upload", "/upload", "/gradio_api/upload/"):
        answer = httpx.post(f"{server.url}{path}", files={"files": ("a.txt", b"x" * 2000)})
        assert answer.status_code == 404, path
    assert httpx.get(f"{server.url}/gradio_api/upload_progress", params={"upload_id": "a"}).status_code == 404


def test_an_error_is_told_whole_once_and_then_in_a_line(capsys) -> None:
    """An engineer would lose the traceback, or a new kind of error drown in an old one."""
    moment = 0.0
    errors = Errors(lambda: moment)

    def fail(divisor: int) -> None:
        try:
            print([1][divisor], 1 // divisor)
        except Exception:
            errors.print_exc()

    for _ in range(50):
        fail(0)
    fail(1)
    said = capsys.readouterr().err
    assert said.count("Traceback") == 2 and "ZeroDivisionError" in said and "IndexError" in said
    moment = AGAIN_S
    fail(0)
    said = capsys.readouterr().err
    assert "Traceback" not in said and "again, 50 times" in said and "ZeroDivisionError" in said


def test_who_cannot_be_told_anything_ends_only_himself() -> None:
    """Gradio keeps the messages of 2,000 sessions. A message to a forgotten one raised in the task that serves all."""
    page = build(load(Machine()), TorchBackend())
    event = Event("forgotten", page.fns[LOADED], None, None)
    page._queue.send_message(event, EstimationMessage(queue_size=1))
    assert not event.alive


@pytest.mark.slow
def test_the_queue_serves_on_after_a_fault_of_its_own(page_cache, tmp_path) -> None:
    """An exception that nobody foresaw may cost one call, but neither the race that runs nor those to come."""
    log = tmp_path / "output"
    with served(page_cache, "--target", TARGET, "--dtype", "float32", script=("-c", FAULTY), log=log) as server:
        before = Watched(server.visitor("before"), **{**LONG, "max_new_tokens": 200})
        before.until("running")
        server.visitor("poison").join("model_now")
        time.sleep(0.5)
        after = Watched(server.visitor("after"))
        for race in (before, after):
            race.until("finished")
    assert log.read_text().count("ZeroDivisionError: planted") == 1
