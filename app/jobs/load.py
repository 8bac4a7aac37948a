"""Studies of servers under load: each keeps the servers until it is over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from engine.remote.look import kinds_of
from engine.studies.load.level_metrics import report
from engine.studies.load.study import Key, Listener, Plan, Row, run
from engine.studies.load.users import Outcome

from .studies import Study
from .worker import Halt


class LoadStudy(Study):
    """Its thread has an event loop of its own. request: what to measure, and the servers' id."""

    def __init__(self, request: tuple[Plan, str]) -> None:
        super().__init__(())
        self._plan, self._servers = request
        self._now: dict[Key, tuple[int, int]] = {}
        self._kinds: dict[str, str] = {}
        self._said = self._plan.said({})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End it now."""
        super().stop()
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)

    def work(self) -> None:
        self.state, self.text = "running", "Setting up."
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            raise Halt from None
        self.is_complete = True

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self.stopped.is_set():
            raise Halt
        self._kinds = await kinds_of(self._plan.endpoints)
        await run(self._plan, (), (), Listener(self._warming, self._count, self._asked, self._add))

    def _warming(self, lane: str) -> None:
        self._sign()
        self.text = f"Warming {lane} up."

    def _asked(self, key: Key, asked: Outcome) -> None:
        self._count(key, len(asked.answers) + len(asked.failures), len(asked.failures))

    def _add(self, row: Row) -> None:
        del self._now[row["lane"], row["concurrency"]]
        self.rows.append(row)
        self._said = self._plan.said(self._kinds)  # with the time at which it was measured

    def _count(self, key: Key, done: int = 0, failed: int = 0) -> None:
        """done: requests of this level so far; failed: those of them that failed."""
        self._sign()
        self._now[key] = done, failed
        self.text = "; ".join(
            f"{lane}, {users} user{'s' if users > 1 else ''}: {done} of {self._plan.num_requests} requests"
            + (f", {bad} failed" if bad else "")
            for (lane, users), (done, bad) in list(self._now.items())
        )

    def frame(self) -> dict[str, Any]:
        plan = self._plan
        order = {key: index for index, key in enumerate(plan.keys)}
        rows = sorted(self.rows, key=lambda row: order[row["lane"], row["concurrency"]])
        num_done = len(rows) * plan.num_requests + sum(done for done, _ in list(self._now.values()))
        lanes = [endpoint.lane for endpoint in plan.endpoints]
        return {
            "servers": self._servers,
            "share": num_done / (len(plan.keys) * plan.num_requests),
            "lanes": lanes,
            "model": plan.endpoints[0].model,
            "temperature": plan.params.temperature,
            "max_new_tokens": plan.params.max_new_tokens,
            "seed": plan.params.seed,
            "chat": bool(plan.questions[0].messages),
            "separate": plan.separate,
            "report": report(rows, lanes, self._said) if rows else None,
        }
