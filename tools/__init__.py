"""Programs for developers: recordings that ship, and sessions on a GPU and with real servers."""

import os
import subprocess
from contextlib import suppress


def end(process: subprocess.Popen[bytes], *signals: int) -> None:
    """Send these signals, one after the other, to the process and all that it started, and wait 10 s for it after each.
    It must lead a session of its own."""
    for number in signals:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(10)
