"""One part of a session, in its own process: python -m tools.gpu.part RUN NAME ROWS SECONDS [--pretend]

RUN is "module:function" or "module:function:argument". The function is called with a `Part` and the argument; its
results are appended to the file ROWS as JSON lines.
"""

import faulthandler
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

WRONG = 3  # exit status of a part that ran to its end and found something wrong
GRACE_S = 3.0  # how long before it is killed a part prints where it is
Item = TypeVar("Item")


class Part:
    """What a measurement works with. small: tiny shapes, for a dry run. scratch: a folder that lives as long as the
    part."""

    def __init__(self, name: str, rows: Path, seconds: float, small: bool, scratch: Path) -> None:
        self.name, self.small, self.scratch = name, small, scratch
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
        """Call something that keeps rows of its own. An exception becomes a row, so that others can still run."""
        try:
            call(*arguments)
        except Exception as error:
            self.row(f"{what}: {type(error).__name__}: {error}"[:1000], False)

    def in_time(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, while there is time for another one that takes as long as the last."""
        items, took = list(items), 0.0
        for place, item in enumerate(items):
            left = self._ends_at - time.monotonic()
            if left < took:
                self.row(f"left out, with {left:.0f} s left: {', '.join(map(str, items[place:]))}"[:1000])
                return
            started = time.monotonic()
            yield item
            took = time.monotonic() - started


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
