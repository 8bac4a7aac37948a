"""Recordings as files: a browser sends one to be checked, and downloads one as JSON, as a table or as a web page. Also
the number of tokens of a prompt, what the page's owner names, and what its operator watches."""

import io
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import segno
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.core.errors import PhotofinishError, sentence
from engine.recordings.recording import Recording
from engine.recordings.steps_csv import steps_csv

from ..catalogue.limits import MAX_CALL_BYTES, MAX_PROMPT_CHARS, check_file
from ..catalogue.request import look_at
from ..jobs.loader import ModelStatus
from ..jobs.queue import RaceQueue
from . import stream
from .doors import read_asked
from .exported import exported
from .gate import HEALTH, address_of
from .handlers import Handlers
from .programs import Calls

log = logging.getLogger(__name__)
FAULT = "This failed because of a bug in Photofinish; its log has the kind of error."
MAX_ADDRESS = 300
FORMS: dict[str, tuple[str, Callable[[Recording], str]]] = {
    "json": ("application/json", lambda recording: recording.text),
    "csv": ("text/csv", steps_csv),
    "html": ("text/html", exported),
}  # file name extension -> media type, and what makes the file


def routes(handlers: Handlers, names: Sequence[str], number: int) -> list[Route]:
    """What stream.py and programs.py answer; POST /recordings, which takes a file and answers with its key, and
    GET /recordings/KEY.FORM, which gives one; POST /prompts?name=ENDING&whole, see `look_at`; POST /tokens, which
    counts the tokens of {"text", "target"}; GET /code.svg?of=ADDRESS, a QR code; POST /yours/model and /yours/servers,
    see `Doors`; GET /healthz: whether races can be run, for everybody.

    names: of the page's controls.
    number: of the function for programs."""
    jobs = handlers.jobs

    async def take(request: Request) -> Response:
        return JSONResponse({"key": await jobs.run(address_of(request), handlers.take, await request.body())})

    async def look(request: Request) -> Response:
        name, whole = request.query_params.get("name", ""), "whole" in request.query_params
        return JSONResponse(await jobs.run(address_of(request), look_at, await request.body(), name, whole))

    async def give(request: Request) -> Response:
        kind, make = FORMS.get(request.path_params["form"], ("", None))
        if make is None:
            return JSONResponse({"detail": f"choose one of: {', '.join(FORMS)}"}, 404)
        text = await jobs.run(address_of(request), lambda: make(handlers.shelf.get(request.path_params["key"])))
        # never shown at this page's address: a recording may come from a stranger
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Response(text, media_type=kind, headers=headers)

    async def count(request: Request) -> Response:
        asked = stream.object_of(await request.body(), MAX_CALL_BYTES)
        text = check_file(asked.get("text"), "it", MAX_PROMPT_CHARS)
        return JSONResponse(await handlers.count(address_of(request), str(asked.get("target")), text))

    async def code(request: Request) -> Response:
        address = request.query_params.get("of", "")
        if not address.startswith(("http://", "https://")) or len(address) > MAX_ADDRESS:
            return JSONResponse({"detail": f"`of` must be an address of at most {MAX_ADDRESS} characters"}, 400)
        segno.make_qr(address).save(drawing := io.BytesIO(), kind="svg", scale=8, light="white", xmldecl=False)
        return Response(drawing.getvalue(), media_type="image/svg+xml")

    async def healthy(request: Request) -> Response:
        default = handlers.catalogue.default
        state = health(handlers.stage.queue, default.target, handlers.backend.of(default).loader.status)
        return JSONResponse(state, 200 if state["ready"] else 503)

    runs = handlers.runs()
    served = [
        *stream.routes(runs, handlers.stops()),
        *Calls(runs["race"], handlers.stage.stop, names, number).routes(),
        Route(HEALTH, healthy),
        Route("/tokens", stream.refusing(count), methods=["POST"]),
        Route("/code.svg", code),
        Route("/prompts", stream.refusing(look), methods=["POST"]),
        Route("/recordings", stream.refusing(take), methods=["POST"]),
        Route("/recordings/{key}.{form}", stream.refusing(give, 404)),
    ]
    if handlers.doors is not None:
        served += [
            Route("/yours/model", _answered(handlers.doors.model), methods=["POST"]),
            Route("/yours/servers", _answered(handlers.doors.servers), methods=["POST"]),
        ]
    return served


def health(queue: RaceQueue, default: str, status: ModelStatus | None) -> dict[str, Any]:
    """As JSON:

    - `ready`: races can be run, because the default model is loaded, or would be for a race.
    - `model`, `state`: the model that is loaded, or was last; starting, loading, ready or failed.
    - `reason`: why it is not ready, a sentence; else "".
    - `queue_length`, `device_busy`: races that wait, and whether one has the device.

    default: the default pair's target.
    status: of its loader; None as long as nothing is loaded yet."""
    reason = queue.why_closed
    if status is None:
        reason = reason or "finding out what this machine can run"
    elif status.hangs or (status.target == default and status.state != "ready"):
        reason = reason or status.text.partition(". ")[0]
    return {
        "ready": not reason,
        "model": default if status is None else status.target,
        "state": "starting" if status is None else status.state,
        "reason": sentence(reason),
        "queue_length": queue.num_waiting,
        "device_busy": not queue.is_empty,
    }


def _answered(named: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]) -> stream.Handler:
    async def answer(request: Request) -> Response:
        try:
            return JSONResponse(await named(read_asked(await request.body())))
        except PhotofinishError as error:
            return JSONResponse({"detail": sentence(str(error))}, 400)
        except Exception as error:  # its words, and what it came from, may hold a key
            log.error("naming a model or servers failed: %s", type(error).__name__)
            return JSONResponse({"detail": FAULT}, 500)

    return answer
