"""A server that answers at a known schedule, for studies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers.loopback import Loopback, http, on_ports, page, refusal, sse

FIRST_S, INTERVAL_S, TOKENS = 0.8, 0.1, 5


class Scheduled(Loopback):
    """Answers with TOKENS tokens: the first after FIRST_S, the others INTERVAL_S apart, all `pace` times as slow.

    bad: prompts that contain it are refused.
    keep: whether connections stay open after an answer.
    most: after so many questions it closes its port and all connections.
    other: prompts that get another text.
    counters: the program whose counters /metrics has: each answer is two drafts, of which three tokens were accepted.
    stale: a connection takes one more question after its first answer, and closes without answering it.
    asked: the bodies of all questions; spans: when each began and ended."""

    def __init__(
        self, pace: float = 0.01, bad: str = "", keep: bool = True, most: int = 10**9, other: tuple[str, ...] = ()
    ) -> None:
        self.pace, self.bad, self.keep, self.most, self.counters, self.stale = pace, bad, keep, most, "", False
        self.other = other
        self.asked, self.spans, self.num_connections = list[dict[str, Any]](), list[tuple[float, float]](), 0

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads: list[str] = []
        while head := await reader.readuntil(b"\r\n\r\n"):
            began = time.perf_counter()
            heads.append(head.decode().split(" HTTP")[0])
            if head.startswith(b"GET"):
                writer.write(self._told(heads[-1]))
                continue
            size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            body = json.loads(await reader.readexactly(size))
            if self.stale and sum(head.startswith("POST") for head in heads) > 1:
                return
            self.asked.append(body)
            if len(self.asked) > self.most:
                self.listening.close()
                raise ConnectionError
            if self.bad and self.bad in body["prompt"]:
                writer.write(refusal(500, b""))
                continue
            await self._stream(writer, began, "b" if body.get("prompt") in self.other else "a")
            self.spans.append((began, time.perf_counter()))
            if not self.keep:
                return

    async def _stream(self, writer: asyncio.StreamWriter, began: float, word: str) -> None:
        kept = "Transfer-Encoding: chunked" if self.keep else "Connection: close"
        writer.write(f"HTTP/1.1 200 OK\r\n{kept}\r\n\r\n".encode())
        for index in range(TOKENS):
            due = began + self.pace * (FIRST_S + index * INTERVAL_S)
            await asyncio.sleep(due - time.perf_counter())
            writer.write(self._part({"choices": [{"text": word}]}))
        usage = {"prompt_tokens": 5, "completion_tokens": TOKENS}
        writer.write(self._part({"choices": [], "usage": usage}) + self._part("[DONE]"))
        if self.keep:
            writer.write(b"0\r\n\r\n")

    def _part(self, event: Any) -> bytes:
        return http(sse(event)) if self.keep else sse(event)

    def _told(self, head: str) -> bytes:
        text = "{}"
        if head.endswith("/metrics") and self.counters:
            num = len(self.spans)
            name = f"{self.counters}:spec_decode_num"
            text = f'{name}_drafts_total{{engine="0"}} {2.0 * num}\n'
            text += f'{name}_accepted_tokens_total{{engine="0"}} {3.0 * num}\n'
        return page(text.encode())


@contextmanager
def serving(server: Scheduled) -> Iterator[str]:
    """Its URL."""
    with on_ports(server):
        yield server.url
