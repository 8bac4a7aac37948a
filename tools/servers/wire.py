"""A proxy between this program's requests and a real server: it passes every byte on at once, and keeps what was asked
and answered, and when. tests/helpers/wire.py replays it."""

import base64
import gzip
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HEADERS = ("content-type", "content-encoding", "transfer-encoding", "server", "retry-after")


class Recorder(ThreadingHTTPServer):
    """behind: the port of the server behind it. hidden: texts of this machine, and what replaces
    them in the recording. exchanges: those that the server completed, also where nobody waited for the end."""

    def __init__(self, behind: int, hidden: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.behind, self.exchanges = behind, list[dict[str, Any]]()
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


class _Connection(BaseHTTPRequestHandler):
    server: Recorder
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Pass a request on, and its answer back, which ends with the connection."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        asked = {"method": self.command, "path": self.path, "body": json.loads(body) if body else None}
        self.server.exchanges.append(exchange := {"asked": asked})
        with suppress(OSError, HTTPException), closing(HTTPConnection("127.0.0.1", self.server.behind)) as to:
            to.request(self.command, self.path, body or None, dict(self.headers))
            started, answer, pieces = time.perf_counter(), to.getresponse(), []
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            while part := answer.read1():
                pieces.append(self.server.piece(round(time.perf_counter() - started, 4), part))
                with suppress(OSError):
                    self.wfile.write(part)
            kept = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
            exchange |= {"http": str(answer.version / 10), "status": answer.status, "headers": kept, "pieces": pieces}

    do_POST = do_GET


@contextmanager
def recording(behind: int, hidden: Mapping[str, str]) -> Iterator[Recorder]:
    """A recorder in front of the server at this port of this machine."""
    with Recorder(behind, hidden) as recorder:
        threading.Thread(target=recorder.serve_forever, daemon=True).start()
        try:
            yield recorder
        finally:
            recorder.shutdown()
