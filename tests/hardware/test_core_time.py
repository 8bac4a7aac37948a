"""An evenly overloaded machine: every step equally slow, so that nothing in the step times shows it."""

import os
import subprocess
import sys
import time

import pytest

from engine.analysis.metrics import BUSY, disturbance
from engine.hardware import core_time as module
from engine.hardware.core_time import core_time, waited_share
from tests.helpers.races import events_of, fixed_race

SPIN = "import time\nends = time.monotonic() + 20\nwhile time.monotonic() < ends: pass"


def test_a_shared_core_is_noticed() -> None:
    """A machine with ten times as much to do as it has cores showed "2.02x" with a green verdict."""
    cores, (first, *_) = os.sched_getaffinity(0), sorted(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(2)]
    try:
        for process in others:
            os.sched_setaffinity(process.pid, {first})
        os.sched_setaffinity(0, {first})
        before, ends = core_time(), time.monotonic() + 0.6
        while time.monotonic() < ends:
            pass
        share = waited_share(before, core_time())
    finally:
        os.sched_setaffinity(0, cores)
        for process in others:
            process.kill()
            process.wait()
    assert share is not None and BUSY < share < 1
    assert f"{100 * share:.0f} % of its time" in disturbance(events_of(fixed_race()), share)


def test_a_system_that_does_not_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that have ended between two readings, or no such file (macOS): no share, and no error."""
    assert waited_share((9, 9), (5, 5)) is None
    monkeypatch.setattr(module, "THREADS", module.THREADS / "nowhere")
    assert core_time() is None and waited_share(None, None) is None
