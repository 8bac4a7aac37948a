"""Small parts of a GPU session, for `python -m tools.gpu.part`: they end well, badly, or not at all."""

import os
import signal
import subprocess
import sys
import time
from typing import Any


def finds(part: Any) -> None:
    part.row("number 1", switches={name: value for name, value in os.environ.items() if name.startswith("PHOTOFINISH")})
    part.row("number 2")


def raises(part: Any) -> None:
    part.row("number 1")
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def is_killed(part: Any) -> None:
    part.row("number 1")
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(part: Any) -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    part.row("number 1", child=child.pid)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def is_wrong(part: Any) -> None:
    part.row("two tokens differ", False)
    part.attempt("a race", raises, part)


def is_slow(part: Any) -> None:
    for number in part.in_time(range(1000)):
        time.sleep(0.2)
        part.row(f"number {number}")
