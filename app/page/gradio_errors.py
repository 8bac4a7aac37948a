"""Errors of Gradio: what its callers and the log get instead of tracebacks."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.core.errors import PhotofinishError

log = logging.getLogger(__name__)
SAME_ERROR_S = 60.0  # after its first traceback, one kind of error is logged at most this often
MAX_KINDS = 100  # Kinds of errors to remember. A kind is a class and the line of code that raised it.


@contextmanager
def as_gradio_errors() -> Iterator[None]:
    """Turn this project's errors into gr.Error. Gradio shows its text as HTML, so markup is escaped."""
    try:
        yield
    except PhotofinishError as error:
        text = str(error).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        raise gr.Error(text, title="Cannot do that", print_exception=False) from error


class Errors:
    """Replaces `traceback` in Gradio's modules, so that a caller cannot fill the disk with errors: logs the whole
    traceback of each kind of error once, then at most one line every SAME_ERROR_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # by kind: when it was last logged, and how often it has occurred since
        self._printed: dict[tuple[str, str, int], list[float]] = {}

    def print_exc(self) -> None:
        """Log the exception being handled."""
        error = sys.exc_info()[1]
        if error is None:
            return
        frames = traceback.extract_tb(error.__traceback__)
        kind = (type(error).__name__, *((frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)))
        with self._lock:
            now, known = self._clock(), self._printed.get(kind)
            if known is not None and now - known[0] < SAME_ERROR_S:
                known[1] += 1
                return
            if known is None and len(self._printed) >= MAX_KINDS:
                del self._printed[next(iter(self._printed))]
            self._printed[kind] = [now, 0]
        if known is None:
            log.error("a call failed", exc_info=error)
        else:
            line = " ".join(f": {error}".split())[:300]
            log.error("again, %d times since it was logged last: %s%s", known[1] + 1, kind[0], line)


def answers(page: gr.Blocks) -> dict[type[Exception], Any]:
    """Exception handlers for the page's server, where Gradio would answer 500 and log a traceback, or, for an invalid
    body, repeat all of it."""

    async def by_name(request: Request, error: Exception) -> Response:
        return _sentence("there is no function with that name", 404)

    async def by_number(request: Request, error: Exception) -> Response:
        (number,) = error.args or (None,)
        if type(number) is not int or number in page.fns:
            raise error  # some other KeyError, which belongs in the log
        return _sentence("there is no function with that number", 404)

    async def invalid(request: Request, error: Exception) -> Response:
        return _sentence("the request does not fit this address", 422)

    return {FnIndexInferError: by_name, KeyError: by_number, RequestValidationError: invalid}


def _sentence(text: str, status: int) -> Response:
    return JSONResponse({"detail": text, "error": text}, status)
