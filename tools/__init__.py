"""Programs for developers: measurements, visits, and a session on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


def about() -> dict[str, Any]:
    """The circumstances of a measurement on this machine's processor, for the head of its file."""
    import torch

    from engine.hardware import environment
    from engine.kernels.choose import choose

    kernels = choose(torch.device("cpu"))
    return {
        "command": " ".join([f"python -m tools.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),  # no path of this machine
        "device": kernels.about_device()["name"],
        "load before": Path("/proc/loadavg").read_text().split()[:3],
        "versions": environment.versions(kernels.describe()),
        "commit": environment.commit(),
    }


def end(process: subprocess.Popen[bytes], *signals: int) -> None:
    """Send these signals, one after the other, to the process and all that it started, and wait 10 s for it after each.
    It must lead a session of its own."""
    for number in signals:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(10)
