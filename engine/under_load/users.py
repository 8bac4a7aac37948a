"""Users in a closed loop: each asks its next question when its last is answered."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import httpx

from ..remote.client import CONNECT_S, Patience, RemoteError, ask, new_client
from ..remote.endpoint import Endpoint, Question
from ..remote.reply import Reply
from ..spec import SamplingParams
from .metrics import Answer


@dataclass
class Asked:
    """What became of the questions of a level. wall_s: from the first request to the end of the last."""

    answers: list[Answer] = field(default_factory=list)
    failures: list[RemoteError] = field(default_factory=list)
    wall_s: float = 0.0


def _nothing(asked: Asked) -> None:
    pass


async def ask_all(
    endpoint: Endpoint,
    questions: Sequence[Question],
    num_users: int,
    params: SamplingParams,
    timeout_s: float,
    on_end: Callable[[Asked], Any] = _nothing,
) -> Asked:
    """Ask every question once, also where the server fails. The i-th has the seed `params.seed + i`. on_end is called
    after each request.

    Each user has a connection of its own, open before the first request: 200 connections that open at once, in one
    pool, read the first tokens up to 0.8 s late (tools/load_client.py). What is in memory before the level is kept out
    of garbage collection until its end: that looks at all of it, and stops everything for 40 ms and more."""
    left, asked = iter(enumerate(questions)), Asked()
    patience = Patience(timeout_s, timeout_s)
    async with AsyncExitStack() as stack:
        gc.freeze()
        stack.callback(gc.unfreeze)
        num_clients = min(num_users, len(questions))
        clients = [await stack.enter_async_context(new_client()) for _ in range(num_clients)]
        await asyncio.gather(*(_open(client, endpoint) for client in clients))

        async def user(client: httpx.AsyncClient) -> None:
            for index, question in left:
                its = replace(params, seed=params.seed + index)
                try:
                    # without extras: a server that knows them not would be asked twice, and usage counts the tokens
                    reply = await ask(client, endpoint, question, its, patience, with_extras=False)
                    asked.answers.append(answer_of(reply))
                except RemoteError as error:
                    asked.failures.append(error)
                on_end(asked)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(user(client))
        asked.wall_s = time.perf_counter() - began
    return asked


async def is_up(endpoint: Endpoint) -> bool:
    """Whether the server answers at all."""
    async with new_client() as client:
        return await _open(client, endpoint)


async def _open(client: httpx.AsyncClient, endpoint: Endpoint) -> bool:
    """Open a connection that stays open, by a request that costs a server nothing. Whatever fails here fails again, and
    is counted, when the question is asked."""
    try:
        async with asyncio.timeout(CONNECT_S):
            await client.get(f"{endpoint.url}/models", headers=endpoint.headers())
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL):
        return False
    return True


def answer_of(reply: Reply) -> Answer:
    """What the metrics take of an answer that has ended."""
    told, num_accepted, num_steps = reply.drafted, None, None
    if told is not None:
        num_accepted = told.num_accepted
        num_steps = sum(num > 0 for num in told.drafted) if told.drafted else told.num_steps
    assert reply.ended_s is not None and reply.num_tokens is not None  # Reader.end raised otherwise
    times = [chunk.at_s for chunk in reply.chunks]
    return Answer(
        first_s=reply.first_s,
        last_s=reply.last_s,
        latency_s=reply.ended_s,
        num_tokens=reply.num_tokens,
        num_prompt_tokens=reply.num_prompt_tokens,
        num_accepted=num_accepted,
        num_steps=num_steps,
        gap_s=max((after - before for before, after in pairwise(times)), default=None),
    )
