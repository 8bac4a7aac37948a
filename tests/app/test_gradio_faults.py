"""Gradio under hostile callers: whatever one of them sends, everyone else can still race and does not have to wait."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.catalogue.catalogue import load
from app.catalogue.machine import Machine
from app.jobs.pool import MAX_JOBS, PER_ADDRESS, Jobs
from app.jobs.server_races import EitherBackend
from app.page.sentences import TITLE
from app.page.ui import build
from engine.core.errors import UsageError
from tests.helpers.hostile_recordings import lanes, race, singly
from tests.helpers.pageserver import Refused, Visitor
from tests.helpers.staged import in_loop

# Its functions have the numbers of the served page's.
PAGE = build(load(Machine()), EitherBackend("auto", "auto", True), own=())
EXAMPLE = next(number for number, function in PAGE.fns.items() if function.api_name == "named")  # an example's button


@contextmanager
def stranger(server: Any, number: int) -> Iterator[httpx.Client]:
    """A caller with an address of its own, so that it does not use up the limits of other tests."""
    transport = httpx.HTTPTransport(local_address=f"127.0.2.{number}")
    with httpx.Client(base_url=f"{server.url}/gradio_api", transport=transport, timeout=60) as client:
        yield client


def test_wrong_values_are_the_callers_mistake(server) -> None:
    """A fifth of such calls was answered "Internal Server Error", each kind with a traceback in the log: 2,400 of them
    wrote 100 MB. And Gradio downloads a URL of any size that is given as a file, by whoever, for whichever value."""
    server.visitor("before").race()  # until then Gradio may still say in the log where its page is
    before = server.log.stat().st_size
    with stranger(server, 1) as client:
        asked = [("run/predict", {"fn_index": number}) for number in (-1, 98, 2**70)] + [("run/predict", {})]
        for path, body in asked:
            answer = client.post(path, json={"data": [], **body})
            assert answer.status_code == 404 and "there is no function" in answer.text, body
        for pair in ("no such pair", {"path": "http://localhost:1/x", "meta": {"_type": "gradio.FileData"}}):
            answer = client.post("run/predict", json={"data": [pair], "fn_index": EXAMPLE})
            assert answer.status_code == 400 and "unknown pair" in answer.json()["error"]
    assert server.log.read_text()[before:] == ""
    assert server.visitor("after-nonsense").race()[-1]["state"] == "finished"


def test_files_of_strangers_make_nobody_wait(server) -> None:
    """Files were read in the event loop: another visitor's small request waited up to 60 s."""
    waits, ended = list[float](), threading.Event()

    def poll() -> None:
        with httpx.Client(timeout=60) as client:
            while not ended.is_set():
                began = time.monotonic()
                client.get(f"{server.url}/robots.txt")
                waits.append(time.monotonic() - began)
                time.sleep(0.02)

    other = threading.Thread(target=poll)
    other.start()
    with stranger(server, 2) as client:
        copies = singly([7] * 4_000, drafted=[7], copied=[0, 0], num_accepted=1)
        recording = json.dumps(race(lanes(s=copies), prompt=[7] * 200_000))
        assert client.post(f"{server.url}/recordings", content=recording).status_code == 200
        study = {"name": "a.txt", "limit": 1, "max_new_tokens": 8, "kept": None}
        with pytest.raises(Refused, match="1400001 lines"):
            next(Visitor(server.url, "study", client).frames("study", text="a\n" * 1_400_000, **study))
        next(Visitor(server.url, "study", client).frames("study", text='{"prompt":"a"}\n' * 19_000, **study))
        answer = client.post(f"{server.url}/recordings", content="[" + "[]," * 990_000 + "[]]")
        assert answer.status_code == 400 and "brackets" in answer.text
        time.sleep(1)
    ended.set()
    other.join()
    assert len(waits) > 10 and max(waits) < 1.0, sorted(waits)[-3:]


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


def test_a_link_to_the_page_is_shown_as_this_page(server: Any) -> None:
    """A link in a chat shows Gradio's name and picture; a server with other pages is asked for a file at its root."""
    answer = httpx.get(server.url)
    document = answer.text
    assert answer.headers["content-encoding"] == "gzip"  # else a megabyte, for each visit
    assert document.count("og:title") == 1 and TITLE in document
    assert "og:image" not in document and "twitter:" not in document and 'rel="manifest"' not in document
