"""Refuses uploads: no component of the page takes a file (a recording is opened in the browser), but Gradio has the
route all the same, and keeps what anybody sends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import PlainTextResponse

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class NoUploads:
    """ASGI middleware: 404 for `upload` and `upload_progress`, before any of the body is read."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        wanted = scope.get("path", "").rstrip("/").rpartition("/")[2]
        if scope["type"] == "http" and wanted in ("upload", "upload_progress"):
            await PlainTextResponse("this page takes no files", 404)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
