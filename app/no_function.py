"""A call of a function that the page does not have is the caller's mistake: 404 in one line, where Gradio 6.31 answers
500 and writes a traceback."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response


def handlers(functions: Container[int]) -> dict[type[Exception], Any]:
    """Exception handlers for the page's server. functions: the numbers of the functions that it has."""

    async def by_name(request: Request, error: Exception) -> Response:
        return PlainTextResponse("this page has no function of that name", 404)

    async def by_number(request: Request, error: Exception) -> Response:
        (number,) = error.args or (None,)
        if type(number) is not int or number in functions:
            raise error  # another KeyError, which an engineer is to see
        return PlainTextResponse("this page has no function of that number", 404)

    return {FnIndexInferError: by_name, KeyError: by_number}
