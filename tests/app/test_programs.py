"""Programs race as Gradio's API page tells them to: by its client, and by two kinds of requests."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from starlette.applications import Starlette

from app.page import programs
from app.page.programs import MAX_CALLS_THERE, Calls
from engine.core.errors import UsageError
from engine.recordings.recording import checked
from tests.helpers.page_browser import slowness
from tests.helpers.pageserver import LONG, ORDER
from tests.helpers.staged import in_loop

CALL = "/gradio_api/call/v2/race"


def test_programs_can_race_too(server) -> None:
    """Each way in that the API page shows returns the recording of the race, and a refusal in its words."""
    client = Client(server.url, verbose=False, httpx_kwargs={"timeout": 60})
    jobs = [client.submit(**{**ORDER, "seed": seed}, api_name="/race") for seed in range(2)]
    assert [checked(job.result(60).encode())["spec"]["params"]["seed"] for job in jobs] == [0, 1]
    with pytest.raises(AppError, match="the prompt is empty"):
        client.predict(**{**ORDER, "prompt": ""}, api_name="/race")
    short = client.predict(prompt="la la la", max_new_tokens=8, chat=False, api_name="/race")
    assert checked(short.encode())["spec"]["params"]["max_new_tokens"] == 8
    event_id = httpx.post(f"{server.url}{CALL}", json=ORDER).json()["event_id"]
    with httpx.stream("GET", f"{server.url}{CALL}/{event_id}", timeout=60) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[0] == "event: complete"
    (recording,) = json.loads(lines[1].removeprefix("data: "))
    assert checked(recording.encode())["prompt"]["text"] == ORDER["prompt"]
    assert httpx.get(f"{server.url}{CALL}/{event_id}").status_code == 404, "fetched twice"


def test_the_race_of_a_program_that_has_left_ends(server) -> None:
    """Gradio's queue raced on for callers who had gone, and everybody else waited."""
    event_id = httpx.post(f"{server.url}{CALL}", json={**ORDER, **LONG}).json()["event_id"]
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{server.url}{CALL}/{event_id}", timeout=1.0)
    left, frames = time.monotonic(), server.visitor("next").frames()
    assert any(frame["state"] == "preparing" for frame in frames) and time.monotonic() - left < 2 * slowness()
    frames.close()


NAMES = ["prompt", "k"]
BODIES: list[tuple[str, Any, str]] = [
    ("queue/join", [], "must be a JSON object"),
    ("queue/join", {"data": ["a", 1], "fn_index": 8, "session_hash": "s"}, "fn_index must be 7"),
    ("queue/join", {"data": ["a", 1], "fn_index": 7}, "session_hash"),
    ("queue/join", {"data": ["a", 1], "fn_index": 7, "session_hash": "x" * 101}, "session_hash"),
    ("queue/join", {"data": ["a"], "fn_index": 7, "session_hash": "s"}, "2 values: prompt, k"),
    ("call/v2/race", {"prompt": "a", "nonsense": 1}, "unknown value 'nonsense'"),
]


async def asked(calls: Calls, method: str, path: str, **more: Any) -> httpx.Response:
    transport = httpx.ASGITransport(Starlette(routes=calls.routes()), client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://page/gradio_api/") as client:
        return await client.request(method, path, **more)


def made(race: Any = None) -> Calls:
    async def none(_: Any) -> Any:
        raise UsageError("no race today")

    return Calls(race or none, lambda visitor: None, NAMES, 7)


@pytest.mark.parametrize(("path", "body", "words"), BODIES)
@in_loop
async def test_a_call_that_cannot_be_one_is_refused(path, body, words) -> None:
    """A wrong call would become a race with wrong values, or a traceback."""
    answer = await asked(made(), "POST", path, json=body)
    assert answer.status_code == 400 and words in answer.json()["detail"]


@in_loop
async def test_calls_that_nobody_fetches_are_few_and_forgotten(monkeypatch) -> None:
    """They would take memory for as long as the page runs."""

    async def statuses(calls: Calls) -> list[int]:
        body = {"prompt": "a", "k": 1}
        return [(await asked(calls, "POST", "call/v2/race", json=body)).status_code for _ in range(MAX_CALLS_THERE + 1)]

    assert await statuses(made()) == [200] * MAX_CALLS_THERE + [400]
    monkeypatch.setattr(programs, "FETCH_S", -1.0)
    assert await statuses(made()) == [200] * (MAX_CALLS_THERE + 1)


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ([{"state": "running"}, {"state": "failed", "status": {"text": "No."}}], 'event: error\ndata: "No."'),
        ([{"state": "stopped", "status": {"text": "S."}, "recording": "r"}], 'event: error\ndata: "S."'),
        ([{"state": "finished", "recording": "r"}, {"state": "finished", "recording": "with extras"}],
         'event: complete\ndata: ["r"]'),
        ([], "because of a bug"),
    ],
)  # fmt: skip
@in_loop
async def test_how_a_race_ended_is_the_result(frames, line) -> None:
    """Absent is not false: a race that failed, was stopped or never began has no recording to return."""

    async def race(_: Any) -> Any:
        return (("", json.dumps(frame)) async for frame in stream())

    async def stream() -> Any:
        for frame in frames:
            await asyncio.sleep(0)
            yield frame

    calls = made(race)
    key = (await asked(calls, "POST", "call/v2/race", json={"prompt": "a", "k": 1})).json()["event_id"]
    assert line in (await asked(calls, "GET", f"call/v2/race/{key}")).text
