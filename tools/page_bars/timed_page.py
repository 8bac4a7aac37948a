"""`python app.py` with a stopwatch: its races log when each event left the engine.

    python -m tools.page_bars.timed_page LOG [arguments of app.py]

When a race has ended, LOG gets one JSON line. Times are seconds of CLOCK_MONOTONIC, which all processes of the machine
share: prepared (race requested), begun (before the first step), gone (after the last step), stamps (one per event),
events (their JSON), page_cpu_s (processor time of all Python threads but the race's own, while it ran). A line on
standard input runs the last race again without a page.
"""

from __future__ import annotations

import json
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from app.jobs.backend import TorchBackend
from engine.core.events import LaneEvent
from engine.recordings.event_json import to_json

LOCK = threading.Lock()


class TimedRace:
    """A race that writes its times to `log` when it ends. prepared: when it was requested."""

    def __init__(self, race: Any, prepared: float, log: Path) -> None:
        self._race, self._prepared, self._log = race, prepared, log

    def header(self) -> dict[str, Any]:
        return self._race.header()

    def result(self) -> Any:
        return self._race.result()

    def events(self) -> Iterator[LaneEvent]:
        stamps, events = [], []
        begun, cpu_s = time.monotonic(), others_cpu_s()
        try:
            with closing(self._race.events()) as source:
                for event in source:
                    stamps.append(time.monotonic())
                    events.append(event)
                    yield event
        finally:
            record = {"prepared": self._prepared, "begun": begun, "gone": time.monotonic(), "stamps": stamps,
                      "page_cpu_s": others_cpu_s() - cpu_s, "events": list(map(to_json, events))}  # fmt: skip
            with LOCK, self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def others_cpu_s() -> float:
    """Processor seconds of this process's Python threads except the calling one. torch's own threads do not count."""
    own = threading.get_native_id()
    return sum(_cpu_s(thread.native_id) for thread in threading.enumerate() if thread.native_id not in (None, own))


def _cpu_s(thread: int | None) -> float:
    try:
        return 1e-9 * int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0])
    except OSError:
        return 0.0


def main(log: Path) -> None:
    last: list[Any] = []
    prepare = TorchBackend.prepare

    def timed(backend: TorchBackend, order: Any, progress: Any) -> TimedRace:
        last[:] = [backend, order]
        requested = time.monotonic()
        return TimedRace(prepare(backend, order, progress), requested, log)

    def unwatched() -> None:
        race = timed(*last, lambda text, share: None)
        race.header()
        for _ in race.events():
            pass

    def run_again() -> None:
        for _ in sys.stdin:
            threading.Thread(target=unwatched, name="race", daemon=True).start()

    TorchBackend.prepare = timed  # type: ignore[method-assign,assignment]
    threading.Thread(target=run_again, daemon=True).start()
    sys.argv[0] = "app.py"
    runpy.run_path("app.py", run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
