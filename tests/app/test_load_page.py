"""A study of servers under load on the page: real requests to loopback servers, its turn in the queue, how it ends and
goes on."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import ExitStack, aclosing
from typing import Any

import pytest

from app.load_request import MAX_LEVELS, MAX_REQUESTS, MAX_USERS, LoadRequest, read_load
from app.load_study import LoadStudies, refused_load
from app.race_queue import RaceQueue
from engine.errors import UsageError
from engine.remote.endpoint import Endpoint
from tests.helpers.schedule import TOKENS, Scheduled, serving

KEY = "sk-secret-of-the-test"
SETTINGS = {"temperature": 0, "seed": 3, "chat": False}
ASKED = {"users": "1,2", "requests": 4, "max_new_tokens": 8, "dollars": None, "text": None, "words": 9, "kept": None}


class Page:
    """Loopback servers as the lanes of a page: baseline, speculative."""

    def __init__(self, *servers: Scheduled, separate: bool = False) -> None:
        self.servers, self.separate, self.queue, self._stack = servers, separate, RaceQueue(), ExitStack()

    def __enter__(self) -> Page:
        urls = [self._stack.enter_context(serving(server)) for server in self.servers]
        lanes = zip(("baseline", "speculative"), urls, strict=False)
        self.endpoints = [Endpoint(lane, "m", url, KEY) for lane, url in lanes]
        self.studies = LoadStudies(self.endpoints, self.separate, self.queue)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def request(self, **changes: Any) -> LoadRequest:
        return read_load(self.endpoints, self.separate, SETTINGS, {**ASKED, **changes})

    async def held(self, request: LoadRequest, stop_after: int = 0) -> list[dict[str, Any]]:
        """Its frames; stopped once servers were asked so many questions."""
        frames = []
        async for text in self.studies.frames("visitor", "address", request):
            assert KEY not in text and "127.0.0.1" not in text
            frames.append(json.loads(text))
            if stop_after and sum(len(server.asked) for server in self.servers) >= stop_after:
                self.studies.stop("visitor")
        return frames


@pytest.mark.parametrize("separate", [False, True])
def test_a_study_from_its_start_to_its_report(separate) -> None:
    """Other rows than the command's, a progress that stands still, or levels that come only at the end."""
    with Page(Scheduled(0.1), Scheduled(0.1), separate=separate) as page:
        frames = asyncio.run(page.held(page.request()))
        last = frames[-1]
        assert (last["state"], last["begun"], last["lanes"]) == ("finished", [], ["baseline", "speculative"])
        keys = [(row["lane"], row["concurrency"]) for row in last["rows"]]
        assert keys == [(lane, num) for num in (1, 2) for lane in ("baseline", "speculative")]
        assert all(row["num_output_tokens"] == 4 * TOKENS and not row["num_errors"] for row in last["rows"])
        assert last["report"]["levels"] == last["rows"] and last["share"] == 1
        shares = [frame["share"] for frame in frames]
        assert shares == sorted(shares) and len(set(shares)) > 4
        assert any(0 < len(frame["rows"]) < 4 for frame in frames)
        prompts = [sorted((body["prompt"], body["seed"]) for body in server.asked) for server in page.servers]
        assert prompts[0] == prompts[1]


def test_stop_and_a_browser_that_left_end_it_within_a_second() -> None:
    """A study that nobody watches would go on at the operator's cost, and keep the servers from others."""
    with Page(Scheduled(pace=20)) as page:

        async def stopped() -> float:
            began = 0.0
            async for text in page.studies.frames("visitor", "address", page.request()):
                if json.loads(text)["state"] == "running" and not began and page.servers[0].asked:
                    page.studies.stop("visitor")
                    began = time.monotonic()
            assert json.loads(text)["state"] == "stopped"
            return time.monotonic() - began

        async def left() -> None:
            async with aclosing(page.studies.frames("visitor", "address", page.request())) as frames:
                async for text in frames:
                    if json.loads(text)["state"] == "running":
                        break
            ends, other = time.monotonic() + 1, page.queue.enter("other", "other")
            while other.place != 0 and time.monotonic() < ends:
                await asyncio.sleep(0.05)
            assert other.place == 0

        assert asyncio.run(stopped()) < 1
        asyncio.run(left())
        num_asked = len(page.servers[0].asked)
        time.sleep(0.3)
        assert len(page.servers[0].asked) == num_asked


def test_it_waits_for_the_servers_and_others_wait_for_it() -> None:
    """A race among 200 users' requests, or a study among a race's, would measure the other."""
    with Page(Scheduled(0.05)) as page:

        async def both() -> None:
            race = page.queue.enter("racer", "a")
            study = asyncio.create_task(page.held(page.request(users="1", requests=2)))
            await asyncio.sleep(0.5)
            assert not page.servers[0].asked
            race.leave()
            while not page.servers[0].asked:
                await asyncio.sleep(0.01)
            later = page.queue.enter("racer", "a")
            assert later.place == 1
            frames = await study
            assert frames[0]["state"] == "waiting" and frames[-1]["state"] == "finished" and later.place == 0

        asyncio.run(both())


def test_a_second_study_of_a_visitor_is_refused_and_the_first_stands() -> None:
    """Two tabs would put two loads on the servers, or the second one end the first."""
    with Page(Scheduled(0.05)) as page:

        async def two() -> None:
            first = asyncio.create_task(page.held(page.request()))
            await asyncio.sleep(0.3)
            with pytest.raises(UsageError, match="not over"):
                await page.held(page.request())
            assert (await first)[-1]["state"] == "finished"

        asyncio.run(two())


def test_a_server_that_dies_is_told_and_a_later_run_fills_the_hole() -> None:
    """The other server's levels would be lost, finished ones asked again, or a hole stay."""
    with Page(Scheduled(), Scheduled(most=2 + 4 + 1)) as page:
        last = asyncio.run(page.held(page.request()))[-1]
        told = {(row["lane"], row["concurrency"]): row for row in last["rows"]}
        assert last["state"] == "finished" and last["begun"] == [["speculative", 2]]
        assert (
            not any(told["baseline", num]["num_errors"] for num in (1, 2)) and not told["speculative", 1]["num_errors"]
        )
        assert told["speculative", 2]["num_errors"] == 4 - 1 and "lane speculative" in told["speculative", 2]["fault"]
        num_asked = len(page.servers[0].asked)
        with serving(Scheduled(), page.servers[1].port):
            kept = {name: last[name] for name in ("key", "rows", "begun")}
            again = asyncio.run(page.held(page.request(kept=kept)))[-1]
        assert [row["asked_before"] for row in again["rows"]] == [False, False, False, True]
        assert not any(row["num_errors"] for row in again["rows"]) and again["begun"] == []
        assert len(page.servers[0].asked) == num_asked


def test_a_stopped_study_goes_on_where_it_ended() -> None:
    """Finished levels would be asked again, or kept levels of another study stand among this one's."""
    with Page(Scheduled(0.1)) as page:
        first = asyncio.run(page.held(page.request(), stop_after=2 + 4 + 2))[-1]
        assert first["state"] == "stopped" and [row["concurrency"] for row in first["rows"]] == [1]
        kept = {name: first[name] for name in ("key", "rows", "begun")}
        num_asked = len(page.servers[0].asked)
        other = page.request(kept=kept, words=10)
        assert other.rows == () and other.begun == frozenset()
        again = asyncio.run(page.held(page.request(kept=kept)))[-1]
        assert [(row["concurrency"], row["asked_before"]) for row in again["rows"]] == [(1, False), (2, True)]
        assert len(page.servers[0].asked) - num_asked == 2 + 4


HOSTILE: list[dict[str, Any]] = [
    *({"users": each} for each in ("", "0", "5,1", "1,1", "1;2", "-1", "1e3", None, [], str(MAX_USERS + 1), "²")),
    {"users": ",".join(map(str, range(1, MAX_LEVELS + 2)))},
    *({"requests": each} for each in (0, -1, 1.5, MAX_REQUESTS + 1, None, "4", True, 10**30)),
    *({"max_new_tokens": each} for each in (0, 10**9, None, "8")),
    *({"words": each} for each in (0, 10**9, None, "9", 1)),
    *({"dollars": each} for each in (-1, "2", 1e9, True, float("nan"))),
    *({"text": each} for each in ("", "only one prompt", 7, ["a"], "{not json")),
]


@pytest.mark.parametrize("changes", HOSTILE, ids=str)
def test_what_cannot_be_studied_is_refused_in_a_sentence(changes) -> None:
    """A visitor would ask for a load without a limit, or see a traceback."""
    with pytest.raises(UsageError) as error:
        read_load([Endpoint("a", "m", "http://127.0.0.1:9/v1", KEY)], False, SETTINGS, {**ASKED, **changes})
    assert 10 < len(str(error.value)) < 300 and json.loads(refused_load(str(error.value)))["state"] == "failed"


@pytest.mark.parametrize("rows", [7, [{}], [[]], [None], [{"lane": "a"}], [{}] * 99])
def test_kept_rows_of_a_stranger_are_refused(rows) -> None:
    """A browser's storage can hold anything; it must not become a row."""
    endpoints = [Endpoint("a", "m", "http://127.0.0.1:9/v1", KEY)]
    key = read_load(endpoints, False, SETTINGS, ASKED).key
    with pytest.raises(UsageError):
        read_load(endpoints, False, SETTINGS, {**ASKED, "kept": {"key": key, "rows": rows, "begun": []}})
