"""A study on the page: what it takes of a browser, its turns on the device, and how it ends and goes on."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalogue import load
from app.limits import MAX_MORE_LANES, MAX_PROMPT_CHARS, MAX_STUDY_CHARS
from app.race_queue import RaceQueue
from app.request import StudyRequest, read_study
from app.study import ANEW, FAULT, Studies, refused_study
from engine.errors import RaceError, UsageError
from engine.traffic.prompts import MAX_PROMPTS
from engine.traffic.rows import Row
from engine.traffic.verdict import report
from tests.helpers.machines import SMALL

HERE = {"weights": "ab", "machine": "this one"}
SETTINGS = {"pair": "gemma-3-270m", "drafter": "ngram", "temperature": 0, "top_p": 1, "seed": 0, "more": []}
ABOUT: dict[str, Any] = {
    "model": {"name": "m", "dtype": "d", "licence": ""},
    "spec": {"params": {"temperature": 0.0, "seed": 0}, "audit": False},
    "device": {"name": "this one", "kind": "cpu", "num_threads": 1},
    "versions": {},
}


def row(line: int, drafter: str, speedup: float = 2.0) -> Row:
    return Row(line, f"prompt {line}", "prompts", drafter, "auto", speedup, 0.01, 0.5, 2.0, 8, True)


def asked(num: int = 3, **more: Any) -> dict[str, Any]:
    text = "\n".join(f"prompt {i}" for i in range(1, num + 1))
    return {"name": "mine.txt", "text": text, "limit": 20, "max_new_tokens": 8, "kept": None, **more}


def request(num: int = 3, **more: Any) -> StudyRequest:
    catalogue = load(SMALL)
    return read_study(catalogue, {**SETTINGS, "pair": catalogue.default.id}, asked(num, **more))


class Backend:
    """Races in order, each in `race_s`, with `running` and `most` of them at once; `held`: prompts by their order."""

    def __init__(self, race_s: float = 0.02, ran_on: dict[str, Any] = HERE) -> None:
        self.race_s, self.ran_on, self.held = race_s, ran_on, list[str]()
        self.running = self.most = 0
        self.error: Exception | None = None

    def study(self, request: StudyRequest, done: Any, progress: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            prompt = next(each for each in request.prompts if each.line not in done)
            ends = time.monotonic() + self.race_s
            while time.monotonic() < ends:
                progress("racing", 0.5)
                time.sleep(0.002)
            if self.error:
                raise self.error
            self.held.append(prompt.text)
            return tuple(row(prompt.line, drafter) for drafter in request.drafters), self.ran_on, None
        finally:
            self.running -= 1


@pytest.fixture(autouse=True)
def no_circumstances(monkeypatch) -> None:
    monkeypatch.setattr("app.study.circumstances", lambda about: "")
    monkeypatch.setattr("app.study.ribbons", lambda about, recorded: [])
    monkeypatch.setattr("app.study.TICK_S", 0.005)


async def watch(studies: Studies, visitor: str, wanted: StudyRequest) -> list[dict[str, Any]]:
    async with aclosing(studies.frames(visitor, f"at {visitor}", wanted)) as frames:
        return [json.loads(text) async for text in frames]


def test_two_visitors_and_a_race_take_turns() -> None:
    """Two races at once on one device; a study of hundreds of prompts before anybody else; a race that gives up what
    is put beside it because a study waits."""
    backend, queue = Backend(race_s=0.05), RaceQueue()
    studies = Studies(backend, queue)

    async def all_of_them() -> tuple[list[Any], int | None, int]:
        one = asyncio.create_task(watch(studies, "a", request(4)))
        await asyncio.sleep(0.02)
        other = asyncio.create_task(watch(studies, "b", request(4)))
        await asyncio.sleep(0.02)
        race = queue.enter("c", "at c")
        place, num_before = race.place, len(backend.held)
        while race.place != 0:
            await asyncio.sleep(0.002)
        num_waited = len(backend.held) - num_before
        assert not race.is_waited_for, "studies are patient"
        queue.enter("d", "at d").leave()
        race.leave()
        return [await one, await other], place, num_waited

    (one, other), place, num_waited = asyncio.run(all_of_them())
    assert place == 2 and num_waited == 2
    assert backend.most == 1 and len(backend.held) == 8
    assert [frames[-1]["state"] for frames in (one, other)] == ["finished", "finished"]
    assert backend.held[:4] == ["prompt 1", "prompt 1", "prompt 2", "prompt 2"]


def test_frames_say_all_that_the_command_does() -> None:
    """A browser that missed frames has other rows at the end, or a verdict that is not of these rows."""
    frames = asyncio.run(watch(Studies(Backend(), RaceQueue()), "a", request(14)))
    last = frames[-1]
    expected = [row(i, "ngram") for i in range(1, 15)]
    assert last["rows"] == [json.loads(json.dumps(each.to_json())) for each in expected]
    assert last["report"] == json.loads(json.dumps(report(expected)))
    assert [f["num_done"] for f in frames] == sorted(f["num_done"] for f in frames) and last["num_done"] == 14
    assert all(frame["report"] is None for frame in frames[:-1]), "a verdict that was looked at before the end"
    assert len({frame["key"] for frame in frames}) == 1 and any(frame["left_s"] for frame in frames)


@pytest.mark.parametrize("how", ["stop", "leave"])
def test_it_ends_within_a_step(how: str) -> None:
    """The device is held for somebody who has gone, or never given free."""
    backend, queue = Backend(race_s=60), RaceQueue()
    studies = Studies(backend, queue)

    async def hold() -> tuple[list[str], float]:
        states = []
        async with aclosing(studies.frames("a", "at a", request())) as frames:
            async for text in frames:
                states.append(json.loads(text)["state"])
                if states[-1] == "racing" and how == "leave":
                    break
                if states[-1] == "racing":
                    studies.stop("a")
        began = time.monotonic()
        ticket = queue.enter("b", "at b")
        while ticket.place != 0:
            await asyncio.sleep(0.005)
        return states, time.monotonic() - began

    states, waited_s = asyncio.run(hold())
    assert waited_s < 1 and backend.most == 1
    assert (states[-1] == "stopped") == (how == "stop")


def test_one_study_of_a_visitor() -> None:
    studies = Studies(Backend(race_s=0.1), RaceQueue())

    async def twice() -> None:
        first = asyncio.create_task(watch(studies, "a", request()))
        await asyncio.sleep(0.03)
        with pytest.raises(UsageError, match="stop it first"):
            await watch(studies, "a", request())
        await first
        assert (await watch(studies, "a", request()))[-1]["state"] == "finished"

    asyncio.run(twice())


def kept_of(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: frame[name] for name in ("key", "ran_on", "rows")}


def test_it_goes_on_where_it_ended() -> None:
    """Prompts raced twice; rows of another machine, file or setting in one table."""
    backend = Backend()
    frame = asyncio.run(watch(Studies(backend, RaceQueue()), "a", request(5)))[-1]
    half = {**kept_of(frame), "rows": [each for each in frame["rows"] if each["line"] in (2, 4)]}
    backend.held.clear()
    again = asyncio.run(watch(Studies(backend, RaceQueue()), "a", request(5, kept=half)))[-1]
    assert backend.held == ["prompt 1", "prompt 3", "prompt 5"] and again["num_done"] == 5 and again["note"] == ""
    assert again["report"] == frame["report"]
    for other in (request(5, kept=half, max_new_tokens=9), request(4, kept=half), request(5, kept={**half, "key": ""})):
        assert other.kept == ()
    elsewhere = Backend(ran_on={**HERE, "machine": "another"})
    anew = asyncio.run(watch(Studies(elsewhere, RaceQueue()), "a", request(5, kept=half)))[-1]
    assert sorted(elsewhere.held) == [f"prompt {i}" for i in range(1, 6)] and anew["note"] == ANEW
    assert anew["num_done"] == 5


def test_what_goes_wrong_is_said(caplog) -> None:
    """A traceback for the visitor, none for the engineer; finished rows that are lost."""
    backend = Backend()
    backend.error = RaceError("line 1: too long")
    with pytest.raises(RaceError, match="line 1"):
        asyncio.run(watch(Studies(backend, RaceQueue()), "a", request()))
    backend.error = ValueError("secret")
    with pytest.raises(RaceError, match="fault of this program"):
        asyncio.run(watch(Studies(backend, RaceQueue()), "a", request()))
    assert "secret" in caplog.text and "secret" not in FAULT
    frame = asyncio.run(watch(Studies(Backend(), RaceQueue()), "a", request()))[-1]
    half = {**kept_of(frame), "rows": frame["rows"][:1]}
    last = asyncio.run(watch(Studies(backend, RaceQueue()), "a", request(kept=half)))[-1]
    assert last["state"] == "failed" and last["text"] == FAULT and len(last["rows"]) == 1 and last["report"]
    assert json.loads(refused_study("<b>no")) == {"state": "failed", "text": "<b>no.", "rows": []}
    assert "<" not in refused_study("<b>no")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"text": None}, "must be a text"),
        ({"text": "a" * (MAX_STUDY_CHARS + 1)}, f"at most {MAX_STUDY_CHARS}"),
        ({"text": "a\n" + "b" * (MAX_PROMPT_CHARS + 1)}, f"line 2 has {MAX_PROMPT_CHARS + 1} characters"),
        ({"text": '{"prompt": 3}'}, "line 1"),
        ({"text": " \n"}, "holds no prompt"),
        ({"limit": 0}, f"from 1 to {MAX_PROMPTS} prompts, not 0"),
        ({"limit": True}, "not True"),
        ({"limit": MAX_PROMPTS + 1}, f"not {MAX_PROMPTS + 1}"),
        ({"max_new_tokens": None}, "max_new_tokens is empty"),
        ({"max_new_tokens": 10**6}, "on this page"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_a_browser_orders_no_more_than_a_page_may(change: dict[str, Any], names: str) -> None:
    """Hours of the device, or memory of it, for one request; an error that does not say what is wrong."""
    with pytest.raises(UsageError, match=names):
        request(**change)


def test_which_drafters_race() -> None:
    catalogue = load(SMALL)
    offered = [each for each in catalogue.drafters(catalogue.default) if each not in ("none", "ngram")]
    values = {**SETTINGS, "pair": catalogue.default.id, "drafter": "none", "more": offered[:MAX_MORE_LANES]}
    found = read_study(catalogue, values, asked())
    assert found.drafters == ("ngram", *offered[:MAX_MORE_LANES])
    with pytest.raises(UsageError, match="eagle3:/srv"):
        read_study(catalogue, {**values, "drafter": "eagle3:/srv/weights"}, asked())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, JSON, JSON)
def test_nothing_that_a_browser_sends_breaks_it(given_: Any, kept: Any, rows: Any) -> None:
    """A value of any shape ends in one sentence, or as a study."""
    key = request().key
    for wanted in (given_, asked(kept=kept), asked(kept={"key": key, "ran_on": {}, "rows": rows})):
        catalogue = load(SMALL)
        try:
            found = read_study(catalogue, {**SETTINGS, "pair": catalogue.default.id}, wanted)
        except UsageError:
            continue
        assert 1 <= len(found.prompts) <= MAX_PROMPTS and len(found.kept) % len(found.drafters) == 0
