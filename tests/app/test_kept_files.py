"""Gradio's files from memory: what the browser gets is what Gradio has."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from app.page.kept_files import KeptFiles

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
