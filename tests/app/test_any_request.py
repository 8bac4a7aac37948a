"""Whatever anybody sends to the page, nothing of the machine comes back, and the next visitor races."""

import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.helpers import ROOT
from tests.helpers.gated import RACE_ID
from tests.helpers.pageserver import ORDER, PLANTED, Server

FAULTS = "Key|Type|Value|Attribute|Runtime|Index|Recursion|Assertion"
NEVER = re.compile(
    r'Traceback \(most|File \\?"[^"]+", line|site-packages|dist-packages|a bug in Photofinish|'
    + rf"\b(?:{FAULTS})Error(?:\(|: )|"
    + "|".join(map(re.escape, (str(ROOT), sys.prefix, sys.base_prefix, *PLANTED.values())))
)
MAX_GROWTH_MB = 60  # 0.1 MB a request, as of answers that are kept, would be more
SLOW_S, BARE_S = 15.0, 1.0  # within which a request must be answered; after which bare connections are read
SITE = """/ /config /config/ /theme.css /favicon.ico /robots.txt /tokens /prompts // /./ * /% /%zz /%ff%fe
    /recordings/recorded-story.json /recordings/recorded-story.csv /recordings/x.html /recordings/a/b.json
    /recordings/..%2f..%2fapp.json /recordings/%00.csv /recordings/x.exe /recordings/%F0%9F%8F%81.json /assets/../app.py
    /assets/%2e%2e/app.py /assets/..%5capp.py /static/%00 /static//etc/passwd /?deep_link=../x /?__theme=<x>
    http://evil.example/config /yours/model /yours/servers /yours/x /openapi.json /docs /stream /stream/ /stream/x /stop
    /stop/x /healthz"""
API = f"""info info?all_endpoints=1 app_id startup-events queue/status queue/data queue/data?session_hash=
    queue/data?session_hash=%00 queue/join run/predict run/race run/no call/race call/stop call/race/{RACE_ID} cancel
    call/v2/race call/v2/race/{RACE_ID} call/v2/stop/{RACE_ID} call/race/x reset upload upload_progress component_server
    process_recording heartbeat/a stream/a/b login file=/etc/passwd file/etc/passwd proxy=http://127.0.0.1:1/
    deep_link?session_hash=a""".split()
PATHS = [*SITE.split(), *(f"/gradio_api/{path}" for path in API), "/assets/" + "a" * 300, "/" + "x" * 9_000]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X" * 70]
HEADERS: list[tuple[str, str]] = [
    *(("content-type", text) for text in ("text/plain", "multipart/form-data; boundary=x", "\xff", "a/b;" * 999)),
    *(("host", text) for text in ("evil.example", "", "localhost:1", "[::1", "127.0.0.1@x", "\xe9")),
    *(("origin", text) for text in ("null", "http://evil.example", "\xff")), ("x-forwarded-for", "203.0.113.7"),
    ("x-forwarded-host", "x/../y"), ("x-forwarded-proto", "javascript"), ("cookie", "session=" + "x" * 4_000),
    ("authorization", "Bearer \xff"), ("range", "bytes=0-1,5-"), ("x", "a" * 9_000), ("content-encoding", "gzip"),
    ("if-none-match", "*"), ("accept", "\xff"), ("x-gradio-user", "app"), ("upgrade", "websocket"),
]  # fmt: skip
LOCAL = b" HTTP/1.1\r\nHost: localhost\r\n"
BARE = [b"\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\0\x01"]
BARE += [b"GET " + path + LOCAL + b"\r\n" for path in (b"/\0", b"/%00?%zz=%ff#\xff", b"/config HTTP/1.1\r\nHost: b")]
BARE += [b"POST /tokens" + LOCAL + header + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n" for header in (
    b"Content-Length: -1", b"Content-Length: 2\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked",
    b"Content-Length: 2\r\nContent-Length: 3", b"Content-Length: 9999999999999999999999", b"Expect: 100-continue",
)]  # fmt: skip
BARE += [b"GET /" + LOCAL + b"x: y\r\n" * 5_000 + b"\r\n"]
TAB, ODD = "of-anything", "\0\ud800\u202e<img src=x onerror=alert(1)>../../etc/passwd"
FIGURES = {"data": [], "session_hash": TAB, "event_data": {"request": ODD, "tab": ODD, "key": ODD}}
# Gradio downloads what is given as a file, of any size, by whoever, for whichever value.
DOWNLOADED = {"path": "http://127.0.0.1:1/x", "meta": {"_type": "gradio.FileData"}}
# One for each route that reads a body, with values that it cannot use.
BODIES: list[tuple[str, Any]] = [
    *((path, {"format": "photofinish-race", "schema": ODD}) for path in ("/recordings", "/prompts?name=.csv&whole")),
    ("/tokens", {"text": ODD, "target": ODD}), ("/stop", {"tab": TAB, "run": ODD}),
    ("/yours/model", {"target": "../../etc/passwd", "drafter": "eagle3:../x", "use": True}),
    ("/yours/servers", {"url": "file:///etc/passwd", "url2": ODD, "key": "sk-x", "use": True}),
    *(("/stream", {"tab": TAB, "run": run, "settings": {**ORDER, "seed": [ODD], "pair": pair}, "order": order})
      for pair in ("command-line", ODD) for run, order in (
          ("race", {}), ("resume", {"race": ODD}), ("model", {}), ("again", {"key": ODD}), ("open", {}),
          ("checkup", {"text": [ODD]}), ("load", {"users": ODD}), ("study", {"text": "la", "limit": ODD}))),
    *((f"/gradio_api/{path}", {"data": [ODD], "fn_index": index, "session_hash": TAB, "event_id": ODD})
      for path in ("queue/join", "run/predict", "call/v2/race") for index in (-1, 0, 2**70, ODD)),
    *(("/gradio_api/run/predict", {**FIGURES, "fn_index": index}) for index in range(40)),
    *(("/gradio_api/run/predict", {"data": [DOWNLOADED], "fn_index": index}) for index in range(40)),
    ("/gradio_api/call/v2/race", {**ORDER, ODD: 1}),
]  # fmt: skip


def requests(client: httpx.Client) -> Iterator[httpx.Request]:
    """Everything but BARE."""

    def made(method: str, target: str, content: bytes = b"", **headers: str) -> httpx.Request:
        texts = {"content-type": "application/json", **headers}
        sent = {name: text.encode("latin-1") for name, text in texts.items()}
        extensions = {"target": target.encode()}
        return client.build_request(method, "/", content=content or None, headers=sent, extensions=extensions)

    for method, path in product(METHODS, PATHS):
        yield made(method, path, b"" if method in ("GET", "HEAD") else b'{"path": [1e400, {}]}')
    for path, (name, text) in product(("/config", "/tokens"), HEADERS):
        yield made("POST" if path == "/tokens" else "GET", path, b"{}" * (path == "/tokens"), **{name: text})
    for path, body in BODIES:
        content = json.dumps(body).encode()
        for torn in (content, content[: len(content) // 2], content * 2, b"[" * 5_000 + content):
            yield made("POST", path, torn)


def answered(server: Server) -> Iterator[tuple[str, int, str]]:
    """What was sent, and status and answer; 0 if the connection was closed."""
    with httpx.Client(base_url=server.url, timeout=SLOW_S) as client:
        for request in requests(client):
            sent = f"{request.method} {request.extensions['target']!r} {request.headers.raw} {request.content!r}"
            try:
                answer = client.send(request)
                yield sent, answer.status_code, answer.text
            except (httpx.RemoteProtocolError, httpx.LocalProtocolError, httpx.ReadError, httpx.WriteError):
                yield sent, 0, ""
    address = urlsplit(server.url)
    with ExitStack() as stack:
        bares = [stack.enter_context(socket.create_connection((address.hostname, address.port))) for _ in BARE]
        for bare, request in zip(bares, BARE, strict=True):
            bare.sendall(request)
        time.sleep(BARE_S)
        answers = [read_all(bare) for bare in bares]
    for request, answer in zip(BARE, answers, strict=True):
        status = answer[9:12]
        yield repr(request), int(status) if status.isdigit() else 0, answer.decode("utf-8", "replace")


def read_all(bare: socket.socket) -> bytes:
    """What has arrived."""
    bare.setblocking(False)
    answer = b""
    with suppress(OSError):
        while part := bare.recv(65_536):
            answer += part
    return answer


def rss_mb(server: Server) -> float:
    """Memory of the page's process, in MB of 2**20 bytes. Linux only."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def test_no_request_breaks_the_page_or_learns_anything(server: Server) -> None:
    """A traceback, a path or a key would reach a stranger; a value be the page's fault, fill it, or end the queue."""
    server.visitor("before").race()
    log = server.log.stat().st_size
    for _ in "at first, things are loaded once", "":
        before_mb, num_good, problems = rss_mb(server), 0, list[str]()
        for sent, status, answer in answered(server):
            num_good += status == 200
            wrong = [words for words in NEVER.findall(answer) if words not in sent]
            if wrong or status >= 500:
                problems.append(f"{wrong}: {sent[:400]} -> {status} {answer[:300]}")
        assert problems == [] and num_good > 20
    assert rss_mb(server) - before_mb < MAX_GROWTH_MB
    assert server.log.read_bytes()[log:].decode() == ""
    assert server.visitor("after").race()[-1]["state"] == "finished"
