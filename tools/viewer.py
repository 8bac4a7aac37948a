"""Measure what a watching page costs a race on this machine: a real server with the default model, and a real Chromium.

python -m tools.viewer [--repeats N] > FILE

Decode seconds of the same race with a page following it over those with nobody watching, by lane, in pairs of
alternating order. The server is `recording_page`: it writes down every race.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.analysis.metrics import lane_metrics, percentile
from engine.cache import cache_dir, write_atomically
from engine.loading.default_model import NAME
from engine.recordings.event_json import from_json, to_json
from tests.helpers.page_browser import CHROMIUM, FLAGS, open_tab, run_race, settings
from tests.helpers.pageserver import Server, served
from tools import about

LANES = ("plain", "baseline", "speculative")
LENGTH, WAIT_MS, PAUSE_S = 128, 240_000, 1.5


def recording_page(record: Path) -> None:
    """`python app.py`, with its races recorded. SIGUSR1 runs the last one again, without a page."""
    from engine.session import TorchRace

    source, last = TorchRace.events, list[Any]()

    def recorded(race: TorchRace) -> Iterator[Any]:
        last[:] = [race.loaded, race.spec, race.prompt]
        events = []
        with closing(source(race)) as stream:
            for event in stream:
                events.append(event)
                yield event
        write_atomically(record, json.dumps([*map(to_json, events)]).encode())

    def again(*unused: Any) -> None:
        threading.Thread(target=lambda: list(TorchRace(*last).events()), name="race", daemon=True).start()

    TorchRace.events = recorded  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, again)
    sys.argv[:2] = ["app.py"]
    runpy.run_path("app.py", run_name="__main__")


class Session:
    """A server, the file with its last race, and a visitor's browser."""

    def __init__(self, server: Server, record: Path, browser: Any) -> None:
        self.server, self.record = server, record
        self.browser = browser.new_context(viewport={"width": 1440, "height": 1000})
        self.browser.set_default_timeout(WAIT_MS)

    def watched(self) -> dict[str, float]:
        """Each lane's decode seconds in a race of a page that was just opened."""
        tab = open_tab(self.browser, self.server.url)
        settings(tab, Maximum_length=str(LENGTH))
        run_race(tab)
        tab.close()
        return self._seconds()

    def unwatched(self) -> dict[str, float]:
        """Those of the last race again, with nobody watching."""
        time.sleep(PAUSE_S)
        os.kill(self.server.process.pid, signal.SIGUSR1)
        return self._seconds()

    def _seconds(self) -> dict[str, float]:
        while not self.record.exists():
            assert self.server.process.poll() is None, self.server.log.read_text()
            time.sleep(0.05)
        events = [*map(from_json, json.loads(self.record.read_text()))]
        self.record.unlink()
        return {lane: lane_metrics(events, lane).decode_s for lane in LANES}


def ratios(session: Session, repeats: int) -> dict[str, list[float]]:
    """Seconds with a viewer over those without, by lane, for each pair but the first, a warm-up."""
    pairs = []
    for pair in range(repeats + 1):
        first = session.unwatched() if pair % 2 else None
        watched = session.watched()
        pairs.append((watched, first or session.unwatched()))
    return {lane: [watched[lane] / alone[lane] for watched, alone in pairs[1:]] for lane in LANES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    options, circumstances = parser.parse_args(), about()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        record = Path(folder, "race.json")
        script = ("-m", "tools.viewer", "--recording", str(record))
        with served(cache_dir(), "--target", NAME, script=script, log=Path(folder, "log")) as server:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            found = ratios(Session(server, record, browser), options.repeats)
    shares = {"p25": 0.25, "p50": 0.5, "p75": 0.75, "most": 1.0}
    lanes = {
        lane: {name: percentile(values, share) for name, share in shares.items()} for lane, values in found.items()
    }
    print(json.dumps({**circumstances, "seconds with a viewer over those without": lanes}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--recording"]:
        recording_page(Path(sys.argv.pop(2)))
    else:
        main()
