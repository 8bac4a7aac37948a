"""The page as a visitor finds it: `python app.py` in a process of its own, on the trained fixture, and ways to visit
it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from engine.kernels.cpu.build import has_kernels, library
from tests.helpers import ROOT
from tests.helpers.preloaded import Page

TARGET = "tests/fixtures/trained/target"
ORDER: dict[str, Any] = {
    "prompt": "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a",
    "pair": "command-line",
    "drafter": "ngram",
    "k": 4,
    "temperature": 0,
    "top_p": 1,
    "seed": 0,
    "max_new_tokens": 40,
    "width": "auto",
    "audit": True,
    "chat": False,
    "rule": "coupled",
    "more": [],
}
LONG = {"max_new_tokens": 900, "temperature": 0.9}
# Keys in the environment of every page here, which no answer of any may have.
PLANTED = {"OPENAI_API_KEY": "sk-planted-3f9c2a71", "PHOTOFINISH_KEY_X": "pk-planted-b80d64e5"}
WITHOUT_TORCH = (
    "-c",
    "import runpy, sys; sys.modules['torch'] = None; sys.argv[0] = 'app.py'; "
    "runpy.run_path('app.py', run_name='__main__')",
)  # as `script` of `served`: a page without torch
# As `arguments` of `served`: a page that can load no model, at a third of the work.
NO_MODEL = ("--target", "tests/fixtures/of-no-model")


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
    environment = {
        **PLANTED,
        **os.environ,
        "PHOTOFINISH_CACHE": str(cache),
        "HF_HUB_OFFLINE": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
    }
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
            assert process.poll() is None and time.monotonic() - started < 60, log_path.read_text()
            time.sleep(0.05)
        yield Server(url, time.monotonic() - started, process, log_path)
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


class Visitor:
    """One browser's session, spoken to as the page's own JavaScript does: join the queue, then read a stream of
    messages."""

    def __init__(self, url: str, session: str, client: httpx.Client | None = None) -> None:
        self.url, self.session = f"{url}/gradio_api", session
        self.client = client or httpx.Client(timeout=60)
        config = self.client.get(f"{url}/config").json()
        self.functions = {
            dependency["api_name"]: dependency["id"] for dependency in config["dependencies"] if dependency["api_name"]
        }

    def join(self, name: str, *data: Any, event: Mapping[str, Any] | None = None) -> str:
        """The id of the call, which its messages have."""
        body = {"data": data, "fn_index": self.functions[name], "session_hash": self.session, "trigger_id": None}
        body |= {"event_data": event} if event else {}
        answer = self.client.post(f"{self.url}/queue/join", json=body).raise_for_status()
        return answer.json()["event_id"]

    def messages(self) -> Iterator[dict[str, Any]]:
        """Everything the server says to this session, until it closes the stream. Closing this generator is closing the
        tab."""
        with self.client.stream("GET", f"{self.url}/queue/data", params={"session_hash": self.session}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    message = json.loads(line[5:])
                    if message["msg"] == "close_stream":
                        return
                    yield message

    def order(self, **changes: Any) -> str:
        return self.join("race", *{**ORDER, **changes}.values())

    def frames(self) -> Iterator[dict[str, Any]]:
        """The frames of a race that was ordered; raises Refused with what a visitor reads."""
        for message in self.messages():
            yield from map(json.loads, values_of(message))

    def race(self, **changes: Any) -> list[dict[str, Any]]:
        self.order(**changes)
        return list(self.frames())

    def stop(self) -> None:
        self.client.post(f"{self.url}/run/stop", json={"data": [], "session_hash": self.session}).raise_for_status()


class Refused(Exception):
    """What the server said instead of a race."""


class Watched(threading.Thread):
    """A race followed in the background: its frames and when each came."""

    def __init__(self, visitor: Visitor, **changes: Any) -> None:
        super().__init__(daemon=True)
        self.visitor, self.frames, self.times = visitor, [], []
        visitor.order(**changes)
        self.start()

    def run(self) -> None:
        for frame in self.visitor.frames():
            self.frames.append(frame)
            self.times.append(time.monotonic())

    def until(self, state: str, seconds: float = 60) -> float:
        """When the first frame of that state came."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for frame, moment in list(zip(self.frames, self.times, strict=False)):
                if frame["state"] == state:
                    return moment
            time.sleep(0.01)
        raise AssertionError(f"never {state}: {[frame['state'] for frame in self.frames][-3:]}")


def values_of(message: Mapping[str, Any]) -> list[str]:
    """The first value that a message brings, if any. Raises Refused with what a visitor reads."""
    output = message.get("output") or {}
    if message["msg"] == "process_completed" and not message["success"]:
        raise Refused(str(output.get("error")))
    data = output.get("data")
    return [text_of(data[0])] if message["msg"] == "process_generating" and data and data[0] != [] else []


def text_of(data: Any) -> str:
    """A value as gradio streams it: whole, or as a list of edits of which ours is always one replacement of the
    whole."""
    if isinstance(data, str):
        return data
    (edit,) = data
    assert edit[0] == "replace" and edit[1] == [], edit
    return edit[2]
