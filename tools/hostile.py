"""Start a page and send it requests that used to stop it for everyone. Print for each how long another visitor waits
meanwhile, and how much memory and how many files are left behind. Then send random nonsense, generated from a seed.

    python -m tools.hostile [--calls 3000] [--seed 0] [--target T]

Bars (must and aim): waits 0.3 and 0.1 s; memory +20 and +5 MB; no file. For the random calls: no 5xx, memory +30 and
+10 MB, and a race runs afterwards. Exit status 1 if a must is missed. Needs Linux and a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from engine.cache import cache_dir
from tests.helpers.hostile_calls import RECORDED, copied, in_one_step, mixed
from tests.helpers.pageserver import LONG, TARGET, Server, Watched, served

POLL_S, TIMEOUT_S = 0.03, 60.0
LOOK_S, SETTLE_S = 1.0, 20.0
"""How long to wait for memory to settle: at least LOOK_S, then until it has grown by at most AIM_MB."""
WAIT_S, MEMORY_MB, MIXED_MB, AIM_MB = 0.3, 20.0, 30.0, 5.0
AT_ONCE = 8


def poll(url: str, ended: Any, results: Any) -> None:
    """The other visitor: sends a small request every POLL_S until `ended`, then puts all (start, seconds)."""
    where, found = urlsplit(url), []
    line = http.client.HTTPConnection(where.hostname or "", where.port, timeout=TIMEOUT_S)
    while not ended.is_set():
        sent = time.monotonic()
        try:
            line.request("GET", "/gradio_api/queue/status")
            line.getresponse().read()
        except (OSError, http.client.HTTPException):
            line.close()
        found.append((sent, time.monotonic() - sent))
        time.sleep(max(0.0, sent + POLL_S - time.monotonic()))
    results.put(found)


class Attack:
    """A running page under attack. rows: the table's."""

    def __init__(self, server: Server, pair: str, files: Path) -> None:
        self.server, self.pair, self.files = server, pair, files
        self.url, self.rows = f"{server.url}/gradio_api", list[dict[str, Any]]()
        self.functions = server.visitor("names").functions
        self.client = httpx.Client(timeout=TIMEOUT_S)

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def num_files(self) -> int:
        return sum(path.is_file() for path in self.files.rglob("*"))

    @property
    def address(self) -> str:
        """Each row has its own caller, so that it does not run into the previous row's limits."""
        return f"127.0.1.{len(self.rows) + 1}"

    def run(self, name: str, *calls: Any) -> None:
        """Add a row: make these calls in turn, without opening a stream, and let memory settle."""
        self.client = httpx.Client(timeout=TIMEOUT_S, transport=httpx.HTTPTransport(local_address=self.address))
        before, num_files, began = self.memory_mb(), self.num_files(), time.monotonic()
        answers: Counter[str] = Counter()
        for call in calls:
            try:
                answers[str(call().status_code)] += 1
            except httpx.HTTPError as error:
                answers[type(error).__name__] += 1
        time.sleep(LOOK_S)
        ends = time.monotonic() + SETTLE_S
        while self.memory_mb() > before + AIM_MB and time.monotonic() < ends:
            time.sleep(LOOK_S)
        self.rows.append(
            {
                "name": name,
                "answers": ", ".join(f"{num} x {status}" for status, num in answers.items()),
                "began": began,
                "ended": time.monotonic(),
                "mb": (before, self.memory_mb()),
                "files": self.num_files() - num_files,
            }
        )

    def join(self, function: str, session: str, data: Iterable[Any] = (), **event: Any) -> Any:
        body = {"data": list(data), "fn_index": self.functions[function], "session_hash": session, "event_data": event}
        return self.post("queue/join", json=body)

    def post(self, path: str, **more: Any) -> Any:
        headers = {} if "files" in more else {"content-type": "application/json"}
        return lambda: self.client.post(f"{self.url}/{path}", headers=headers, **more)

    def shown(self, function: str, recording: str, num: int = 1) -> list[Any]:
        """Send this recording, then call charts, why or again with its key, each time from another session."""

        def show(i: int) -> httpx.Response:
            sent = self.client.post(f"{self.server.url}/recordings", content=recording)
            if sent.status_code != 200:
                return sent
            return self.join(function, f"{function}{i}", key=sent.json()["key"], request="1", lane="")()

        return [partial(show, i) for i in range(num)]

    def study(self, text: str, name: str) -> Any:
        settings = (self.pair, "ngram", 0, 1, 0, [])
        return self.join("study", "study", settings, text=text, name=name, limit=1, max_new_tokens=8, kept=None)

    def race(self, session: str) -> float:
        """Seconds until a short race has ended."""
        began = time.monotonic()
        frames = self.server.visitor(session).race(pair=self.pair)
        assert frames[-1]["state"] == "finished", frames[-1]["status"]
        return time.monotonic() - began


def review(attack: Attack) -> None:
    """Requests that once stopped the page, then the largest ones that the limits allow."""
    lists, keys = "[" + "[]," * 2_600_000 + "[]]", json.dumps({str(i): 0 for i in range(600_000)})
    for num in (5_000, 20_000, 100_000):
        attack.run(f"why, {num} equal tokens in a step", *attack.shown("why", in_one_step(num)))
    attack.run("why, 44 of 100,000 tokens", *attack.shown("why", in_one_step(100_000), 44))
    attack.run("again, copies from 800,000 tokens", *attack.shown("again", copied(800_000, 9_000)))
    attack.run("again, copies from 1,900,000 tokens", *attack.shown("again", copied(1_900_000, 18_000)))
    for size in (4, 8, 45):
        body = b'{"data":[' + b"[]," * (size * 10**6 // 3) + b'[]],"fn_index":12,"session_hash":"big"}'
        attack.run(f"join, {size} MB of lists", attack.post("queue/join", content=body))
    sent = {"video": ("a.mp4", os.urandom(40 * 2**20))}
    attack.run("process_recording, 3 x 40 MB", *[attack.post("process_recording", files=sent)] * 3)
    attack.run("component_server, 40 MB", attack.post("component_server", files=sent))
    attack.run("1,200 examples joined, unread", *[attack.join("named", "leak", [attack.pair])] * 1_200)
    attack.run("100 figures, unread", *attack.shown("charts", RECORDED.read_text(encoding="utf-8"), 100))
    attack.run("study of 2,000,000 lines", attack.study("a\n" * 2_000_000, "a.txt"))
    attack.run("study of 200,000 JSON lines", attack.study('{"prompt":"a"}\n' * 200_000, "a.jsonl"))
    for function in ("why", "charts"):
        attack.run(f"{function}, 8 MB of lists", *attack.shown(function, lists))
        attack.run(f"{function}, 600,000 keys", *attack.shown(function, keys))
    attack.run("150 watchers of a race", *watchers(attack))
    at_limit = "[" + "[]," * 149_990 + '"",' * 249_990 + "0," * 600_000 + "0]"
    attack.run("why, as many lists, texts and numbers as may be", *attack.shown("why", at_limit))
    attack.run("study, 20,000 JSON lines", attack.study('{"prompt":"' + "a" * 120 + '"}\n' * 19_999, "a.jsonl"))
    body = b'{"data":[' + b"[]," * 16_000 + b'[]],"fn_index":0,"session_hash":"big"}'
    attack.run("join, as many lists as may be", attack.post("queue/join", content=body))
    body = json.dumps(
        {"data": [], "fn_index": 9, "session_hash": "big", "event_data": {"text": "\n" * 4_900_000}}
    ).encode()
    attack.run("join, a text of 9.8 MB", attack.post("queue/join", content=body))


def watchers(attack: Attack) -> list[Any]:
    watched = Watched(attack.server.visitor("watched"), pair=attack.pair, **LONG)
    watched.until("running")
    return [attack.join("resume", f"watcher{i}", [watched.frames[0]["race"]]) for i in range(150)]


def nonsense(attack: Attack, num: int, seed: int) -> int:
    """Add the row of random calls. Returns how many were answered 5xx."""
    rng = random.Random(seed)
    calls, failed = [mixed(rng) for _ in range(num)], Counter[int]()

    async def send() -> None:
        transport = httpx.AsyncHTTPTransport(local_address=attack.address)
        async with httpx.AsyncClient(base_url=attack.server.url, timeout=TIMEOUT_S, transport=transport) as client:
            places = asyncio.Semaphore(AT_ONCE)

            async def one(method: str, path: str, more: dict[str, Any]) -> None:
                async with places, client.stream(method, path, **more) as answer:
                    failed[answer.status_code] += 1
                    if answer.status_code >= 500:
                        print(answer.status_code, method, path, str(more)[:300])

            await asyncio.gather(*(one(*call) for call in calls))

    def all_of_them() -> httpx.Response:
        asyncio.run(send())
        return httpx.Response(200)

    attack.run(f"{num} mixed calls", all_of_them)
    attack.rows[-1]["answers"] = ", ".join(f"{num} x {status}" for status, num in sorted(failed.items()))
    return sum(num for status, num in failed.items() if status >= 500)


def table(rows: list[dict[str, Any]], polls: list[tuple[float, float]]) -> bool:
    """Print the table. Returns whether every must is met."""
    print(f"\n{'request':50} {'waits s':>8} {'MB before':>10} {'after':>8} {'grown':>6} {'files':>5}  answers")
    good = True
    for row in rows:
        waits = max((s for sent, s in polls if row["began"] <= sent + s and sent <= row["ended"]), default=0.0)
        before, after = row["mb"]
        most = MIXED_MB if "mixed" in row["name"] else MEMORY_MB
        missed = waits > WAIT_S or after - before > most or row["files"]
        good &= not missed
        print(
            f"{row['name']:50} {waits:8.3f} {before:10.0f} {after:8.0f} {after - before:6.1f} {row['files']:5}  "
            f"{row['answers']}{'  MISSED' if missed else ''}"
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="", help=f"as for app.py, e.g. {TARGET} (default: the default model)")
    options = parser.parse_args()
    arguments = ["--target", options.target, "--dtype", "float32"] if options.target else ["--device", "cpu"]
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "temporary")
        files.mkdir()
        os.environ["TMPDIR"] = str(files)
        with served(cache_dir(), *arguments, log=Path(folder, "log")) as server:
            offered = httpx.get(f"{server.url}/config").json()["components"]
            pair = next(each["props"]["value"] for each in offered if each["props"].get("label") == "Model")
            attack = Attack(server, pair, files)
            print(f"first race: {attack.race('first'):.1f} s")
            for function in ("charts", "why"):  # imports plotly
                attack.run(f"{function}, an ordinary race", *attack.shown(function, RECORDED.read_text("utf-8")))
            ended, results = multiprocessing.Event(), multiprocessing.Queue()
            other = multiprocessing.Process(target=poll, args=(server.url, ended, results), daemon=True)
            other.start()
            review(attack)
            num_failed = nonsense(attack, options.calls, options.seed)
            print(f"5xx: {num_failed}; next race: {attack.race('next'):.1f} s")
            ended.set()
            good = table(attack.rows, results.get(timeout=TIMEOUT_S))
            other.join()
            print(f"log: {(Path(folder, 'log')).stat().st_size} bytes; memory in the end: {attack.memory_mb():.0f} MB")
            if tail := Path(folder, "log").read_text(encoding="utf-8")[:4000]:
                print(tail)
    return 0 if good and not num_failed else 1


if __name__ == "__main__":
    sys.exit(main())
