"""What servers do wrong: answers of a loopback server, and what is said of each."""

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from engine.remote.request import EXTRAS
from tests.helpers.loopback import HEAD, WORDS, error, http, raw, refusal, says, sse, stream_of

TEXT = list(WORDS) * 2
# nginx 1.22.1, asked by http at its port for https.
PLAIN_TO_TLS = b"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n"
GOOD = sse(*stream_of([1] * len(TEXT), TEXT))
EVENTS = [sse(event) for event in stream_of([1] * len(TEXT), TEXT)]


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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["text", "id", "index"]), inner),
    max_leaves=4,
)  # what a server may have in the place of any value
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """The paths of all values inside."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(inner, (*at, key))


def put(value: Any, place: Place, new: Any) -> None:
    """Replace what is at this path."""
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = new


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
    ("a web page", raw(refusal(200, b"<html>", "Content-Type: text/html\r\n")), "answered with text/html"),
    ("no gzip", raw(refusal(200, b"xx", "Content-Encoding: gzip\r\n")), "not compressed as it says"),
    ("redirect", raw(refusal(302, b"", "Location: http://127.0.0.1:1/\r\n")), "302, a redirect, which is not followed"),
    ("not JSON", says([b"data: {oops\n\n"]), "no JSON object"),
    ("too deep", says([b"data: " + b"[" * 100_000 + b"\n\n"]), "no JSON object"),
    ("not UTF-8", says([b"data: \xff\xfe\n\n"]), "not UTF-8"),
    ("no object", says([b"data: 7\n\n"]), "no JSON object"),
    ("not HTTP", raw(b"SSH-2.0-x\r\n\r\n", then=0.01), "broke the connection off"),
    ("no stream", raw(HEAD + b"zz\r\n", then=0.01), "broke the connection off"),
    ("more ids than counted", says([changed(-2, used(3, 5))]), "sent 20 token ids and counts 5"),
    ("counts go back", says([counting(1, 5, 3)]), "counts 3 tokens after it counted 5"),
    ("too many", says([sse(*stream_of([1] * 21, [*TEXT, "x"]))]), "sent 21 tokens, not the requested 20"),
    ("an error's object", says([*EVENTS[:5], sse({"object": "error", "message": "gone"}, "[DONE]")]), "an error: gone"),
    ("an error's name", says([*EVENTS[:5], sse({"error_message": "long"}, "[DONE]")]), "without an end: long"),
    ("MiniMax's", says([sse({"base_resp": {"status_msg": "login fail"}, "choices": None}, "[DONE]")]), ": login fail"),
    ("Cloudflare's", raw(refusal(401, b'{"errors": [{"message": "bad token"}]}')), "answered 401: bad token"),
    ("a field of errors", says([b'error: {"message": "too long"}\n\n', sse("[DONE]")]), "without an end: too long"),
    ("bare JSON", says([*EVENTS[:5], error("too long")]), "with an error: too long"),
    ("no tokens", says([sse({"choices": [{"text": "", "finish_reason": "stop"}]}, "[DONE]")]), "neither usage nor"),
    ("its own reason", says([changed(19, lambda e: {**e, "choices": [{**e["choices"][0], "finish_reason": "abort"}]})]),
     "a reason of its own"),
    ("silent", raw(HEAD + http(EVENTS[0]), then=9.0), "was silent for 0.5 s"),
    ("says nothing", raw(then=9.0), "was silent for 0.5 s"),
    ("never ends", says([EVENTS[0]] + [b": still here\n\n"] * 1000, 0.05), "did not finish within 1 s"),
]  # fmt: skip
