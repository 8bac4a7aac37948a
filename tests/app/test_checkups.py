"""Check-ups on the page: what they accept from a browser, their turn on the device, and their frames. What a check-up
finds is tested in tests/doctor, the dialog in tests/browser/test_checkup.py."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.catalogue.catalogue import load
from app.catalogue.limits import MAX_FILE_CHARS, MAX_PROMPT_CHARS
from app.catalogue.request import CheckUpRequest, read_check_up
from app.catalogue.saved import read_saved
from app.jobs.queue import RaceQueue
from app.jobs.server_races import ServersBackend, servers_catalogue
from app.jobs.studies import CheckUp, Studies
from engine.core.errors import UsageError
from engine.core.spec import BASELINE
from engine.doctor import NUM_PROMPTS, NUM_TOKENS, PROMPTS
from engine.doctor.findings import Finding, report
from tests.helpers.loopback_language import Language, speaking
from tests.helpers.machines import SMALL
from tests.helpers.staged import watch

CATALOGUE = load(SMALL)
SETTINGS = {"pair": CATALOGUE.default.id, "drafter": "ngram", "temperature": 0.5, "seed": 7}
OK, FAULTY = Finding("ok", "files", "Fine."), Finding("fault", "drafts", "None is right.", "Change it", 1, 5)
TURNS = "".join(json.dumps({"turns": [text]}) + "\n" for text in ("one", "two"))
CHATS = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})


class Backend:
    """Finds these, one after the other, each after `progress` was called for a while."""

    def __init__(self, *findings: Finding) -> None:
        self._findings = findings

    def examined(self, request: CheckUpRequest) -> dict[str, Any]:
        return {"target": request.pair.target, "drafter": request.drafter}

    def check_up(self, request: CheckUpRequest, progress: Any) -> Iterator[Finding]:
        for finding in self._findings:
            ends = time.monotonic() + 0.02
            while time.monotonic() < ends:
                progress("prompt 1 of 3", 0.3)
                time.sleep(0.002)
            yield finding


def request(**asked: Any) -> CheckUpRequest:
    return read_check_up(CATALOGUE, SETTINGS, asked)


def frames_of(*findings: Finding, asked: CheckUpRequest | None = None) -> list[dict[str, Any]]:
    check_up = CheckUp(Backend(*findings), asked or request())
    return asyncio.run(watch(Studies(RaceQueue()), "a", order=check_up))


def test_findings_come_one_by_one_and_say_where_they_show() -> None:
    """A dialog that is silent until the end, names another remedy first, or races another prompt or seed."""
    asked = request()
    frames = frames_of(OK, FAULTY, asked=asked)
    nums = [len(frame["report"]["findings"]) for frame in frames]
    assert nums == sorted(nums) and {0, 1, 2} <= {*nums}
    last = frames[-1]
    assert (last["state"], last["share"]) == ("finished", None) and frames[1]["share"] is not None
    assert last["report"] == report([OK, FAULTY], {"target": CATALOGUE.default.target, "drafter": "ngram"})
    assert last["report"]["first"]["check"] == "drafts" and "prompt" not in last["report"]["findings"][0]
    sampled = {"temperature": 0.5, "top_p": 1.0, "seed": 8, "max_new_tokens": NUM_TOKENS, "rule": "coupled"}
    assert last["races"] == {"1": {"prompt": PROMPTS[1], "chat": False, "drafter": "ngram", "k": "4", **sampled}}


@pytest.mark.parametrize("chat", [True, False, None])
def test_a_turn_is_raced_as_it_was_checked(chat: bool | None) -> None:
    """A finding that leads to a race with the chat template instead of without it."""
    asked = request(name="q.jsonl", text=TURNS)
    asked = replace(asked, pair=replace(asked.pair, chat=chat))
    race = frames_of(FAULTY, asked=asked)[-1]["races"]["1"]
    assert race["chat"] is chat if chat is not None else race is None


def test_requests_are_checked() -> None:
    """A visitor who examines what this page does not offer, or keeps it busy for hours."""
    assert [prompt.text for prompt in request().prompts] == list(PROMPTS)
    asked = request(name="mine.txt", text="\n".join(map(str, range(50))))
    assert len(asked.prompts) == NUM_PROMPTS and asked.params.max_new_tokens == NUM_TOKENS
    assert (asked.params.temperature, asked.params.top_p, asked.params.seed) == (0.5, 1.0, 7)
    for settings, sent, words in (
        ({"pair": "another"}, {}, "another"),
        ({"drafter": "eagle3:/etc"}, {}, "unknown drafter"),
        ({"drafter": "none"}, {}, "choose a drafter in Settings"),
        ({"temperature": "hot"}, {}, "temperature"),
        ({"seed": None}, {}, "seed is empty"),
        ({}, {"text": 3}, f"at most {MAX_FILE_CHARS}"),
        ({}, {"text": "", "name": "x"}, "no prompt"),
        ({}, {"text": "x" * (MAX_PROMPT_CHARS + 1)}, f"at most {MAX_PROMPT_CHARS}"),
        ({}, {"text": CHATS, "name": "c.jsonl"}, "flatten the chats"),
    ):
        with pytest.raises(UsageError, match=words):
            read_check_up(CATALOGUE, {**SETTINGS, **settings}, sent)
    assert read_check_up(CATALOGUE, SETTINGS, [1]).prompts == request().prompts


def test_two_servers_are_examined_and_not_named() -> None:
    """The speculative server taken for the plain one; or visitors of a page learn where its servers are."""
    with speaking(Language(), Language(k=3, shift=1)) as (plain, spec):
        endpoints = [replace(spec, lane="speculative"), replace(plain, lane=BASELINE)]
        backend = ServersBackend(endpoints, same_device=True)
        catalogue = servers_catalogue(backend, chat=False)
        asked = read_check_up(catalogue, {**SETTINGS, "pair": catalogue.default.id}, {})
        frames = asyncio.run(watch(Studies(RaceQueue()), "a", order=CheckUp(backend, asked)))
    last_report = frames[-1]["report"]
    assert (last_report["lanes"], last_report["models"]) == ([BASELINE, "speculative"], [plain.model, spec.model])
    assert last_report["first"]["check"] == "tokenizer" and last_report["first"]["level"] == "fault"
    assert [frame["report"] for frame in read_saved(json.dumps(last_report))] == [last_report]
    assert not any(secret in json.dumps(frames) for secret in (plain.url, plain.key, spec.url, "127.0.0.1"))
