"""One part of a session, in its own process: python -m tools.gpu.part RUN NAME ROWS SECONDS [--pretend]

RUN is "module:function" or "module:function:argument". The function is called with a `Part` and the argument; its
results are appended to the file ROWS as JSON lines.
"""

import faulthandler
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

WRONG = 3  # exit status of a part that ran to its end and found something wrong
GRACE_S = 3.0  # how long before it is killed a part prints where it is
# Values of nvidia-smi and their units, twice a second. A process for each: one that loops may keep what it has read.
SAMPLED = {"clocks.sm": "MHz", "clocks.mem": "MHz", "power.draw": "W", "temperature.gpu": "°C"}
SAMPLER = f"while :; do nvidia-smi --query-gpu={','.join(SAMPLED)} --format=csv,noheader,nounits; sleep 0.5; done"
Item = TypeVar("Item")


class Part:
    """What a measurement works with. small: tiny shapes, for a dry run. scratch: a folder of its own. out: DIR."""

    def __init__(self, name: str, rows: Path, seconds: float, small: bool, scratch: Path) -> None:
        self.name, self.small, self.scratch, self.out = name, small, scratch, rows.parent
        self._rows, self._ends_at = rows, time.monotonic() + seconds - GRACE_S
        self.num_wrong = 0

    def row(self, says: str, ok: bool = True, **values: Any) -> None:
        """Keep a result: it is on the disk when this returns. says: the line for the summary. ok: False where something
        is wrong, such as tokens that differ."""
        self.num_wrong += not ok
        says = says if ok else f"WRONG: {says}"
        with self._rows.open("a") as file:
            file.write(json.dumps({"part": self.name, "says": says, "ok": ok, **values}, default=str) + "\n")
        print(says, flush=True)

    def attempt(self, what: str, call: Any, *arguments: Any) -> None:
        """Call something, and keep how long it took. An exception becomes a row, so that others can still run."""
        started = time.monotonic()
        try:
            call(*arguments)
        except Exception as error:
            self.row(f"{what}: {type(error).__name__}: {error}"[:1000], False)
        else:
            took = time.monotonic() - started
            self.row(f"{what}: nothing went wrong in {took:.1f} s", seconds=took)

    @property
    def left(self) -> float:
        """Seconds until it is killed."""
        return self._ends_at - time.monotonic()

    @contextmanager
    def sampled(self, what: str) -> Iterator[None]:
        """Keep the median and the range of the GPU's clocks, power and temperature within the block."""
        file = self.scratch / "samples"
        with file.open("w") as out:
            sampler = subprocess.Popen(["sh", "-c", SAMPLER], stdout=out, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            sampler.kill()
            sampler.wait()
        columns = zip(*(line.split(", ") for line in file.read_text().splitlines()), strict=False)
        samples, says = dict[str, list[float]](), []
        for (name, unit), column in zip(SAMPLED.items(), columns, strict=False):
            if known := sorted(float(value) for value in column if value[:1].isdigit()):  # no "[N/A]"
                samples[name] = known
                says.append(f"{name} {statistics.median(known):g} ({known[0]:g} to {known[-1]:g}) {unit}")
        self.row(f"during {what}: {', '.join(says) or 'nvidia-smi said nothing'}", samples=samples)

    def in_time(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, while there is time for another one that takes as long as the last."""
        items, took = list(items), 0.0
        for place, item in enumerate(items):
            if (left := self.left) < took:
                self.row(f"left out, with {left:.0f} s left: {', '.join(map(str, items[place:]))}"[:1000])
                return
            started = time.monotonic()
            yield item
            took = time.monotonic() - started


def imports(part: Part) -> None:
    """The libraries' first import, from a disk that nobody has read yet."""
    for name in ("torch", "triton", "transformers"):
        part.attempt(f"import {name}", import_module, name)


class Stages:
    """A progress that keeps the seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._now = "first", time.monotonic()

    def __call__(self, name: str, share: float | None = None) -> None:
        (before, since), self._now = self._now, (name, time.monotonic())
        self.seconds[before] = self.seconds.get(before, 0.0) + self._now[1] - since

    def __str__(self) -> str:
        self("at last")
        return ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items() if seconds >= 0.05)


def main() -> int:
    run, name, rows, seconds, *pretend = sys.argv[1:]
    faulthandler.enable()
    faulthandler.dump_traceback_later(max(0.1, float(seconds) - GRACE_S))
    module, function, *argument = run.split(":", 2)
    pretended: Any = nullcontext
    if pretend:
        from tests.helpers.pretended_gpu import pretended
    with tempfile.TemporaryDirectory() as scratch:
        part = Part(name, Path(rows), float(seconds), bool(pretend), Path(scratch))
        with pretended(part):
            getattr(import_module(module), function)(part, *argument)
    return WRONG if part.num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
