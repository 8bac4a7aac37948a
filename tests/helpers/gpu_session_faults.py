"""Parts of a session that only tests know: each finds something, then ends as parts on a GPU may."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any


def finds(part: Any) -> None:
    part.row("rows", number=1)
    part.row("rows", number=2)


def raises(part: Any) -> None:
    part.row("rows", number=1)
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def killed(part: Any) -> None:
    part.row("rows", number=1)
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(part: Any) -> None:
    """With a child that hangs too, whose number is left behind."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    part.row("rows", number=1, child=child.pid)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def slow(part: Any) -> None:
    """More rows than there is time for."""
    for number in part.each(range(1000)):
        time.sleep(0.2)
        part.row("rows", number=number)


def reads(part: Any) -> None:
    part.put(earlier=sorted(part.earlier), of_the_first=part.earlier["first"]["rows"])
