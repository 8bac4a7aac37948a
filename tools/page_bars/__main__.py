"""Measure the page on this machine: a real server with the default model, watched by a real Chromium.

python -m tools.page_bars [--only display|stop|slowdown]... [--repeats N] [--json FILE] [--target T]

display     a live race, two lanes of 400 tokens on screen: frames per second, the server's processor time for them, and
            the delay from an event leaving the engine to the animation frame after its node was appended
stop        from a click on Stop, or a closed tab, until the decoder is gone, until the next visitor has the device, and
            until that visitor's race runs
slowdown    decode seconds of the same race with a page following it and with nobody watching, in pairs of alternating
            order

Times are seconds of CLOCK_MONOTONIC; pings align the browser's clock with it. timed_page.py is the server and logs when
each event left the engine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from engine.analysis.metrics import percentile
from engine.cache import cache_dir
from engine.hardware import environment
from engine.kernels.choose import choose
from tests.helpers.page_browser import CHROMIUM, FLAGS, SEEN
from tests.helpers.pageserver import Server, served

LANES = ("baseline", "speculative")
WAIT_MS = 240_000
NOTES = """
window.notes = { painted: [], clicks: [] };
document.addEventListener("photofinish:painted", ({ detail }) => {
  const { left, right } = window.photofinish.state.counts;
  const seen = { race: detail.race, seq: detail.seq, baseline: left, speculative: right };
  requestAnimationFrame((now) => window.notes.painted.push({ ...seen, at: now / 1000 }));
});
document.addEventListener("click", (event) => {
  window.notes.clicks.push({ on: event.target.closest("button")?.id, at: performance.now() / 1000 });
}, true);
"""


class Session:
    """A server with its log, a browser, and ways to run races in it."""

    def __init__(self, server: Server, log: Path, browser: Any) -> None:
        self.server, self.log, self.browser = server, log, browser

    def page(self, **settings: int) -> Any:
        """A new visitor, with the model ready and these settings."""
        tab = self.browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
        tab.add_init_script(SEEN + NOTES)
        self.visit(tab, **settings)
        return tab

    def visit(self, tab: Any, **settings: int) -> None:
        tab.goto(self.server.url)
        tab.wait_for_selector('.page-model[data-state="ready"]', timeout=WAIT_MS)
        tab.click("#page-settings-button")
        tab.wait_for_selector(".sidebar.open")
        for label, value in settings.items():
            field = tab.get_by_label(f"number input for {label.replace('_', ' ')}", exact=True)
            field.fill(str(value))
            field.press("Tab")
        tab.keyboard.press("Escape")

    def race(self, tab: Any, state: str = "finished") -> None:
        tab.click("#page-race-button")
        self.until(tab, "running")
        self.until(tab, state)

    def until(self, tab: Any, *states: str) -> None:
        tab.wait_for_function(
            "states => states.includes(window.photofinish.state.state) && window.photofinish.state.race?.length === 16",
            arg=list(states),
            timeout=WAIT_MS,
        )

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def record_after(self, count: int) -> dict[str, Any]:
        """Wait for the first race that is logged after `count` others."""
        ends = time.monotonic() + WAIT_MS / 1000
        while len(found := self.records()) <= count:
            assert time.monotonic() < ends, "the race was never logged"
            time.sleep(0.05)
        return found[count]

    def unwatched(self) -> dict[str, Any]:
        """The last race again, with nobody watching."""
        count = len(self.records())
        self.server.process.stdin.write("again\n")
        self.server.process.stdin.flush()
        return self.record_after(count)


@contextmanager
def session(arguments: list[str]) -> Iterator[Session]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "races.jsonl")
        script = ("-m", "tools.page_bars.timed_page", str(log))
        with (
            served(cache_dir(), *arguments, script=script, log=Path(folder, "output")) as server,
            sync_playwright() as driver,
        ):
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
    """Frames per second, processor time and latency of live races of 400 tokens."""
    tab = session.page(Maximum_length=400)
    rates, shares, delays, sizes = [], [], [], []
    for _ in range(min(repeats, 3)):
        count = len(session.records())
        session.race(tab)
        record = session.record_after(count)
        shift, painted = offset(tab), tab.evaluate("window.notes.painted")
        painted = [row for row in painted if row["race"] == painted[-1]["race"]]
        frames = {row["seq"]: row["at"] for row in reversed(painted)}.values()
        times = sorted(at for at in frames if record["begun"] <= at + shift <= record["gone"] + 0.1)
        rates.append((len(times) - 1) / (times[-1] - times[0]))
        shares.append(record["page_cpu_s"] / (record["gone"] - record["begun"]))
        delays += latencies(record, painted, shift)
        steps = [event for event in record["events"] if event["type"] == "step"]
        sizes.append([sum(len(step["token_ids"]) for step in steps if step["lane"] == lane) for lane in LANES])
        tab.evaluate("window.notes.painted.length = 0")
    tab.context.close()
    return [
        row("frames a second", rates, tokens=sizes),
        row("server CPU for the page, share of a core", shares),
        {
            "bar": "event to pixels, s",
            "p50": percentile(delays, 0.5),
            "p95": percentile(delays, 0.95),
            "most": max(delays),
            "events": len(delays),
        },
    ]


def latencies(record: dict[str, Any], painted: list[dict[str, Any]], shift: float) -> list[float]:
    """Seconds from each step of the two lanes on screen to the animation frame after the one that appended it."""
    found = []
    for stamp, event in zip(record["stamps"], record["events"], strict=True):
        if event["type"] == "step" and event["lane"] in LANES:
            found.append(next(row["at"] for row in painted if row[event["lane"]] > event["index"]) + shift - stamp)
    return found


def stop(session: Session, repeats: int) -> list[dict[str, Any]]:
    """The first visitor races while the second waits; then the first clicks Stop or closes the tab."""
    rows: list[dict[str, Any]] = []
    second = session.page(Maximum_length=160)
    for how in ("Stop", "closed tab"):
        gone, handed, runs = [], [], []
        first = session.page(Maximum_length=1000)
        for _ in range(repeats):
            if first.is_closed():
                first = session.page(Maximum_length=1000)
            count = len(session.records())
            first.click("#page-race-button")
            session.until(first, "running")
            second.click("#page-race-button")
            second.wait_for_selector("[data-ref=card]:has-text('ahead of you')")
            first.wait_for_timeout(1200)
            if how == "Stop":
                first.click("#page-stop-button")
                session.until(first, "stopped")
                clicked = "window.notes.clicks.filter(click => click.on === 'page-stop-button').at(-1).at"
                asked = first.evaluate(clicked) + offset(first)
            else:
                asked = time.monotonic()
                first.context.close()
            session.until(second, "running")
            second.wait_for_timeout(700)
            second.click("#page-stop-button")
            session.until(second, "stopped")
            one, two = session.record_after(count), session.record_after(count + 1)
            gone.append(one["gone"] - asked)
            handed.append(two["prepared"] - asked)
            runs.append(two["stamps"][0] - asked)
        if not first.is_closed():
            first.context.close()
        rows += [
            row(f"{how}: decoder gone, s", gone),
            row(f"{how}: next visitor has the device, s", handed),
            row(f"{how}: next visitor's race has begun to run, s", runs),
        ]
    second.context.close()
    return rows


def slowdown(session: Session, repeats: int) -> list[dict[str, Any]]:
    """Decode seconds with a page watching over those without. The first pair is a warm-up."""
    tab = session.page(Maximum_length=128)
    session.race(tab)
    ratios: dict[str, list[float]] = {lane: [] for lane in ("plain", *LANES)}

    def watched() -> dict[str, Any]:
        session.visit(tab, Maximum_length=128)
        count = len(session.records())
        session.race(tab)
        return session.record_after(count)

    def unwatched() -> dict[str, Any]:
        tab.goto("about:blank")
        tab.wait_for_timeout(1500)
        return session.unwatched()

    unwatched()
    for pair in range(repeats):
        order: list[Callable[[], dict[str, Any]]] = [watched, unwatched] if pair % 2 else [unwatched, watched]
        done = {run.__name__: run() for run in order}
        for lane, values in ratios.items():
            values.append(decode_s(done["watched"], lane) / decode_s(done["unwatched"], lane))
        print({lane: round(values[-1], 4) for lane, values in ratios.items()}, flush=True)
    tab.context.close()
    return [row(f"decode seconds with a viewer / without: {lane}", values) for lane, values in ratios.items()]


def decode_s(record: dict[str, Any], lane: str) -> float:
    return sum(
        event["draft_s"] + event["verify_s"]
        for event in record["events"]
        if event["lane"] == lane and event["type"] == "step"
    )


def row(bar: str, values: list[float], **more: Any) -> dict[str, Any]:
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    found = {
        "bar": bar,
        "median": statistics.median(values),
        "p25": quartiles[0],
        "p75": quartiles[2],
        "least": min(values),
        "most": max(values),
        "runs": len(values),
        **more,
    }
    print({key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}, flush=True)
    return found


MEASURES = {measure.__name__: measure for measure in (display, stop, slowdown)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=MEASURES, help="run this measurement alone; repeatable")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--target", default="gemma-3-270m")
    parser.add_argument("--json", type=Path, help="write the rows here; rows of other measurements in the file stay")
    options = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = {}
    if options.json and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    cpu = choose(torch.device("cpu"))
    chromium = subprocess.run([CHROMIUM, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    versions = environment.versions(cpu.describe()) | {"gradio": metadata.version("gradio"), "chromium": chromium}
    about = {
        "device": cpu.about_device()["name"],
        "load before": Path("/proc/loadavg").read_text().split()[:3],
        "versions": versions,
        "commit": environment.commit(),
    }
    with session(["--target", options.target]) as running:
        for name in options.only or MEASURES:
            rows[name] = MEASURES[name](running, options.repeats)
            if options.json:
                options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
