"""Users in a closed loop: each asks its next question when its last is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from ..remote.client import Patience, RemoteError, ask, new_client
from ..remote.endpoint import Endpoint, Question
from ..remote.reply import Reply
from ..spec import SamplingParams
from .metrics import Answer


def ask_all(
    endpoint: Endpoint, questions: Sequence[Question], num_users: int, params: SamplingParams, timeout_s: float
) -> tuple[list[Answer], list[RemoteError], float]:
    """The answers, the failures, and the seconds from the first request to the end of the last. The i-th question has
    the seed `params.seed + i`. No question is asked twice, also where the server fails."""
    return asyncio.run(_ask_all(endpoint, questions, num_users, params, Patience(timeout_s, timeout_s)))


async def _ask_all(
    endpoint: Endpoint, questions: Sequence[Question], num_users: int, params: SamplingParams, patience: Patience
) -> tuple[list[Answer], list[RemoteError], float]:
    left = iter(enumerate(questions))
    answers, failures = list[Answer](), list[RemoteError]()
    async with new_client(num_users) as client:

        async def user() -> None:
            for index, question in left:
                its = replace(params, seed=params.seed + index)
                try:
                    # without extras: a server that knows them not would be asked twice, and usage counts the tokens
                    reply = await ask(client, endpoint, question, its, patience, with_extras=False)
                    answers.append(answer_of(reply))
                except RemoteError as error:
                    failures.append(error)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(num_users, len(questions))):
                group.create_task(user())
        wall_s = time.perf_counter() - began
    return answers, failures, wall_s


def answer_of(reply: Reply) -> Answer:
    """What the metrics take of an answer that has ended."""
    told, num_accepted, num_steps = reply.drafted, None, None
    if told is not None:
        num_accepted = told.num_accepted
        num_steps = sum(num > 0 for num in told.drafted) if told.drafted else told.num_steps
    assert reply.ended_s is not None and reply.num_tokens is not None  # Reader.end raised otherwise
    return Answer(
        reply.first_s, reply.last_s, reply.ended_s, reply.num_tokens, reply.num_prompt_tokens, num_accepted, num_steps
    )
