"""How the page ends: signals end all races first, so that every browser reads why its race is over."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from .handlers import Handlers

POLL_S = 0.05
# At most for races to end, and for Gradio to send what it has. Docker and systemd wait 10 s or more before they kill a
# process.
CLOSE_S, SENT_S = 3.5, 0.5


def end_now(*_: object) -> NoReturn:
    """The interpreter is not shut down in order: it would wait for threads, and a step that hangs cannot be ended."""
    os._exit(0)


def on_signal(act: Callable[[int, object], object]) -> None:
    """From now on SIGTERM, SIGINT, and SIGHUP (the terminal closes) unless nohup ignores it, call this. The first
    process of a container never gets a signal that it left to the system. Call it in the main thread."""
    hangs_up = sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    for number in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])):
        signal.signal(number, act)


def serve_until_signal(ends: Handlers) -> NoReturn:
    """Block until a signal, end all races, and exit with status 0; a second signal ends the process at once. Call it in
    the main thread, once the page is up."""
    signals: list[int] = []
    on_signal(lambda number, _: signals.append(number))
    while not signals:
        time.sleep(POLL_S)
    on_signal(end_now)
    was_watched, last = ends.is_watched, time.monotonic() + CLOSE_S
    ends.close()
    while ends.is_watched and time.monotonic() < last:
        time.sleep(POLL_S)
    if was_watched:
        time.sleep(SENT_S)
    end_now()
