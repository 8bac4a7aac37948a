"""The page's log, on standard error, with a line for each race that is over. The words of other packages, and of errors
that nobody foresaw, may quote a visitor."""

import hashlib
import io
import logging
import os
import sys
from typing import Any

from engine.core.errors import NO_MEMORY, PhotofinishError, is_out_of_memory
from engine.core.events import token_ids
from engine.core.spec import SERVER, SPECULATIVE

from ..catalogue.request import RaceRequest
from .frames import RaceView

BUG = "{} failed because of a bug in Photofinish; see its log"
log = logging.getLogger(__name__)
# For what an operator wants to see at level INFO; other loggers show warnings and errors only.
RUNNING = logging.getLogger("app.running")


class _Output(io.FileIO):
    """A terminal, pipe or journal, which may be gone before the page is: then nobody reads what is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(memoryview(data))


def set_up() -> None:
    """Write the log of this process to standard error, and let nothing fail that is printed. Call it once, before
    anything is logged."""
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass  # it was started with this one closed, and Python has no file for it
    for number, name in enumerate(("stdout", "stderr"), 1):
        output = io.BufferedWriter(_Output(number, "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(output, errors="backslashreplace", line_buffering=True))
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    RUNNING.setLevel(logging.INFO)


def log_race(request: RaceRequest, view: RaceView, waited_s: float, lasted_s: float | None) -> None:
    """Log a race that has ended: of what a visitor typed nothing.

    view: what is known about it; of an unwatched race without its last steps.
    waited_s: for the device.
    lasted_s: from when it had the device; None if it never had."""
    num_tokens = sum(len(token_ids(view.events, lane.name)) for lane in (view.spec.lanes if view.spec else ()))
    took = "never began" if lasted_s is None else f"took {lasted_s:.1f} s, {num_tokens} tokens"
    own = hashlib.sha256(view.race.encode()).hexdigest()[:8]  # whoever knows its own id can read it
    drafting = {lane.drafter.partition(":")[0] for lane in request.spec.lanes if lane.role == SPECULATIVE}
    drafters = sorted(drafting) if request.pair.lanes is None else [SERVER]  # of a hybrid only that it is one
    words = own, view.state, request.pair.id, ", ".join(drafters), waited_s, took
    RUNNING.info("race %s %s: %s, %s; waited %.1f s, %s", *words)


def words_of(error: BaseException, what: str) -> str:
    """What a visitor reads about an error that ended some work, without a stop at its end. Anything but this project's
    own errors is logged. what: failed."""
    if isinstance(error, PhotofinishError):
        return str(error)
    log.error("%s failed", what, exc_info=error)
    return NO_MEMORY if is_out_of_memory(error) else BUG.format(what)
