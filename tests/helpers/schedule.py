"""A server that answers at a known schedule, for studies."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers.loopback import Body, Loopback, http, on_ports, page, refusal, sse

FIRST_S, INTERVAL_S, TOKENS = 0.8, 0.1, 5


class Scheduled(Loopback):
    """Answers with TOKENS tokens: the first after FIRST_S, the others INTERVAL_S apart, all `pace` times as slow.

    bad: prompts that contain it are refused.
    keep: whether connections stay open after an answer.
    most: after so many questions it closes its port and all connections.
    other: prompts that get another text.
    counters: the program whose counters /metrics has: each answer is two drafts, of which three tokens were accepted.
    stale: a connection takes one more question after its first answer, and closes without answering it.
    spans: when each answer began and ended."""

    def __init__(
        self, pace: float = 0.01, bad: str = "", keep: bool = True, most: int = 10**9, other: tuple[str, ...] = ()
    ) -> None:
        super().__init__(self._stream)
        self.pace, self.bad, self.keep, self.most, self.counters, self.stale = pace, bad, keep, most, "", False
        self.other, self.spans, self._used = other, list[tuple[float, float]](), set[Any]()

    async def _stream(self, path: str, body: Body) -> AsyncIterator[bytes]:
        began, connection = time.perf_counter(), asyncio.current_task()
        if self.stale and connection in self._used:
            self.asked.pop()
            raise ConnectionError
        self._used.add(connection)
        if len(self.asked) > self.most:
            self.listening.close()
            raise ConnectionError
        if self.bad and self.bad in body["prompt"]:
            yield refusal(500, b"")
            return
        yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" if self.keep else b"HTTP/1.0 200 OK\r\n\r\n"
        words = [{"choices": [{"text": "b" if body["prompt"] in self.other else "a"}]}] * TOKENS
        usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": TOKENS}}
        for index, event in enumerate([*words, usage, "[DONE]"]):
            due = began + self.pace * (FIRST_S + min(index, TOKENS - 1) * INTERVAL_S)
            await asyncio.sleep(due - time.perf_counter())
            yield http(sse(event)) if self.keep else sse(event)
        self.spans.append((began, time.perf_counter()))
        if not self.keep:
            raise ConnectionError
        yield b"0\r\n\r\n"
        if self.counters:
            num, name = len(self.spans), f"{self.counters}:spec_decode_num"
            counted = f"{name}_drafts_total {2 * num}\n{name}_accepted_tokens_total {3 * num}\n"
            self.pages["/metrics"] = page(counted.encode())


@contextmanager
def serving(server: Scheduled) -> Iterator[str]:
    """Its URL."""
    with on_ports(server):
        yield server.url
