"""Measure the page on this machine: a real server with the default model, watched by a real Chromium.

python -m tools.page_bars [--only display|slowdown] [--repeats N] [--json FILE]

display     a live race, two lanes of 400 tokens on screen: frames per second, the server's processor time for them, and
            the delay from an event leaving the engine to the animation frame after its node was appended
slowdown    decode seconds of the same race with a page following it and with nobody watching, in pairs of alternating
            order

Times are seconds of the machine's clock. In its first minutes Chromium is within a millisecond of it (0.3 ms after half
a minute). The server is `timed_page`: it writes down every race.
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
from engine.core.events import Step
from engine.loading.default_model import NAME
from engine.recordings.event_json import from_json, to_json
from tests.helpers.page_browser import CHROMIUM, FLAGS, open_tab, run_race, settings
from tests.helpers.pageserver import Server, served
from tools import about

LANES = ("baseline", "speculative")
WAIT_MS = 240_000
AGAIN = signal.SIGUSR1
NOTES = """
window.painted = [];
document.addEventListener("photofinish:painted", ({ detail }) => {
  const { left, right } = document.querySelector(".pf").photofinish.state.counts;
  const seen = { race: detail.race, seq: detail.seq, baseline: left, speculative: right };
  requestAnimationFrame((now) => window.painted.push({ ...seen, at: (performance.timeOrigin + now) / 1000 }));
});
"""


def timed_events(source: Any, record: Path) -> Iterator[Any]:
    """A race's events. When it ends they are in `record`, with its times: begun (before the first step), gone (after
    the last), stamps (one per event), page_cpu_s (processor time of all Python threads but the race's own)."""
    stamps, events = [], []
    begun, cpu_s = time.time(), others_cpu_s()
    try:
        with closing(source):
            for event in source:
                stamps.append(time.time())
                events.append(event)
                yield event
    finally:
        times = {"begun": begun, "gone": time.time(), "page_cpu_s": others_cpu_s() - cpu_s, "stamps": stamps}
        write_atomically(record, json.dumps({**times, "events": [*map(to_json, events)]}).encode())


def others_cpu_s() -> float:
    """Processor seconds of this process's Python threads except the calling one. torch's own threads do not count."""
    ids = [thread.native_id for thread in threading.enumerate() if thread is not threading.current_thread()]
    stats = [Path(f"/proc/self/task/{number}/schedstat") for number in ids]
    return sum(1e-9 * int(stat.read_text().split()[0]) for stat in stats if stat.exists())


def timed_page(record: Path) -> None:
    """`python app.py` with a stopwatch. The signal AGAIN runs the last race again, without a page."""
    from engine.session import TorchRace

    events, last = TorchRace.events, list[Any]()

    def timed(race: TorchRace) -> Iterator[Any]:
        last[:] = [race.loaded, race.spec, race.prompt]
        return timed_events(events(race), record)

    def unwatched() -> None:
        list(TorchRace(*last).events())

    TorchRace.events = timed  # type: ignore[method-assign]
    signal.signal(AGAIN, lambda *unused: threading.Thread(target=unwatched, name="race", daemon=True).start())
    sys.argv[:2] = ["app.py"]
    runpy.run_path("app.py", run_name="__main__")


class Session:
    """A server, the file with its last race, and a visitor's tab."""

    def __init__(self, server: Server, record: Path, tab: Any) -> None:
        self.server, self.record, self.tab = server, record, tab
        tab.set_default_timeout(WAIT_MS)
        tab.add_init_script(NOTES)

    def watched(self, length: int) -> dict[str, Any]:
        """A race of up to so many tokens, in a page that was just opened."""
        open_tab(self.tab, self.server)
        settings(self.tab, Maximum_length=str(length))
        run_race(self.tab)
        return self._written()

    def unwatched(self) -> dict[str, Any]:
        """The last race again, with nobody watching."""
        self.tab.goto("about:blank")
        self.tab.wait_for_timeout(1500)
        os.kill(self.server.process.pid, AGAIN)
        return self._written()

    def _written(self) -> dict[str, Any]:
        while not self.record.exists():
            assert self.server.process.poll() is None, self.server.log.read_text()
            time.sleep(0.05)
        race = json.loads(self.record.read_text())
        self.record.unlink()
        return {**race, "events": [*map(from_json, race["events"])]}


def display(session: Session, repeats: int) -> list[dict[str, Any]]:
    """Frames per second, processor time and latency of live races of 400 tokens. Latency: from each step of the two
    lanes to the animation frame after the one that appended it."""
    rates, shares, delays = [], [], []
    for _ in range(min(repeats, 3)):
        race, painted = session.watched(400), session.tab.evaluate("window.painted")
        painted = [row for row in painted if row["race"] == painted[-1]["race"]]
        frames = {row["seq"]: row["at"] for row in reversed(painted)}.values()
        times = sorted(at for at in frames if race["begun"] <= at <= race["gone"] + 0.1)
        rates.append((len(times) - 1) / (times[-1] - times[0]))
        shares.append(race["page_cpu_s"] / (race["gone"] - race["begun"]))
        for stamp, event in zip(race["stamps"], race["events"], strict=True):
            if isinstance(event.event, Step) and event.lane in LANES:
                delays.append(next(row["at"] for row in painted if row[event.lane] > event.event.index) - stamp)
    return [
        row("frames a second", rates),
        row("server CPU for the page, share of a core", shares),
        row("event to pixels, s", delays),
    ]


def slowdown(session: Session, repeats: int) -> list[dict[str, Any]]:
    """Decode seconds with a page watching over those without. The first pair is a warm-up."""
    ratios: dict[str, list[float]] = {lane: [] for lane in ("plain", *LANES)}
    for pair in range(repeats + 1):
        first = session.unwatched() if pair % 2 else None
        watched = session.watched(128)
        unwatched = first or session.unwatched()
        for lane, values in ratios.items():
            seconds = [lane_metrics(race["events"], lane).decode_s for race in (watched, unwatched)]
            values.append(seconds[0] / seconds[1])
    return [row(f"decode seconds with a viewer / without: {lane}", values[1:]) for lane, values in ratios.items()]


def row(bar: str, values: list[float]) -> dict[str, Any]:
    shares = {"p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "most": 1.0}
    numbers = {"bar": bar, **{name: percentile(values, share) for name, share in shares.items()}, "num": len(values)}
    print({key: round(value, 4) if isinstance(value, float) else value for key, value in numbers.items()}, flush=True)
    return numbers


MEASURES = {measure.__name__: measure for measure in (display, slowdown)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MEASURES, help="run this measurement alone")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        record = Path(folder, "race.json")
        script = ("-m", "tools.page_bars", "--timed", str(record))
        with served(cache_dir(), "--target", NAME, script=script, log=Path(folder, "log")) as server:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            session = Session(server, record, browser.new_page(viewport={"width": 1440, "height": 1000}))
            rows = {name: MEASURES[name](session, options.repeats) for name in MEASURES if options.only in (name, None)}
    if options.json:
        options.json.write_text(json.dumps({**about(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--timed"]:
        timed_page(Path(sys.argv.pop(2)))
    else:
        main()
