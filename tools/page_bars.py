"""Measure the bars of the page on this machine: a real server with the default model, watched by a real Chromium.

python tools/page_bars.py [--only display|stop|highlights|slowdown]... [--repeats N] [--json FILE] [--target T]

display     a live race, two lanes of 400 tokens on screen: frames a second, the server's processor time for them, and
            from an event leaving the engine to the animation frame after its node was appended
stop        a click on Stop, and a closed tab: until the decoder is gone, until the next waiting visitor has the
            device, until that race runs
highlights  tokens in the page against the events, once watched, with its scripts stopped in between, and minimised in
            between
slowdown    the same race with a page that follows it and with nobody watching, in pairs whose order alternates: decode
            seconds

Times are seconds of CLOCK_MONOTONIC; the browser's clock is aligned by pings. tools/timed_page.py is the server and
notes the engine's times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from page_session import Session, offset, session  # noqa: E402

from engine.kernels.choose import choose  # noqa: E402
from engine.measure import environment  # noqa: E402
from engine.metrics import percentile  # noqa: E402
from tests.helpers.page_browser import CHROMIUM  # noqa: E402
from tests.helpers.race_pages import TOKENS, expected  # noqa: E402

LANES = ("baseline", "speculative")


def display(session: Session, repeats: int) -> list[dict[str, Any]]:
    """Frames a second, processor time and latency of live races of 400 tokens."""
    tab = session.page(Length=400)
    rates, shares, delays, sizes = [], [], [], []
    for _ in range(min(repeats, 3)):
        count = len(session.records())
        session.race(tab)
        record = session.record_after(count)
        shift, painted = offset(tab), tab.evaluate("window.notes.painted")
        painted = [row for row in painted if row["race"] == painted[-1]["race"]]
        frames = [
            row
            for row in {row["seq"]: row for row in reversed(painted)}.values()
            if record["begun"] <= row["at"] + shift <= record["gone"] + 0.1
        ]
        times = sorted(row["at"] for row in frames)
        rates.append((len(times) - 1) / (times[-1] - times[0]))
        shares.append(record["page_cpu_s"] / (record["gone"] - record["begun"]))
        delays += latencies(record, painted, shift)
        sizes.append(
            [
                sum(len(e["token_ids"]) for e in record["events"] if e["lane"] == lane and e["type"] == "step")
                for lane in LANES
            ]
        )
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
    """Seconds from each step of the two lanes on screen to the animation frame that followed the one in which it was
    appended."""
    found = []
    for stamp, event in zip(record["stamps"], record["events"], strict=True):
        if event["type"] == "step" and event["lane"] in LANES:
            found.append(next(row["at"] for row in painted if row[event["lane"]] > event["index"]) + shift - stamp)
    return found


def stop(session: Session, repeats: int) -> list[dict[str, Any]]:
    """The first visitor races, the second waits; the first one clicks Stop or closes the tab."""
    rows = []
    second = session.page(Length=160)
    for how in ("Stop", "closed tab"):
        gone, handed, runs = [], [], []
        first = session.page(Length=1000)
        for _ in range(repeats):
            if first.is_closed():
                first = session.page(Length=1000)
            count = len(session.records())
            first.click("#page-race-button")
            session.until(first, "running")
            second.click("#page-race-button")
            second.wait_for_selector("[data-ref=card]:has-text('before yours')")
            first.wait_for_timeout(1200)
            if how == "Stop":
                first.click("#page-stop-button")
                session.until(first, "stopped")
                asked = first.evaluate(
                    "window.notes.clicks.filter(click => click.on === 'page-stop-button').at(-1).at"
                ) + offset(first)
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


def highlights(session: Session, _: int) -> list[dict[str, Any]]:
    """Steps whose tokens, kinds and ids in the page differ from the events."""
    rows = []
    for how, hide in (
        ("watched", None),
        ("scripts stopped for 4 s of it", stall),
        ("minimised for 4 s of it", minimise),
    ):
        tab = session.page(Length=400)
        count = len(session.records())
        tab.click("#page-race-button")
        session.until(tab, "running")
        hidden = hide(tab) if hide else {}
        session.until(tab, "finished")
        record = session.record_after(count)
        # once the race is over the page replays it: from its end, all of it stands there
        tab.evaluate(
            "document.querySelector('[data-ref=deck]').dispatchEvent(new KeyboardEvent('keydown', {key: 'End', "
            "bubbles: true}))"
        )
        tab.wait_for_timeout(300)
        shown, want = tab.evaluate(TOKENS), expected({"events": record["events"]})
        wrong = abs(len(shown) - len(want)) + sum(a != b for a, b in zip(shown, want, strict=False))
        rows.append({"bar": f"highlights, {how}: steps that differ", "steps": len(want), "different": wrong, **hidden})
        print(rows[-1], flush=True)
        tab.context.close()
    return rows


def stall(tab: Any) -> dict[str, Any]:
    """Stop all scripts and timers of the page, as a browser does with a tab long out of sight (headless Chromium does
    not freeze on request)."""
    return tab.evaluate("() => { const ends = performance.now() + 4000; while (performance.now() < ends); return {}; }")


def minimise(tab: Any) -> dict[str, Any]:
    """Minimise the window: nothing is drawn, and no animation frames are given."""
    client = tab.context.new_cdp_session(tab)
    window = client.send("Browser.getWindowForTarget")["windowId"]
    client.send("Browser.setWindowBounds", {"windowId": window, "bounds": {"windowState": "minimized"}})
    time.sleep(0.5)
    before = tab.evaluate("window.notes.painted.length")
    time.sleep(4)
    painted = tab.evaluate("window.notes.painted.length") - before
    client.send("Browser.setWindowBounds", {"windowId": window, "bounds": {"windowState": "normal"}})
    return {"painted meanwhile": painted}


def slowdown(session: Session, repeats: int) -> list[dict[str, Any]]:
    """Decode seconds with a page that follows over those with nobody watching; one pair at least is run untimed."""
    tab = session.page(Length=128)
    session.race(tab)
    ratios: dict[str, list[float]] = {lane: [] for lane in ("plain", *LANES)}

    def watched() -> dict[str, Any]:
        session.visit(tab, Length=128)
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


MEASURES = {measure.__name__: measure for measure in (display, stop, highlights, slowdown)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=MEASURES, help="measure this alone; may be given again")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--target", default="gemma-3-270m")
    parser.add_argument(
        "--json",
        type=Path,
        help="write the rows here, with device, versions and commit; rows of other measures in it stay",
    )
    options = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = (
        json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else {}
    )
    load = Path("/proc/loadavg").read_text().split()[:3]
    with session(["--target", options.target]) as running:
        for name in options.only or MEASURES:
            rows[name] = MEASURES[name](running, options.repeats)
            if options.json:
                chromium = subprocess.run(
                    [CHROMIUM, "--version"], capture_output=True, text=True, check=True
                ).stdout.strip()
                import torch

                cpu = choose(torch.device("cpu"))
                versions = {
                    **environment.versions(cpu.describe()),
                    "gradio": metadata.version("gradio"),
                    "chromium": chromium,
                }
                about = {
                    "device": cpu.about_device()["name"],
                    "load before": load,
                    "versions": versions,
                    "commit": environment.commit(),
                }
                options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
