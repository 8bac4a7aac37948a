"""The page seen from outside while others visit it: its health, its memory, its log, and how soon it answers."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

import httpx

from engine.loading.default_model import NAME
from tests.helpers.fuzz import rss_mb
from tests.helpers.pageserver import Server

HEALTH_S, MEMORY_S = 5, 10  # how often they are looked at; answering times are taken every second
COUNTED = {"text": "How many tokens is this?", "target": NAME}


@dataclass
class Watch:
    """memory: (seconds since the beginning, MB). unhealthy: answers of /healthz and others that are not 200.
    lengths: of the queue. answered: seconds until GET / and POST /tokens were answered."""

    server: Server
    began: float = field(default_factory=time.time)
    memory: list[tuple[float, float]] = field(default_factory=list)
    unhealthy: list[str] = field(default_factory=list)
    num_health: int = 0
    lengths: list[int] = field(default_factory=list)
    answered: dict[str, list[float]] = field(default_factory=lambda: {"GET /": [], "POST /tokens": []})

    async def run(self) -> None:
        """Watch until it is cancelled."""
        transport = httpx.AsyncHTTPTransport(local_address="127.0.3.99")
        async with httpx.AsyncClient(base_url=self.server.url, transport=transport, timeout=30) as client:
            for second in count():
                if second % MEMORY_S == 0:
                    self.weigh()
                if second % HEALTH_S == 0:
                    self.num_health += 1
                    self.lengths.append((await self._ask(client, "GET /healthz")).json()["queue_length"])
                began = time.perf_counter()
                for name, times in self.answered.items():
                    await self._ask(client, name)
                    times.append(time.perf_counter() - began)
                    began = time.perf_counter()
                await asyncio.sleep(self.began + second + 1 - time.time())

    async def _ask(self, client: httpx.AsyncClient, what: str) -> httpx.Response:
        method, path = what.split()
        answer = await client.request(method, path, json=COUNTED if method == "POST" else None)
        if answer.status_code != 200:
            self.unhealthy.append(f"{what}: {answer.status_code}: {answer.text[:200]}")
        return answer

    def weigh(self) -> None:
        """Note the page's memory."""
        self.memory.append((round(time.time() - self.began, 1), round(rss_mb(self.server), 1)))

    def is_busy(self) -> bool:
        """Whether a race or a study waits or has the device."""
        found = httpx.get(f"{self.server.url}/healthz").json()
        return bool(found["queue_length"] or found["device_busy"])

    def races(self) -> tuple[dict[str, tuple[float | None, float]], list[str]]:
        """(races, others): for each race in the log, by its id, when it got the device (None: never) and when it ended;
        and the log's other lines."""
        found, others = {}, []
        for line in self.server.log.read_text(encoding="utf-8").splitlines():
            record = json.loads(line) if line.startswith("{") else {}
            if race := record.get("race"):
                over, took = datetime.fromisoformat(record["time"]).timestamp(), race["lasted_s"]
                found[race["id"]] = None if took is None else over - took, over
            elif record.get("level") != "INFO":
                others.append(line)
        return found, others
