"""Gradio under hostile callers: whatever one of them sends, everyone else can still race and does not have to wait."""

import asyncio
import json
import threading
import time
from typing import Any

import httpx
import pytest

from app.jobs.pool import MAX_JOBS, PER_ADDRESS, Jobs
from app.page.sentences import TITLE
from engine.core.errors import UsageError
from tests.helpers.hostile_recordings import lanes, race, singly
from tests.helpers.pageserver import Refused, Visitor
from tests.helpers.staged import in_loop


def test_files_of_strangers_make_nobody_wait(server) -> None:
    """Files were read in the event loop: another visitor's small request waited up to 60 s."""
    server.visitor("before").race()  # the page's own start comes first
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
    # with an address of its own, so that it does not use up the limits of other tests
    transport = httpx.HTTPTransport(local_address="127.0.2.2")
    with httpx.Client(base_url=server.url, transport=transport, timeout=60) as client:
        copies = singly([7] * 4_000, drafted=[7], copied=[0, 0], num_accepted=1)
        recording = json.dumps(race(lanes(s=copies), prompt=[7] * 200_000))
        assert client.post("/recordings", content=recording).status_code == 200
        study = {"name": "a.txt", "limit": 1, "max_new_tokens": 8, "kept": None}
        with pytest.raises(Refused, match="1400001 lines"):
            next(Visitor(server.url, "study", client).frames("study", text="a\n" * 1_400_000, **study))
        next(Visitor(server.url, "study", client).frames("study", text='{"prompt":"a"}\n' * 19_000, **study))
        answer = client.post("/recordings", content="[" + "[]," * 990_000 + "[]]")
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
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    assert await jobs.run("a", work) == 1


def test_a_link_to_the_page_is_shown_as_this_page(server: Any) -> None:
    """A link in a chat shows Gradio's name and picture; a server with other pages is asked for a file at its root."""
    answer = httpx.get(server.url)
    document = answer.text
    assert answer.headers["content-encoding"] == "gzip"  # else a megabyte, for each visit
    assert document.count("og:title") == 1 and TITLE in document
    assert "og:image" not in document and "twitter:" not in document and 'rel="manifest"' not in document
