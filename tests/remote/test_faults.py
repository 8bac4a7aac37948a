"""What servers send: each fault gives its lane one clear sentence, in time, and leaves the other lane alone; the steps
of a real server are its own lists."""

import json
import time
from itertools import accumulate
from typing import Any

import pytest

from engine.core.errors import RaceError
from engine.core.spec import SamplingParams
from engine.recordings import recording as recordings
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint
from engine.remote.reply import THINKING, texts_in
from engine.remote.request import COSTS, OPTIONAL, RUNNING_USAGE, Question, costs, optional, request_of
from engine.remote.server_race import RemoteRace
from tests.helpers.loopback import HEAD, Answer, as_chat, refusal, says, servers, sse, stream_of
from tests.helpers.server_faults import GOOD, REFUSALS, SAID, TEXT
from tests.helpers.wire import read_parts

PATIENCE = Patience(0.5, 1.0)
LONG = Patience(10.0, 20.0)  # for faults that show before any limit: a busy machine connects late
TIMED = ("silent", "says nothing", "never ends")


def recorded(*answers: Answer, urls: tuple[str, ...] = (), patience: Patience = PATIENCE) -> recordings.Recording:
    with servers(*answers) as hosts:
        lanes = zip(("baseline", "speculative", "third"), [*(host.url for host in hosts), *urls], strict=False)
        params = SamplingParams(max_new_tokens=len(TEXT))
        race = RemoteRace([Endpoint(lane, "a", url) for lane, url in lanes], Question("Once"), params, patience)
        recording = recordings.build(race.header(), list(race.events()), race.result())
    return recordings.checked(json.dumps(recording.fields).encode())


@pytest.mark.parametrize("name, answer, words", SAID, ids=[case[0] for case in SAID])
def test_a_fault_gives_its_lane_a_sentence_and_no_other_lane_anything(name, answer, words):
    """A server's fault would hang the race, end it for the other server too, or appear in a library's words."""
    began = time.perf_counter()
    recording = recorded(says([GOOD]), answer, patience=PATIENCE if name in TIMED else LONG)
    assert time.perf_counter() - began < PATIENCE.total_s + 5
    ((lane, message),) = recordings.failures(recording).items()
    assert lane == "speculative" and "lane speculative" in message and words in message
    assert "127.0.0.1" not in json.dumps(recording.fields), "the operator's URL in a recording"
    lanes = recordings.summary(recording)["lanes"]
    assert lanes["baseline"]["text"] == "".join(TEXT) and "error" not in lanes["baseline"]
    assert "".join(TEXT).startswith(lanes["speculative"]["text"].replace("x", ""))
    verdict, texts = recording["verdicts"]["speculative"], ("".join(TEXT), lanes["speculative"]["text"])
    is_same = texts[0].startswith(texts[1]) or texts[1].startswith(texts[0])
    assert verdict["kind"] == ("not_compared" if is_same else "other_text")
    assert not is_same or "speculative failed" in verdict["short"]


def test_a_server_that_is_not_there_is_named_and_left_out():
    """A wrong port would hang the race, or show its URL."""
    recording = recorded(says([GOOD]), urls=("http://127.0.0.1:1/v1",))
    assert recordings.failures(recording) == {"speculative": "the server of lane speculative cannot be reached"}
    assert recording["verdicts"]["speculative"]["kind"] == "not_compared"


def sent_in(body: dict[str, Any]) -> set[str]:
    """The optional fields of a request."""
    return {name for name in OPTIONAL if name in body or name in body["stream_options"]}


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("who", REFUSALS)
def test_what_a_server_refuses_is_left_out_once_and_nothing_else_is(who: str, chat: bool):
    """SGLang's chats and TensorRT-LLM, which count their tokens, would be out of every race for a field that is not
    needed; be refused anew at every question; or inside the clock."""
    unknown, status, words = REFUSALS[who]
    good = says([sse(*stream_of([1] * 20, TEXT, ids=False))])

    async def strict(path: str, body: dict[str, Any]) -> Any:
        if names := [name for name in OPTIONAL if name in unknown & sent_in(body)]:
            yield refusal(status, json.dumps(words(names)).encode())
            return
        async for part in good(path, body):
            yield part

    question = Question(messages=(("user", "x"),)) if chat else Question("x")
    fields = set(optional(Endpoint("a", "m", ""), question, SamplingParams(temperature=0.5), True))
    with servers(strict) as (host,):
        endpoint = Endpoint("a", "m", host.url)
        for _ in range(2):
            race = RemoteRace([endpoint], question, SamplingParams(temperature=0.5, max_new_tokens=20), LONG)
            list(race.events())
            assert race.lanes["a"].failed == "" and race.lanes["a"].ended_s
    tried = [sent_in(body) for body in host.asked]
    left = tried[-1]
    assert tried[0] == fields and not left & unknown and RUNNING_USAGE in left
    assert left == fields - unknown or who == "one that quotes the request"
    assert tried[-4:] == [left] * 4 and 5 <= len(tried) <= 4 + len(fields), "remembered, and before the clock"
    assert endpoint.memory.refused == {(question.path, name) for name in fields - left}
    assert "top_p" not in request_of(endpoint, question, SamplingParams(), ()), "TGI refuses 1"
    said = costs(endpoint, question.path)
    assert {name for name in COSTS if f"it refused {name}: " in said} == (fields - left) & set(COSTS)


@pytest.mark.parametrize("fields", [("content",), ("reasoning",), ("reasoning_content",), THINKING, ("refusal",)])
@pytest.mark.parametrize("ids", [True, False])
def test_thinking_is_text_under_either_name(fields: tuple[str, ...], ids: bool):
    """The thinking of every vLLM since January 2026 (vllm#33402) would be dropped, and the wait for the answer called
    the time to the first token; or what mlx-vlm sends under both names (mlx-vlm#1411) be written twice."""
    recording = recorded(
        *(says([sse(*as_chat(stream_of([1] * 20, TEXT, ids=ids), *names))]) for names in (fields, ["content"]))
    )
    summary = recordings.summary(recording)
    assert [summary["lanes"][name]["text"] for name in ("baseline", "speculative")] == ["".join(TEXT)] * 2
    assert summary["verdict"]["kind"] == "same_text" and summary["lanes"]["baseline"]["num_steps"] == len(TEXT)
    assert texts_in({"reasoning_details": [{"text": "a"}, {"text": "b"}, {"data": "c"}]}) == ("ab", ""), "MiniMax"
    assert texts_in({"function_call": {"name": "f", "arguments": "{}"}}) == ("", "f{}")


def test_a_text_that_is_sent_again_is_not_written_again():
    """The last piece of MiniMax M3 and others (camel#4291) is the whole answer once more, and each of DashScope's has
    all before it (qwen-code#3896): two servers of one model would be said to write different texts."""
    events, so_far = stream_of([1] * 20, TEXT, ids=False), [*accumulate(TEXT)]
    last = {"choices": [events[-3]["choices"][0] | {"text": so_far[-1]}]}
    events[-3]["choices"][0]["finish_reason"] = None
    assert read_parts(sse(*events[:-2], last, *events[-2:]), 20)[0].text == so_far[-1]
    half = {"choices": [{"text": so_far[-1]}]}
    assert read_parts(sse(half, last, *events[-2:]), 20)[0].text == 2 * so_far[-1], "a text that loops, cut in halves"
    for event, text in zip(events, so_far, strict=False):
        event["choices"][0]["text"] = text
    with pytest.raises(RaceError, match="repeats the whole text before it"):
        read_parts(sse(*events), 20)


@pytest.mark.parametrize("ids", [True, False])
def test_tokens_without_any_text_are_named(ids: bool):
    """An answer under a field that nobody reads would pass for an empty one."""
    recording = recorded(says([sse(*as_chat(stream_of([1] * 20, TEXT, ids=ids), "musing"))]))
    said = recordings.failures(recording).get("baseline") or recording["promises"]["baseline"]
    assert "it counts 20 tokens, but no text came (it was looked for in text, content, reasoning" in said


def test_a_gateway_that_wants_16_tokens_and_calls_its_stream_json_races():
    """OpenAI's Responses API refuses fewer (litellm#23836), so the warm-up would end the race; vllm-ascend#5033."""
    good = says([GOOD], head=HEAD.replace(b"text/event-stream", b"application/json"))

    async def strict(path: str, body: dict[str, Any]) -> Any:
        if body["max_tokens"] < 16:
            yield refusal(400, b'{"error": "Expected a value >= 16"}')
            return
        async for part in good(path, {"max_tokens": body["max_tokens"] - 15}):
            yield part

    assert not recordings.failures(recorded(strict, says([GOOD]), patience=LONG))
