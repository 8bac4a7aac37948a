"""The extras of a race that is over: later than its end, never at the cost of somebody's race, and at most once."""

import asyncio
import json
import time
from contextlib import aclosing
from typing import Any

import pytest

from app.jobs.races import Stage
from tests.helpers.races import fixed_race
from tests.helpers.staged import ORDER, StagedBackend, in_loop, over, until, watch

RACE = fixed_race()
MEMBERS = {"tables": {"ngram": [[1, 2]] * 5}, "oracles": {}}
WITH_EXTRAS = {**RACE, **MEMBERS}
POSITION_S, SLACK_S = 0.02, 0.3


def asking(num_positions: int, **more: Any) -> StagedBackend:
    """A backend whose extras take this many positions."""
    backend = StagedBackend(RACE, **more)
    backend.members, backend.num_positions, backend.position_s = MEMBERS, num_positions, POSITION_S
    return backend


def sent(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recordings in these frames."""
    return [json.loads(frame["recording"]) for frame in frames if frame["recording"]]


@in_loop
async def test_the_end_is_shown_before_anything_is_made() -> None:
    """Numbers and verdict wait for tables; the recording is sent twice; a visitor's leaving goes unnoticed."""
    backend = asking(25)
    stage, frames = Stage(backend), list[dict[str, Any]]()
    async with aclosing(stage.frames("a", "at a", ORDER)) as source:
        async for text in source:
            frames.append(json.loads(text))
            if frames[-1]["recording"] and not backend.asked:
                await asyncio.sleep(5 * POSITION_S)  # a slow line to the browser
                assert not backend.asked and backend.running == 0
    end = frames.index(over(frames))
    later = frames[end + 1 :]
    assert sent(frames) == [RACE, WITH_EXTRAS] and frames[end]["recording"] and later[-1]["recording"]
    assert backend.asked == 25 and later[-1]["complete"] and len(later) > 2
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    assert not any(frame["complete"] for frame in frames[:-1])
    for frame in later:
        assert (frame["race"], frame["state"]) == (frames[0]["race"], "finished")
        assert (frame["events"], frame["header"]) == ([], None)


@pytest.mark.parametrize("why", ["stop", "nobody watches", "another waits", "his own next race waits"])
@in_loop
async def test_it_is_given_up_at_once(why) -> None:
    """Stop would do nothing, tables be made for nobody, or a visitor wait for another one's tables."""
    backend = asking(1000)
    stage = Stage(backend, grace_s=0.15)
    making = asyncio.create_task(watch(stage, "a"))
    await until(lambda: backend.asked)
    given_up = time.monotonic()
    if why == "stop":
        assert stage.stop("a") == 1
    elif why == "nobody watches":
        making.cancel()
    else:
        backend.num_positions = 0
        visitor = "b" if why == "another waits" else "a"
        assert (await watch(stage, visitor))[-1]["state"] == "finished"
        assert len(backend.orders) == 2
    if why != "nobody watches":
        frames = await making
        assert frames[-1]["complete"] and sent(frames) == [RACE]
    await until(lambda: not stage.queue._tickets)
    assert time.monotonic() - given_up < 0.15 + 2 * POSITION_S + SLACK_S
    asked = backend.asked
    await asyncio.sleep(3 * POSITION_S)
    assert backend.asked == asked < 1000 and backend.most == 1


@in_loop
async def test_nothing_is_begun_while_another_race_waits() -> None:
    """Each of a long line's races would begin tables that nobody gets."""
    backend = asking(5, step_s=0.01)
    stage = Stage(backend)
    first = asyncio.create_task(watch(stage, "a"))
    await asyncio.sleep(0.02)
    second = asyncio.create_task(watch(stage, "b"))
    assert sent(await first) == [RACE] and not backend.asked
    assert sent(await second) == [RACE, WITH_EXTRAS]
