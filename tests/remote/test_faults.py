"""What servers send: a fault gives its lane one clear sentence, in time, and leaves the other lane alone."""

import json
import time
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from engine.core.errors import RaceError
from engine.core.spec import SamplingParams
from engine.recordings import recording as recordings
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint
from engine.remote.reply import THINKING, Chunk, Reader, Reply, texts_in
from engine.remote.request import COSTS, EXTRAS, OPTIONAL, RUNNING_USAGE, Question, costs, optional, request_of
from engine.remote.server_race import RemoteRace
from engine.remote.steps import Written
from engine.studies.load.level_metrics import level_metrics
from engine.studies.load.users import answer_of
from tests.helpers.loopback import (
    HEAD,
    WORDS,
    Answer,
    as_chat,
    error,
    http,
    raw,
    refusal,
    says,
    servers,
    sse,
    stream_of,
)
from tests.helpers.wire import read_parts

TEXT = list(WORDS) * 2
# nginx 1.22.1, asked by http at its port for https.
PLAIN_TO_TLS = b"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n"
GOOD = sse(*stream_of([1] * len(TEXT), TEXT))
EVENTS = [sse(event) for event in stream_of([1] * len(TEXT), TEXT)]
FEWER = {"usage": {"prompt_tokens": 3, "completion_tokens": 5}}


def counting(*counts: int) -> bytes:
    """A stream without ids whose running counts are these."""
    events = stream_of([1] * len(counts), TEXT[: len(counts)], ids=False)
    for event, count in zip(events, counts, strict=False):
        event["usage"]["completion_tokens"] = count
    return sse(*events)


# Who refuses -> which fields, HTTP's status, its words about those that were sent. From sglang#30917 and club-3090#1257
# (serving_chat.py), TensorRT-LLM's openai_protocol.py (`extra="forbid"`), FastAPI, TGI#2222.
REFUSALS = {
    "SGLang, a streamed chat": ({"return_token_ids"}, 400, lambda names: {"object": "error", "code": 400, "message":
        f"{names[0]} is not supported with streaming on /v1/chat/completions. Please set stream=false."}),
    "TensorRT-LLM": ({"return_token_ids", "timings_per_token"}, 400, lambda names: {"object": "error", "message":
        str([{"type": "extra_forbidden", "loc": ("body", names[0]), "msg": "Extra inputs are not permitted"}])}),
    "FastAPI": ({"return_token_ids", "timings_per_token"}, 422, lambda names: {"detail": [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs"} for name in names]}),
    "TGI": ({"top_p"}, 422, lambda names: {"error": "Input validation error: `top_p` must be > 0.0 and < 1.0"}),
    "one that quotes the request": ({"timings_per_token"}, 400, lambda names: {"error": {"message":
        "bad request: return_token_ids timings_per_token top_p continuous_usage_stats"}}),
    "one that says nothing": ({*EXTRAS, "top_p", "seed"}, 400, lambda names: {}),
    "transformers": ({"return_token_ids", "timings_per_token", "seed"}, 422, lambda names: {"detail":
        f"Unexpected fields in the request: {set(names)}"}),
    "LiteLLM": ({"return_token_ids", "timings_per_token"}, 500, lambda names: {"error": {"message":
        f"litellm.APIError: AsyncCompletions.create() got an unexpected keyword argument '{names[0]}'"}}),
}  # fmt: skip
JSON_TYPE, TEXT_TYPE = "Content-Type: application/json\r\n", "Content-Type: text/plain; charset=utf-8\r\n"
SAID = [
    ("disconnect", says(EVENTS[:5], end=False), "broke the connection off"),
    ("no end", says(EVENTS[:5]), "broke off after 5 events, without an end"),
    ("429", raw(refusal(429, error("slow down"), "Retry-After: 7\r\n")), "answered 429: slow down; ask again in 7 s"),
    ("429 alone", raw(refusal(429, b"")), "answered 429"),
    ("500", raw(refusal(500, b"<html>secret trace</html>")), "answered 500"),
    ("nginx's TLS", raw(refusal(400, PLAIN_TO_TLS, "Content-Type: text/html\r\n")), "answered 400: The plain HTTP"),
    ("503 in the middle", says([*EVENTS[:3], sse({"error": {"message": "gone"}})]), "with an error: gone"),
    ("wrong model", raw(refusal(404, error("The model `a` does not exist."))), "404: The model `a` does not exist."),
    ("FastAPI's 404", raw(refusal(404, b'{"detail": "Not Found"}')), "answered 404: Not Found"),
    ("FastAPI's 422", raw(refusal(422, b'{"detail": [{"loc": ["body", "n"], "msg": "no"}]}')), "422: body.n: no"),
    ("plain words", raw(refusal(404, b"404 page not found", TEXT_TYPE)), "answered 404: page not found"),
    ("a JSON answer", raw(refusal(200, b'{"error": "no endpoint /x"}', JSON_TYPE)), "is no stream: no endpoint /x"),
    ("in one piece", raw(refusal(200, b'{"choices": [{"text": "x"}]}', JSON_TYPE)), "stream: true was ignored"),
    ("plain words alone", raw(refusal(200, b"error code: 1015", TEXT_TYPE)), "is no stream: error code: 1015"),
    ("a web page", raw(refusal(200, b"<html>", "Content-Type: text/html\r\n")), "answered with text/html"),
    ("no gzip", raw(refusal(200, b"xx", "Content-Encoding: gzip\r\n")), "not compressed as it says"),
    ("redirect", raw(refusal(302, b"", "Location: http://127.0.0.1:1/\r\n")), "302, a redirect, which is not followed"),
    ("not JSON", says([b"data: {oops\n\n"]), "no JSON object"),
    ("too deep", says([b"data: " + b"[" * 100_000 + b"\n\n"]), "no JSON object"),
    ("not UTF-8", says([b"data: \xff\xfe\n\n"]), "not UTF-8"),
    ("no object", says([b"data: 7\n\n"]), "no JSON object: 7"),
    ("Crane's", says([EVENTS[0], b"data: error: out of memory\n\n"]), "no JSON object: error: out of memory"),
    ("not HTTP", raw(b"SSH-2.0-x\r\n\r\n", then=0.01), "broke the connection off"),
    ("no stream", raw(HEAD + b"zz\r\n", then=0.01), "broke the connection off"),
    ("more ids than counted", says([sse(*stream_of([1] * 20, TEXT, FEWER))]), "sent 20 token ids and counts 5"),
    ("counts go back", says([counting(1, 5, 3)]), "counts 3 tokens after it counted 5"),
    ("too many", says([sse(*stream_of([1] * 21, [*TEXT, "x"]))]), "sent 21 tokens, not the requested 20"),
    ("an error's object", says([*EVENTS[:5], sse({"object": "error", "message": "gone"}, "[DONE]")]), "an error: gone"),
    ("an error's name", says([*EVENTS[:5], sse({"error_message": "long"}, "[DONE]")]), "without an end: long"),
    ("MiniMax's", says([sse({"base_resp": {"status_msg": "login fail"}, "choices": None}, "[DONE]")]), ": login fail"),
    ("Cloudflare's", raw(refusal(401, b'{"errors": [{"message": "bad token"}]}')), "answered 401: bad token"),
    ("a field of errors", says([b'error: {"message": "too long"}\n\n', sse("[DONE]")]), "without an end: too long"),
    ("bare JSON", says([*EVENTS[:5], error("too long")]), "with an error: too long"),
    ("no tokens", says([sse({"choices": [{"text": "", "finish_reason": "stop"}]}, "[DONE]")]), "neither usage nor"),
    ("OpenRouter's", says([GOOD.replace(b'"length"', b'"error", "error": {"message": "idle"}')]), "own: error: idle"),
    ("its own reason", says([GOOD.replace(b'"length"', b'"abort"')]), "a reason of its own"),
    ("silent", raw(HEAD + http(EVENTS[0]), then=9.0), "was silent for 0.5 s"),
    ("says nothing", raw(then=9.0), "was silent for 0.5 s"),
    ("never ends", says([EVENTS[0]] + [b": still here\n\n"] * 1000, 0.05), "did not finish within 1 s"),
]  # fmt: skip
PATIENCE = Patience(0.5, 1.0)
LONG = Patience(10.0, 20.0)  # for faults that show before any limit: a busy machine connects late
TIMED = ("silent", "says nothing", "never ends")


def recorded(*answers: Answer, patience: Patience = PATIENCE) -> recordings.Recording:
    with servers(*answers) as hosts:
        lanes = zip(("baseline", "speculative"), (host.url for host in hosts), strict=False)
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
    """OpenAI's Responses API refuses fewer (litellm#23836), so the warm-up would end the race; vllm-ascend#5033. And a
    stream that goes on after its answer would be waited for (vllm-mlx#101), with signs of life for ever (bifrost#6784).
    """
    good = says([GOOD], head=HEAD.replace(b"text/event-stream", b"application/json"))

    async def strict(path: str, body: dict[str, Any]) -> Any:
        if body["max_tokens"] < 16:
            yield refusal(400, b'{"error": "Expected a value >= 16"}')
            return
        async for part in good(path, {"max_tokens": body["max_tokens"] - 15}):
            yield part

    ends_nothing = says([GOOD.removesuffix(b"data: [DONE]\n\n"), *[b": still here\n\n"] * 1000], 0.05)
    recording = recorded(strict, ends_nothing, patience=LONG)
    assert not recordings.failures(recording) and recording["events"][-1]["wall_s"] < LONG.silence_s / 2


@pytest.mark.parametrize("chat", [False, True])
def test_another_name_of_the_limit_is_for_chats_only(chat: bool):
    """vLLM names both where an answer would be longer than its context (Step-Audio-R1#3), and its completions ignore
    the second: 16 tokens were written, and compared."""
    words = "Unsupported: 'max_tokens', use 'max_completion_tokens'" if chat else "'max_completion_tokens' is too large"

    async def short(path: str, body: dict[str, Any]) -> Any:
        if body.get("max_tokens", 1) > 1:
            yield refusal(400, error(words))
        else:
            good = stream_of([1] * body.get("max_tokens", 16), TEXT[: body.get("max_tokens", 16)])
            yield HEAD + http(sse(*(as_chat(good, "content") if chat else good))) + b"0\r\n\r\n"

    with servers(short) as (host,):
        question = Question(messages=(("user", "x"),)) if chat else Question("x")
        race = RemoteRace([Endpoint("a", "m", host.url)], question, SamplingParams(max_new_tokens=20), LONG)
        list(race.events())
    assert ("is too large" in race.lanes["a"].failed) is not chat
    assert (race.lanes["a"].reply.num_tokens == 16) is chat


@pytest.mark.parametrize("size, hidden", [(1, 90), (3, 90), (3, 0)])
def test_hidden_thinking_is_no_speed_of_what_is_shown(size: int, hidden: int):
    """Thinking that is counted and not sent (litellm-docs#559) would multiply tokens a second; or what is sent, too."""
    events = as_chat(stream_of([size] * 6, [" word"] * 6 * size, ids=False), *["content"] if hidden else ["reasoning"])
    usage = {"completion_tokens": hidden + 6 * size, "completion_tokens_details": {"reasoning_tokens": hidden or size}}
    reply, written = read_parts(sse(*({**event, "usage": None} for event in events[:-2]), {"usage": usage}), 200)
    assert reply.num_hidden == written.num_hidden == hidden
    assert written.ends == [0, *(hidden + size * number for number in range(1, 7))]
    answer = answer_of(replace(reply, chunks=[replace(chunk, at_s=i) for i, chunk in enumerate(reply.chunks)]))
    assert level_metrics([answer], 0, 9.0)["itl_p95_s"] == pytest.approx(5 / (6 * size - 1))


@pytest.mark.parametrize("first_s, text, is_hidden", [(20, "x", True), (0.3, "x", False), (20, "</think>", False)])
def test_thinking_that_was_not_waited_for_is_not_hidden(first_s: float, text: str, is_hidden: bool):
    """Servers that count thinking and send it as the answer would look slow in one lane only: 3 tokens a piece."""
    chunks = [Chunk(first_s + 0.03 * i, "", text, (), None) for i in range(333)]
    assert Reply(chunks, 3, 1000, "stop", num_hidden=600).hides_thinking is is_hidden


def test_a_count_from_before_the_end_is_not_the_answers():
    """Gateways count 0 or 1 token in the first event, as Anthropic does: a late last count would be left out."""
    reader = Reader(20)
    for usage, is_whole in ((1, False), (None, False), (8, True)):
        choice = {"text": "x", "finish_reason": "stop" if usage is None else None}
        reader.take(json.dumps({"choices": [choice], "usage": usage and {"completion_tokens": usage}}), 0.1)
        assert reader.is_whole is is_whole


@pytest.mark.parametrize("gaps, num", [
    ([1e-4] * 99, 100), ([7e-4] * 31, 32), (([1e-4] * 24 + [0.25]) * 4, 25), ([5e-4] * 99, 1),
    ([0.02, *[1e-4] * 4] * 9, 1), ([0.0] * 2, 1), ([0.0] * 9, 10), ([0.008] * 11 + [1.5], 1)])  # fmt: skip
def test_pieces_that_were_collected_are_no_speed(gaps: list[float], num: int):
    """What is written first and sent then (imp#754) would be 48 times as fast as it is, and what comes in clumps
    (c8s#140) 1.4 times; or a fast server, or one that sends a step's tokens at once, have no times."""
    chunks = [Chunk(at_s, "", "x", (), i) for i, at_s in enumerate(accumulate([0.4, *gaps]), 1)]
    reply, written = Reply(chunks, 3, len(chunks), "length", ended_s=9.0), Written(1000)
    for chunk in chunks:
        written.take(chunk)
    written.end(reply)
    level = level_metrics([answer_of(reply)] * 2, 0, 9.0)
    assert (reply.num_together, written.at_s.count(0.4)) == (num, max(num, gaps.count(0.0) + 1))
    wanted = None if num == len(chunks) else pytest.approx(sum(gaps) / (len(chunks) - num))
    assert level["itl_p95_s"] == wanted and (level["num_buffered"] == 2) == (wanted is None)
    assert (1 < num < len(chunks)) == (f"the first {num} pieces" in reply.clumped)
