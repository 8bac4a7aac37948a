"""Gradio's own files, kept in memory: to find, compress and send one takes some 3 ms, a visit asks for 70 of them, and
a race may be using the same cores."""

import gzip

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PERSONAL = {"range", "if-none-match"}  # headers that change the answer; what depends on the origin is added outside
HASHED = "/assets/"  # files whose names change with their content
FOREVER = "public, max-age=31536000, immutable"


class KeptFiles:
    """For files that are the same for all visitors. app: what has them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, bool], Response] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["method"] != "GET" or PERSONAL & set(headers):
            await self._app(scope, receive, send)
            return
        key = scope["path"], "gzip" in headers.get("accept-encoding", "")
        response = self._kept.get(key) or await self._read(scope, receive, *key)
        if response.status_code == 200:  # of paths where nothing is there is no end
            self._kept[key] = response
        await response(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, path: str, packed: bool) -> Response:
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, keep)
        body = b"".join(message.get("body", b"") for message in messages[1:])
        headers = dict(Headers(raw=messages[0]["headers"]))
        if HASHED in path and messages[0]["status"] == 200:
            headers["cache-control"] = FOREVER
        if packed and len(small := gzip.compress(body, 6)) < len(body):
            body = small
            headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding", "content-length": str(len(body))}
        return Response(body, messages[0]["status"], headers)
