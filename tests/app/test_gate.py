"""The gate in front of Gradio: it refuses unused routes, bodies that are too large or slow to parse, and callers that
would take up all the room. It has Gradio's files in memory: what the browser gets is what Gradio has."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from app.catalogue.limits import MAX_BODY_BYTES, MAX_CALL_BYTES
from app.page import gate as gate_module
from app.page.gate import MAX_INCOMING_BYTES, MAX_OPEN, MAX_OUTSIDE_BYTES, MAX_QUOTES, REFUSED, SMALL_BYTES, Gate
from app.page.kept_files import KeptFiles
from tests.helpers.gated import DIRECT, RACE_ID, STOP, STREAM, USED, Inside
from tests.helpers.staged import in_loop

UNUSED = {
    "GET": f"""/openapi.json /svelte/a.js /monitoring /logout /assets/../app.py /static/a%00 /pwa_icon/9
        /gradio_api/file=/etc/passwd /gradio_api/file/etc/passwd /gradio_api/proxy=http://x /gradio_api/heartbeat/a
        /gradio_api/stream/a/b/1/playlist.m3u8 /gradio_api/dev/reload /gradio_api/upload_progress /gradio_api/deep_link
        /gradio_api/vibe-code /gradio_api/custom_component/a/client/b/c /gradio_api/runs /gradio_api/token
        /gradio_api/openapi.json /gradio_api/call/study/{RACE_ID} /gradio_api/queue/status""",
    "POST": """/upload /login /gradio_api/upload /gradio_api/upload/ /gradio_api/process_recording
        /gradio_api/component_server /gradio_api/vibe-edit /gradio_api/run-history/connect /gradio_api/call/study
        /gradio_api/run/again /gradio_api/run/race /gradio_api/api/predict /gradio_api/undo-vibe-edit
        /gradio_api/cancel /gradio_api/reset""",
}


@pytest.fixture
def inside() -> Inside:
    return Inside()


@pytest.fixture
def gate(inside) -> Gate:
    return Gate(inside)


async def ask(
    gate: Gate, method: str, path: str, content: Any = b"", address: str = "192.0.2.1", root: str = ""
) -> httpx.Response:
    transport = httpx.ASGITransport(gate, raise_app_exceptions=True, client=(address, 1), root_path=root)
    async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
        return await client.request(method, path, content=content)


def call(*arguments: Any, **more: Any) -> httpx.Response:
    return asyncio.run(ask(*arguments, **more))


async def in_parts(size: int, part: int = 1_000) -> AsyncIterator[bytes]:
    """A body without a Content-Length."""
    for start in range(0, size, part):
        yield b" " * min(part, size - start)


@pytest.mark.parametrize("root", ["", "/below"])
def test_the_routes_that_the_page_uses_are_all_there_are(gate, inside, root) -> None:
    """Gradio has 60 routes; some write files of any size. Below a root path the page's own would be refused too."""
    for method, paths in USED.items():
        for path in paths.split():
            for asked in {path, root + path}:
                assert call(gate, method, asked, root=root).text == "inside", (method, asked)
            other = "POST" if method == "GET" else "GET"
            assert call(gate, other, path, root=root).status_code in (404, 405), path
    mailed = call(gate, "GET", f"{root}/%23prompt=a%20%2B%23b&k=2", root=root)
    assert mailed.headers["location"] == "./#prompt=a%20%2B%23b&k=2", "Safe Links has the # of a link encoded"
    num = len(inside.bodies)
    for method, paths in UNUSED.items():
        for path in paths.split():
            assert call(gate, method, path, root=root).status_code == 404, (method, path)
    assert len(inside.bodies) == num


@pytest.mark.parametrize(("path", "most"), [(STREAM, MAX_BODY_BYTES), (DIRECT, MAX_CALL_BYTES), (STOP, SMALL_BYTES)])
def test_a_body_is_no_larger_than_the_pages_own(gate, inside, path, most) -> None:
    """45 MB took 24 s to parse, and nobody else was answered meanwhile. A client need not announce the length."""
    for content in (b" " * (most + 1), in_parts(most + 1, 100_000)):
        answer = call(gate, "POST", path, content)
        assert answer.status_code == 413 and str(most) in answer.json()["detail"] == answer.json()["error"]
    assert inside.bodies == []
    for content in (b" " * 10 + b'"a"', in_parts(MAX_OUTSIDE_BYTES if most > SMALL_BYTES else most)):
        assert call(gate, "POST", path, content).text == "inside"


@pytest.mark.parametrize("text", ['"', "\\", '\\"', '\\\\"[', "[]", "é\\", "😀", '{"a": ["\\""]}'])
@pytest.mark.parametrize("escaped", [0, 1, 3])
def test_what_is_inside_strings_is_not_counted(gate, text, escaped) -> None:
    """A recording is a string of quotes and brackets: miscounted, it is refused, or hides a slow structure."""
    for _ in range(escaped):
        text = json.dumps(text)
    sent = text * 20_000
    body = json.dumps({"order": {"saved": sent}}).encode("utf-8", "surrogatepass")
    assert call(gate, "POST", STREAM, body).status_code == 200
    body = json.dumps({"order": {"saved": sent}, "data": [[]] * MAX_OUTSIDE_BYTES}).encode()
    assert call(gate, "POST", STREAM, body).status_code == 413


def test_a_body_that_is_slow_to_parse_is_refused(gate, inside) -> None:
    """8 MB of brackets take Python 3 s, in which no other thread runs. In UTF-16, U+2200 contains a quote's byte."""
    lists = {"data": [[]] * MAX_OUTSIDE_BYTES}
    assert call(gate, "POST", STREAM, json.dumps([""] * MAX_QUOTES).encode()).status_code == 413
    for encoding in ("utf-16", "utf-16-be", "utf-32"):
        body = json.dumps({"∀": "", **lists}, ensure_ascii=False).encode(encoding)
        assert call(gate, "POST", STREAM, body).status_code == 400, encoding
    assert inside.bodies == []


@in_loop
async def test_one_address_leaves_room_for_others(gate, inside) -> None:
    """One caller could keep a thousand streams open, or send bodies that never end."""
    inside.hold = asyncio.Event()
    streams = [asyncio.create_task(ask(gate, "POST", STREAM)) for _ in range(MAX_OPEN)]
    await asyncio.sleep(0.1)
    assert (await ask(gate, "GET", "/config")).status_code == 429
    files = [asyncio.create_task(ask(gate, "GET", "/assets/a.js")) for _ in range(MAX_OPEN)]
    other = asyncio.create_task(ask(gate, "GET", "/config", address="192.0.2.2"))
    inside.hold.set()
    assert {reply.status_code for reply in await asyncio.gather(other, *files, *streams)} == {200}
    assert (await ask(gate, "GET", "/config")).status_code == 200

    ends = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b" " * (MAX_BODY_BYTES - 1_000)
        await ends.wait()

    sending = [
        asyncio.create_task(ask(gate, "POST", STREAM, slow())) for _ in range(MAX_INCOMING_BYTES // MAX_BODY_BYTES)
    ]
    await asyncio.sleep(0.5)
    assert (await ask(gate, "POST", STREAM, in_parts(50_000))).status_code == 429
    assert (await ask(gate, "POST", STREAM, b"{}", address="192.0.2.2")).status_code == 200
    ends.set()
    await asyncio.gather(*sending)
    assert (await ask(gate, "POST", STREAM, b"{}")).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(gate, monkeypatch) -> None:
    """A caller who sends a byte an hour would keep memory and a connection for ever."""
    monkeypatch.setattr(gate_module, "BODY_S", 0.05)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    assert call(gate, "POST", STREAM, never()).status_code == 408


def test_only_a_refusal_becomes_the_callers_fault(inside) -> None:
    """Gradio answers 500 when a function refuses its values. A fault of the page must remain a 500."""
    inside.status, gate = 500, Gate(inside)
    assert call(gate, "POST", DIRECT, b"{}").status_code == 500
    inside.scope_of = {REFUSED: True}
    assert call(gate, "POST", DIRECT, b"{}").status_code == 400


FILES = {"/assets/a-1f.js": b"let a = 1;" * 400, "/static/b.woff2": bytes(range(256)), "/static/none.css": b""}


@pytest.mark.parametrize("codings", ["identity", "gzip, br"])
@pytest.mark.parametrize("path", [*FILES, "/assets/unknown.js"])
def test_a_file_is_read_once_and_stays_what_it_is(path: str, codings: str) -> None:
    """A browser that takes no gzip would get it; a missing file be kept for ever, or any number of them; a font be
    larger than it is. Without a word on hashed names every visit would ask for all files again."""
    asked: list[str] = []

    async def files(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["method"])
        await Response(FILES.get(path, b"?"), 200 if path in FILES else 404, {"etag": path})(scope, receive, send)

    async def ask(method: str = "GET", **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(kept), base_url="http://page") as client:
            return await client.request(method, path, headers={"accept-encoding": codings, **headers})

    kept, is_hashed = KeptFiles(files), path == "/assets/a-1f.js"
    for _ in range(3):
        answer = asyncio.run(ask())
        assert answer.content == FILES.get(path, b"?") and answer.headers["etag"] == path
        assert int(answer.headers["content-length"]) <= len(answer.content)
        assert ("content-encoding" in answer.headers) == ("gzip" in codings and is_hashed)
        assert ("immutable" in answer.headers.get("cache-control", "")) == is_hashed
    assert len(asked) == (1 if path in FILES else 3)
    for method, headers in (("HEAD", {}), ("GET", {"range": "bytes=0-1"}), ("GET", {"if-none-match": path})):
        asyncio.run(ask(method, **headers))
    assert len(asked) == (4 if path in FILES else 6)
