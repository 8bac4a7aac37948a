"""Workarounds for Gradio 6.31, and what its callers and the log get instead of tracebacks: nothing else in app/ depends
on Gradio's internals."""

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import gradio.processing_utils
import gradio.routes
from fastapi.exceptions import RequestValidationError
from gradio.data_classes import GradioModel, GradioRootModel
from gradio.route_utils import FnIndexInferError
from gradio.state_holder import SessionState, StateHolder
from jinja2 import ChoiceLoader, DictLoader, FileSystemLoader
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.core.errors import PhotofinishError

from .gate import REFUSED
from .theme import FIRST

MAX_SESSIONS = 2_000
INDEX = "frontend/index.html"
# The page's address as its browser knows it: the server can only gather it from what a proxy says.
ROOT = 'window.gradio_config.root = new URL(".", location).href.slice(0, -1)'
# Names of sessions. Gradio's own clients send 11 to 36 letters, digits and dashes.
SESSION = re.compile(r"[!-~]{1,100}")
BAD_SESSION = "session_hash must be 1 to 100 ASCII characters without spaces"


@contextmanager
def as_gradio_errors() -> Iterator[None]:
    """Turn this project's errors into gr.Error. Gradio shows its text as HTML, so markup is escaped."""
    try:
        yield
    except PhotofinishError as error:
        text = str(error).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        raise gr.Error(text, title="Cannot do that", print_exception=False) from error


def answers(page: gr.Blocks) -> dict[type[Exception], Any]:
    """Exception handlers for the page's server, where Gradio would answer 500 and log a traceback, or, for an invalid
    body, repeat all of it."""

    async def answer(request: Request, error: Exception) -> Response:
        number = next(iter(error.args), None)
        if isinstance(error, KeyError) and (type(number) is not int or number in page.fns):
            raise error  # some other KeyError, which belongs in the log
        is_invalid = isinstance(error, RequestValidationError)
        text = "the request does not fit this address" if is_invalid else "there is no such function"
        return JSONResponse({"detail": text, "error": text}, 422 if is_invalid else 404)

    return dict.fromkeys((FnIndexInferError, KeyError, RequestValidationError), answer)


class Session(SessionState):
    """Gradio's session state without a copy of all components' configuration and last values. The copy costs 30 ms and
    150 KB for every new session name, and only deep links need it, which this page does not have."""

    def __init__(self, page: gr.Blocks) -> None:
        self.blocks_config = copy.copy(page.default_config)
        self.state_data: dict[int, Any] = {}
        self.is_closed = False

    def __setitem__(self, key: int, value: Any) -> None:
        self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None: ...

    def _update_value_in_config(self, key: int, value: Any) -> None: ...


class Sessions(StateHolder):
    """Session states by name."""

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id and not SESSION.fullmatch(session_id):
            raise HTTPException(400, BAD_SESSION)
        if session_id not in self.session_data:
            self.session_data[session_id] = Session(self.blocks)
        return super().__getitem__(session_id)


def mend_gradio() -> None:
    """Patch Gradio's modules, for all pages launched from now on."""
    gradio.routes.StateHolder = Sessions
    gradio.processing_utils.check_all_files_in_cache = lambda data: None
    gradio.processing_utils.async_move_files_to_cache = _without_files
    gradio.route_utils.SessionState = Session  # for direct calls without a session
    folder = gradio.routes.STATIC_TEMPLATE_LIB
    # its document has Gradio's name and picture for links, and a file at "/"
    not_ours = r'<meta\s[^>]*"(og|twitter):[^>]*>|<link rel="manifest"[^>]*>'
    index = re.sub(not_ours, "", Path(folder, INDEX).read_text(encoding="utf-8")).replace("</head>", f"{FIRST}</head>")
    index = index.replace("{{ config.get('root', '') | toorjson }}", ROOT)
    gradio.routes.templates.env.loader = ChoiceLoader([DictLoader({INDEX: index}), FileSystemLoader(folder)])


async def _without_files(data: Any, *arguments: Any, **more: Any) -> Any:
    """Gradio's `async_move_files_to_cache`, without its purpose: for every "path" in a caller's values it looks on the
    disk, or downloads a URL of any size. This page takes no files through Gradio."""
    return data.model_dump() if isinstance(data, (GradioModel, GradioRootModel)) else data


def mend(page: gr.Blocks) -> None:
    """Patch a page before it is launched: its direct calls and its API page."""
    page.process_api = partial(_process_api, page.process_api)
    page.get_api_info = partial(_api_info, page.get_api_info)


async def _process_api(original: Callable[..., Any], **call: Any) -> Any:
    """Gradio's `process_api`, which runs a function. Refuses a wrong number of values. Marks the request's scope if the
    function raises gr.Error, for app/page/gate.py to answer with 400."""
    fn, inputs, request = call["block_fn"], call["inputs"], call["request"]
    try:
        if fn.fn is None:
            raise gr.Error("this function runs in the browser", print_exception=False)
        if call["iterator"] is None and len(inputs) != len(fn.inputs):
            raise gr.Error(f"this function takes {len(fn.inputs)} values, not {len(inputs)}", print_exception=False)
        return await original(**call)
    except gr.Error:
        for wrapped in request if isinstance(request, list) else [request]:
            wrapped.request.scope[REFUSED] = True
        raise


def _api_info(original: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """The data of the API page, without the prompt's default: Gradio would not escape its line breaks."""
    info = original(*arguments, **more)
    for parameter in info["named_endpoints"]["/race"]["parameters"] if info else ():
        if parameter["parameter_name"] == "prompt":
            parameter.update(parameter_has_default=False, parameter_default=None, example_input="def fib(n):")
    return info
