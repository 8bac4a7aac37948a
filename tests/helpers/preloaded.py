"""Starts pages without the six seconds of imports that each would need: this module, run as a program, is a process
that has imported everything and forks a page, or the command line, at each request. Few rows judge widths there."""

import gc
import json
import os
import runpy
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from typing import Any

from tests.helpers import ROOT

MODULES = ("app.page.ui", "app.page.ending", "app.jobs.server_races", "engine.loading.loading", "engine.session")


class Page:
    """`python app.py` with these arguments, or `python -m engine`; what it says goes into the file `log`. Has what
    tests use of Popen."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: str, module: str = "app.py") -> None:
        self.pid = _answer(arguments=[module, *arguments], environment=environment, log=log)
        self.status: int | None = None

    def poll(self) -> int | None:
        if self.status is None:
            self.status = _answer(pid=self.pid)
        return self.status

    def wait(self, timeout_s: float) -> int:
        ends = time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired("app.py", timeout_s)
            time.sleep(0.01)
        return status

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, 15)


@cache
def _parent() -> Any:
    command = [sys.executable, "-m", "tests.helpers.preloaded"]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _answer(**request: Any) -> Any:
    parent = _parent()
    print(json.dumps(request), file=parent.stdin, flush=True)
    return json.loads(parent.stdout.readline())


def forked() -> dict[str, Any] | None:
    """Answers requests. In a page's process: the request for it; in the parent None, at the end."""
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif not (answer := os.fork()):
            return request
        print(json.dumps(answer), flush=True)
    return None


if __name__ == "__main__":
    gc.disable()
    for name in MODULES:
        import_module(name)
    from engine.exactness import operators, probe

    operators.LINEAR_ROWS, operators.ATTENTION_ROUNDS, probe.PROBE_VERSION = (16, 64), (1, 2), "few rows"
    gc.enable()
    gc.freeze()  # a collection in a page would touch, and so copy, what it shares with this process
    gc.unfreeze = gc.freeze  # which a page does before it loads a model, and then collects twice
    if page := forked():
        os.environ.clear()
        os.environ.update(page["environment"])
        files = os.open(os.devnull, os.O_RDONLY), os.open(page["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in range(3):
            os.dup2(files[number > 0], number)
        sys.argv = page["arguments"]
        if sys.argv[0] == "app.py":
            runpy.run_path("app.py", run_name="__main__")
        else:
            runpy.run_module(sys.argv[0], run_name="__main__")
