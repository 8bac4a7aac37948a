"""Recordings as files: a browser sends one to be checked, and downloads one as JSON, as a table or as a web page.
And the number of tokens of a prompt."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.errors import UsageError
from engine.recordings.recording import Recording
from engine.recordings.steps_csv import steps_csv

from ..catalogue.limits import MAX_PROMPT_CHARS, check_file
from ..web.player.player import player
from .gate import address_of
from .handlers import Handlers

FORMS: dict[str, tuple[str, Callable[[Recording], str]]] = {
    "json": ("application/json", lambda recording: recording.text),
    "csv": ("text/csv", steps_csv),
    "html": ("text/html", lambda recording: player(recording.text.encode())),
}
"""File name extension -> media type, and what makes the file."""


def routes(handlers: Handlers) -> list[Route]:
    """POST /recordings takes a file and answers with its key; GET /recordings/KEY.FORM gives one. POST /tokens counts
    the tokens of a text, given as JSON."""

    async def take(request: Request) -> Response:
        try:
            return JSONResponse({"key": await handlers.take(address_of(request), await request.body())})
        except UsageError as error:
            return JSONResponse({"detail": str(error)}, 400)

    async def give(request: Request) -> Response:
        kind, make = FORMS.get(request.path_params["form"], ("", None))
        if make is None:
            return JSONResponse({"detail": f"choose one of: {', '.join(FORMS)}"}, 404)
        try:
            text = await handlers.give(address_of(request), request.path_params["key"], make)
        except UsageError as error:
            return JSONResponse({"detail": str(error)}, 404)
        # never shown at this page's address: a recording may come from a stranger
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Response(text, media_type=kind, headers=headers)

    async def count(request: Request) -> Response:
        try:
            text = check_file(json.loads(await request.body()), "it", MAX_PROMPT_CHARS)
            return JSONResponse({"count": await handlers.count(address_of(request), text)})
        except (UsageError, ValueError, RecursionError) as error:
            return JSONResponse({"detail": str(error)}, 400)

    return [
        Route("/tokens", count, methods=["POST"]),
        Route("/recordings", take, methods=["POST"]),
        Route("/recordings/{key}.{form}", give),
    ]
