"""A study of servers: which questions each lane gets at each level, and the levels one after the other."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..remote.endpoint import Endpoint, Question
from ..spec import SamplingParams
from .counters import acceptance_length, read_counters
from .data import WARM_UP
from .metrics import level_metrics
from .users import Asked, ask_all, is_up

Key = tuple[str, int]
"""A level of a lane: its name and the number of users."""
Row = dict[str, Any]
"""What a level of a lane says; an entry of `levels` in what --json prints."""


@dataclass(frozen=True)
class Plan:
    """Level i takes num_requests questions from the i-th multiple of that on; the last WARM_UP questions warm up.
    timeout_s: of a request. dollars: a lane's machine, an hour. separate: lanes share no device, and run at once."""

    endpoints: tuple[Endpoint, ...]
    questions: tuple[Question, ...]
    concurrency: tuple[int, ...]
    num_requests: int
    params: SamplingParams
    timeout_s: float = 600.0
    dollars: float | None = None
    separate: bool = False

    @property
    def keys(self) -> list[Key]:
        """All levels, in the order in which they run."""
        return [(endpoint.lane, num_users) for num_users in self.concurrency for endpoint in self.endpoints]

    def about(self) -> dict[str, Any]:
        """What two runs must share to be parts of one study. It holds no URL, no key and no prompt."""
        questions = json.dumps([[each.text, each.messages, each.to_the_end] for each in self.questions])
        return {
            "lanes": [[endpoint.lane, endpoint.model] for endpoint in self.endpoints],
            "concurrency": list(self.concurrency),
            "num_requests": self.num_requests,
            "prompts": hashlib.sha256(questions.encode()).hexdigest(),
            "params": asdict(self.params),
            "timeout_s": self.timeout_s,
            "dollars": self.dollars,
            "separate": self.separate,
        }


@dataclass(frozen=True)
class Listener:
    """Who is told: `warming` of a lane before its first level, `begun` of a level, `asked` after each of its requests,
    `row` when it is over."""

    warming: Callable[[str], Any]
    begun: Callable[[Key], Any]
    asked: Callable[[Key, Asked], Any]
    row: Callable[[Row], Any]


async def run(plan: Plan, finished: Collection[Key], begun: Collection[Key], listener: Listener) -> None:
    """Run the levels that are not among the finished ones. begun: those that were begun before, and whose prompts are
    therefore asked again. Raises RemoteError where a server does not answer its warm-up."""
    left = set(plan.keys) - set(finished)
    for endpoint in plan.endpoints:
        if any(lane == endpoint.lane for lane, _ in left):
            listener.warming(endpoint.lane)
            asked = await ask_all(endpoint, plan.questions[-WARM_UP:], 1, plan.params, plan.timeout_s)
            if not asked.answers:
                raise asked.failures[0]
    for index, num_users in enumerate(plan.concurrency):
        its = [endpoint for endpoint in plan.endpoints if (endpoint.lane, num_users) in left]
        levels = [_level(plan, endpoint, index, begun, listener) for endpoint in its]
        if plan.separate:
            async with asyncio.TaskGroup() as group:
                for level in levels:
                    group.create_task(level)
        else:
            for level in levels:
                await level


async def _level(plan: Plan, endpoint: Endpoint, index: int, begun: Collection[Key], listener: Listener) -> None:
    key = (endpoint.lane, plan.concurrency[index])
    start = index * plan.num_requests
    questions = plan.questions[start : start + plan.num_requests]
    params = replace(plan.params, seed=plan.params.seed + start)
    listener.begun(key)
    before = await read_counters(endpoint)
    asked = await ask_all(endpoint, questions, key[1], params, plan.timeout_s, lambda now: listener.asked(key, now))
    after = await read_counters(endpoint)
    row = row_of(key, asked, acceptance_length(before, after), plan.dollars)
    listener.row({**row, "asked_before": key in begun, "is_up": not asked.failures or await is_up(endpoint)})


def row_of(key: Key, asked: Asked, server_wide: float | None, dollars: float | None) -> Row:
    """What the answers of a level say. server_wide: the acceptance length by the server's counters, taken where its
    answers say none. `acceptance_from` says which it is, `errors` how many failures of each kind, `fault` the words of
    the first. A row has also `asked_before`: whether a stopped run had asked these prompts already, and `is_up`:
    whether the server answered at the end."""
    row = level_metrics(asked.answers, len(asked.failures), asked.wall_s, dollars)
    own = row["mean_acceptance_length"]
    if own is None:
        row["mean_acceptance_length"] = server_wide
    return {
        "lane": key[0],
        "concurrency": key[1],
        **row,
        "acceptance_from": "answers" if own is not None else "server" if server_wide is not None else None,
        "num_timeouts": sum(failure.kind == "timeout" for failure in asked.failures),
        "errors": dict(Counter(failure.kind for failure in asked.failures)),
        "fault": str(asked.failures[0]) if asked.failures else None,
        "wall_s": asked.wall_s,
    }


def is_whole(row: Mapping[str, Any]) -> bool:
    """Whether a level says something of its server: some request was answered, and the server was there to the end. A
    level that is not whole is measured again when the study goes on."""
    return row["num_requests"] > row["num_errors"] and row["is_up"]


def faults(rows: Sequence[Row]) -> list[str]:
    """A sentence for each level without an answer."""
    return [
        f"with {row['concurrency']} users no request was answered: {row['fault']}"
        for row in rows
        if row["num_requests"] == row["num_errors"]
    ]
