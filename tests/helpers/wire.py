"""Real servers' answers, as tools/servers recorded them, from a port of this machine."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from engine.remote.reply import Events, Reader, Reply
from engine.remote.steps import Written

from .loopback import Body, Loopback, error, http, servers

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "wire"
NOT_RECORDED = 599


@cache
def recorded(name: str) -> dict[str, Any]:
    """A fixture: server, version, command, date and exchanges. Nobody may change it."""
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def body_parts(exchange: dict[str, Any]) -> list[tuple[float, bytes]]:
    """What the server wrote, and when, in seconds since the question; its last member says if it is in base64."""
    return [(at, base64.b64decode(text) if coded else text.encode()) for at, text, *coded in exchange["pieces"]]


def read_parts(data: bytes, limit: int, cuts: Sequence[int] = ()) -> tuple[Reply, Written]:
    """The answer in a stream whose bytes are read in parts that end at these places. limit: of its request's tokens."""
    reader, events, written = Reader(limit), Events(), Written(limit)
    ends = sorted({cut % len(data) for cut in cuts} | {len(data)}) if data else []
    for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        for event in events.feed(data[start:end]) + (events.end() if end == len(data) else []):
            if (chunk := reader.take(event, 0.01 * i)) is not None:
                written.take(chunk)
    reply = reader.end(1.0)
    written.end(reply)
    return reply, written


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where another value can be put: every container inside, with each of its keys."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places(inner)


class Replay:
    """The n-th time that a request is asked it gets its n-th recorded answer, and then always the last."""

    def __init__(self, name: str, speed: float) -> None:
        self._name, self._speed = name, speed
        self._answers: dict[str, list[dict[str, Any]]] = {}
        for exchange in recorded(name)["exchanges"]:
            self._answers.setdefault(_key(**exchange["asked"]), []).append(exchange)

    def _next(self, method: str, path: str, body: Body | None) -> dict[str, Any]:
        key = _key(method, path, body)
        if answers := self._answers.get(key):
            return answers.pop(0) if len(answers) > 1 else answers[0]
        server = recorded(self._name)["server"]
        message = f"not recorded, run python -m tools.servers {server} --record: {key}"
        answer = {"asked": {"method": method}, "http": "1.1", "status": NOT_RECORDED, "headers": {}}
        return {**answer, "pieces": [[0, error(message).decode()]]}

    async def answer(self, path: str, body: Body) -> AsyncIterator[bytes]:
        clock, exchange = asyncio.get_running_loop().time, self._next("POST", path, body)
        started = clock()
        for at, part in _written(exchange):
            await asyncio.sleep(max(0.0, started + at / self._speed - clock()))
            yield part
        if exchange["http"] == "1.0":
            raise ConnectionError  # it closes the connection, which is how such an answer ends

    def get(self, path: str, missing: bytes = b"") -> bytes:
        """What a GET of this path is answered with, at once."""
        return b"".join(part for _, part in _written(self._next("GET", path, None)))


def _written(exchange: dict[str, Any]) -> Iterator[tuple[float, bytes]]:
    """An answer with HTTP's head and framing; the head comes with the first part, as its own time is not recorded."""
    parts, headers = body_parts(exchange), dict(exchange["headers"])
    is_chunked = "transfer-encoding" in headers
    if not is_chunked and (exchange["http"] != "1.0" or exchange["asked"]["method"] == "GET"):
        headers["content-length"] = sum(len(part) for _, part in parts)
    lines = [f"HTTP/{exchange['http']} {exchange['status']} X", *(f"{name}: {headers[name]}" for name in headers)]
    yield parts[0][0] if parts else 0.0, "\r\n".join([*lines, "", ""]).encode()
    yield from ((at, http(part) if is_chunked else part) for at, part in parts)
    if is_chunked:
        yield parts[-1][0] if parts else 0.0, b"0\r\n\r\n"


def _key(method: str, path: str, body: Any) -> str:
    return f"{method} {path} {json.dumps(body, sort_keys=True)}"


@contextmanager
def replayed(name: str, speed: float = 1.0) -> Iterator[Loopback]:
    """The server of a fixture. speed: how many times as fast as when it was recorded."""
    replay = Replay(name, speed)
    with servers(replay.answer) as (server,):
        server.pages = replay  # type: ignore[assignment]
        yield server
