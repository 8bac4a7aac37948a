"""Measure the page on this machine: a real server with the default model, watched by a real Chromium.

python -m tools.page_bars [--only display|slowdown] [--repeats N] [--json FILE] [--target T]

display     a live race, two lanes of 400 tokens on screen: frames per second, the server's processor time for them, and
            the delay from an event leaving the engine to the animation frame after its node was appended
slowdown    decode seconds of the same race with a page following it and with nobody watching, in pairs of alternating
            order

Times are seconds of CLOCK_MONOTONIC, which all processes of the machine share; pings align the browser's clock with it.
The server is `timed_page`: a line of its log for every race.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from app.jobs.backend import TorchBackend
from engine.analysis.metrics import percentile
from engine.cache import cache_dir
from engine.recordings.event_json import to_json
from tests.helpers.page_browser import CHROMIUM, FLAGS, SEEN
from tests.helpers.pageserver import Server, served
from tools import about

LANES = ("baseline", "speculative")
WAIT_MS = 240_000
STATE = "document.querySelector('.pf').photofinish.state"
NOTES = """
window.painted = [];
document.addEventListener("photofinish:painted", ({ detail }) => {
  const { left, right } = document.querySelector(".pf").photofinish.state.counts;
  const seen = { race: detail.race, seq: detail.seq, baseline: left, speculative: right };
  requestAnimationFrame((now) => window.painted.push({ ...seen, at: now / 1000 }));
});
"""


class TimedRace:
    """A race that writes a line to `log` when it ends: prepared (when it was requested), begun (before the first step),
    gone (after the last), stamps (one per event), events (their JSON), page_cpu_s (processor time of all Python threads
    but the race's own, while it ran)."""

    def __init__(self, race: Any, prepared: float, log: Path) -> None:
        self._race, self._prepared, self._log = race, prepared, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._race, name)

    def events(self) -> Iterator[Any]:
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
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def others_cpu_s() -> float:
    """Processor seconds of this process's Python threads except the calling one. torch's own threads do not count."""
    ids = [thread.native_id for thread in threading.enumerate() if thread is not threading.current_thread()]
    stats = [Path(f"/proc/self/task/{number}/schedstat") for number in ids]
    return sum(1e-9 * int(stat.read_text().split()[0]) for stat in stats if stat.exists())


def timed_page(log: Path) -> None:
    """`python app.py` with a stopwatch. A line on standard input runs the last race again without a page."""
    last: list[Any] = []
    prepare = TorchBackend.prepare

    def timed(backend: TorchBackend, order: Any, progress: Any) -> TimedRace:
        last[:] = [backend, order]
        requested = time.monotonic()
        return TimedRace(prepare(backend, order, progress), requested, log)

    def unwatched() -> None:
        race = timed(*last, lambda text, share: None)
        race.header()
        list(race.events())

    def run_again() -> None:
        for _ in sys.stdin:
            threading.Thread(target=unwatched, name="race", daemon=True).start()

    TorchBackend.prepare = timed  # type: ignore[method-assign,assignment]
    threading.Thread(target=run_again, daemon=True).start()
    sys.argv[:2] = ["app.py"]
    runpy.run_path("app.py", run_name="__main__")


class Session:
    """A server with its log, a browser, and ways to run races in it."""

    def __init__(self, server: Server, log: Path, browser: Any) -> None:
        self.server, self.log, self.browser = server, log, browser

    def page(self, length: int) -> Any:
        """A new visitor, with the model ready, who races up to so many tokens."""
        tab = self.browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
        tab.add_init_script(SEEN + NOTES)
        self.visit(tab, length)
        return tab

    def visit(self, tab: Any, length: int) -> None:
        tab.goto(self.server.url)
        tab.wait_for_selector('.page-model[data-state="ready"]', timeout=WAIT_MS)
        tab.click("#page-settings-button")
        field = tab.get_by_label("number input for Maximum length", exact=True)
        field.fill(str(length))
        field.press("Tab")
        tab.keyboard.press("Escape")

    def race(self, tab: Any) -> None:
        tab.click("#page-race-button")
        for state in ("running", "finished"):
            tab.wait_for_function(f"{STATE}.state === '{state}' && {STATE}.race?.length === 16", timeout=WAIT_MS)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def record_of(self, run: Callable[[], object]) -> dict[str, Any]:
        """Run a race and wait for its line in the log."""
        count, ends = len(self.records()), time.monotonic() + WAIT_MS / 1000
        run()
        while len(records := self.records()) <= count:
            assert time.monotonic() < ends, "the race was never logged"
            time.sleep(0.05)
        return records[count]

    def again(self) -> None:
        """The last race again, with nobody watching."""
        self.server.process.stdin.write("again\n")
        self.server.process.stdin.flush()


@contextmanager
def session(target: str) -> Iterator[Session]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        log, output = Path(folder, "races.jsonl"), Path(folder, "output")
        script = ("-m", "tools.page_bars", "--timed", str(log))
        with served(cache_dir(), "--target", target, script=script, log=output) as server, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            yield Session(server, log, browser)
            browser.close()


def offset(tab: Any) -> float:
    """What to add to the page's performance.now() to get CLOCK_MONOTONIC. Taken from the fastest of many pings, and
    accurate to half of it."""
    pings = []
    for _ in range(60):
        before = time.monotonic()
        there = tab.evaluate("performance.now() / 1000")
        after = time.monotonic()
        pings.append((after - before, (before + after) / 2 - there))
    return min(pings)[1]


def display(session: Session, repeats: int) -> list[dict[str, Any]]:
    """Frames per second, processor time and latency of live races of 400 tokens. Latency: from each step of the two
    lanes to the animation frame after the one that appended it."""
    tab = session.page(400)
    rates, shares, delays = [], [], []
    for _ in range(min(repeats, 3)):
        record = session.record_of(lambda: session.race(tab))
        shift, painted = offset(tab), tab.evaluate("window.painted.splice(0)")
        painted = [row for row in painted if row["race"] == painted[-1]["race"]]
        frames = {row["seq"]: row["at"] + shift for row in reversed(painted)}.values()
        times = sorted(at for at in frames if record["begun"] <= at <= record["gone"] + 0.1)
        rates.append((len(times) - 1) / (times[-1] - times[0]))
        shares.append(record["page_cpu_s"] / (record["gone"] - record["begun"]))
        for stamp, event in zip(record["stamps"], record["events"], strict=True):
            if event["type"] == "step" and (lane := event["lane"]) in LANES:
                shown = next(row["at"] for row in painted if row[lane] > event["index"])
                delays.append(shown + shift - stamp)
    tab.context.close()
    return [
        row("frames a second", rates),
        row("server CPU for the page, share of a core", shares),
        row("event to pixels, s", delays),
    ]


def slowdown(session: Session, repeats: int) -> list[dict[str, Any]]:
    """Decode seconds with a page watching over those without. The first races are a warm-up."""
    tab = session.page(128)
    session.race(tab)
    session.record_of(session.again)
    ratios: dict[str, list[float]] = {lane: [] for lane in ("plain", *LANES)}

    def watched() -> dict[str, Any]:
        session.visit(tab, 128)
        return session.record_of(lambda: session.race(tab))

    def unwatched() -> dict[str, Any]:
        tab.goto("about:blank")
        tab.wait_for_timeout(1500)
        return session.record_of(session.again)

    for pair in range(repeats):
        order: Sequence[Callable[[], dict[str, Any]]] = (watched, unwatched) if pair % 2 else (unwatched, watched)
        done = {run.__name__: run() for run in order}
        for lane, values in ratios.items():
            values.append(decode_s(done["watched"], lane) / decode_s(done["unwatched"], lane))
    tab.context.close()
    return [row(f"decode seconds with a viewer / without: {lane}", values) for lane, values in ratios.items()]


def decode_s(record: dict[str, Any], lane: str) -> float:
    steps = [event for event in record["events"] if event["lane"] == lane and event["type"] == "step"]
    return sum(step["draft_s"] + step["verify_s"] for step in steps)


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
    parser.add_argument("--target", default="gemma-3-270m")
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    with session(options.target) as running:
        rows = {name: MEASURES[name](running, options.repeats) for name in MEASURES if options.only in (name, None)}
    if options.json:
        options.json.write_text(json.dumps({**about(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--timed"]:
        timed_page(Path(sys.argv.pop(2)))
    else:
        main()
