"""Visit a public page of the default model as many people at once, and check what each of them gets.

    python -m tools.visitors --visitors 50 --minutes 10 --seed 1 --json FILE

Starts a page with a file of limits. Simulated visitors of 16 addresses load it, race (16 to 48 tokens), stop, leave,
reload, exceed the limits, study, open and export files, with pauses between.
Reported: how each race ended, error pages, whether the order was fair, how true the announced places and seconds were,
when abandoned races were gone, and the page's health, memory, log and answering times. Exit status 1: a race was lost,
or an error page was seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import torch

from engine.cache import cache_dir
from engine.hardware import environment
from engine.kernels.choose import choose
from tests.helpers.pageserver import Server, served

from .report import report
from .tab import Seen
from .visitor import Visitor
from .watch import Watch

LIMITS = "races_per_visitor = 2\nraces_per_address = 8\nmax_new_tokens = 256\n"
END_S = 180.0  # how long to wait for the last races, and for the device to be free


async def crowd(server: Server, num: int, seconds: float, seed: int = 0, think_s: float = 45.0) -> dict[str, Any]:
    """Visit a page for so long; what came of it. server: its log must be in JSON."""
    while httpx.get(f"{server.url}/healthz").status_code != 200:
        await asyncio.sleep(0.1)
    seen, watch, until = Seen(), Watch(server), time.time() + seconds
    watching = asyncio.create_task(watch.run())
    visitors = [Visitor(server.url, i, seed, think_s, until, seen).run() for i in range(num)]
    for failed in await asyncio.gather(*visitors, return_exceptions=True):
        if failed is not None:
            seen.problems.append(f"a visitor's program failed: {failed!r}")
    ends, visited = time.time() + END_S, time.time()
    while (busy := watch.is_busy()) and time.time() < ends:
        await asyncio.sleep(0.1)
    free_s = None if busy else round(time.time() - visited, 1)
    await asyncio.sleep(min(8.0, seconds))  # the page's own sweep
    watch.weigh()
    watching.cancel()
    found = report(seen, watch, *watch.races())
    found["device free after the last visitor, s"] = free_s
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--think", type=float, default=45.0, help="seconds between two things that a visitor does")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="gemma-3-270m")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    cpu = choose(torch.device("cpu"))
    about = {
        "command": " ".join(["python -m tools.visitors", *sys.argv[1:]]),
        "device": cpu.about_device()["name"],
        "load before": Path("/proc/loadavg").read_text().split()[:3],
        "versions": environment.versions(cpu.describe()) | {"gradio": metadata.version("gradio")},
        "commit": environment.commit(),
    }
    with tempfile.TemporaryDirectory() as folder:
        limits = Path(folder, "limits.toml")
        limits.write_text(LIMITS)
        arguments = "--target", options.target, "--limits", str(limits), "--log", "json"
        with served(cache_dir(), *arguments, script=("app.py",), log=Path(folder, "log")) as server:
            of = options.visitors, 60 * options.minutes, options.seed, options.think
            found = asyncio.run(crowd(server, *of))
    text = json.dumps({**about, **found}, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 1 if found["lost"] or found["error pages"] or found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
