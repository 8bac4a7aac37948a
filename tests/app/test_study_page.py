"""Studies of prompts on the page: what they accept from a browser, their turns on the device, and their frames. What a
study does with prompts is tested in tests/studies."""

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given

from app.catalogue.catalogue import load
from app.catalogue.limits import MAX_FILE_CHARS, MAX_FILE_LINES, MAX_MORE_LANES, MAX_PROMPT_CHARS, Limits
from app.catalogue.request import StudyRequest, look_at, read_study
from app.jobs.queue import RaceQueue
from app.jobs.studies import ANEW, PromptsStudy, Studies
from engine.core.errors import RaceError, UsageError
from engine.studies.prompts.prompts import MAX_PROMPTS
from engine.studies.prompts.rows import Row
from engine.studies.prompts.study_file import result
from tests.helpers.altered import JSON_VALUES
from tests.helpers.machines import SMALL
from tests.helpers.staged import until, watch

CATALOGUE = load(SMALL)
HERE = {"weights": "ab", "machine": "this one"}
SETTINGS = {"pair": CATALOGUE.default.id, "drafter": "ngram", "temperature": 0, "top_p": 1, "seed": 0, "more": []}


def row(line: int, drafter: str, speedup: float = 2.0) -> Row:
    return Row(line, f"prompt {line}", "prompts", drafter, "auto", speedup, 0.01, 0.5, 2.0, 8, True)


def asked(num: int = 3, kept: Any = None, **more: Any) -> dict[str, Any]:
    text = "\n".join(f"prompt {i}" for i in range(1, num + 1))
    sent = None if kept is None else json.dumps(kept)
    return {"name": "mine.txt", "text": text, "limit": 20, "max_new_tokens": 8, "kept": sent, **more}


def request(num: int = 3, **more: Any) -> StudyRequest:
    return read_study(CATALOGUE, SETTINGS, asked(num, **more))


class Backend:
    """Races in `race_s` each. `most`: how many ran at once; `raced`: prompts in their order."""

    def __init__(self, race_s: float = 0.02, ran_on: dict[str, Any] = HERE) -> None:
        self.race_s, self.ran_on, self.raced = race_s, ran_on, list[str]()
        self.running = self.most = 0
        self.error: Exception | None = None

    def study(self, request: StudyRequest, done: Any, progress: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            prompt = next(candidate for candidate in request.prompts if candidate.line not in done)
            ends = time.monotonic() + self.race_s
            while time.monotonic() < ends:
                progress("racing", 0.5)
                time.sleep(0.002)
            if self.error:
                raise self.error
            self.raced.append(prompt.text)
            return tuple(row(prompt.line, drafter) for drafter in request.drafters), self.ran_on, None
        finally:
            self.running -= 1


def frames_of(backend: Backend, order: StudyRequest, queue: RaceQueue | None = None) -> list[dict[str, Any]]:
    return asyncio.run(watch(Studies(queue or RaceQueue()), "a", order=PromptsStudy(backend, order)))


def test_two_visitors_and_a_race_take_turns() -> None:
    """Two races at once on one device; a study before everybody else; extras given up for one; two of one visitor."""
    backend, queue = Backend(race_s=0.05), RaceQueue()
    studies = Studies(queue)

    def watched(visitor: str) -> Any:
        return watch(studies, visitor, order=PromptsStudy(backend, request(4)))

    async def all_of_them() -> tuple[list[Any], int]:
        one = asyncio.create_task(watched("a"))
        await until(lambda: backend.running)
        other = asyncio.create_task(watched("b"))
        await asyncio.sleep(0.02)
        with pytest.raises(UsageError, match="stop it first"):
            await watched("a")
        race, num_before = queue.enter("c", "at c"), len(backend.raced)
        await until(lambda: race.place == 0)
        assert not race.is_waited_for, "studies are patient"
        num_waited = len(backend.raced) - num_before
        race.leave()
        return [await one, await other], num_waited

    (one, other), num_waited = asyncio.run(all_of_them())
    assert num_waited <= 2 and backend.most == 1 and len(backend.raced) == 8
    assert [frames[-1]["state"] for frames in (one, other)] == ["finished", "finished"]
    assert backend.raced[:4] == ["prompt 1", "prompt 1", "prompt 2", "prompt 2"]


def test_a_studys_frames_and_how_it_goes_on() -> None:
    """Other rows, or a verdict of others, after lost frames; prompts raced twice; rows of two machines or settings."""
    backend = Backend()
    frames = frames_of(backend, request(14))
    last, rows = frames[-1], [row(i, "ngram") for i in range(1, 15)]
    said = last["report"]["said"]
    assert last["report"] == json.loads(json.dumps(result(rows, CATALOGUE.default.target, said)))
    assert said["circumstances"].startswith(f"14 prompts (mine.txt), {said['created'][:10]} ")
    assert last["num_done"] == 14 and last["rows"] == []
    last["rows"] = last["report"]["rows"]
    assert [f["num_done"] for f in frames] == sorted(f["num_done"] for f in frames)
    assert all(frame["report"] is None for frame in frames[:-1]) and any(frame["left_s"] for frame in frames)
    half = {**last, "rows": [entry for entry in last["rows"] if entry["line"] % 2]}
    backend.raced.clear()
    again = frames_of(backend, request(14, kept=half))[-1]
    assert backend.raced == [f"prompt {i}" for i in range(2, 15, 2)] and again["note"] == ""
    assert again["report"] == {**last["report"], "said": again["report"]["said"]}
    for other in (request(14, kept=half, max_new_tokens=9), request(13, kept=half), request(kept={**half, "key": ""})):
        assert other.kept == ()
    elsewhere = Backend(ran_on={**HERE, "machine": "another"})
    anew = frames_of(elsewhere, request(14, kept=half))[-1]
    assert len(elsewhere.raced) == 14 == anew["num_done"] and anew["note"] == ANEW


def test_chats_for_a_model_without_a_template_are_refused_before_anything_races() -> None:
    """A file of chats would wait in the queue to be refused; or be refused with no word on what to do."""
    chat = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    with pytest.raises(UsageError, match="has no chat template: flatten the chats"):
        request(text=chat)
    assert request(text=chat, flatten=True).prompts and request(text='{"turns": ["a"]}').prompts
    assert request(text=look_at(b"a\nb", "", True)["text"]).prompts[0].text == "a\nb"


def test_a_study_that_takes_too_long_is_ended() -> None:
    """The limit on a race could be got round by a study of one prompt."""
    queue = RaceQueue(limits=Limits(race_s=0.3))
    with pytest.raises(RaceError, match="Ended after"):
        frames_of(Backend(race_s=60), request(), queue)
    assert queue.is_empty


def test_what_goes_wrong_is_said(caplog) -> None:
    """A traceback for the visitor, none for the engineer; finished rows that are lost."""
    backend, frame = Backend(), frames_of(Backend(), request())[-1]
    half = {**frame, "rows": frame["report"]["rows"][:1]}
    bug = "The study failed because of a bug in Photofinish; see its log."
    for error, words in ((ValueError("secret"), bug), (UsageError("the drafter is gone"), "The drafter is gone.")):
        backend.error = error
        last = frames_of(backend, request(kept=half))[-1]
        assert last["state"] == "failed" and last["text"] == words and len(last["report"]["rows"]) == 1
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"text": None}, "must be a text"),
        ({"text": "a" * (MAX_FILE_CHARS + 1)}, f"at most {MAX_FILE_CHARS}"),
        ({"text": "a\n" * MAX_FILE_LINES}, f"{MAX_FILE_LINES + 1} lines"),
        ({"text": '{"prompt": [' + "[]," * (MAX_FILE_CHARS // 4)}, "brackets.* can be read"),
        ({"text": "a\n" + "b" * (MAX_PROMPT_CHARS + 1)}, f"line 2 has {MAX_PROMPT_CHARS + 1} characters"),
        ({"text": " \n"}, "holds no prompt"),
        ({"limit": 0}, f"takes 1 to {MAX_PROMPTS} prompts, not 0"),
        ({"limit": True}, "not True"),
        ({"max_new_tokens": None}, "max_new_tokens is empty"),
        ({"max_new_tokens": 10**6}, "on this page"),
    ],
)
def test_a_browser_orders_no_more_than_a_page_may(change: dict[str, Any], names: str) -> None:
    """One request would take hours of the device, or its memory; an error would not say what is wrong."""
    with pytest.raises(UsageError, match=names):
        request(**change)


def test_which_drafters_race() -> None:
    """Drafters of the page that the study leaves out, or one that nobody offers."""
    offered = [drafter for drafter in CATALOGUE.drafters(CATALOGUE.default) if drafter not in ("none", "ngram")]
    values = {**SETTINGS, "drafter": "none", "more": offered[:MAX_MORE_LANES]}
    assert read_study(CATALOGUE, values, asked()).drafters == ("ngram", *offered[:MAX_MORE_LANES])
    with pytest.raises(UsageError, match="eagle3:/srv"):
        read_study(CATALOGUE, {**values, "drafter": "eagle3:/srv/weights"}, asked())


@given(JSON_VALUES, JSON_VALUES, JSON_VALUES)
def test_nothing_that_a_browser_sends_breaks_it(given_: Any, kept: Any, rows: Any) -> None:
    """A value of any shape ends in one sentence, or as a study."""
    key = request().key
    for wanted in (given_, asked(kept=kept), asked(kept={"key": key, "ran_on": {}, "rows": rows})):
        try:
            order = read_study(CATALOGUE, SETTINGS, wanted)
        except UsageError:
            continue
        assert 1 <= len(order.prompts) <= MAX_PROMPTS and len(order.kept) % len(order.drafters) == 0
