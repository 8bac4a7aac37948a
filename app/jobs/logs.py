"""The page's log, on standard error: lines for people, or one JSON object per line for programs.

Neither says what a visitor wrote. The words of other packages, and of errors that nobody foresaw, may quote it: lines
for programs leave them out, and say where an error came from instead."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.core.errors import causes

# For what an operator wants to see at level INFO; other loggers show warnings and errors only.
RUNNING = logging.getLogger("app.running")
OURS = ("app", "engine")
NOT_OURS = "A message of another package, left out."
MAX_FRAMES = 8  # lines of code per error: the last ones


class Quoted(str):
    """An argument of a message that may quote a visitor."""


class JsonLines(logging.Formatter):
    """time, level, logger, message; for an error, its type and where it came from; for a race, what `log_race` says."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["errors"] = [_error(cause) for cause in causes(record.exc_info[1])]
        if race := getattr(record, "race", None):
            fields["race"] = race
        return json.dumps(fields, ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    if record.name.partition(".")[0] not in OURS:
        return NOT_OURS
    given = record.args if isinstance(record.args, tuple) else ()
    kept = tuple(_kept(argument) for argument in given)
    return str(record.msg) % kept if kept else str(record.msg)


def _kept(argument: object) -> object:
    if isinstance(argument, BaseException):
        return type(argument).__name__
    return "…" if isinstance(argument, Quoted) else argument


def _error(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    at = [f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno} {frame.name}" for frame in frames]
    return {"type": type(error).__name__, "at": at}


def set_up(as_json: bool) -> None:
    """Write the log of this process to standard error. Call it once, before anything is logged."""
    handler = logging.StreamHandler()
    root = logging.getLogger()
    if as_json:
        handler.setFormatter(JsonLines())
        logging.captureWarnings(True)
        sys.excepthook = _uncaught
        threading.excepthook = lambda given: _uncaught(given.exc_type, given.exc_value, given.exc_traceback)
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root.addHandler(handler)
    RUNNING.setLevel(logging.INFO)


def take_over(*names: str) -> None:
    """Let these loggers, which have handlers of their own, write to this process's log instead."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def _uncaught(kind: Any, error: Any, trace: Any) -> None:
    logging.getLogger("app").critical("an error that nothing caught", exc_info=(kind, error, trace))
