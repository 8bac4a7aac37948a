"""What servers do wrong: each fault gives its lane one clear sentence, in time, and leaves the other lane alone."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from engine.recordings import recording as recordings
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint, Question
from engine.remote.race import RemoteRace
from engine.spec import SamplingParams
from tests.helpers.loopback import Answer, refusal, says, servers, sse, stream_of
from tests.helpers.server_faults import GOOD, SAID, TEXT, error, without_usage

PATIENCE = Patience(0.5, 1.0)


def held(*answers: Answer, urls: tuple[str, ...] = ()) -> dict[str, Any]:
    with servers(*answers) as found:
        lanes = zip(("baseline", "speculative", "third"), [*(each.url for each in found), *urls], strict=False)
        params = SamplingParams(max_new_tokens=len(TEXT))
        endpoints = [Endpoint(lane, "a", url) for lane, url in lanes]
        race = RemoteRace(endpoints, Question("Once"), params, PATIENCE)
        events = list(race.events())
        recording = recordings.build(race.header(), events, race.result())
    return recordings.loads(json.dumps(recording).encode())


@pytest.mark.parametrize("answer, words", [case[1:] for case in SAID], ids=[case[0] for case in SAID])
def test_a_fault_gives_its_lane_a_sentence_and_no_other_lane_anything(answer, words):
    """A server's fault would hang the race, end it for the other server too, or be told in a library's words."""
    began = time.perf_counter()
    recording = held(says([GOOD]), answer)
    assert time.perf_counter() - began < PATIENCE.total_s + 5
    ((lane, message),) = recordings.failures(recording).items()
    assert lane == "speculative" and "lane speculative" in message and words in message
    told = recordings.summary(recording)["lanes"]
    assert told["baseline"]["text"] == "".join(TEXT) and "error" not in told["baseline"]
    assert "".join(TEXT).startswith(told["speculative"]["text"].replace("x", ""))
    if told["speculative"]["text"] in "".join(TEXT):
        assert "as far as both came" in recording["verdicts"]["speculative"]["sentence"]


def test_a_server_that_is_not_there_is_named_and_left_out():
    """A wrong port would hang the race, or show its URL."""
    recording = held(says([GOOD]), urls=("http://127.0.0.1:1/v1",))
    assert recordings.failures(recording) == {"speculative": "the server of lane speculative cannot be reached"}


def test_a_reader_that_is_slow_loses_nothing():
    """Chunks that wait in a socket come together: they must not be lost, nor end the lane."""
    events = stream_of([1] * len(TEXT), TEXT)
    with servers(says([sse(e) for e in events])) as (found,):
        race = RemoteRace([Endpoint("a", "m", found.url)], Question("x"), SamplingParams(max_new_tokens=20), PATIENCE)
        num = 0
        for _ in race.events():
            num += 1
            time.sleep(0.005)
        assert num == 22 and "".join(race.lanes["a"].written.pieces) == "".join(TEXT)


def test_a_server_that_refuses_what_only_some_know_is_asked_without():
    """llama.cpp or an old server would be out of every race for an option that is not needed; the second question would
    stand on the lane's clock."""
    good = says([without_usage(ids=True)])

    async def strict(path: str, body: dict[str, Any]) -> Any:
        if "return_token_ids" in body:
            yield refusal(400, error("unknown field"))
            return
        async for part in good(path, body):
            yield part

    with servers(strict) as (found,):
        race = RemoteRace([Endpoint("a", "m", found.url)], Question("x"), SamplingParams(max_new_tokens=20), PATIENCE)
        list(race.events())
    assert race.lanes["a"].failed == "" and ["return_token_ids" in body for body in found.asked] == [True, False, False]
