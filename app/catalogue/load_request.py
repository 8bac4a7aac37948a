"""Checks a browser's request for a study of servers under load."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.errors import UsageError
from engine.core.spec import SamplingParams
from engine.core.values import integer, number
from engine.remote.endpoint import Endpoint
from engine.studies.load.data import SYNTHETIC, WARM_UP, dealt, name_of, questions_of, synthetic
from engine.studies.load.study import Plan

from .limits import MAX_NEW_TOKENS
from .request import as_float, prompts_of, whole

MAX_LEVELS, MAX_USERS, MAX_REQUESTS, MAX_WORDS = 8, 200, 500, 2000
TIMEOUT_S = 600.0
SETTINGS = ("temperature", "seed", "chat")  # the page's controls that a study uses


def read_load(
    endpoints: Sequence[Endpoint],
    separate: bool,
    values: Mapping[str, Any],
    asked: object,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> Plan:
    """The study that is asked for. Raises UsageError.

    values: the page's controls SETTINGS.
    asked: `users`, such as 1,5,25; `requests` per level; `max_new_tokens` per answer; `dollars` per hour, or null; the
        prompts as `text`, see `look_at`, with the `name` of their file, or, if that is null, made up of `words` random
        words.
    max_new_tokens: the page's limit on an answer."""
    asked = asked if isinstance(asked, dict) else {}
    users = _users(asked.get("users"))
    requests = integer(1, MAX_REQUESTS).check("requests a level", whole(asked.get("requests")))
    if requests < users[-1]:
        raise UsageError(
            f"{users[-1]} users need {users[-1]} requests per level or more, not {requests}: with fewer, they would "
            "never all ask at once"
        )
    length = integer(1, max_new_tokens).check("tokens of each answer", whole(asked.get("max_new_tokens")))
    if (dollars := asked.get("dollars")) is not None:
        number(0, 1e6).check("dollars an hour", dollars)
    temperature, seed, chat = (values[name] for name in SETTINGS)
    params = SamplingParams(as_float(temperature), seed=seed, max_new_tokens=length)
    num = len(users) * requests
    SamplingParams(seed=params.seed + num)
    text = asked.get("text")
    if text is None:
        words = integer(1, MAX_WORDS).check("words of each prompt", whole(asked.get("words")))
        data = f"{SYNTHETIC}{words},{length}"
        questions, _ = synthetic(data, chat is True, num + WARM_UP, params.seed)
    else:
        data = str(asked.get("name"))[:200]
        questions = questions_of(prompts_of(asked), chat is True)
    fields = (dealt(questions, num), tuple(users), requests, params, TIMEOUT_S, dollars, separate, name_of(data))
    return Plan(tuple(endpoints), *fields)


def _users(given: object) -> list[int]:
    parts = [part.strip() for part in str(given).split(",")][: MAX_LEVELS + 1]
    users = [int(part) for part in parts if re.fullmatch("[0-9]{1,4}", part)]
    fine = users == sorted(set(users)) and len(users) == len(parts) <= MAX_LEVELS
    if not fine or not 1 <= users[0] <= users[-1] <= MAX_USERS:
        raise UsageError(
            f"users must be 1 to {MAX_LEVELS} ascending numbers from 1 to {MAX_USERS}, as 1,5,25, "
            f"not {str(given)[:40]!r}"
        )
    return users
