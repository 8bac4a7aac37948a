"""Measures the engine on a machine with an NVIDIA GPU, in calls of less than ten minutes.

    python -m tools.gpu --out DIR --call 1

Every part is a process of its own with its own time limit, so a part that crashes or hangs costs no other part.
Whatever happens, DIR then holds

    gpu_1.jsonl   one line per result, written the moment it was measured
    gpu_1.json    the summary, rewritten after every part
    gpu_1.log     everything the parts printed
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.cache import write_atomically
from engine.hardware import environment
from tests.helpers import ROOT
from tools import end
from tools.gpu.part import WRONG

SECONDS, COMMAND_S = 570.0, 595.0  # for a whole call, and until a lent machine kills the command
RESERVE_S, LEAST_S = 5.0, 10.0  # with less time left than this, a part that may take longer is not started
PRETENDED_FACTOR = 20  # the stand-in runs on the CPU, so --pretend makes limits this much longer
LAST_LINES = 12
# Environment of the engine's rungs in CUDA graphs: Triton's kernels, torch's kernels.
RUNGS: dict[str, dict[str, str]] = {"triton": {}, "graphs": {"PHOTOFINISH_TRITON": "0"}}
FAULTS = ("failed", "killed", "wrong")


@dataclass(frozen=True)
class Planned:
    """A part of a call. about: what it measures. run: "module:function" or "module:function:argument". limit_s: it is
    killed after that long. rung: of RUNGS. on_clock: its time is the call's; else it need only end within a command."""

    about: str
    run: str
    limit_s: float
    rung: str = "triton"
    on_clock: bool = True


RACES, BIG, TRAINING = "tools.gpu.races", "tools.gpu.big", "tools.gpu.training"
IMPORTS = Planned("torch, triton, transformers, off the clock", "tools.gpu.part:imports", 90, "graphs", on_clock=False)
CALLS: dict[int, dict[str, Planned]] = {
    1: {
        "imports": IMPORTS,
        "trial": Planned("each part of the kernels, as a load tries them", "tools.gpu.trial:trial", 75),
        "race": Planned("`engine race` of the trained fixture", f"{RACES}:one", 50),
        "races": Planned("ten races of it in one process", f"{RACES}:ten", 60),
        "race-8b": Planned("Qwen3-8B's shape: waiting, races, steps, a profile", f"{BIG}:races:Qwen/Qwen3-8B", 375),
    },
    2: {
        "imports": IMPORTS,
        "correctness": Planned("fixtures: tokens and bits of every drafter", f"{RACES}:correctness", 100),
        "correctness-torch": Planned("the same on torch's kernels", f"{RACES}:correctness", 90, "graphs"),
        "race-9b": Planned("Qwen3.5-9B's shape, like 8B's", f"{BIG}:races:Qwen/Qwen3.5-9B", 185),
    },
    3: {
        "imports": IMPORTS,
        "train": Planned("the default model writes; its head is trained further", f"{TRAINING}:train", 440, "graphs"),
        "evaluate": Planned("that head and the one that ships, on other prompts", f"{TRAINING}:evaluate", 125),
    },
}


class Session:
    """Runs the parts of a call and keeps their results in `out`."""

    def __init__(self, out: Path, name: str, seconds: float, commit: str, pretend: bool) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.rows, self.log, self.summary = (out / f"{name}.{kind}" for kind in ("jsonl", "log", "json"))
        for path in (self.rows, self.log):
            path.write_bytes(b"")
        self._factor, self._flags = (PRETENDED_FACTOR, ["--pretend"]) if pretend else (1, [])
        self._ends_at, self._killed_at = (time.monotonic() + most * self._factor for most in (seconds, COMMAND_S))
        self.about = about(commit) | {"pretended": pretend}
        self.parts: dict[str, dict[str, Any]] = {}
        self._write()

    def run_all(self, parts: Mapping[str, Planned]) -> None:
        """In their order. What fails on Triton's kernels runs on torch's, as a load does whose trial fails."""
        for name, part in parts.items():
            self._run(name, part)
            if part.rung == "triton" and self.parts[name]["state"] in FAULTS:  # one that ran out of time may be slow
                self._run(f"{name}-graphs", replace(part, rung="graphs"))

    def _run(self, name: str, part: Planned) -> None:
        rung, started = part.rung, time.monotonic()
        left = self._ends_at - started - RESERVE_S
        limit = min(part.limit_s * self._factor, left)
        if limit < min(LEAST_S, part.limit_s):
            self._ended(name, {"state": "skipped", "rung": rung, "why": f"{max(0.0, left):.0f} s were left"})
            return
        self.parts[name] = {"state": "running", "rung": rung}
        self._write()
        switches = {key: value for key, value in os.environ.items() if key not in RUNGS["graphs"]} | RUNGS[rung]
        command = [sys.executable, "-m", "tools.gpu.part", part.run, name, str(self.rows.resolve()), f"{limit:.1f}"]
        head = f"--- {name} on {rung}\n"
        with self.log.open("ab") as log:
            log.write(head.encode())
            log.flush()
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            own = {"cwd": ROOT, "env": switches, "start_new_session": True}
            process = subprocess.Popen([*command, *self._flags], **streams, **own)
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(limit)
            finally:
                code = process.poll()
                end(process, signal.SIGKILL)
        took = time.monotonic() - started
        if not part.on_clock:
            self._ends_at = min(self._ends_at + took, self._killed_at)
        ended = {"state": _state(code), "rung": rung, "seconds": round(took, 1)}
        if code is None:
            ended["why"] = f"killed after {limit:.0f} s"
        elif code < 0:
            ended["why"] = signal.Signals(-code).name
        if ended["state"] not in ("done", "wrong"):
            printed = self.log.read_text(errors="replace").rpartition(head)[2]
            ended["last_lines"] = printed.splitlines()[-LAST_LINES:]
        self._ended(name, ended)

    def _ended(self, name: str, end: dict[str, Any]) -> None:
        self.parts[name] = {**end, "says": [row["says"] for row in _rows(self.rows) if row["part"] == name]}
        self._write()
        print("\n".join(self._lines(name)), flush=True)

    def _lines(self, name: str) -> list[str]:
        part = self.parts[name]
        head = f"{name:20} {part['rung']:7} {part['state']:10} {part.get('seconds', 0):6.1f} s  {part.get('why', '')}"
        return [head.rstrip(), *(f"    {line}" for line in [*part.get("says", ()), *part.get("last_lines", ())])]

    def _write(self) -> None:
        summary = {"about": self.about, "parts": self.parts}
        write_atomically(self.summary, (json.dumps(summary, indent=1) + "\n").encode())

    def table(self) -> str:
        """One line per part, for the end of the output."""
        return "\n".join(["", *(self._lines(name)[0] for name in self.parts)])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        with suppress(ValueError):  # cut off, where a part was killed while it wrote
            yield json.loads(line)


def _state(code: int | None) -> str:
    if code is None:
        return "timed out"
    return "killed" if code < 0 else {0: "done", WRONG: "wrong"}.get(code, "failed")


def about(commit: str) -> dict[str, Any]:
    """What is measured, and on which machine. commit: used if this tree is not a checkout."""
    here = environment.commit()
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": here.rstrip("+") or commit,
        "dirty": here.endswith("+") if here else "unknown",
        "gpu": _nvidia_smi("name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem"),
        **environment.versions(packages=("torch", "triton", "transformers")),
        "cores": len(os.sched_getaffinity(0)),
    }


def _nvidia_smi(fields: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {type(error).__name__}"


def main(arguments: Sequence[str] | None = None, calls: Mapping[int, Mapping[str, Planned]] = CALLS) -> int:
    """Returns 0 where every part is done, else 1."""
    parts = "\n".join(
        f"\ncall {call}\n"
        + "\n".join(f"    {name:20} {part.limit_s:4.0f} s  {part.about}" for name, part in planned.items())
        for call, planned in calls.items()
    )
    parser = argparse.ArgumentParser(
        "python -m tools.gpu",
        description=__doc__,
        epilog=f"parts, with their limits:\n{parts}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--call", type=int, choices=calls, default=1, help="which parts to run (default 1)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for the whole call (default {SECONDS:.0f})")
    parser.add_argument("--commit", default="unknown", help="which commit this is, where the tree has no .git")
    parser.add_argument("--pretend", action="store_true", help="a dry run: tiny shapes on a stand-in for CUDA")
    options = parser.parse_args(arguments)
    session = Session(options.out, f"gpu_{options.call}", options.seconds, options.commit, options.pretend)
    session.run_all(calls[options.call])
    print(session.table(), flush=True)
    return int(any(part["state"] != "done" for part in session.parts.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # the running part is killed on the way out
    sys.exit(main())
