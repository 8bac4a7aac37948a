"""Users in a closed loop: each asks its next question when its last is answered."""

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from ...core.spec import SamplingParams
from ...remote.client import CONNECT_S, Patience, RemoteError, ask, new_client
from ...remote.endpoint import Endpoint
from ...remote.reply import Reply
from ...remote.request import Question
from .level_metrics import Answer


@dataclass
class Outcome:
    """The answers of a level. texts: a hash of each answer's text, by the number of its question, to be compared within
    this process; None if there is no text. wall_s: from the first request to the end of the last."""

    answers: list[Answer] = field(default_factory=list)
    texts: dict[int, int | None] = field(default_factory=dict)
    failures: list[RemoteError] = field(default_factory=list)
    wall_s: float = 0.0


async def ask_all(
    endpoint: Endpoint,
    questions: Sequence[Question],
    num_users: int,
    params: SamplingParams,
    timeout_s: float,
    on_end: Callable[[Outcome], Any] = lambda outcome: None,
) -> Outcome:
    """Ask every question once, even if the server fails. The i-th has the seed `params.seed + i`. on_end is called
    after each request.

    Each user has a separate connection, open before the first request: 200 connections that open at once, in one pool,
    read the first tokens up to 0.8 s late. Objects from before the level are excluded from garbage collection until its
    end: scanning them would stop everything for 40 ms and more."""
    left, outcome = iter(enumerate(questions)), Outcome()
    patience = Patience(timeout_s, timeout_s)
    async with AsyncExitStack() as stack:
        if not gc.get_freeze_count():  # else the page has frozen a loaded model, which must stay so
            gc.freeze()
            stack.callback(gc.unfreeze)
        clients = [await stack.enter_async_context(new_client()) for _ in range(min(num_users, len(questions)))]
        await asyncio.gather(*(_open(client, endpoint) for client in clients))

        async def user(client: httpx.AsyncClient) -> None:
            for index, question in left:
                seeded = replace(params, seed=params.seed + index)
                try:
                    # without extras: each costs time in every chunk, and usage counts the tokens
                    reply = await ask(client, endpoint, question, seeded, patience, with_extras=False)
                    outcome.answers.append(answer_of(reply))
                    outcome.texts[index] = hash(reply.text) if reply.text else None
                except RemoteError as error:
                    outcome.failures.append(error)
                on_end(outcome)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(user(client))
        outcome.wall_s = time.perf_counter() - began
    return outcome


async def _open(client: httpx.AsyncClient, endpoint: Endpoint) -> None:
    """Open a keep-alive connection by a request that costs nothing. A failure is counted by the question."""
    with suppress(TimeoutError, httpx.HTTPError, httpx.InvalidURL):
        async with asyncio.timeout(CONNECT_S):
            await client.get(f"{endpoint.url}/models", headers=endpoint.headers())


def answer_of(reply: Reply) -> Answer:
    """The metrics' view of an answer that has ended."""
    drafted, num_accepted, num_steps = reply.drafted, None, None
    if drafted is not None:
        num_accepted = drafted.num_accepted
        num_steps = sum(num > 0 for num in drafted.drafted) if drafted.drafted else drafted.num_steps
    assert reply.ended_s is not None and reply.num_tokens is not None  # Reader.end raised otherwise
    times = [chunk.at_s for chunk in reply.chunks] if reply.text else []
    answered = [chunk.at_s for chunk in reply.chunks if chunk.answer]
    timed = times and not reply.is_buffered
    visible, together = reply.num_tokens - reply.num_hidden, reply.num_together
    return Answer(
        first_s=times[0] if timed else None,
        last_s=times[-1] if timed else None,
        answer_s=answered[0] if answered and timed and reply.thinking else None,
        latency_s=reply.ended_s,
        num_tokens=reply.num_tokens,
        num_first=reply.num_hidden + (visible * together // len(reply.chunks) if together > 1 else 1),
        num_prompt_tokens=reply.num_prompt_tokens,
        num_accepted=num_accepted,
        num_steps=num_steps,
        num_chunks=len(reply.chunks),
        has_text=bool(times),
    )
