"""The page with a stopwatch, for tools/page_bars.py: `python app.py` as it is, whose races also write down when each
event left the engine.

python tools/timed_page.py LOG [arguments of app.py]

LOG gets one JSON line for each race when it has ended. Times are seconds of CLOCK_MONOTONIC, which every process of the
machine shares: {"prepared": asked for, "begun": first step about to run, "gone": no step will run any more, "stamps":
one for each event, "events": their JSON, "page_cpu_s": processor time of all Python threads but the race's own, while
it ran} A line on standard input runs the last race again with nobody watching: no frames, no page.
"""

from __future__ import annotations

import json
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.backend import TorchBackend  # noqa: E402
from engine.events import LaneEvent, to_json  # noqa: E402

NANO = 1e-9


class TimedRace:
    """A race that tells `log` about itself when it is over."""

    def __init__(self, race: Any, prepared: float, log: Callable[[dict[str, Any]], None]) -> None:
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
            gone, cpu_s = time.monotonic(), others_cpu_s() - cpu_s
            self._log(
                {
                    "prepared": self._prepared,
                    "begun": begun,
                    "gone": gone,
                    "stamps": stamps,
                    "events": [to_json(event) for event in events],
                    "page_cpu_s": cpu_s,
                }
            )


def others_cpu_s() -> float:
    """Processor time of this process's Python threads, the calling one left out. Threads of torch's own are no Python
    threads."""
    own = threading.get_native_id()
    return sum(_cpu_s(thread.native_id) for thread in threading.enumerate() if thread.native_id not in (None, own))


def _cpu_s(thread: int | None) -> float:
    try:
        return NANO * int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0])
    except OSError:
        return 0.0


def main(log_path: Path) -> None:
    lock = threading.Lock()
    last: list[Any] = []
    prepare = TorchBackend.prepare

    def log(record: dict[str, Any]) -> None:
        with lock, log_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def timed(backend: TorchBackend, order: Any, progress: Any) -> TimedRace:
        last[:] = [backend, order]
        asked = time.monotonic()
        return TimedRace(prepare(backend, order, progress), asked, log)

    def unwatched() -> None:
        race = timed(*last, lambda text, share: None)
        race.header()
        for _ in race.events():
            pass

    def serve_commands() -> None:
        for _ in sys.stdin:
            threading.Thread(target=unwatched, name="race", daemon=True).start()

    TorchBackend.prepare = timed  # type: ignore[method-assign,assignment]
    threading.Thread(target=serve_commands, daemon=True).start()
    runpy.run_path(str(ROOT / "app.py"), run_name="__main__")


if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    sys.argv[0] = "app.py"
    main(path)
