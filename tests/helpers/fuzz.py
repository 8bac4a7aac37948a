"""Calls a running page in every wrong way, and looks for what no answer may have.

`python -m tests.helpers.fuzz --calls 10000` starts a page, does so to it, and prints as JSON what came of it."""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.helpers import ROOT
from tests.helpers.fuzz_calls import Call, Caller
from tests.helpers.loopback import servers
from tests.helpers.loopback_models import lists_models, writes
from tests.helpers.pageserver import PLANTED, TARGET, Server, served

READ_S, MAX_READ, SLOW_S = 0.25, 20_000_000, 10.0
"""How long to read an answer that does not end, how much of it, and how long a call may take."""
WARM_UP, REST_S = 2_000, 8.0
NUM_ADDRESSES = 16
"""Callers with addresses of their own: one alone would soon be refused everything."""
FAULTS = "Key|Type|Value|Attribute|Runtime|Index|Recursion|Assertion"
FOUND = re.compile(
    r'Traceback \(most|File \\?"[^"]+", line|site-packages|dist-packages|'
    + rf"\b(?:{FAULTS})Error(?:\(|: )|"
    + "|".join(map(re.escape, (str(ROOT), sys.prefix, sys.base_prefix, *PLANTED.values())))
)
"""What no answer may have."""


@dataclass
class Report:
    """num_calls: and how many of them were answered with which status (0: the connection was closed). problems: the
    first calls that went wrong, and how. rss_mb, log_bytes: by how much the page's process, after every thousand calls,
    and its log have grown. rest_mb: the page's process afterwards, at rest as before: while calls come, freed memory is
    not returned at once."""

    num_calls: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    num_read: int = 0
    problems: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""
    rss_mb: list[float] = field(default_factory=list)
    rest_mb: float = 0.0
    log_bytes: int = 0

    def note(self, call: Call, status: int, answer: str, took_s: float) -> None:
        self.num_calls += 1
        self.statuses[status] += 1
        if took_s > self.slowest_s:
            self.slowest_s, self.slowest = took_s, str(call)[:200]
        sent = call.content.decode("utf-8", "replace") + call.target
        words = {found for found in FOUND.findall(answer) if found not in sent}
        for why in (*sorted(words), *([f"status {status}"] * (status >= 500)), *(["slow"] * (took_s > SLOW_S))):
            if len(self.problems) < 40:
                self.problems.append(f"{why}: {str(call)[:400]} -> {answer[:300]}")


class Fuzzer:
    """Sends what a `Caller` draws."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server, self._rng = server, random.Random(seed)
        self._base = urlsplit(server.url)
        self._clients = [
            httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address=f"127.0.3.{i}", verify=False))
            for i in range(1, NUM_ADDRESSES + 1)
        ]
        config = self._clients[0].get("/config").json()
        self._caller = Caller(self._rng, config)
        self.pair = next(
            each["props"]["value"] for each in config["components"] if each["props"].get("label") == "Model"
        )
        self.report = Report()

    def run(self, num_calls: int) -> Report:
        """So many calls, then how much the page has grown."""
        self._rss_mb, log = rss_mb(self._server), self._server.log.stat().st_size
        for number in range(1, num_calls + 1):
            self._send(self._caller.call())
            if number % 1_000 == 0:
                self.report.rss_mb.append(self.growth_mb())
        self.report.log_bytes += self._server.log.stat().st_size - log
        return self.report

    def growth_mb(self) -> float:
        """By how much the page's memory has grown since `run` began."""
        return round(rss_mb(self._server) - self._rss_mb, 1)

    def close(self) -> None:
        for each in self._clients:
            each.close()

    def _send(self, call: Call) -> None:
        client = self._rng.choice(self._clients)
        began = time.monotonic()
        if call.bare:
            status, answer = self._bare(call.bare)
        else:
            status, answer = self._asked(client, call)
        self.report.note(call, status, answer, time.monotonic() - began)
        if status == 200 and call.target == "/recordings":
            self._caller.keys[2:] = [*self._caller.keys[2:][-8:], json.loads(answer)["key"]]
        if status == 200 and call.stream:
            self.report.num_read += 1
            began, read = time.monotonic(), Call(target="/gradio_api/queue/data?session_hash=" + call.stream)
            status, answer = self._asked(client, read)
            self.report.note(call, status, answer, time.monotonic() - began)

    def _asked(self, client: httpx.Client, call: Call) -> tuple[int, str]:
        """(status, answer): as far as it comes in time."""
        headers = {name: each.encode("latin-1") for name, each in call.headers.items()}
        target = {"target": call.target.encode("ascii", "replace")}
        timeout = httpx.Timeout(SLOW_S + 5, read=SLOW_S + 5)
        request = client.build_request(
            call.method, "/", content=call.content or None, headers=headers, extensions=target, timeout=timeout
        )
        answer = b""
        try:
            response = client.send(request, stream=True)
            is_stream = "text/event-stream" in response.headers.get("content-type", "")
            with closing(response):
                request.extensions["timeout"]["read"] = READ_S if is_stream else SLOW_S
                ends = time.monotonic() + READ_S
                for part in response.iter_raw():
                    answer += part
                    if len(answer) > MAX_READ or (is_stream and time.monotonic() > ends):
                        break
        except httpx.ReadTimeout:
            if not answer and "queue/data" not in call.target and "call/" not in call.target:
                return 599, "no answer"
            return 200, answer.decode("utf-8", "replace")
        except (httpx.RemoteProtocolError, httpx.LocalProtocolError, httpx.ReadError, httpx.WriteError):
            return 0, ""
        return response.status_code, answer.decode("utf-8", "replace")

    def _bare(self, request: bytes) -> tuple[int, str]:
        with socket.create_connection((self._base.hostname, self._base.port), timeout=READ_S) as bare:
            answer = b""
            try:
                bare.sendall(request)
                while len(answer) < MAX_READ and (part := bare.recv(65_536)):
                    answer += part
            except OSError:
                pass
        status = answer[9:12]
        return int(status) if status.isdigit() else 0, answer.decode("utf-8", "replace")


def rss_mb(server: Server) -> float:
    """Memory of the page's process, in MB of 2**20 bytes. Linux only."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def fuzzed(server: Server, seed: int = 0) -> Iterator[Fuzzer]:
    fuzzer = Fuzzer(server, seed)
    try:
        yield fuzzer
    finally:
        fuzzer.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.fuzz", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", choices=("own", "public", "servers"), default="own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, servers(writes(), writes(3)) as found:
        arguments = ["--target", TARGET, "--dtype", "float32"]
        if options.page == "public":
            arguments += ["--pairs", "loaded"]
        elif options.page == "servers":
            for each in found:
                each.pages |= lists_models("m")
            arguments = [f"--lane={name}=openai:{each.url}" for name, each in zip(("plain", "x"), found, strict=True)]
            arguments += ["--model", "m", "--under-load"]
        with served(Path(folder), *arguments, script=("app.py",)) as server, fuzzed(server, options.seed) as fuzzer:
            server.visitor("first").race(pair=fuzzer.pair)
            fuzzer.run(WARM_UP)  # what is loaded once, and recordings that are kept until others take their place
            fuzzer.report = Report()
            time.sleep(REST_S)
            report = fuzzer.run(options.calls)
            time.sleep(REST_S)
            report.rest_mb = fuzzer.growth_mb()
            last = server.visitor("last").race(pair=fuzzer.pair)[-1]["state"]
            print(json.dumps({**vars(report), "last_race": last, "log": server.log.read_text()}, indent=1))


if __name__ == "__main__":
    main()
