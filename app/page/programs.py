"""The page's function `race` for programs, as gradio_client and curl call it: a call, then a stream with its result, a
recording. Gradio's own queue would keep answers that nobody reads and race for callers who have left; here a race runs
inside the connection that waits for it, and ends with it.

The two protocols are Gradio's: /queue/join and /queue/data of its clients; /call/v2/race and /call/v2/race/ID, which
its page on the API shows."""

import json
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.core.errors import UsageError, choices

from ..catalogue.limits import MAX_CALL_BYTES
from ..jobs.logs import BUG, words_of
from .gate import address_of
from .stream import ALIVE_S, Answer, Asked, Events, object_of

API = "/gradio_api"
FETCH_S = 30.0  # within this time after its call a program must fetch the result
Race = Callable[[Asked], Awaitable[Events]]
MAX_CALLS, MAX_CALLS_THERE = 200, 12  # calls that wait to be fetched, of all addresses and of one


def for_programs(**values: Any) -> Any:
    """Race a prompt. Returns the finished recording, the same JSON as the page's Save."""
    raise gr.Error("this function is called by /call/v2/race or a client of Gradio", print_exception=False)


@dataclass(frozen=True)
class _Call:
    session: str
    until: float
    asked: Asked


class Calls:
    """Calls that wait to be fetched.

    race: checks an order and returns its events.
    stop: ends a visitor's races: nobody comes back to a program's.
    names: of the function's values, in order.
    number: of the function on the page."""

    def __init__(self, race: Race, stop: Callable[[str], object], names: Sequence[str], number: int) -> None:
        self._race, self._stop, self._names, self._number = race, stop, names, number
        self._calls: dict[str, _Call] = {}

    def routes(self) -> list[Route]:
        call = f"{API}/call/v2/race"
        return [
            *(Route(path, self._taken, methods=["POST"]) for path in (f"{API}/queue/join", call)),
            Route(f"{call}/{{id}}", self._result),
            Route(f"{API}/queue/data", self._data),
        ]

    async def _taken(self, request: Request) -> Response:
        is_client = request.url.path.endswith("/join")
        try:
            body = object_of(await request.body(), MAX_CALL_BYTES)
            session = body.get("session_hash") if is_client else secrets.token_hex(16)
            if not isinstance(session, str) or len(session) > 100:
                raise UsageError("session_hash must be a text of at most 100 characters")
            if is_client and body.get("fn_index") != self._number:
                raise UsageError(f"fn_index must be {self._number}, the function race")
            asked = Asked(secrets.token_hex(16), address_of(request), self._settings(body, is_client), {})
            return JSONResponse({"event_id": self._wait(session, asked)})
        except UsageError as error:
            return JSONResponse({"detail": str(error), "error": str(error)}, 400)

    def _settings(self, body: Mapping[str, Any], is_client: bool) -> Mapping[str, Any]:
        """The function's values by name, as calls have them; clients send a list."""
        if not is_client:
            if unknown := sorted(set(body) - set(self._names)):
                raise choices("value", unknown[0], self._names)
            return body
        data = body.get("data")
        if not isinstance(data, list) or len(data) != len(self._names):
            raise UsageError(f"data must be a list of {len(self._names)} values: {', '.join(self._names)}")
        return dict(zip(self._names, data, strict=True))

    def _wait(self, session: str, asked: Asked) -> str:
        now = time.monotonic()
        self._calls = {key: call for key, call in self._calls.items() if call.until > now}
        num_there = sum(call.asked.address == asked.address for call in self._calls.values())
        if num_there >= MAX_CALLS_THERE or len(self._calls) >= MAX_CALLS:
            raise UsageError("too many calls wait for somebody to fetch their results; try again later")
        key = secrets.token_hex(16)
        self._calls[key] = _Call(session, now + FETCH_S, asked)
        return key

    async def _data(self, request: Request) -> Response:
        return Answer(self._messages(request.query_params.get("session_hash", "")))

    async def _messages(self, session: str) -> AsyncGenerator[str, None]:
        """A client's results, one race after the other. It learns here, too, what was refused."""
        while key := next((key for key, call in self._calls.items() if call.session == session), None):
            async with aclosing(self._raced(self._calls.pop(key))) as results:
                async for result in results:
                    yield _message("heartbeat" if result is None else "process_completed", key, result)
        yield _message("close_stream", None, None)

    async def _result(self, request: Request) -> Response:
        call = self._calls.pop(request.path_params["id"], None)
        if call is None:
            return JSONResponse({"detail": "there is no such call, or it was fetched already"}, 404)
        return Answer(self._events(call))

    async def _events(self, call: _Call) -> AsyncGenerator[str, None]:
        async with aclosing(self._raced(call)) as results:
            async for result in results:
                name, data = ("heartbeat", None) if result is None else result
                yield f"event: {name}\ndata: {json.dumps([data] if name == 'complete' else data)}\n\n"

    async def _raced(self, call: _Call) -> AsyncGenerator[tuple[str, str] | None, None]:
        """None while the race goes on, then ("complete", the recording) or ("error", a sentence)."""
        sent_at, last = time.monotonic(), dict[str, Any]()
        try:
            async with aclosing(await self._race(call.asked)) as events:
                async for name, data in events:
                    last = last if name else json.loads(data)
                    if time.monotonic() - sent_at > ALIVE_S:
                        sent_at = time.monotonic()
                        yield None
                    if last.get("recording"):  # not the extras, which only the page shows
                        break
        except Exception as error:
            yield "error", words_of(error, "the race")
            return
        finally:
            self._stop(call.asked.visitor)
        if last.get("state") == "finished":
            yield "complete", last["recording"]
        else:
            yield "error", last.get("status", {}).get("text", BUG.format("the race"))


def _message(name: str, key: str | None, result: tuple[str, str] | None) -> str:
    message: dict[str, Any] = {"msg": name, "event_id": key}
    if result is not None:
        kind, data = result
        output = {"data": [data], "is_generating": False} if kind == "complete" else {"error": data}
        message |= {"success": kind == "complete", "output": output, "title": "Cannot do that"}
    return f"data: {json.dumps(message)}\n\n"
