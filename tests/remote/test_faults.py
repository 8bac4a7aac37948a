"""What servers do wrong: each fault gives its lane one clear sentence, in time, and leaves the other lane alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.recordings import recording as recordings
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint, Question
from engine.remote.race import RemoteRace
from engine.spec import SamplingParams
from tests.helpers.loopback import HEAD, WORDS, Answer, http, lists, raw, refusal, says, servers, sse, stream_of

TEXT = list(WORDS) * 2
GOOD = sse(*stream_of([1] * len(TEXT), TEXT))
EVENTS = [sse(event) for event in stream_of([1] * len(TEXT), TEXT)]
PATIENCE = Patience(0.5, 1.0)


def changed(place: int, change: Callable[[Any], Any]) -> bytes:
    """A good stream but for one event."""
    events = stream_of([1] * len(TEXT), TEXT)
    events[place] = change(events[place])
    return sse(*events)


def counting(*counts: int) -> bytes:
    """A stream without ids whose running counts are these."""
    events = stream_of([1] * len(counts), TEXT[: len(counts)], ids=False)
    for event, count in zip(events, counts, strict=False):
        event["usage"]["completion_tokens"] = count
    return sse(*events)


def used(num_prompt_tokens: int, num_tokens: int) -> Callable[[Any], Any]:
    usage = {"prompt_tokens": num_prompt_tokens, "completion_tokens": num_tokens}
    return lambda event: {**event, "usage": usage}


def ids_of_text(_: Any) -> Any:
    return {"choices": [{"text": "x", "token_ids": ["7"]}]}


def without_usage(ids: bool) -> bytes:
    events = stream_of([1] * len(TEXT), TEXT, ids=ids)
    for event in events[:-2]:
        del event["usage"]
    return sse(*events)


def error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "code": 1}}).encode()


SAID = [
    ("disconnect", says(EVENTS[:5], end=False), "broke the connection off"),
    ("no end", says(EVENTS[:5]), "broke off after 5 events, without an end"),
    ("429", raw(refusal(429, error("slow down"), "Retry-After: 7\r\n")), "answered 429: slow down; ask again in 7 s"),
    ("429 alone", raw(refusal(429, b"")), "answered 429"),
    ("500", raw(refusal(500, b"<html>secret trace</html>")), "answered 500"),
    ("503 in the middle", says([*EVENTS[:3], sse({"error": {"message": "gone"}})]), "with an error: gone"),
    ("wrong model", raw(refusal(404, error("The model `a` does not exist."))), "404: The model `a` does not exist."),
    ("redirect", raw(refusal(302, b"", "Location: http://127.0.0.1:1/\r\n")), "302, a redirect, which is not followed"),
    ("not JSON", says([b"data: {oops\n\n"]), "not JSON"),
    ("too deep", says([b"data: " + b"[" * 100_000 + b"\n\n"]), "not JSON"),
    ("not UTF-8", says([b"data: \xff\xfe\n\n"]), "not UTF-8"),
    ("no object", says([b"data: 7\n\n"]), "no JSON object"),
    ("not HTTP", raw(b"SSH-2.0-x\r\n\r\n", then=0.01), "broke the connection off"),
    ("no stream", raw(HEAD + b"zz\r\n", then=0.01), "broke the connection off"),
    ("half a character", says([changed(0, lambda e: {**e, "choices": [{"text": "\ud83d"}]})]), "half a character"),
    ("ids of text", says([changed(0, ids_of_text)]), "token_ids are not a list of integers"),
    ("more ids than counted", says([changed(-2, used(3, 5))]), "sent 20 token ids and counts 5"),
    ("counts go back", says([counting(1, 5, 3)]), "counts 3 tokens after it counted 5"),
    ("too many", says([sse(*stream_of([1] * 21, [*TEXT, "x"]))]), "sent 21 tokens, 20 were asked for"),
    ("no counts", says([without_usage(ids=False)]), "neither token ids (return_token_ids) nor how many tokens"),
    ("no tokens", says([sse({"choices": [{"text": "", "finish_reason": "stop"}]}, "[DONE]")]), "neither usage nor"),
    ("negative", says([changed(0, used(-1, 1))]), "prompt_tokens is no count"),
    ("lists of other lengths", says([sse(*stream_of([1] * 20, TEXT, lists([1], [1, 2])))]), "contradict each other"),
    ("its own reason", says([changed(19, lambda e: {**e, "choices": [{**e["choices"][0], "finish_reason": "abort"}]})]),
     "a reason of its own"),
    ("silent", raw(HEAD + http(EVENTS[0]), then=9.0), "was silent for 0.5 s"),
    ("says nothing", raw(then=9.0), "was silent for 0.5 s"),
    ("never ends", says([EVENTS[0]] + [b": still here\n\n"] * 1000, 0.05), "did not finish within 1 s"),
]  # fmt: skip


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
