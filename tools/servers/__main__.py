"""What this program makes of real servers with the trained fixture, and recordings of what they send.

    python -m tools.servers [NAME ...] [--folder DIR] [--record]

Installs each server into an environment of its own in DIR (pinned versions; vLLM alone is 3.4 GB), starts a plain and
a speculative instance, and runs the command line against both. Prints a Markdown table. With --record, shorter runs go
through a proxy that keeps what was asked and answered in tests/fixtures/wire, for tests/helpers/wire.py. A server that
cannot speculate is both lanes.
"""

import argparse
import asyncio
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx

from engine.cache import cache_dir
from engine.remote.endpoint import Endpoint
from engine.remote.look import look
from tests.helpers import ROOT
from tests.helpers.pageserver import free_port
from tests.helpers.server_models import write_models
from tests.helpers.wire import FOLDER
from tools import end
from tools.servers.real import ENVIRON, SERVERS, install, version
from tools.servers.wire import recording

READY_S, COMMAND_S = 400.0, 600.0
LANES = {"baseline": "plain", "speculative": "speculative"}  # and the fixture of each
PROMPTS = ("Once upon a time", "The capital of France", "def add(a, b):")
RACE = f"race --prompt '{PROMPTS[0]}' --max-new-tokens 32 --same-device"
COMMANDS = {
    "race": RACE,
    "race --chat": f"{RACE} --chat",
    "study-prompts": "study-prompts --prompts {prompts} --max-new-tokens 24 --same-device",
    "study": "study --concurrency 2 --requests 4 --data {prompts} --max-new-tokens 24",
    "doctor": "doctor",
}
RECORDED = ("race", "race --chat", "study-prompts", "study")


@contextmanager
def started(name: str, speculative: bool, folder: Path) -> Iterator[int]:
    """The port of an instance that runs in the folder of the models, once it lists its models."""
    server, models = SERVERS[name], folder / "models"
    with ExitStack() as stack:
        behind = stack.enter_context(started(server.behind, speculative, folder)) if server.behind else 0
        port = free_port()
        (models / f"{port}.conf").write_text(server.config.format(port=port, behind=behind))
        command = server.command + server.speculative * speculative
        words = shlex.split(command.format(bin=f"{install(name, folder)}/", port=port, config=f"{port}.conf"))
        environ = {**os.environ, **ENVIRON, "HF_HUB_CACHE": str(models)}
        log = stack.enter_context((models / f"{port}.log").open("wb"))
        process = subprocess.Popen(words, cwd=models, env=environ, stdout=log, stderr=log, start_new_session=True)
        stack.callback(end, process, signal.SIGTERM, signal.SIGKILL)
        deadline = time.monotonic() + READY_S
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it did not start: {log.name}")
            time.sleep(0.5)
        yield port


def answers(port: int) -> bool:
    """Whether a server lists its models."""
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=COMMAND_S).is_success
    return False


def ran(command: str, ports: Sequence[int], folder: Path) -> str:
    """`yes`, or its first error."""
    words = shlex.split(command.format(prompts=folder / "prompts.txt"))
    lanes = [f"--lane={lane}=openai:http://127.0.0.1:{port}/v1" for lane, port in zip(LANES, ports, strict=True)]
    line = [sys.executable, "-m", "engine", *words, *lanes, "--model", "trained"]
    try:
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        return f"not done after {COMMAND_S:.0f} s"
    said = [text for text in (done.stderr + done.stdout).splitlines() if text]
    first = next((text for text in said if text.startswith(("error:", "internal error:", "FAULT"))), said[-1])
    return "yes" if done.returncode == 0 else first


def results(name: str, folder: Path, record: bool) -> list[str]:
    """The table's cell for each command. record: run only the commands of RECORDED, and save what the servers sent."""
    server = SERVERS[name]
    with ExitStack() as stack:
        kinds = (False, True) if server.speculative or server.behind else (False,)
        ports = [stack.enter_context(started(name, kind, folder)) for kind in kinds]
        hidden = {str(folder): "", platform.platform(): "Linux"}
        recorders = [stack.enter_context(recording(port, hidden)) for port in ports if record]
        asked = [recorder.server_port for recorder in recorders] or ports
        for port in asked if record else ():
            asyncio.run(look(Endpoint("a", "trained", f"http://127.0.0.1:{port}/v1")))
        rows = [ran(COMMANDS[kind], (asked * 2)[:2], folder) for kind in (RECORDED if record else COMMANDS)]
        for recorder, kind in zip(recorders, LANES.values(), strict=False):
            command = server.command + server.speculative * (kind == "speculative")
            shown = command.format(bin="", port=8000, config="config")
            about = {"server": name, "version": version(name), "command": shown, "date": time.strftime("%Y-%m-%d")}
            recorder.save(FOLDER / f"{name}-{kind}.json.gz", about)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser("python -m tools.servers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SERVERS)} (default: all)")
    parser.add_argument("--folder", type=Path, default=cache_dir() / "servers", metavar="DIR")
    parser.add_argument("--record", action="store_true", help="write tests/fixtures/wire")
    options = parser.parse_args()
    folder = options.folder.resolve()
    (folder / "models").mkdir(parents=True, exist_ok=True)
    write_models(folder / "models")
    (folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    head = ("server", "version", *(RECORDED if options.record else COMMANDS))
    print("|", " | ".join(head), "|\n" + "|---" * len(head) + "|", flush=True)
    for name in options.names or SERVERS:
        try:
            cells = results(name, folder, options.record)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            cells = [str(error)]
        print("|", " | ".join([name, version(name), *cells]), "|", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # the servers are stopped on the way out
    main()
