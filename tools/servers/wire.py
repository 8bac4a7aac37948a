"""A proxy between this program's requests and a real server: it passes every byte on at once, and keeps what was asked
and answered, and when. tests/helpers/wire.py replays it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h11

HEADERS = ("content-type", "content-encoding", "transfer-encoding", "server", "retry-after")


class Recorder:
    """port: where it listens. server_port: of the server behind it. hidden: texts of this machine, and what replaces
    them in the recording. exchanges: those that the server completed, also where nobody waited for the end."""

    def __init__(self, server_port: int, hidden: Mapping[str, str]) -> None:
        self.server_port, self.port = server_port, 0
        self.exchanges: list[dict[str, Any]] = []
        self._hidden = {old.encode(): new.encode() for old, new in hidden.items()}

    def save(self, path: Path, about: Mapping[str, str]) -> None:
        """about: server, version, command and date."""
        complete = [exchange for exchange in self.exchanges if exchange["pieces"] is not None]
        text = json.dumps({**about, "exchanges": complete}, ensure_ascii=False, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, and one to the server for it."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port)
        usable = True
        with suppress(OSError, asyncio.IncompleteReadError, h11.RemoteProtocolError):
            while usable and (head := await reader.readuntil(b"\r\n\r\n")):
                size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(size[1])) if size else b""
                method, path, _ = head.decode("latin-1").split(" ", 2)
                asked = {"method": method, "path": path, "body": json.loads(body) if body else None}
                self.exchanges.append({"asked": asked, "status": 0, "headers": {}, "pieces": None})
                to_server.write(head + body)
                usable = await self._answer(self.exchanges[-1], from_server, writer)
        for side in (writer, to_server):
            side.close()

    async def _answer(self, exchange: dict[str, Any], server: asyncio.StreamReader, to: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        parser, asked, started = h11.Connection(h11.CLIENT), exchange["asked"], time.perf_counter()
        parser.send(h11.Request(method=asked["method"], target=asked["path"], headers=[("Host", "server")]))
        parser.send(h11.EndOfMessage())
        pieces = []
        while True:
            received = await server.read(65536)
            seconds = round(time.perf_counter() - started, 4)
            if not to.is_closing():
                to.write(received)
            parser.receive_data(received)
            part = b""
            while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Response):
                    found = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                    exchange["status"] = event.status_code
                    exchange["http"] = event.http_version.decode()
                    exchange["headers"] = {name: found[name] for name in HEADERS if name in found}
                elif isinstance(event, h11.Data):
                    part += event.data
                elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    break
            if part:
                pieces.append(self._piece(seconds, part))
            if parser.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
                exchange["pieces"] = pieces
                return parser.their_state is h11.DONE

    def _piece(self, seconds: float, part: bytes) -> list[Any]:
        for old, new in self._hidden.items():
            part = part.replace(old, new)
        try:
            return [seconds, part.decode()]
        except UnicodeDecodeError:  # compressed, or a character cut in two
            return [seconds, base64.b64encode(part).decode(), "base64"]


@contextmanager
def recording(server_port: int, hidden: Mapping[str, str]) -> Iterator[Recorder]:
    """A recorder in front of the server at this port of this machine, in a thread of its own."""
    recorder, loop = Recorder(server_port, hidden), asyncio.new_event_loop()

    async def closed() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opening = asyncio.run_coroutine_threadsafe(asyncio.start_server(recorder.serve, "127.0.0.1", 0), loop)
    server = opening.result(10)
    recorder.port = server.sockets[0].getsockname()[1]
    try:
        yield recorder
    finally:
        asyncio.run_coroutine_threadsafe(closed(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
