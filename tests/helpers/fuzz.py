"""Calls that a page gets from programs that are not its own, drawn by hypothesis from the page's own description of its
functions and from what HTTP allows; and what no answer may have."""

from __future__ import annotations

import json
import math
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from hypothesis import strategies as st

from app.jobs.recorded import RACES
from tests.helpers import ROOT
from tests.helpers.hostile_recordings import lanes, race, singly, small
from tests.helpers.pageserver import ORDER, PLANTED, TARGET, Server
from tests.helpers.races import altered

# How long a tab's stream is read, a program's result is waited for (races that were left have the device before it, for
# up to GRACE_S), and a bare connection is read; bytes of an answer; how long a call may take, which is more than twice
# what a stream is read for: a heartbeat at the end of that begins it anew.
READ_S, RESULT_S, BARE_S, MAX_READ, SLOW_S = 0.5, 7.0, 0.25, 20_000_000, 15.0
NUM_ADDRESSES = 16  # of callers: one alone would soon be refused everything
LONGEST_TOKENS = 32  # long races would take most of the time
FAULTS = "Key|Type|Value|Attribute|Runtime|Index|Recursion|Assertion"
NEVER = re.compile(
    r'Traceback \(most|File \\?"[^"]+", line|site-packages|dist-packages|a bug in Photofinish|'
    + rf"\b(?:{FAULTS})Error(?:\(|: )|"
    + "|".join(map(re.escape, (str(ROOT), sys.prefix, sys.base_prefix, *PLANTED.values())))
)
RACE_ID = "0a" * 16
TEXTS = ["", "\0", "\ud800", "a\u202eb", "\r\n\r\n", "\x1b[31m", "🏁" * 99, "<img src=x onerror=alert(1)>", "__proto__"]
TEXTS += ["../../etc/passwd", "file:///etc/passwd", "C:\\x", "%2e%2e/x", "http://127.0.0.1:1/v1", "null", "${7}{{7*7}}"]
TEXTS += ["synthetic:0.5+" * 9, "synthetic:" + "0" * 5_000, "hybrid:ngram+ngram", "draft_model:/", "eagle3:../x", "٣"]
TEXTS += ["x" * 20_001, "\0" * 20_000, "word " * 50_000, '"' * 9_999, "9" * 400, "NaN", "-0", "1e5", "7.0"]
PROMPTS = ["la la la", "def f(x):\n    return", "é 🏁\n", '{"a": 1}\n' * 20]
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
LOAD = {"users": ["1", "1,5"], "requests": [1, 2], "max_new_tokens": [8], "dollars": [None, 1.5]}
NAMED = {"key": ["recorded-story", RACE_ID], "lane": ["speculative", "plain", ""]}
FIGURES = {"tab": ["charts", "why"], "request": ["1", "2"], **NAMED}
SAVED = [json.dumps({"format": f"photofinish-{kind}", "target": "m", "findings": [], "results": [{}]})
         for kind in ("study", "load", "checkup", "results")]  # fmt: skip
RUNS: list[tuple[str, dict[str, list[Any]]]] = [  # what a tab asks for, with what order
    *[("race", {})] * 5, ("resume", {"race": [RACE_ID[:16], *TEXTS]}), ("model", {"named": [True, 1]}),
    ("again", {**NAMED, "key": [RACE_ID]}),  # else the model of the page's own recordings would be loaded, of a GB
    ("checkup", {**FILE, "text": [None, *FILE["text"]]}), ("load", {**LOAD, **FILE}),
    ("study", {**FILE, "limit": [1, 2], "max_new_tokens": [8], "kept": [None, "{}"]}),
    ("open", {"saved": SAVED + TEXTS}),
]  # fmt: skip
ROUTES: dict[str, dict[str, list[Any]]] = {
    "/tokens": {"text": [*PROMPTS, *TEXTS], "target": [TARGET, *TEXTS]},
    # Never put to use: the page would be another one for whoever comes next.
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
    """target: path and query. bare: the whole request instead, byte for byte. then: what is sent afterwards if the
    answer was good; ID in its target stands for the answer's id."""

    method: str = "GET"
    target: str = "/"
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    bare: bytes = b""
    then: Call | None = None


@st.composite
def objects(draw: st.DrawFn, good: Mapping[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """An object of good values. In one of six, one value is nearly good, odd or missing, or there is another one."""
    made = draw(st.fixed_dictionaries(good))
    if draw(st.integers(0, 5)) == 5:  # not 0: hypothesis prefers it
        name = draw(st.sampled_from([*good] * 3 + ["event_id", "batched", "request", "trigger_id"]))
        value = made.pop(name, None)
        spoilt = st.sampled_from([str(value), [value], {"value": value}, f" {value}\0"])
        made |= draw(st.sampled_from([{}, {name: draw(spoilt)}, {name: draw(ODD)}]))
    return made


def torn(text: bytes) -> st.SearchStrategy[bytes]:
    """A text as it is or, at times, cut, doubled or nested deeply."""
    return st.sampled_from([text] * 40 + [text[: len(text) // 2], text + text, b"[" * 5_000 + text])


def members(good: Mapping[str, list[Any]]) -> st.SearchStrategy[Any]:
    return objects({name: st.sampled_from(values) for name, values in good.items()})


@st.composite
def recordings(draw: st.DrawFn) -> Call:
    """A recording, as it is or with a value replaced, removed or added."""
    base = draw(st.sampled_from(BASES) | altered(st.sampled_from(BASES), ODD))
    path = draw(st.sampled_from(["/recordings", "/prompts", "/prompts?name=.csv&whole"]))
    return Call("POST", path, draw(torn(json.dumps(base).encode())))


def posted(target: str, body: Any, draw: st.DrawFn, then: Call | None = None) -> Call:
    content = draw(torn(json.dumps(body).encode()))
    return Call("POST", target, content, {"content-type": "application/json"}, b"", then)


def calls(config: Mapping[str, Any]) -> st.SearchStrategy[Call]:
    """What strangers may send to the page of this configuration."""
    fields = {part["id"]: values_of(part) for part in config["components"]}
    functions = {function["id"]: function for function in config["dependencies"]}
    served = [key for key, function in functions.items() if function["backend_fn"]]
    (racing,) = (function for function in functions.values() if function["api_name"] == "race")
    settings = objects({name: fields[i] for name, i in zip(ORDER, racing["inputs"], strict=True)})
    tabs = st.sampled_from([f"fuzz-tab-{i}" for i in range(9)] * 6 + ["", "é" * 8, "x" * 9_000, None, [], "\0" * 8])

    @st.composite
    def of_functions(draw: st.DrawFn, program: bool = False) -> Call:
        """A call of a function of Gradio's; or of `race`, as programs do."""
        called = racing if program else functions[draw(st.sampled_from([*served] * 5 + [*functions]))]
        values, name = {f"{i:02}": fields[number] for i, number in enumerate(called["inputs"])}, called["api_name"]
        data = objects(values).map(lambda drawn: [value for _, value in sorted(drawn.items())])
        body = {"data": data, "fn_index": st.just(called["id"]), "session_hash": tabs}
        if not program:
            body["event_data"] = members(FIGURES) if name == "figures" else st.sampled_from(TEXTS)
        others = ["queue/join", f"call/{name}", f"call/v2/{name}", "run/predict", f"run/{name}"]
        path = draw(st.sampled_from(others[:1] + others[:4] if program else ["run/predict"] * 30 + others))
        sent = draw(settings if program and "v2" in path else objects(body))
        session = quote(str(sent.get("session_hash")), errors="replace")
        then = f"queue/data?session_hash={session}" if path == "queue/join" else f"{path}/ID"
        return posted(f"/gradio_api/{path}", sent, draw, Call(target=f"/gradio_api/{then}") if program else None)

    @st.composite
    def of_tabs(draw: st.DrawFn) -> Call:
        """What a tab runs, and then stops."""
        name, order = draw(st.sampled_from(RUNS))
        body = draw(objects({"tab": tabs, "run": st.just(name), "settings": settings, "order": members(order)}))
        stop = draw(objects({"tab": st.just(body.get("tab")), "run": st.just(name)}))
        return posted("/stream", body, draw, posted("/stop", stop, draw))

    @st.composite
    def of_routes(draw: st.DrawFn) -> Call:
        path = draw(st.sampled_from([*ROUTES, "/tokens"]))
        body = draw(members(ROUTES[path]))
        if path == "/yours/model":
            body["use"] = draw(st.sampled_from([False, 1, "true"]))
        return posted(path, body, draw)

    @st.composite
    def of_paths(draw: st.DrawFn) -> Call:
        method = draw(st.sampled_from(["GET"] * 9 + METHODS))
        content = b"" if method == "GET" else json.dumps(draw(ODD)).encode()
        return Call(method, draw(st.sampled_from(PATHS)), content, dict([draw(st.sampled_from(HEADERS))]))

    others = [recordings(), of_routes(), of_paths(), st.sampled_from(BARE).map(lambda request: Call(bare=request))]
    kinds = [*[of_tabs()] * 3, *[of_functions(program=True), of_functions()] * 2, *others]
    return st.sampled_from(kinds).flatmap(lambda kind: kind)


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
        low, high, step = props["minimum"], min(props.get("maximum", 9), LONGEST_TOKENS), props["step"]
        return st.integers(0, int((high - low) / step)).map(lambda num: low + num * step)
    return st.sampled_from(PROMPTS)


def rss_mb(server: Server) -> float:
    """Memory of the page's process, in MB of 2**20 bytes. Linux only."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Fuzzer:
    """Sends calls to a page. statuses: how many were answered with which (0: the connection was closed; 599: not).
    races: how many streams brought a race's frames or its result, by path. problems: what went wrong, and in answer to
    what."""

    def __init__(self, server: Server) -> None:
        self._base = urlsplit(server.url)
        ports = [httpx.HTTPTransport(local_address=f"127.0.3.{i}", verify=False) for i in range(1, NUM_ADDRESSES + 1)]
        self._clients = [httpx.Client(base_url=server.url, transport=port) for port in ports]
        self.config = self._clients[0].get("/config").json()
        self.statuses: Counter[int] = Counter()
        self.races: Counter[str] = Counter()
        self.problems: list[str] = []

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def send(self, call: Call) -> None:
        began = time.monotonic()
        status, answer = self._bare(call.bare) if call.bare else self._asked(call)
        took_s = time.monotonic() - began
        self.statuses[status] += 1
        sent = call.content.decode("utf-8", "replace") + call.target
        problems = {words for words in NEVER.findall(answer) if words not in sent}
        problems |= {f"status {status}"} if status >= 500 else set()
        problems |= {"slow"} if took_s > SLOW_S else set()
        self.problems += [f"{why}: {str(call)[:400]} -> {answer[:300]}" for why in sorted(problems)]
        if call.then and status == 200:
            given = re.match(r'{"event_id":"(\w+)"}', answer)
            self.send(replace(call.then, target=call.then.target.replace("ID", given[1] if given else "ID")))

    def _asked(self, call: Call) -> tuple[int, str]:
        """(status, answer), as much of it as comes in time."""
        client = self._clients[sum(self.statuses.values()) % NUM_ADDRESSES]
        headers = {name: text.encode("latin-1") for name, text in call.headers.items()}
        target = {"target": call.target.encode("ascii", "replace")}
        request = client.build_request(
            call.method, "/", content=call.content or None, headers=headers, extensions=target, timeout=SLOW_S + 5
        )
        status, ends, answer = 599, math.inf, b""
        try:
            response = client.send(request, stream=True)
            status = response.status_code
            if "text/event-stream" in response.headers.get("content-type", ""):
                ends = time.monotonic() + (READ_S if call.target == "/stream" else RESULT_S)
            with closing(response):
                request.extensions["timeout"]["read"] = min(SLOW_S, ends - time.monotonic())
                for part in response.iter_raw():
                    answer += part
                    if len(answer) > MAX_READ or time.monotonic() > ends:
                        break
        except httpx.ReadTimeout:  # there is no answer, or a stream goes on
            pass
        except (httpx.RemoteProtocolError, httpx.LocalProtocolError, httpx.ReadError, httpx.WriteError):
            return 0, ""
        if ends < math.inf and b"complete" in answer:
            self.races[re.split(r"\?|(?:/v2)?/race/", call.target)[0]] += 1
        return status, answer.decode("utf-8", "replace")

    def _bare(self, request: bytes) -> tuple[int, str]:
        answer = b""
        with socket.create_connection((self._base.hostname, self._base.port), BARE_S) as bare, suppress(OSError):
            bare.sendall(request)
            while len(answer) < MAX_READ and (part := bare.recv(65_536)):
                answer += part
        status = answer[9:12]
        return int(status) if status.isdigit() else 0, answer.decode("utf-8", "replace")
