"""A proxy between this program's requests and a real server: it passes every byte on at once, and keeps what was asked
and answered, and when. tests/helpers/wire.py replays it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import h11

HEADERS = ("content-type", "content-encoding", "transfer-encoding", "server", "retry-after")
ENDED = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)


class Recorder(socketserver.ThreadingTCPServer):
    """port: where it listens. server_port: of the server behind it. hidden: texts of this machine, and what replaces
    them in the recording. exchanges: those that the server completed, also where nobody waited for the end."""

    daemon_threads = True

    def __init__(self, server_port: int, hidden: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port, self.server_port, self.exchanges = self.server_address[1], server_port, list[dict[str, Any]]()
        self._hidden = {old.encode(): new.encode() for old, new in hidden.items()}

    def save(self, path: Path, about: Mapping[str, str]) -> None:
        """about: server, version, command and date."""
        complete = [exchange for exchange in self.exchanges if "pieces" in exchange]
        text = json.dumps({**about, "exchanges": complete}, ensure_ascii=False, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))

    def piece(self, seconds: float, part: bytes) -> list[Any]:
        for old, new in self._hidden.items():
            part = part.replace(old, new)
        try:
            return [seconds, part.decode()]
        except UnicodeDecodeError:  # compressed, or a character cut in two
            return [seconds, base64.b64encode(part).decode(), "base64"]


class _Connection(socketserver.StreamRequestHandler):
    server: Recorder
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Pass the requests of one client on, over one connection to the server."""
        with (
            suppress(OSError, h11.RemoteProtocolError),
            socket.create_connection(("127.0.0.1", self.server.server_port)) as to,
        ):
            usable = True
            lines = iter(self.rfile.readline, b"")
            while usable and (head := b"".join(takewhile(lambda line: line != b"\r\n", lines))):
                size = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
                body = self.rfile.read(int(size[1])) if size else b""
                method, path, _ = head.decode("latin-1").split(" ", 2)
                asked = {"method": method, "path": path, "body": json.loads(body) if body else None}
                self.server.exchanges.append(exchange := {"asked": asked})
                to.sendall(head + b"\r\n" + body)
                usable = self._answer(exchange, to)

    def _answer(self, exchange: dict[str, Any], server: socket.socket) -> bool:
        """Whether the connection can be used again."""
        parser, asked, started, pieces = h11.Connection(h11.CLIENT), exchange["asked"], time.perf_counter(), []
        parser.send(h11.Request(method=asked["method"], target=asked["path"], headers=[("Host", "server")]))
        parser.send(h11.EndOfMessage())
        while parser.their_state not in ENDED:
            received = server.recv(65536)
            seconds = round(time.perf_counter() - started, 4)
            with suppress(OSError):
                self.wfile.write(received)
            parser.receive_data(received)
            part = b""
            while parser.their_state not in ENDED and (event := parser.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    found = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                    exchange |= {"http": event.http_version.decode(), "status": event.status_code}
                    exchange["headers"] = {name: found[name] for name in HEADERS if name in found}
                elif isinstance(event, h11.Data):
                    part += event.data
            if part:
                pieces.append(self.server.piece(seconds, part))
        exchange["pieces"] = pieces
        return parser.their_state is h11.DONE


@contextmanager
def recording(server_port: int, hidden: Mapping[str, str]) -> Iterator[Recorder]:
    """A recorder in front of the server at this port of this machine."""
    with Recorder(server_port, hidden) as recorder:
        threading.Thread(target=recorder.serve_forever, daemon=True).start()
        try:
            yield recorder
        finally:
            recorder.shutdown()
