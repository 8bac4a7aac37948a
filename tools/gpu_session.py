"""Everything a bare NVIDIA machine is asked, in two calls of ten minutes at most: python tools/gpu_session.py --out DIR
--call 1

Call 1, the most important first:
    smoke          every Triton kernel against float64 on small shapes widths         a Qwen3-8B-shaped model: the
    memory's bandwidth, steps at widths 1, 8 and 16, default tiles race           the same model raced: DFlash k 15,
    EAGLE-3 k 3 and 7, a draft model, free drafts race_hybrid    the same races with Qwen3.5-9B's shape classes
    which widths are exact tuning         the fastest tiles of every linear, all candidates compiled by all cores first
    widths_tuned   widths again, with those tiles profile        where the time of a step goes, kernel by kernel
    correctness    tests/fixtures/trained: every drafter against the baseline, rows bit by bit; golden lists; lanes in
    turns and one after the other variants       other ways to make a step: F.linear over 16 rows, attention in one
    launch, launches that begin early
Call 2:
    hybrid         Qwen3.5-9B's shape: widths, classes, audited races
    bench          `python -m engine bench`: our lanes and transformers' generate
    probe          which widths of torch's own matrix products are exact on this chip, and what width costs there

Each part is a process of its own, with a time-out: a fault on CUDA stays with its process for good. What a part has
found is on the disk after every measurement, and gathered in DIR/gpu_session_CALL.json; DIR/gpu_session_CALL.log has
what the parts printed. Weights are random, and drafts synthetic where a row says so. Needs torch and transformers, no
network. --small: tiny shapes. --pretend: on the stand-in for CUDA of tests/helpers/fake_cuda.py."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_summary

TOOLS = Path(__file__).resolve().parent
SECONDS = 570.0
POLL_S = 0.25
RESERVE_S = 4.0
"""Of the budget for packing and the summary."""
GRACE_S = 3.0
"""A part is told to end by itself so long before it is killed."""
LAST_LINES = 25


@dataclass(frozen=True)
class Part:
    """run: `module:function`. limit_s: it is killed after so long. least_s: with less time left it is not begun."""

    run: str
    limit_s: float
    least_s: float


PARTS = {
    "smoke": Part("gpu_smoke:smoke", 60, 10),
    "widths": Part("gpu_widths:widths", 75, 25),
    "race": Part("gpu_race:race", 130, 40),
    "race_hybrid": Part("gpu_race:race_hybrid", 110, 40),
    "classes": Part("gpu_widths:classes", 50, 25),
    "tuning": Part("gpu_widths:tuning", 110, 30),
    "widths_tuned": Part("gpu_widths:widths_tuned", 60, 25),
    "profile": Part("gpu_widths:profile", 40, 20),
    "correctness": Part("gpu_exact:correctness", 100, 20),
    "variants": Part("gpu_variants:variants", 80, 25),
    "hybrid": Part("gpu_widths:hybrid", 170, 40),
    "bench": Part("gpu_bench:bench", 300, 60),
    "probe": Part("gpu_bench:probe", 120, 20),
}
CALLS = {1: tuple(PARTS)[:10], 2: tuple(PARTS)[10:]}


class Session:
    """Runs parts one after the other and keeps what they found in one file."""

    def __init__(self, out: Path, name: str, seconds: float, flags: Sequence[str]) -> None:
        self._ends_at, self._flags = time.monotonic() + seconds, list(flags)
        self._scratch = Path(tempfile.mkdtemp(prefix="gpu_session_"))
        out.mkdir(parents=True, exist_ok=True)
        self.file, self._log = out / f"{name}.json", out / f"{name}.log"
        self._log.write_bytes(b"")
        self.result: dict[str, Any] = {
            "about": {"seconds": seconds, "flags": self._flags, "nvidia_smi": _nvidia_smi()},
            "parts": {},
        }
        self._pack()

    def run(self, name: str, part: Part) -> None:
        """One part in a process of its own: whatever becomes of it, what it had found stays. Says so in one line."""
        left = self._ends_at - time.monotonic() - RESERVE_S
        if left < part.least_s:
            self._ended(
                name,
                {},
                {
                    "state": "skipped",
                    "why": f"{max(0, left):.0f} s were left, and it takes {part.least_s:.0f} s at least",
                },
            )
            return
        limit, started = min(part.limit_s, left), time.monotonic()
        found, errors = self._scratch / f"{name}.json", self._scratch / f"{name}.stderr"
        command = [
            sys.executable,
            str(TOOLS / "gpu_part.py"),
            part.run,
            "--out",
            str(found),
            "--seconds",
            str(max(1.0, limit - GRACE_S)),
            *self._flags,
        ]
        with self._log.open("ab") as log, errors.open("wb") as stderr:
            log.write(f"--- {name}\n".encode())
            log.flush()
            process = subprocess.Popen(
                command, stdout=log, stderr=stderr, stdin=subprocess.DEVNULL, start_new_session=True
            )
            try:
                timed_out = self._wait(name, process, found, started + limit)
            finally:
                _kill(process)
        code = process.poll()
        end: dict[str, Any] = {
            "state": "done" if code == 0 else "failed",
            "exit_code": code,
            "seconds": round(time.monotonic() - started, 1),
        }
        if timed_out:
            end |= {"state": "timed out", "why": f"it was killed after {limit:.0f} s"}
        elif code is not None and code < 0:
            end |= {"state": "killed", "signal": signal.Signals(-code).name}
        lines = errors.read_text(errors="replace").splitlines()
        if end["state"] != "done":
            end["last_lines"] = lines[-LAST_LINES:]
        with self._log.open("a") as log_text:
            log_text.write("\n".join([*lines[-200:], ""]))
        self._ended(name, _read(found), end)

    def _wait(self, name: str, process: subprocess.Popen[bytes], found: Path, until: float) -> bool:
        """Until it has ended or its time has; whether the latter. What it writes meanwhile is packed at once."""
        seen = 0.0
        while process.poll() is None:
            if time.monotonic() > until:
                return True
            time.sleep(POLL_S)
            if found.exists() and (changed := found.stat().st_mtime) != seen:
                seen = changed
                self.result["parts"][name] = {"state": "running", **_read(found)}
                self._pack()
        return False

    def _ended(self, name: str, found: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        self.result["parts"][name] = {**end, **found}
        self._pack()
        print(
            f"--- {name}: {end['state']}, {end.get('seconds', 0)} s{', ' + end['why'] if 'why' in end else ''}",
            *end.get("last_lines", ())[-6:],
            sep="\n    ",
            flush=True,
        )

    def _pack(self) -> None:
        """The one file that comes back, replaced as a whole. Parts read there what earlier ones have found."""
        text = json.dumps(self.result, indent=1) + "\n"
        for path in (self.file, self._scratch / "session.json"):
            new = path.with_suffix(".new")
            new.write_text(text)
            os.replace(new, path)

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:  # in the driver, where no signal reaches it
        print("it does not end, and is left behind", flush=True)


def _nvidia_smi() -> str:
    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,memory.total",
        "--format=csv,noheader",
    ]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"none: {type(error).__name__}"


def main(arguments: Sequence[str] | None = None, known: Mapping[str, Part] = PARTS) -> int:
    """Returns how many parts are not done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--call", type=int, choices=CALLS, default=1)
    parser.add_argument("--parts", nargs="+", choices=known, help="these, instead of the call's")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"for all parts together (default {SECONDS:.0f}): later ones get less, or are skipped",
    )
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--pretend", action="store_true")
    options = parser.parse_args(arguments)
    flags = [flag for flag, given in (("--small", options.small), ("--pretend", options.pretend)) if given]
    session = Session(options.out, f"gpu_session_{options.call}", options.seconds, flags)
    try:
        for name in options.parts or CALLS[options.call]:
            session.run(name, known[name])
    finally:
        session.close()
    print(gpu_summary.summary(session.result), flush=True)
    return sum(part["state"] != "done" for part in session.result["parts"].values())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # the running part is killed on the way out
    sys.exit(main())
