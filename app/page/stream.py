"""The page's one stream. A tab asks for a race, a study, a check-up or a load; the answer is its frames as server-sent
events, until it is over. A tab has one connection at most, and none while nothing of it runs."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.core.errors import UsageError, choices
from engine.strict_json import parse

from ..catalogue.limits import MAX_BODY_BYTES
from ..jobs.logs import words_of
from .gate import SMALL_BYTES, address_of

NO_OBJECT = "the request must be a JSON object"
Events = AsyncGenerator[tuple[str, str], None]  # names and JSON texts; a frame has the name ""
ALIVE_S = 5.0
ENDS = set[asyncio.Future[None]]()  # runs that are being ended; the event loop alone would forget them
# A tab's own name for itself: whoever knows it can stop what the tab runs.
TAB = re.compile(r"[\w-]{8,64}", re.ASCII)


@dataclass(frozen=True)
class Asked:
    """What a tab asks for.

    visitor: its name for itself.
    address: where it asks from.
    settings: the values of the page's controls, by name, whatever they are.
    order: what else the run needs."""

    visitor: str
    address: str
    settings: Mapping[str, Any]
    order: Mapping[str, Any]


Runs = Mapping[str, Callable[[Asked], Awaitable[Events]]]
Stops = Mapping[str, Callable[[str], object]]
Handler = Callable[[Request], Awaitable[Response]]


def routes(runs: Runs, stops: Stops) -> list[Route]:
    """POST /stream takes {"tab", "run", "settings", "order"} and answers with events: frames, "model" with the line
    about the model, and "refused" with a sentence for a run that cannot begin or go on. POST /stop takes {"tab", "run"}
    and ends what the tab runs.

    runs: by name, what checks an order and returns its events. Raises UsageError.
    stops: by name, what ends a visitor's."""

    async def stream(request: Request) -> Response:
        tab, run, body = read_asked(await request.body(), MAX_BODY_BYTES, runs)
        asked = Asked(tab, address_of(request), _object(body, "settings"), _object(body, "order"))
        return Answer(_written(_begun(runs[run], asked)))

    async def stop(request: Request) -> Response:
        tab, run, _ = read_asked(await request.body(), SMALL_BYTES, stops)
        stops[run](tab)
        return JSONResponse({})

    return [Route("/stream", refusing(stream), methods=["POST"]), Route("/stop", refusing(stop), methods=["POST"])]


def refusing(handler: Handler, status: int = 400) -> Handler:
    """A route's handler that answers a UsageError with its sentence and this status."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except UsageError as error:
            return JSONResponse({"detail": str(error)}, status)

    return answer


class Answer(StreamingResponse):
    """An event stream that asks proxies to pass it on at once: nginx keeps and compresses what it does not know. Closes
    its events, and so ends the run, when the tab has left: Starlette leaves that to the garbage collector."""

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        headers = {"x-accel-buffering": "no", "cache-control": "no-cache, no-transform"}
        super().__init__(events, media_type="text/event-stream", headers=headers)

    async def __call__(self, *arguments: Any) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().__call__(*arguments)


def object_of(body: bytes, most: int) -> Mapping[str, Any]:
    """What a program sends, at most so many bytes. Raises UsageError."""
    asked = parse(body, most)
    if not isinstance(asked, dict):
        raise UsageError(NO_OBJECT)
    return asked


def read_asked(body: bytes, most: int, names: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any]]:
    """The tab, the name of the run, and the whole request. Raises UsageError."""
    asked = object_of(body, most)
    tab, run = asked.get("tab"), asked.get("run")
    if not isinstance(tab, str) or not TAB.fullmatch(tab):
        raise UsageError("tab must be 8 to 64 letters, digits, dashes and underscores")
    if not isinstance(run, str) or run not in names:
        raise choices("run", run, names)
    return tab, run, asked


def _object(asked: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = asked.get(name)
    return value if isinstance(value, dict) else {}


async def _begun(start: Callable[[Asked], Awaitable[Events]], asked: Asked) -> Events:
    async with aclosing(await start(asked)) as events:
        async for event in events:
            yield event


async def _written(events: Events) -> AsyncGenerator[str, None]:
    """Events as text, and a comment where there is none for ALIVE_S: proxies end a stream that is silent for long."""
    waits: asyncio.Future[tuple[str, str] | None] | None = None
    try:
        while True:
            waits = asyncio.ensure_future(anext(events, None))
            while not (await asyncio.wait({waits}, timeout=ALIVE_S))[0]:
                yield ":\n\n"
            if (event := waits.result()) is None:
                break
            yield _event(*event)
    except Exception as error:
        yield _event("refused", json.dumps(words_of(error, "this")))
    finally:  # a tab that has left: nothing can be awaited here
        end = asyncio.ensure_future(_ended(waits, events))
        ENDS.add(end)
        end.add_done_callback(ENDS.discard)


async def _ended(waits: asyncio.Future[Any] | None, events: Events) -> None:
    if waits is not None:
        waits.cancel()
        await asyncio.wait({waits})
    await events.aclose()


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"
