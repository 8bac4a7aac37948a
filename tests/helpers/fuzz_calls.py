"""Calls that a page gets from programs that are not its own: drawn from its own description of its functions, and from
what HTTP allows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.fuzz_values import PROMPTS, TEXTS, Field, event, odd, recording, torn, value
from tests.helpers.pageserver import TARGET

LONGEST_TOKENS = 48
"""Races that run are short; long ones would take most of the time."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "BREW", "X" * 70)
SESSIONS = (*(f"fuzz-{i}" for i in range(9)),)
ODD_SESSIONS = ("", " ", "a b", "é", "x" * 101, "x" * 9_000, None, 7, 1.5, [], {}, "\0", True)
ODD_NUMBERS = (-1, 99, 10**20, 2**70, 1.5, "1", "race", None, True, [], {})
RACE_ID = "0a" * 16
PATHS = (
    *(
        "/",
        "/config",
        "/config/",
        "/theme.css",
        "/favicon.ico",
        "/manifest.json",
        "/robots.txt",
        "/tokens",
        "/recordings",
    ),
    *(
        "/recordings/recorded-story.json",
        "/recordings/recorded-story.csv",
        "/recordings/x.html",
        "/recordings/a/b.json",
    ),
    *("/recordings/..%2f..%2fapp.json", "/recordings/%00.csv", "/recordings/x.exe", "/recordings/%F0%9F%8F%81.json"),
    *("/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%5capp.py", "/static/%00", "/static//etc/passwd", "//"),
    *("/./", "/assets/" + "a" * 300, "/" + "x" * 9_000, "/%ff%fe", "/%", "/%zz", "/?deep_link=../x", "/?__theme=<x>"),
    *(
        "http://evil.example/config",
        "/yours/model",
        "/yours/servers",
        "/yours/x",
        "/yours/",
        "/openapi.json",
        "/docs",
        "*",
    ),
)
API = (
    *(
        "info",
        "info?all_endpoints=1",
        "app_id",
        "startup-events",
        "queue/status",
        "queue/data",
        "queue/data?session_hash=",
    ),
    *(
        "queue/data?session_hash=fuzz-1",
        "queue/data?session_hash=%00",
        "queue/join",
        "run/predict",
        "run/race",
        "run/no",
    ),
    *(
        "call/race",
        "call/v2/race",
        "call/stop",
        f"call/race/{RACE_ID}",
        f"call/v2/stop/{RACE_ID}",
        "call/race/x",
        "cancel",
    ),
    *(
        "reset",
        "upload",
        "upload_progress",
        "process_recording",
        "component_server",
        "heartbeat/a",
        "stream/a/b",
        "login",
    ),
    *("file=/etc/passwd", "file/etc/passwd", "proxy=http://127.0.0.1:1/", "deep_link?session_hash=a", "vibe-edit"),
)
HEADERS: Sequence[dict[str, str]] = (
    *({"content-type": each} for each in ("text/plain", "multipart/form-data; boundary=x", "\xff", "a/b;" * 999)),
    *({"host": each} for each in ("evil.example", "", "localhost:1", "[::1", "127.0.0.1@x", "\xe9")),
    *({"origin": each} for each in ("null", "http://evil.example", "http://127.0.0.1", "\xff")),
    *({"x-forwarded-for": "203.0.113.7"}, {"x-forwarded-host": "x/../y"}, {"x-forwarded-proto": "javascript"}),
    *(
        {"cookie": "session=" + "x" * 4_000},
        {"authorization": "Bearer \xff"},
        {"range": "bytes=0-1,5-"},
        {"x": "a" * 9_000},
    ),
    *({"accept-encoding": "br;q=9"}, {"content-encoding": "gzip"}, {"if-none-match": "*"}, {"accept": "\xff"}),
    *({"x-gradio-user": "app"}, {"x-gradio-target": "x"}, {"upgrade": "websocket", "connection": "upgrade"}),
)
LOCAL = b" HTTP/1.1\r\nHost: localhost\r\n"
BARE = (
    *(b"\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\0\x01"),
    *(b"GET " + each + LOCAL + b"\r\n" for each in (b"/\0", b"/%00?%zz=%ff#\xff", b"/config HTTP/1.1\r\nHost: b")),
    *(b"POST /tokens" + LOCAL + each + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n" for each in (
        b"Content-Length: -1", b"Content-Length: 2\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked",
        b"Content-Length: 2\r\nContent-Length: 3", b"Content-Length: 9999999999999999999999", b"Expect: 100-continue",
    )),
    b"GET /" + LOCAL + b"x: y\r\n" * 5_000 + b"\r\n",
)  # fmt: skip
"""Requests that no library would send."""
YOURS: dict[str, dict[str, Sequence[Any]]] = {
    "/yours/model": {
        "target": ("tests/fixtures/trained/target", *TEXTS),
        "drafter": ("ngram", *TEXTS),
        "use": (False,),
    },
    "/yours/servers": {
        "url": ("http://127.0.0.1:1/v1", "localhost:1", *TEXTS),
        "url2": ("", "", "127.0.0.1:1"),
        "key": ("sk-x", *TEXTS),
        "model": ("m", *TEXTS),
        "same_device": (True, False),
        "use": (False, True),
    },
}
"""A model is never put to use: the page would be another one for whoever comes next."""


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


class Caller:
    """Draws calls.

    config: of the page.
    keys: of recordings that it has; more may be added."""

    def __init__(self, rng: random.Random, config: Mapping[str, Any]) -> None:
        self._rng, self.keys = rng, ["recorded-csv-to-json", "recorded-story", RACE_ID]
        fields = {each["id"]: field_of(each) for each in config["components"]}
        self._functions = {each["id"]: each for each in config["dependencies"]}
        self._served = [key for key, each in self._functions.items() if each["backend_fn"]]
        self._fields = {key: [fields[i] for i in each["inputs"]] for key, each in self._functions.items()}

    def call(self) -> Call:
        """The next one."""
        rng = self._rng
        makes: Sequence[Callable[[], Call]] = (self._function, self._recording, self._page, self._odd_path)
        made = rng.choices(makes, (70, 8, 8, 14))[0]()
        if rng.random() < 0.1:
            return Call(
                made.method, made.target, made.content, {**made.headers, **rng.choice(HEADERS)}, b"", made.stream
            )
        return made

    def _function(self) -> Call:
        rng = self._rng
        number = rng.choice([*self._served] * 5 + [*self._functions])
        name, fields = str(self._functions[number]["api_name"]), self._fields[number]
        data: Any = [value(rng, each) for each in fields]
        if rng.random() < 0.1:
            data = rng.choice((data[:-1], [*data, odd(rng)], data * 9, odd(rng), None))
        session = rng.choice(SESSIONS) if rng.random() < 0.95 else rng.choice(ODD_SESSIONS)
        body: dict[str, Any] = {"data": data, "fn_index": number, "session_hash": session, "trigger_id": None}
        if (clicked := event(rng, name, self.keys)) is not None:
            body["event_data"] = clicked
        if rng.random() < 0.1:
            body[rng.choice((*body, "event_id", "batched", "simple_format", "request", "extra"))] = odd(rng)
        if rng.random() < 0.04:
            body["fn_index"] = rng.choice(ODD_NUMBERS)
        through_queue = self._functions[number]["queue"] if rng.random() < 0.9 else rng.random() < 0.5
        path = "queue/join" if through_queue else "run/predict"
        if rng.random() < 0.1:
            path = rng.choice((f"run/{name}", f"call/{name}", f"call/v2/{name}"))
        is_read = path == "queue/join" and isinstance(session, str) and rng.random() < 0.5
        return self._post(f"/gradio_api/{path}", body, session if is_read else "")

    def _post(self, target: str, body: Any, stream: str = "") -> Call:
        kind = {"content-type": "application/json"}
        content = json.dumps(body).encode()
        if self._rng.random() < 0.03:
            depth = self._rng.choice((300, 900, 5_000))
            content = content.replace(b"null", b"[" * depth + b"]" * depth, 1)
        return Call("POST", target, torn(self._rng, content), kind, b"", stream)

    def _recording(self) -> Call:
        return Call("POST", "/recordings", recording(self._rng))

    def _page(self) -> Call:
        """A route of the page's own."""
        rng = self._rng
        if rng.random() < 0.4:
            key, form = rng.choice((*self.keys, *TEXTS[:3])), rng.choice(("json", "csv", "html", "exe"))
            return Call("GET", f"/recordings/{key}.{form}".encode("ascii", "replace").decode().replace("\0", "%00"))
        if rng.random() < 0.4:
            asked = {"text": rng.choice((*PROMPTS, *TEXTS, odd(rng))), "target": rng.choice((TARGET, odd(rng)))}
            return self._post("/tokens", rng.choice((asked, odd(rng))))
        path = rng.choice(list(YOURS))
        asked = {name: rng.choice(good) if rng.random() < 0.9 else odd(rng) for name, good in YOURS[path].items()}
        if asked["use"] is True and path == "/yours/model":
            asked["use"] = 1
        return self._post(path, asked if rng.random() < 0.9 else odd(rng))

    def _odd_path(self) -> Call:
        rng = self._rng
        if rng.random() < 0.15:
            return Call(bare=rng.choice(BARE))
        target = rng.choice(PATHS) if rng.random() < 0.5 else f"/gradio_api/{rng.choice(API)}"
        method = rng.choice(METHODS) if rng.random() < 0.5 else "GET"
        content = torn(rng, json.dumps(odd(rng)).encode()) if method != "GET" else b""
        return Call(method, target, content)


def field_of(component: Mapping[str, Any]) -> Field:
    """What a component takes."""
    kind, props = component["type"], component["props"]
    if kind in ("radio", "dropdown", "checkboxgroup"):
        good = [choice for _, choice in props["choices"]]
        is_model = props["label"] == "Model"  # another one is loaded first, which takes the machine's memory
        return Field(kind, [props["value"]] if is_model else good)
    if kind == "checkbox":
        return Field(kind, (True, False))
    if kind in ("slider", "number"):
        low, high = props["minimum"], props.get("maximum", 9)
        return Field(kind, (), low, LONGEST_TOKENS if high > LONGEST_TOKENS else high)
    return Field(kind, PROMPTS)
