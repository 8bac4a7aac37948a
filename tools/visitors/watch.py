"""The page seen from outside while others visit it: its health, its memory, its log, and how soon it answers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx

from tests.helpers.fuzz import rss_mb
from tests.helpers.pageserver import Server

OVER = re.compile(r"race (\w{8}) (\w+): .*waited ([\d.]+) s, (?:took ([\d.]+) s|never began)")
HEALTH_EVERY_S, RSS_EVERY_S, PING_EVERY_S = 5, 10, 1


@dataclass(frozen=True)
class Logged:
    """A race by the page's log: when it entered the queue, got the device (None: never), and was over."""

    entered: float
    begun: float | None
    over: float
    outcome: str


@dataclass
class Watch:
    """rss: (seconds since the beginning, MB). unhealthy: answers of /healthz other than 200, and of /metrics. asked:
    seconds until GET / and POST /tokens were answered."""

    server: Server
    began: float = field(default_factory=time.time)
    rss: list[tuple[float, float]] = field(default_factory=list)
    unhealthy: list[str] = field(default_factory=list)
    num_health: int = 0
    lengths: list[float] = field(default_factory=list)
    asked: dict[str, list[float]] = field(default_factory=lambda: {"GET /": [], "POST /tokens": []})
    metrics: str = ""

    def start(self) -> list[asyncio.Task[None]]:
        """Watch until these tasks are cancelled."""
        client = httpx.AsyncClient(
            base_url=self.server.url, transport=httpx.AsyncHTTPTransport(local_address="127.0.3.99"), timeout=30
        )
        return [
            asyncio.create_task(self._every(HEALTH_EVERY_S, self._health, client)),
            asyncio.create_task(self._every(RSS_EVERY_S, self.weigh, client)),
            asyncio.create_task(self._every(PING_EVERY_S, self._ping, client)),
        ]

    async def _every(self, seconds: float, look: Any, client: httpx.AsyncClient) -> None:
        while True:
            began = time.monotonic()
            try:
                await look(client)
            except httpx.HTTPError as error:
                self.unhealthy.append(f"{look.__name__}: {type(error).__name__}")
            await asyncio.sleep(max(0, began + seconds - time.monotonic()))

    async def _health(self, client: httpx.AsyncClient) -> None:
        self.num_health += 1
        for path in ("/healthz", "/metrics"):
            answer = await client.get(path)
            if answer.status_code != 200:
                self.unhealthy.append(f"{path}: {answer.status_code}: {answer.text[:200]}")
            elif path == "/metrics":
                self.metrics = answer.text
                self.lengths.append(self.metric("photofinish_queue_length"))

    async def weigh(self, client: httpx.AsyncClient | None = None) -> None:
        """Note the page's memory."""
        self.rss.append((round(time.time() - self.began, 1), round(rss_mb(self.server), 1)))

    async def _ping(self, client: httpx.AsyncClient) -> None:
        for (name, times), more in zip(self.asked.items(), ({}, {"json": "How many tokens is this?"}), strict=True):
            method, path = name.split()
            began = time.perf_counter()
            answer = await client.request(method, path, **more)
            times.append(time.perf_counter() - began)
            if answer.status_code != 200:
                self.unhealthy.append(f"{name}: {answer.status_code}")

    def is_busy(self) -> bool:
        """Whether a race or a study waits or has the device."""
        found = httpx.get(f"{self.server.url}/healthz").json()
        return bool(found["queue_length"] or found["device_busy"])

    def metric(self, name: str) -> float:
        """The sum of a metric of the page over its labels, as it was last."""
        return sum(float(line.split()[-1]) for line in self.metrics.splitlines() if re.match(rf"{name}[ {{]", line))

    def races(self) -> tuple[dict[str, Logged], list[str]]:
        """All races that the log names, by their names there; and its other lines."""
        found, others = {}, []
        for line in self.server.log.read_text(encoding="utf-8").splitlines():
            record = json.loads(line) if line.startswith("{") else {"message": line, "level": "text"}
            over = OVER.search(record["message"])
            if over and record["level"] == "INFO":
                at, took = datetime.fromisoformat(record["time"]).timestamp(), over[4] and record["race"]["lasted_s"]
                begun = at - took if took else None
                entered = (begun or at) - record["race"]["waited_s"]
                found[over[1]] = Logged(entered, begun, at, over[2])
            elif record["level"] != "INFO":
                others.append(line)
        return found, others
