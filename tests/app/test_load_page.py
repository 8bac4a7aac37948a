"""Studies of servers under load on the page: what they accept from a browser, their turns on the device, and their
frames. What a study does with levels is tested in tests/studies."""

import asyncio
import json
from typing import Any

import pytest

from app.catalogue.catalogue import load
from app.catalogue.request import MAX_LEVELS, MAX_REQUESTS, MAX_USERS, read_load
from app.catalogue.saved import read_saved
from app.jobs.backend import TorchBackend
from app.jobs.queue import RaceQueue
from app.jobs.studies import LoadStudy, Studies
from app.page.handlers import Handlers
from app.page.stream import Asked
from engine.core.errors import UsageError
from engine.remote.endpoint import Endpoint
from tests.helpers.machines import SMALL
from tests.helpers.schedule import Scheduled, serving
from tests.helpers.staged import in_loop, until, watch

LOAD_SETTINGS = {"temperature": 0, "seed": 3, "chat": False}
LOAD = {"users": "1,2", "requests": 4, "max_new_tokens": 8, "dollars": None, "text": None, "words": 9}
KEY = "sk-secret-of-the-test"


def test_a_study_of_servers_waits_and_stops() -> None:
    """A race among a study's requests; a stopped study that keeps the servers, or loses its finished levels."""
    with serving(server := Scheduled(0.05)) as url:
        queue = RaceQueue()
        studies = Studies(queue)

        async def studied() -> list[dict[str, Any]]:
            plan = read_load([Endpoint("baseline", "m", url, KEY)], LOAD_SETTINGS, LOAD)
            frames = await watch(studies, "visitor", order=LoadStudy(plan, ""))
            assert not any(secret in json.dumps(frames) for secret in (KEY, "127.0.0.1"))
            return frames

        async def beside_a_race() -> list[dict[str, Any]]:
            race = queue.enter("racer", "a")
            study = asyncio.create_task(studied())
            await asyncio.sleep(0.3)
            assert not server.asked
            race.leave()
            await until(lambda: server.asked)
            with pytest.raises(UsageError, match="already have a study"):
                await studied()
            later = queue.enter("racer", "a")
            assert later.place == 1
            await until(lambda: len(server.asked) >= 2 + 4 + 2)  # in the second level
            studies.stop("visitor")
            frames = await study
            await until(lambda: later.place == 0)
            later.leave()
            return frames

        frames = asyncio.run(beside_a_race())
        assert frames[0]["state"] == "waiting" and frames[-1]["state"] == "stopped"
        assert [level["concurrency"] for level in frames[-1]["report"]["levels"]] == [1]
        frames = asyncio.run(studied())
        shares, report = [frame["share"] for frame in frames], frames[-1]["report"]
        assert shares == sorted(shares) and shares[-1] == 1 and frames[-1]["state"] == "finished"
        assert [row["concurrency"] for row in report["levels"]] == [1, 2]
        assert [result["report"] for result in read_saved(json.dumps(report))] == [report]


HOSTILE: list[dict[str, Any]] = [
    *({"users": users} for users in ("", "0", "5,1", "1,1", "1;2", "-1", "1e3", None, [], str(MAX_USERS + 1), "²")),
    {"users": ",".join(map(str, range(1, MAX_LEVELS + 2)))},
    *({"requests": requests} for requests in (0, 1.5, MAX_REQUESTS + 1, None, "4", True, 10**30)),
    {"users": "1,5", "requests": 4},
    *({"max_new_tokens": limit} for limit in (0, 65, 10**9, None, "8")),
    *({"words": words} for words in (0, 10**9, None, "9", 1)),
    *({"dollars": dollars} for dollars in (-1, "2", 1e9, True, float("nan"))),
    *({"text": text} for text in ("", 7, ["a"], "{not json")),
    {"temperature": 10**400},
]


@pytest.mark.parametrize("changes", HOSTILE, ids=str)
def test_a_load_that_cannot_be_held_is_refused_in_a_sentence(changes) -> None:
    """A visitor would ask for a load without a limit, or see a traceback."""
    endpoints = [Endpoint("a", "m", "http://127.0.0.1:9/v1", KEY)]
    with pytest.raises(UsageError) as error:
        read_load(endpoints, {**LOAD_SETTINGS, **changes}, {**LOAD, **changes}, max_new_tokens=64)
    assert 10 < len(str(error.value)) < 300


@in_loop
async def test_only_servers_are_put_under_load() -> None:
    """A load would go to servers that are not the ones chosen now."""
    page = Handlers(load(SMALL), TorchBackend("auto", "cpu", False), own=True)
    with pytest.raises(UsageError, match="only servers can be put under load, and gemma-3-270m runs in this page's"):
        await page.runs()["load"](Asked("a", "here", {"pair": page.catalogue.default.id}, LOAD))
