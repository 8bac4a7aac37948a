"""The page as a visitor finds it: `python app.py` in its own process, on the trained fixture; and how to visit it."""

from __future__ import annotations

import gc
import json
import os
import runpy
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx

from engine.kernels.cpu.build import has_kernels, library
from tests.helpers import ROOT

TARGET = "tests/fixtures/trained/target"
ORDER: dict[str, Any] = {
    "prompt": "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a",
    "pair": "command-line", "drafter": "ngram", "k": 4, "temperature": 0, "top_p": 1, "seed": 0, "max_new_tokens": 40,
    "width": "auto", "audit": True, "chat": False, "rule": "coupled", "more": [],
}  # fmt: skip
LONG = {"max_new_tokens": 900, "temperature": 0.9}
# Keys in the environment of every page here, which no answer of any may have.
PLANTED = {"OPENAI_API_KEY": "sk-planted-3f9c2a71", "PHOTOFINISH_KEY_X": "pk-planted-b80d64e5"}
FORKS = get_context("forkserver")
# Imported by the process that pages are forked from; the first one makes the others quick to import.
PRELOADED = ("tests.helpers.preloaded", "tests.helpers.pageserver", "app.page.ui", "app.page.ending",
             "app.jobs.server_races", "engine.loading.loading", "engine.session")  # fmt: skip
FORKS.set_forkserver_preload([*PRELOADED])


class Page(FORKS.Process):
    """`python app.py` with these arguments, or `python -m engine`, its imports done and few rows to judge widths by;
    what it says goes into the file `log`. Has what tests use of Popen."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: str, module: str = "app.py") -> None:
        super().__init__(target=_run, args=([module, *arguments], environment, log), daemon=True)
        self.start()

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout_s: float) -> int | None:
        self.join(timeout_s)
        return self.exitcode


def _run(arguments: list[str], environment: dict[str, str], log: str) -> None:
    assert sys.modules.keys() >= {*PRELOADED}, "multiprocessing passes over an import that fails"
    from engine.exactness import operators, probe

    operators.LINEAR_ROWS, operators.ATTENTION_ROUNDS, probe.PROBE_VERSION = (16, 64), (1, 2), "few rows"
    gc.freeze()  # a collection would touch, and so copy, what this process shares with the others
    gc.unfreeze = gc.freeze  # which a page does before it loads a model, and then collects twice
    gc.enable()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    files = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in range(3):
        os.dup2(files[number > 0], number)
    sys.argv = arguments
    if arguments[0] == "app.py":
        runpy.run_path("app.py", run_name="__main__")
    else:
        runpy.run_module(arguments[0], run_name="__main__")


@dataclass
class Server:
    """A running page."""

    url: str
    up_s: float
    process: subprocess.Popen | Page
    log: Path

    def visitor(self, name: str) -> Visitor:
        return Visitor(self.url, name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def served(
    cache: Path,
    *arguments: str,
    script: Sequence[str] = (),
    log: Path | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
) -> Iterator[Server]:
    """A page until the block ends. script: run by a Python of its own; without, `app.py` with its imports done.
    `up_s`: seconds from the command to the page. `log`: where its output goes. `host`: of its URL.
    Compiled kernels are put into the cache, if there are any: compiling them once more in every fresh one is half a
    minute of both cores, and tests/kernels/cpu/test_native_build.py's business."""
    if has_kernels():
        kernels = Path(library()._name)
        (cache / "native").mkdir(exist_ok=True)
        if not (copy := cache / "native" / kernels.name).exists():
            partial = copy.with_suffix(f".{os.getpid()}")
            shutil.copy(kernels, partial)
            partial.replace(copy)  # whole or not at all: another process's page may look for it
    port = port or free_port()
    own = {"PHOTOFINISH_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
    environment = {**PLANTED, **os.environ, **own}
    options = ["--port", str(port), *(arguments or ("--target", TARGET, "--dtype", "float32"))]
    started = time.monotonic()
    log_path = log or cache / f"log-{port}"
    process: subprocess.Popen | Page
    if script:
        with log_path.open("w") as output:
            places = {"cwd": ROOT, "env": environment, "stdin": subprocess.PIPE, "stdout": output, "stderr": output}
            process = subprocess.Popen([sys.executable, *script, *options], text=True, **places)
    else:
        process = Page(options, environment, str(log_path))
    try:
        url = f"http://{host}:{port}"
        while not _answers(url):
            assert process.poll() is None and time.monotonic() - started < 180, log_path.read_text()
            time.sleep(0.05)
        yield Server(url, time.monotonic() - started, process, log_path)
    finally:
        process.terminate()
        assert process.wait(10) is not None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


class Visitor:
    """One browser's tab, spoken to as the page's own program does."""

    def __init__(self, url: str, name: str, client: httpx.Client | None = None) -> None:
        self.url, self.tab = url, f"tab-{name}-{secrets.token_hex(4)}"
        self.client = client or httpx.Client(timeout=60)

    def events(self, run: str, settings: Mapping[str, Any] = ORDER, **order: Any) -> Iterator[tuple[str, Any]]:
        """The names and values of what the server answers, until it is over. Closing this generator is closing the tab.
        Raises Refused with what a visitor reads."""
        body = {"tab": self.tab, "run": run, "settings": {**settings}, "order": order}
        with self.client.stream("POST", f"{self.url}/stream", json=body) as stream:
            if stream.status_code == 400:
                raise Refused(json.loads(stream.read())["detail"])
            stream.raise_for_status()
            name = ""
            for line in stream.iter_lines():
                kind, _, text = line.partition(": ")
                if kind == "event":
                    name = text
                elif kind == "data":
                    if name == "refused":
                        raise Refused(json.loads(text))
                    yield name, json.loads(text)
                    name = ""

    def frames(self, run: str = "race", settings: Mapping[str, Any] = ORDER, **order: Any) -> Iterator[dict[str, Any]]:
        with closing(self.events(run, settings, **order)) as events:
            yield from (value for name, value in events if not name)

    def race(self, **changes: Any) -> list[dict[str, Any]]:
        return list(self.frames(settings={**ORDER, **changes}))

    def stop(self, run: str = "race") -> None:
        self.client.post(f"{self.url}/stop", json={"tab": self.tab, "run": run}).raise_for_status()


class Refused(Exception):
    """What the server said instead of a race."""
