"""Calls that a page gets from programs that are not its own, drawn by hypothesis from the page's own description of its
functions and from what HTTP allows; and what no answer may have."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from hypothesis import strategies as st

from app.jobs.recorded import RACES
from tests.helpers import ROOT
from tests.helpers.hostile_recordings import lanes, race, singly, small
from tests.helpers.pageserver import PLANTED, TARGET, Server

READ_S, MAX_READ, SLOW_S = 0.25, 20_000_000, 10.0  # of an answer without an end; bytes of one; how long a call may take
NUM_ADDRESSES = 16  # of callers: one alone would soon be refused everything
LONGEST_TOKENS = 48  # long races would take most of the time
FAULTS = "Key|Type|Value|Attribute|Runtime|Index|Recursion|Assertion"
NEVER = re.compile(
    r'Traceback \(most|File \\?"[^"]+", line|site-packages|dist-packages|'
    + rf"\b(?:{FAULTS})Error(?:\(|: )|"
    + "|".join(map(re.escape, (str(ROOT), sys.prefix, sys.base_prefix, *PLANTED.values())))
)
RACE_ID = "0a" * 16
TEXTS = ["", "\0", "\ud800", "a\u202eb", "\r\n\r\n", "\x1b[31m", "🏁" * 99, "<img src=x onerror=alert(1)>", "__proto__"]
TEXTS += [
    "../../etc/passwd",
    "file:///etc/passwd",
    "C:\\x",
    "%2e%2e/x",
    "http://127.0.0.1:1/v1",
    "null",
    "${7*7}{{7*7}}",
]
TEXTS += ["synthetic:0.5+" * 9, "synthetic:" + "0" * 5_000, "hybrid:ngram+ngram", "draft_model:/", "eagle3:../x", "٣"]
TEXTS += ["x" * 20_001, "\0" * 20_000, "word " * 50_000, '"' * 9_999, "9" * 400, "NaN", "-0", "1e5", "7.0"]
PROMPTS = ["la la la", "def f(x):\n    return", "é 🏁\n", '{"a": 1}\n' * 20]
SITE = """/ /config /config/ /theme.css /favicon.ico /robots.txt /tokens /recordings // /./ * /% /%zz /%ff%fe
    /recordings/recorded-story.json /recordings/recorded-story.csv /recordings/x.html /recordings/a/b.json
    /recordings/..%2f..%2fapp.json /recordings/%00.csv /recordings/x.exe /recordings/%F0%9F%8F%81.json /assets/../app.py
    /assets/%2e%2e/app.py /assets/..%5capp.py /static/%00 /static//etc/passwd /?deep_link=../x /?__theme=<x>
    http://evil.example/config /yours/model /yours/servers /yours/x /openapi.json /docs"""
API = f"""info info?all_endpoints=1 app_id startup-events queue/status queue/data queue/data?session_hash=
    queue/data?session_hash=%00 queue/join run/predict run/race run/no call/race call/stop call/race/{RACE_ID} cancel
    call/v2/stop/{RACE_ID} call/race/x reset upload upload_progress process_recording component_server heartbeat/a
    stream/a/b login file=/etc/passwd file/etc/passwd proxy=http://127.0.0.1:1/ deep_link?session_hash=a""".split()
PATHS = [*SITE.split(), *(f"/gradio_api/{path}" for path in API), "/assets/" + "a" * 300, "/" + "x" * 9_000]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "X" * 70]
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
FILE = {"name": ["a.txt", "b.jsonl", "c.csv"], "text": ["la la\nfa fa\n", '{"prompt": "la la"}\n'], "flatten": [True]}
LOAD = {"users": ["1", "1,5"], "requests": [1, 2], "max_new_tokens": [8], "dollars": [None, 1.5], "kept": [None]}
NAMED = {"request": ["1", "2"], "key": ["recorded-story", RACE_ID], "lane": ["speculative", "plain", ""]}
EVENTS: dict[str, dict[str, list[Any]]] = {
    "again": {**NAMED, "key": [RACE_ID]},  # else the model of the page's own recordings would be loaded first, of a GB
    "charts": NAMED, "why": NAMED, "check_up": {**FILE, "text": [None, *FILE["text"]]}, "load": {**LOAD, **FILE},
    "study": {**FILE, "limit": [1, 2], "max_new_tokens": [8], "kept": [None, "{}"], "look": [True, False]},
}  # fmt: skip
YOURS: dict[str, dict[str, list[Any]]] = {  # never put to use: the page would be another one for whoever comes next
    "/yours/model": {"target": [TARGET, *TEXTS], "drafter": ["ngram", *TEXTS], "use": [False]},
    "/yours/servers": {
        "url": ["http://127.0.0.1:1/v1", "localhost:1", *TEXTS], "url2": ["", "127.0.0.1:1"], "key": ["sk-x", *TEXTS],
        "model": ["m", *TEXTS], "same_device": [True, False], "use": [False, True],
    },
}  # fmt: skip
STORY = json.loads((RACES / "csv_to_json.json").read_text(encoding="utf-8").replace('"gemma-3-270m"', f'"{TARGET}"', 1))
BASES = [small(), race(lanes(s=singly([7] * 30, drafted=[7, 8], num_accepted=1))), STORY]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([*TEXTS, 10**400])
ODD = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(
    st.sampled_from(["path", "__type__", "meta", "key", "url", "0"]), inner, max_size=4), max_leaves=12)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """target: path and query. bare: the whole request instead, byte for byte. stream: a session whose answers are to be
    read afterwards."""

    method: str = "GET"
    target: str = "/"
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    bare: bytes = b""
    stream: str = ""


@st.composite
def nearly(draw: st.DrawFn, good: st.SearchStrategy[Any]) -> Any:
    """Mostly a good value, else one nearly good or odd."""
    if luck := draw(st.sampled_from([0] * 30 + [1, 2])):
        spoilt = [str, lambda value: [value], lambda value: {"value": value}, lambda value: f" {value}\0"]
        return draw(ODD) if luck == 1 else draw(st.sampled_from(spoilt))(draw(good))
    return draw(good)


def torn(text: bytes) -> st.SearchStrategy[bytes]:
    """A text as it is or, at times, cut, doubled or nested deeply."""
    return st.sampled_from([text] * 40 + [text[: len(text) // 2], text + text, b"[" * 5_000 + text])


def members(good: Mapping[str, list[Any]]) -> st.SearchStrategy[Any]:
    """An object with these members, mostly."""
    return nearly(st.fixed_dictionaries({name: nearly(st.sampled_from(values)) for name, values in good.items()}))


@st.composite
def recordings(draw: st.DrawFn) -> Call:
    """A recording, as it is or with values replaced, dropped or repeated."""
    base = json.loads(json.dumps(draw(st.sampled_from(BASES))))
    for _ in range(draw(st.integers(0, 3))):
        place, inner = base, base
        while isinstance(inner, (dict, list)) and inner and draw(st.integers(0, 9)):
            place, key = inner, draw(st.sampled_from(list(inner) if isinstance(inner, dict) else range(len(inner))))
            inner = place[key]
        if place is not inner:
            place[key] = draw(ODD)
            if draw(st.booleans()):
                del place[key]
    return Call("POST", "/recordings", draw(torn(json.dumps(base).encode())))


def posted(target: str, body: Any, draw: st.DrawFn, stream: str = "") -> Call:
    return Call(
        "POST", target, draw(torn(json.dumps(body).encode())), {"content-type": "application/json"}, b"", stream
    )


def calls(config: Mapping[str, Any]) -> st.SearchStrategy[Call]:
    """What strangers may send to the page of this configuration."""
    fields = {part["id"]: values_of(part) for part in config["components"]}
    functions = {function["id"]: function for function in config["dependencies"]}
    served = [key for key, function in functions.items() if function["backend_fn"]]
    sessions = st.sampled_from([f"fuzz-{i}" for i in range(9)] * 3 + ["", "é", "x" * 9_000, None, [], "\0"])

    @st.composite
    def of_functions(draw: st.DrawFn) -> Call:
        called = functions[draw(st.sampled_from([*served] * 5 + [*functions]))]
        data = draw(nearly(st.tuples(*(nearly(fields[i]) for i in called["inputs"]))))
        session, name = draw(sessions), str(called["api_name"])
        body = {"data": data, "fn_index": called["id"], "session_hash": session, "trigger_id": None}
        if name.rstrip("_0123456789") in EVENTS:
            body["event_data"] = draw(members(EVENTS[name.rstrip("_0123456789")]))
        if not draw(st.integers(0, 9)):
            body[draw(st.sampled_from([*body, "event_id", "batched", "request", "extra"]))] = draw(ODD)
        path = "queue/join" if called["queue"] else "run/predict"
        if not draw(st.integers(0, 9)):
            path = draw(st.sampled_from(["queue/join", f"run/{name}", f"call/{name}", f"call/v2/{name}"]))
        is_read = path == "queue/join" and isinstance(session, str) and draw(st.booleans())
        return posted(f"/gradio_api/{path}", body, draw, session if is_read else "")

    @st.composite
    def of_routes(draw: st.DrawFn) -> Call:
        path = draw(st.sampled_from([*YOURS, "/tokens", "/tokens"]))
        tokens = {"text": [*PROMPTS, *TEXTS], "target": [TARGET, *TEXTS]}
        body = draw(members(YOURS.get(path, tokens)))
        if path == "/yours/model" and isinstance(body, dict):
            body["use"] = draw(st.sampled_from([False, 1, "true"]))
        return posted(path, body, draw)

    @st.composite
    def of_paths(draw: st.DrawFn) -> Call:
        method = draw(st.sampled_from(["GET"] * 9 + METHODS))
        content = b"" if method == "GET" else json.dumps(draw(ODD)).encode()
        return Call(method, draw(st.sampled_from(PATHS)), content, dict([draw(st.sampled_from(HEADERS))]))

    others = [recordings(), of_routes(), of_paths(), st.sampled_from(BARE).map(bare)]
    return st.sampled_from([of_functions()] * 9 + others).flatmap(lambda kind: kind)


def bare(request: bytes) -> Call:
    return Call(bare=request)


def values_of(part: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Good values of a component."""
    kind, props = part["type"], part["props"]
    if props.get("label") == "Model":  # another one is loaded first, which takes the machine's memory
        return st.just(props["value"])
    if kind == "checkbox":
        return st.booleans()
    if kind in ("radio", "dropdown", "checkboxgroup"):
        choices = st.sampled_from([choice for _, choice in props["choices"]] or [None])
        return st.lists(choices, max_size=3) if kind == "checkboxgroup" else choices
    if kind in ("slider", "number"):
        low, high = props["minimum"], min(props.get("maximum", 9), LONGEST_TOKENS)
        return st.integers(int(low), int(high)) | st.floats(low, high)
    return st.sampled_from(PROMPTS)


def rss_mb(server: Server) -> float:
    """Memory of the page's process, in MB of 2**20 bytes. Linux only."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Fuzzer:
    """Sends calls to a page. statuses: how many were answered with which (0: the connection was closed). problems: what
    went wrong, and in answer to what."""

    def __init__(self, server: Server) -> None:
        self._base = urlsplit(server.url)
        ports = [httpx.HTTPTransport(local_address=f"127.0.3.{i}", verify=False) for i in range(1, NUM_ADDRESSES + 1)]
        self._clients = [httpx.Client(base_url=server.url, transport=port) for port in ports]
        self.config = self._clients[0].get("/config").json()
        self.statuses: Counter[int] = Counter()
        self.problems: list[str] = []
        self.num_read = 0

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def send(self, call: Call) -> None:
        self._send(call)
        if call.stream and self._last == 200:
            self.num_read += 1
            self._send(Call(target="/gradio_api/queue/data?session_hash=" + call.stream))

    def _send(self, call: Call) -> None:
        began = time.monotonic()
        self._last, answer = self._bare(call.bare) if call.bare else self._asked(call)
        took_s = time.monotonic() - began
        self.statuses[self._last] += 1
        sent = call.content.decode("utf-8", "replace") + call.target
        problems = {words for words in NEVER.findall(answer) if words not in sent}
        problems |= {f"status {self._last}"} if self._last >= 500 else set()
        problems |= {"slow"} if took_s > SLOW_S else set()
        self.problems += [f"{why}: {str(call)[:400]} -> {answer[:300]}" for why in sorted(problems)]

    def _asked(self, call: Call) -> tuple[int, str]:
        """(status, answer), as much of it as comes in time."""
        client = self._clients[sum(self.statuses.values()) % NUM_ADDRESSES]
        headers = {name: text.encode("latin-1") for name, text in call.headers.items()}
        target = {"target": call.target.encode("ascii", "replace")}
        request = client.build_request(
            call.method, "/", content=call.content or None, headers=headers, extensions=target, timeout=SLOW_S + 5
        )
        answer = b""
        try:
            response = client.send(request, stream=True)
            is_stream = "text/event-stream" in response.headers.get("content-type", "")
            with closing(response):
                request.extensions["timeout"]["read"] = READ_S if is_stream else SLOW_S
                ends = time.monotonic() + READ_S
                for part in response.iter_raw():
                    answer += part
                    if len(answer) > MAX_READ or (is_stream and time.monotonic() > ends):
                        break
        except httpx.ReadTimeout:
            if not answer and "queue/data" not in call.target and "call/" not in call.target:
                return 599, "no answer"
            return 200, answer.decode("utf-8", "replace")
        except (httpx.RemoteProtocolError, httpx.LocalProtocolError, httpx.ReadError, httpx.WriteError):
            return 0, ""
        return response.status_code, answer.decode("utf-8", "replace")

    def _bare(self, request: bytes) -> tuple[int, str]:
        answer = b""
        with socket.create_connection((self._base.hostname, self._base.port), timeout=READ_S) as bare:
            try:
                bare.sendall(request)
                while len(answer) < MAX_READ and (part := bare.recv(65_536)):
                    answer += part
            except OSError:
                pass
        status = answer[9:12]
        return int(status) if status.isdigit() else 0, answer.decode("utf-8", "replace")
