"""The page as a user starts it on a machine that has never raced."""

import json
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.helpers import ROOT
from tools.gpu.part import Part
from tools.gpu.shapes import TARGET, target

SETTINGS: dict[str, Any] = {
    "prompt": "def add(a, b):\n", "pair": "command-line", "drafter": "synthetic:0.8", "k": 7, "temperature": 0.8,
    "top_p": 1, "seed": 3, "max_new_tokens": 128, "width": "auto", "audit": True, "chat": False, "rule": "coupled",
    "more": [],
}  # fmt: skip


def page(part: Part) -> None:
    """The seconds until it answers, until its model is ready, and until its first race is over."""
    if find_spec("gradio") is None:
        part.row("left out: the page needs gradio, which is not installed here")
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    own = {"HF_HUB_OFFLINE": "1", "GRADIO_ANALYTICS_ENABLED": "False", "TRITON_CACHE_DIR": str(part.scratch / "triton")}
    own |= {} if part.small else {"PHOTOFINISH_CACHE": str(part.scratch / "cache")}
    command = [sys.executable, "app.py", "--target", target(part, TARGET), "--port", str(address[1])]
    url, took, started = "http://{}:{}".format(*address), dict[str, float](), time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | own)
    try:
        for what, path in (("the page answers", "/"), ("its model is ready", "/healthz")):
            while not answers(url + path):
                if process.poll() is not None:
                    raise RuntimeError(f"app.py ended with status {process.returncode}")
                time.sleep(0.1)
            took[what] = time.monotonic() - started
        last = raced(url, SETTINGS | {"max_new_tokens": 8 if part.small else 128})
        took["its first race is over"] = time.monotonic() - started
    finally:
        process.terminate()
        process.wait(10)
    recording = json.loads(last["recording"] or "{}")
    verdict = recording.get("verdicts", {}).get("speculative", {}).get("kind")
    says = recording.get("runs", {}).get("sentence", last["status"]["text"])
    seconds = ", ".join(f"{what} after {value:.1f} s" for what, value in took.items())
    part.row(f"{seconds}; {verdict}; {says}", bool(verdict), **took)


def answers(url: str) -> bool:
    """Whether it answers well: /healthz does once a race can be run. Raises RuntimeError where that will never be."""
    try:
        return bool(urlopen(url, timeout=5).read())
    except HTTPError as error:
        if (told := json.loads(error.read()))["state"] == "failed":
            raise RuntimeError(told["reason"]) from error
    except OSError:
        pass
    return False


def raced(url: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The last frame of a race, asked for as the page's own program does."""
    body = {"tab": "tab-of-a-session", "run": "race", "settings": settings, "order": {}}
    with urlopen(Request(f"{url}/stream", json.dumps(body).encode()), timeout=120) as answer:
        frames = [json.loads(line[6:]) for line in answer if line.startswith(b"data: {")]
    return next(frame for frame in reversed(frames) if "recording" in frame)
