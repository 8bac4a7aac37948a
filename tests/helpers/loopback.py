"""A server on a port of this machine that says, byte for byte, what a test tells it to; and streams of vLLM's kind."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import Any

Body = dict[str, Any]
# (path, body) -> what is written to the socket, part by part, HTTP's head included.
Answer = Callable[[str, Body], AsyncIterator[bytes]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LETTERS = [f" {chr(0xC0 + i)}" for i in range(64)]  # whose sums are different: see `tokens_of`
WORDS = ("The", " cat", "é", " 猫", "\n", " sat", "👩‍💻", " on", " it", ".")


class Loopback:
    """url: of the server. asked: the bodies of all questions so far. num_connections: how many were opened. pages: what
    a GET of a path is answered with, HTTP's head included; others get 404."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked, self.num_connections, self.headers = answer, list[Body](), 0, list[str]()
        self.pages: dict[str, bytes] = {}

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes by one connection."""
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            if head.startswith("GET"):
                self.headers.append(head)
                writer.write(self.pages.get(head.split(" ")[1], refusal(404, b"")))
                continue
            size = next(int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:"))
            body = json.loads(await reader.readexactly(size))
            self.asked.append(body)
            self.headers.append(head)
            async for part in self.answer(head.split(" ")[1], body):
                writer.write(part)
                await writer.drain()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError), closing(writer):
            await self.converse(reader, writer)


@contextmanager
def servers(*answers: Answer) -> Iterator[list[Loopback]]:
    """A server for each answer, see `on_ports`."""
    loopbacks = [Loopback(answer) for answer in answers]
    with on_ports(*loopbacks):
        yield loopbacks


@contextmanager
def on_ports(*loopbacks: Loopback) -> Iterator[None]:
    """Run these servers, all in one thread, on ports that the system chooses."""
    opened: Future[tuple[asyncio.AbstractEventLoop, Any]] = Future()

    async def listen() -> None:
        for server in loopbacks:
            server.listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
            server.url = f"http://127.0.0.1:{server.listening.sockets[0].getsockname()[1]}/v1"
        opened.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        await asyncio.Event().wait()

    def run() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(listen())  # at its end it cancels all conversations, and waits for them

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    loop, task = opened.result(5)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(5)


def sse(*events: Any) -> bytes:
    """Server-sent events, [DONE] last."""
    lines = (json.dumps(event) if event != "[DONE]" else event for event in events)
    return b"".join(b"data: " + line.encode() + b"\n\n" for line in lines)


def http(part: bytes) -> bytes:
    """A part of a chunked body."""
    return f"{len(part):x}\r\n".encode() + part + b"\r\n" if part else b""


def page(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def refusal(status: int, body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "code": 1}}).encode()


def tokens_of(words: Sequence[str]) -> list[int]:
    return [sum(map(ord, word)) + 1 for word in words]


def stream_of(
    sizes: Sequence[int],
    words: Sequence[str],
    more: Body | None = None,
    ids: bool = True,
    prompt: Sequence[int] = (1, 2, 3),
) -> list[Any]:
    """vLLM's events for words of a token each, in chunks of these sizes. more: beside its last usage; prompt: ids."""
    events: list[Any] = []
    at = 0
    for size in sizes:
        part = words[at : at + size]
        at += size
        choice: Body = {"index": 0, "text": "".join(part), "finish_reason": "length" if at == len(words) else None}
        if ids:
            choice["token_ids"] = tokens_of(part)
        if len(events) == 0 and ids:
            choice["prompt_token_ids"] = list(prompt)
        events.append({"choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": at}})
    last = {"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(words)}, **(more or {})}
    return [*events, last, "[DONE]"]


def written(words: Sequence[str], k: int, keeps: int = 99, reports: bool = True, **more: Any) -> list[Any]:
    """The same in steps, each of which keeps so many of k drafts, if there are any. reports: whether it lists them."""
    sizes = [1]
    while (left := len(words) - sum(sizes)) > 0:
        sizes.append(min(keeps, k, left - 1) + 1)
    accepted = [size - 1 for size in sizes[1:]]
    return stream_of(sizes, words, lists(accepted, [k] * len(accepted)) if k and reports else None, **more)


def as_chat(events: Sequence[Any], *fields: str) -> Sequence[Any]:
    """The same events with the text in these fields of a chat's delta."""
    for event in events[:-1]:
        for choice in event["choices"]:
            choice["delta"] = {"role": "assistant", "content": None} | dict.fromkeys(fields, choice.pop("text"))
    return events


def lists(accepted: Sequence[int], drafted: Sequence[int]) -> Body:
    """What vLLM says of its drafts."""
    return {"metrics": {"speculative_decoding": {"per_step_accepted": accepted, "per_step_drafted": drafted}}}


def lists_models(*names: str, **more: str) -> dict[str, bytes]:
    """For `Loopback.pages`."""
    models = [{"id": name, "owned_by": "vllm", **more} for name in names]
    return {"/v1/models": page(json.dumps({"data": models}).encode())}


def writes(
    k: int = 0, path: str = "/v1/completions", words: Callable[[str], Sequence[str]] = lambda prompt: LETTERS
) -> Answer:
    """As many of a prompt's words as wanted; with k, in steps that keep all drafts that fit. Other paths: 404."""

    async def answer(asked: str, body: Body) -> AsyncIterator[bytes]:
        if asked != path:
            yield refusal(404, b'{"detail": "Not Found"}')
            return
        events = written(words(str(body.get("prompt")))[: body["max_tokens"]], k)
        yield HEAD
        for event in as_chat(events, "content") if "messages" in body else events:
            yield http(sse(event))
        yield b"0\r\n\r\n"

    return answer


def says(parts: Sequence[bytes], pause_s: float = 0.0, end: bool = True, head: bytes = HEAD) -> Answer:
    """An answer in these parts, with a pause after each. end: whether the body is closed properly, or broken off."""
    return raw(head, *map(http, parts), *[b"0\r\n\r\n"] * end, then=None if end else 0.0, pause_s=pause_s)


def raw(*parts: bytes, then: float | None = None, pause_s: float = 0.0) -> Answer:
    """An answer of these bytes; a question for one token, which warms up, gets one token. then: how long the server is
    silent before it hangs up, if it does."""

    async def answer(path: str, body: Body) -> AsyncIterator[bytes]:
        if body["max_tokens"] == 1:
            yield HEAD + http(sse(*stream_of([1], ["x"]))) + b"0\r\n\r\n"
            return
        for part in parts:
            yield part
            await asyncio.sleep(pause_s)
        if then is not None:
            await asyncio.sleep(then)
            raise ConnectionError

    return answer
