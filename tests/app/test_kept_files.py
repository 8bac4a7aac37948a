"""Gradio's files from memory: what the browser gets is what Gradio has."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from app.page.kept_files import KeptFiles

FILES = {"/assets/a-1f.js": b"let a = 1;" * 400, "/static/b.woff2": bytes(range(256)), "/static/none.css": b""}


class Files:
    """An app that counts how often it is asked for each path."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked[path := scope["path"]] += 1
        await Response(FILES.get(path, b"?"), 200 if path in FILES else 404, {"etag": path})(scope, receive, send)


async def ask(app: Any, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as client:
        return await client.request(method, path, headers={"accept-encoding": "identity", **headers})


@pytest.mark.parametrize("codings", ["identity", "gzip, br"])
@pytest.mark.parametrize("path", [*FILES, "/assets/unknown.js"])
def test_a_file_is_read_once_and_stays_what_it_is(path: str, codings: str) -> None:
    """A browser that takes no gzip would get it; a missing file be kept for ever, or any number of them; a font be
    larger than it is. Without a word on hashed names every visit would ask for all files again."""
    files = Files()
    app = KeptFiles(files)
    answers = [asyncio.run(ask(app, path, **{"accept-encoding": codings})) for _ in range(3)]
    for answer in answers:
        assert answer.content == FILES.get(path, b"?") and answer.headers["etag"] == path
        assert int(answer.headers["content-length"]) <= len(answer.content)
        assert ("content-encoding" in answer.headers) == ("gzip" in codings and path == "/assets/a-1f.js")
        assert ("immutable" in answer.headers.get("cache-control", "")) == (path == "/assets/a-1f.js")
    assert files.asked[path] == (1 if path in FILES else 3)
    for method, header in (("HEAD", {}), ("GET", {"range": "bytes=0-1"}), ("GET", {"if-none-match": path})):
        asyncio.run(ask(app, path, method, **header))
    assert files.asked[path] == (4 if path in FILES else 6)
