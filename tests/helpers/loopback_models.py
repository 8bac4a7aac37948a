"""Servers on this machine that answer like vLLM for as long as they are asked to, and list their models."""

import json
from collections.abc import AsyncIterator, Sequence

from tests.helpers.loopback import HEAD, Answer, Body, as_chat, http, lists, page, refusal, sse, stream_of

WORDS = [f" {chr(0xC0 + i)}" for i in range(64)]  # whose sums are different: see `tokens_of`


def writes(k: int = 0, path: str = "/v1/completions", words: Sequence[str] = WORDS) -> Answer:
    """As many of the words as wanted; with k, in steps that keep all k drafts, if they fit. Other paths: 404."""

    async def answer(asked: str, body: Body) -> AsyncIterator[bytes]:
        if asked != path:
            yield refusal(404, b'{"detail": "Not Found"}')
            return
        num = min(body["max_tokens"], len(words))
        sizes = [1, *[k + 1] * ((num - 1) // (k + 1)), *[1] * ((num - 1) % (k + 1))]
        num_steps = (num - 1) // (k + 1)
        events = stream_of(sizes, words[:num], lists([k] * num_steps, [k] * num_steps) if k else None)
        if path.endswith("/chat/completions"):
            as_chat(events, "content")
        yield HEAD
        for event in events:
            yield http(sse(event))
        yield b"0\r\n\r\n"

    return answer


def lists_models(*names: str) -> dict[str, bytes]:
    """For `Loopback.pages`."""
    body = json.dumps({"data": [{"id": name, "owned_by": "vllm"} for name in names]}).encode()
    return {"/v1/models": page(body)}
