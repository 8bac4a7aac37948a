"""Studies of servers under load on the page: what they accept from a browser, their turns on the device, and their
frames. What a study does with levels is tested in tests/studies."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import ExitStack, aclosing
from typing import Any

import pytest

from app.catalogue.load_request import MAX_LEVELS, MAX_REQUESTS, MAX_USERS, LoadRequest, read_load, read_saved
from app.jobs import studies
from app.jobs.load import LoadStudies
from app.jobs.queue import HANGS, RaceQueue
from engine.core.errors import RaceError, UsageError
from engine.recordings.check import check
from engine.remote.endpoint import Endpoint
from tests.helpers.schedule import Scheduled, serving
from tests.helpers.staged import until

LOAD_SETTINGS = {"temperature": 0, "seed": 3, "chat": False}
LOAD = {"users": "1,2", "requests": 4, "max_new_tokens": 8, "dollars": None, "text": None, "words": 9, "kept": None}
KEY = "sk-secret-of-the-test"


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr("app.jobs.studies.TICK_S", 0.005)


class Page:
    """Loopback servers as the lanes of a page: baseline, speculative."""

    def __init__(self, *servers: Scheduled) -> None:
        self.servers, self.queue, self._stack = servers, RaceQueue(), ExitStack()

    def __enter__(self) -> Page:
        urls = [self._stack.enter_context(serving(server)) for server in self.servers]
        lanes = zip(("baseline", "speculative"), urls, strict=False)
        self.endpoints = [Endpoint(lane, "m", url, KEY) for lane, url in lanes]
        self.studies = LoadStudies(self.queue)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def num_asked(self) -> int:
        return sum(len(server.asked) for server in self.servers)

    def request(self, **changes: Any) -> LoadRequest:
        return read_load(self.endpoints, False, LOAD_SETTINGS, {**LOAD, **changes})

    async def frames(self, request: LoadRequest) -> list[dict[str, Any]]:
        """Its frames."""
        frames = []
        async for text in self.studies.frames("visitor", "address", request):
            assert KEY not in text and "127.0.0.1" not in text
            frames.append(json.loads(text))
        return frames


def test_a_study_of_servers_waits_stops_and_goes_on() -> None:
    """A race among a study's requests would measure both; a stopped study that keeps the servers; finished levels that
    are asked again, or kept levels of another study among this one's."""
    with Page(Scheduled(0.05)) as page:

        async def beside_a_race() -> list[dict[str, Any]]:
            race = page.queue.enter("racer", "a")
            study = asyncio.create_task(page.frames(page.request()))
            await asyncio.sleep(0.3)
            assert page.num_asked == 0
            race.leave()
            await until(lambda: page.num_asked)
            with pytest.raises(UsageError, match="already have a study"):
                await page.frames(page.request())
            later = page.queue.enter("racer", "a")
            assert later.place == 1
            await until(lambda: page.num_asked >= 2 + 4 + 2)  # in the second level
            page.studies.stop("visitor")
            frames = await study
            await until(lambda: later.place == 0)
            later.leave()
            return frames

        frames = asyncio.run(beside_a_race())
        first, num_asked = frames[-1], page.num_asked
        assert frames[0]["state"] == "waiting" and first["state"] == "stopped"
        assert [each["concurrency"] for each in first["rows"]] == [1]
        kept = json.dumps({name: first[name] for name in ("key", "rows", "begun")})
        other = page.request(kept=kept, words=10)
        assert other.rows == () and other.begun == frozenset()
        frames = asyncio.run(page.frames(page.request(kept=kept)))
        shares = [frame["share"] for frame in frames]
        assert shares == sorted(shares) and shares[-1] == 1 and frames[-1]["state"] == "finished"
        rows = [(row["concurrency"], row["asked_before"]) for row in frames[-1]["rows"]]
        assert rows == [(1, False), (2, True)] and page.num_asked - num_asked == 2 + 4
        assert frames[-1]["report"]["levels"] == frames[-1]["rows"]


def test_a_study_of_servers_that_hangs_is_said(monkeypatch) -> None:
    """It would keep the device, and all visitors wait without a word."""
    monkeypatch.setattr(studies, "QUIET_S", 0.3)
    with Page(Scheduled(pace=20)) as page, pytest.raises(RaceError, match=HANGS):
        asyncio.run(page.frames(page.request()))


def test_a_study_of_servers_ends_when_its_browser_leaves() -> None:
    """It would go on at the operator's cost, and keep the servers from others."""
    with Page(Scheduled(pace=20)) as page:

        async def left() -> None:
            async with aclosing(page.studies.frames("visitor", "address", page.request())) as frames:
                async for text in frames:
                    if json.loads(text)["state"] == "running":
                        break
            other = page.queue.enter("other", "other")
            await until(lambda: other.place == 0)

        asyncio.run(left())
        num_asked = page.num_asked
        time.sleep(0.2)
        assert page.num_asked == num_asked


HOSTILE: list[dict[str, Any]] = [
    *({"users": each} for each in ("", "0", "5,1", "1,1", "1;2", "-1", "1e3", None, [], str(MAX_USERS + 1), "²")),
    {"users": ",".join(map(str, range(1, MAX_LEVELS + 2)))},
    *({"requests": each} for each in (0, 1.5, MAX_REQUESTS + 1, None, "4", True, 10**30)),
    {"users": "1,5", "requests": 4},
    *({"max_new_tokens": each} for each in (0, 10**9, None, "8")),
    *({"words": each} for each in (0, 10**9, None, "9", 1)),
    *({"dollars": each} for each in (-1, "2", 1e9, True, float("nan"))),
    *({"text": each} for each in ("", 7, ["a"], "{not json")),
    *({"kept": rows} for rows in (7, [{}], [[]], [None], [{"lane": "a"}], [{}] * 99)),
]


@pytest.mark.parametrize("changes", HOSTILE, ids=str)
def test_a_load_that_cannot_be_held_is_refused_in_a_sentence(changes) -> None:
    """A visitor would ask for a load without a limit, see a traceback, or put rows of a browser's storage into it."""
    endpoints = [Endpoint("a", "m", "http://127.0.0.1:9/v1", KEY)]
    if "kept" in changes:
        key = read_load(endpoints, False, LOAD_SETTINGS, LOAD).key
        changes = {"kept": json.dumps({"key": key, "rows": changes["kept"], "begun": []})}
    with pytest.raises(UsageError) as error:
        read_load(endpoints, False, LOAD_SETTINGS, {**LOAD, **changes})
    assert 10 < len(str(error.value)) < 300


def test_a_temperature_that_no_float_holds_is_refused() -> None:
    """The page would log a fault of its own, and the visitor would read no reason."""
    with pytest.raises(UsageError, match="temperature must be a number from 0 to 100"):
        read_load([], False, {**LOAD_SETTINGS, "temperature": 10**400}, LOAD)


def test_a_saved_result_is_shown_again_and_a_bad_one_refused() -> None:
    """What was sent to a colleague could not be read; or a file's own verdict be believed, its numbers break the page,
    or it be taken for prompts."""
    with Page(Scheduled(), Scheduled()) as page:
        saved = asyncio.run(page.frames(page.request()))[-1]["report"]
        num_asked = page.num_asked

        def opened(**changes: Any) -> Any:
            whole = {**saved, **changes}
            return asyncio.run(page.frames(read_saved(json.dumps(whole))))[-1]

        found = opened(says=["<b>all is well</b>"], gains_with=[7])
        assert found["opened"] and found["report"] == saved and "key" not in found and page.num_asked == num_asked
        row = saved["levels"][0]
        for changes in (
            {"format": "photofinish-study"}, {"levels": []}, {"levels": [row, row]}, {"levels": [7]}, {"lanes": ["x"]},
            {"said": {}}, {"lanes": None}, {"levels": [{**row, "concurrency": 10**9}]}, {"levels": [row] * 101},
            *({"levels": [{**row, "output_tokens_per_s": rate}]} for rate in (-1, 1e300, 1e-300, "7", True)),
        ):  # fmt: skip
            with pytest.raises(UsageError) as error:
                opened(**changes)
            assert 10 < len(str(error.value)) < 300, changes
        with pytest.raises(UsageError, match=r"open it with Choose a file in Under load"):
            check(saved)
