"""Workarounds for Gradio 6.31, here and in gradio_errors.py: nothing else in app/ depends on Gradio's internals."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
import time
import uuid
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gradio as gr
import gradio.processing_utils
import gradio.routes
from gradio.data_classes import GradioModel, GradioRootModel
from gradio.queueing import Queue
from gradio.state_holder import SessionState, StateHolder
from gradio.utils import LRUCache
from starlette.exceptions import HTTPException

from ..catalogue.limits import MAX_CALL_BYTES
from ..jobs.process_memory import give_back
from .connections import Connections
from .gate import BODY_BYTES, REFUSED, address_of
from .gradio_errors import Errors

# Calls that may run at once. Gradio's default of 40 is less than queue.MAX_RACES, each of which is a running call.
MAX_RUNNING = 400
SESSION_CALLS, ADDRESS_CALLS = 12, 40  # calls per session and per address that run, wait, or have unread answers
MAX_SESSIONS, ADDRESS_SESSIONS = 2_000, 100
# Bytes of unread answers. The last frame of the longest race has about 8 million.
SESSION_UNREAD, ADDRESS_UNREAD = 24_000_000, 48_000_000
# A session without a reader for UNREAD_S loses its calls and answers. Gradio's streams read at least every 10 s.
UNREAD_S, READER_S = 120.0, 15.0
SWEEP_S, CHECK_S = 5.0, 60.0  # seconds between two checks of the sessions, and of the connections
RESTART_S = 1.0
# Names of sessions. Gradio's own clients send 11 to 36 letters, digits and dashes.
SESSION = re.compile(r"[!-~]{1,100}")
BAD_SESSION = "session_hash must be 1 to 100 ASCII characters without spaces"

log = logging.getLogger(__name__)


class Mailbox(asyncio.Queue[Any]):
    """A session's unread messages. address: where its first call came from."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.num_bytes, self.made_at = address, 0, time.monotonic()
        self._read_at = -READER_S

    @property
    def has_reader(self) -> bool:
        return time.monotonic() - self._read_at < READER_S

    @property
    def is_abandoned(self) -> bool:
        return time.monotonic() - max(self._read_at, self.made_at) > UNREAD_S

    async def get(self) -> Any:
        self._read_at = time.monotonic()
        return await super().get()

    def _put(self, message: Any) -> None:
        num_bytes = _size(getattr(message, "output", None))
        self.num_bytes += num_bytes
        super()._put((num_bytes, message))

    def _get(self) -> Any:
        num_bytes, message = super()._get()
        self.num_bytes -= num_bytes
        return message


class _Mailboxes(LRUCache):
    def __delitem__(self, session: str) -> None:
        """Gradio deletes a mailbox when its reader disconnects; it may be gone by then."""
        self.pop(session, None)


class GuardedQueue(Queue):
    """Gradio's queue, with limits per caller, and without three faults:

    - It serves all calls from one task, which any exception ends for good: every later call gets 503 "Queue is
      stopped". Two waiting calls with an empty session name were enough.
    - It keeps answers that nobody reads.
    - It works on calls whose caller has left, until their next answer."""

    def __init__(self, page: gr.Blocks, is_idle: Callable[[], bool]) -> None:
        super().__init__(
            live_updates=True, concurrency_count=MAX_RUNNING, update_intervals=1, max_size=None, blocks=page
        )
        self.pending_messages_per_session = _Mailboxes(MAX_SESSIONS)
        self.ANALYTICS_MAX_EVENTS = 0  # else Gradio builds a table of the last 10,000 calls after every call
        self._closing, self._is_idle = False, is_idle
        self._running: dict[str, tuple[Any, asyncio.Task[None]]] = {}
        self._own_tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        super().start()
        self._begin(self._sweep())

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Add a call. Gradio answers 400 with the returned sentence if it is malformed or exceeds a limit."""
        if body.session_hash is None:
            body.session_hash = uuid.uuid4().hex
        session, address = body.session_hash, address_of(request)
        if fault := self._not_for_the_queue(body, request) or self._too_many(session, address):
            return False, fault, "error"
        if session not in self.pending_messages_per_session:
            self.pending_messages_per_session[session] = Mailbox(address)
        for parsed in ("_body", "_json"):  # Gradio keeps the request, for its headers, while the call runs
            vars(request).pop(parsed, None)
        return await super().push(body, request, username)

    def _not_for_the_queue(self, body: Any, request: Any) -> str:
        """What is wrong with a call, or "". With an empty session name Gradio would create one mailbox and write to
        another, which raises."""
        fn = self.blocks.fns.get(body.fn_index)
        if not SESSION.fullmatch(body.session_hash):
            return BAD_SESSION
        if fn is None or fn.fn is None:
            return f"fn_index must be the number of a function, from 0 to {max(self.blocks.fns)}"
        if not fn.queue and fn.api_visibility == "private":
            return f"function {body.fn_index} does not go through the queue"
        if len(body.data) != len(fn.inputs):
            return f"function {body.fn_index} takes {len(fn.inputs)} values, not {len(body.data)}"
        if not fn.collects_event_data and request.scope.get(BODY_BYTES, 0) > MAX_CALL_BYTES:
            return f"the values of function {body.fn_index} may have at most {MAX_CALL_BYTES} bytes"
        return ""

    def _too_many(self, session: str, address: str) -> str:
        """Which limit one more call would exceed, or ""."""
        calls, boxes = self.pending_event_ids_session, self.pending_messages_per_session
        if len(calls.get(session, ())) >= SESSION_CALLS:
            return f"this tab already has {SESSION_CALLS} unfinished calls, the limit"
        theirs = {name: box for name, box in boxes.items() if box.address == address}
        if sum(len(calls.get(name, ())) for name in theirs) >= ADDRESS_CALLS:
            return f"your address already has {ADDRESS_CALLS} unfinished calls, the limit; try again later"
        if sum(box.num_bytes for box in theirs.values()) >= ADDRESS_UNREAD:
            return "too many unread answers for your address; try again later"
        if session not in boxes and (len(theirs) >= ADDRESS_SESSIONS or len(boxes) >= MAX_SESSIONS):
            among = theirs if len(theirs) >= ADDRESS_SESSIONS else boxes
            idle = next((name for name, box in among.items() if box.empty() and not calls.get(name)), None)
            if idle is None:
                return f"there are already {len(among)} sessions, the limit; try again later"
            del boxes[idle]
        return ""

    def send_message(self, event: Any, event_message: Any) -> None:
        """Put a message into the mailbox of the event's session. Ends the event if there is no mailbox any more, and
        all of the session's events if too much in it is unread."""
        box = self.pending_messages_per_session.get(event.session_hash)
        if box is None:
            event.alive = False
            return
        has_share = box.has_reader or box.num_bytes * ADDRESS_SESSIONS <= ADDRESS_UNREAD
        if box.num_bytes > SESSION_UNREAD or (not has_share and self._unread(box.address) > ADDRESS_UNREAD):
            self._begin(self._forget(event.session_hash))
        super().send_message(event, event_message)

    def _unread(self, address: str) -> int:
        return sum(box.num_bytes for box in self.pending_messages_per_session.values() if box.address == address)

    async def process_events(self, events: Any, *more: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running[events[0]._id] = events[0], task
        try:
            await super().process_events(events, *more)
        finally:
            del self._running[events[0]._id]
            for event in events:  # the last one stays in a variable of `start_processing` until the next comes
                event.data = None
                self.event_ids_to_events.pop(event._id, None)  # where it was cancelled while Gradio tidied up

    async def clean_events(self, *, session_hash: str | None = None, event_id: str | None = None) -> None:
        """Called when a caller disconnects. Gradio marks running calls as dead and stops after their next answer; here
        they are cancelled, which also drops jobs that still wait for their turn."""
        await super().clean_events(session_hash=session_hash, event_id=event_id)
        for event, task in list(self._running.values()):
            if not event.alive:
                self.pending_event_ids_session.get(event.session_hash, set()).discard(event._id)
                task.cancel()

    async def _sweep(self) -> None:
        """Forget abandoned sessions, close stuck connections. Return memory to the system, but not while a race is
        being timed."""
        boxes, calls = self.pending_messages_per_session, self.pending_event_ids_session
        connections, check_at = Connections(), time.monotonic() + CHECK_S
        while not self._closing:
            await asyncio.sleep(SWEEP_S)
            if time.monotonic() > check_at and (server := getattr(self.blocks, "server", None)):
                connections.check(server)
                check_at = time.monotonic() + CHECK_S
            for session in [name for name, box in boxes.items() if box.is_abandoned]:
                await self._forget(session)
            for session in calls.keys() - boxes.keys():
                del calls[session]
            if self._is_idle():
                await asyncio.to_thread(give_back)

    async def _forget(self, session: str) -> None:
        del self.pending_messages_per_session[session]
        await self.clean_events(session_hash=session)

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._own_tasks.add(task)
        task.add_done_callback(self._own_tasks.discard)

    async def start_processing(self) -> None:
        """The task that serves all calls. After an exception it logs the traceback, waits RESTART_S and goes on.
        Running calls are not affected."""
        while True:
            try:
                return await super().start_processing()
            except Exception:
                log.exception("Gradio's queue failed; it goes on")
                self.stopped = False
                await asyncio.sleep(RESTART_S)

    def close(self) -> None:
        self._closing = True
        super().close()

    def _cancel_asyncio_tasks(self) -> None:
        """Called when `start_processing` ends for any reason. Running calls end with the page, not after a fault."""
        if self._closing:
            super()._cancel_asyncio_tasks()


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
    errors = Errors()
    for module in (gradio.queueing, gradio.routes):
        module.traceback = SimpleNamespace(print_exc=errors.print_exc)
    utils = vars(gradio.routes.client_utils)
    arguments = partial(_arguments, utils["construct_args"])
    gradio.routes.client_utils = SimpleNamespace(**{**utils, "construct_args": arguments})
    gradio.routes.StateHolder = Sessions
    gradio.processing_utils.check_all_files_in_cache = lambda data: None
    gradio.processing_utils.async_move_files_to_cache = _without_files
    gradio.route_utils.SessionState = Session  # for direct calls without a session


async def _without_files(data: Any, *arguments: Any, **more: Any) -> Any:
    """Gradio's `async_move_files_to_cache`, without its purpose: for every "path" in a caller's values it looks on the
    disk, or downloads a URL of any size. This page takes no files through Gradio."""
    return data.model_dump() if isinstance(data, (GradioModel, GradioRootModel)) else data


def _arguments(original: Callable[..., Any], *given: Any) -> Any:
    """Gradio's `construct_args`: the values of a call by name. Raises HTTPException 400 for unknown names."""
    try:
        return original(*given)
    except (TypeError, ValueError) as error:
        raise HTTPException(400, str(error)[:500]) from error


def mend(page: gr.Blocks, is_idle: Callable[[], bool]) -> None:
    """Patch a page before it is launched: its queue, its direct calls, its API page. is_idle: whether no race runs or
    waits."""
    page._queue = GuardedQueue(page, is_idle)
    page.api_open = False  # functions of the queue cannot be called directly
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
    """The data of the API page, without the prompt's default: Gradio would put its line breaks unescaped into Python
    string literals."""
    info = original(*arguments, **more)
    for parameter in info["named_endpoints"]["/race"]["parameters"] if info else ():
        if parameter["parameter_name"] == "prompt":
            parameter.update(parameter_has_default=False, parameter_default=None, example_input="def fib(n):")
    return info


def named(page: gr.Blocks) -> list[str]:
    """Names of the functions that the page's API lists."""
    return [fn.api_name for fn in page.fns.values() if fn.api_visibility == "public"]


def _size(output: Any) -> int:
    """Roughly how many bytes a JSON value takes."""
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return 50 + sum(map(_size, output))
    return 50 + (len(output) if isinstance(output, str) else 0)
