"""Checks a browser's request for a study of servers under load."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.errors import UsageError
from engine.core.spec import SamplingParams
from engine.core.values import integer, number
from engine.remote.endpoint import Endpoint
from engine.studies.load.data import SYNTHETIC, WARM_UP, dealt, name_of, read_data, read_questions
from engine.studies.load.load_file import SavedLoad, checked_row, open_load
from engine.studies.load.study import Key, Plan, Row, is_whole

from .limits import MAX_NEW_TOKENS
from .request import are_short, as_float, check_file, check_prompts, read_kept, whole

MAX_LEVELS, MAX_USERS, MAX_REQUESTS, MAX_WORDS = 8, 200, 500, 2000
MAX_SAVED = 100  # levels of a saved result; the command line makes more of them than this page
TIMEOUT_S = 600.0
SETTINGS = ("temperature", "seed", "chat")  # the page's controls that a study uses


@dataclass(frozen=True)
class LoadRequest:
    """A study that can run.

    key: hash of everything its rows depend on, except the servers.
    rows, begun: from an earlier run with that key.
    servers: their id, if it is known."""

    plan: Plan
    key: str
    rows: tuple[Row, ...] = ()
    begun: frozenset[Key] = frozenset()
    servers: str = ""


def read_load(
    endpoints: Sequence[Endpoint],
    separate: bool,
    values: Mapping[str, Any],
    asked: object,
    whose: str = "",
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> LoadRequest:
    """Check a study. Raises UsageError.

    values: the page's controls SETTINGS.
    asked: `users`, such as 1,5,25; `requests` per level; `max_new_tokens` per answer; `dollars` per hour, or null; the
        prompts as `text` with the `name` of their file, or, if that is null, made up of `words` random words; `kept`,
        what the browser has kept of an earlier run, as a JSON string, or null.
    whose: the servers' id, if a run with other servers must not be continued.
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
        questions, _ = read_data(data, chat is True, num + WARM_UP, params.seed)
    else:
        data = str(asked.get("name"))[:200]
        questions = read_questions(check_prompts(text), data, chat is True)
    fields = (dealt(questions, num), tuple(users), requests, params, TIMEOUT_S, dollars, separate, name_of(data))
    plan = Plan(tuple(endpoints), *fields)
    key = hashlib.sha256((whose + json.dumps(plan.about(), sort_keys=True)).encode()).hexdigest()
    return LoadRequest(plan, key, *_kept(read_kept(asked.get("kept")), key, plan))


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


def read_saved(text: object) -> SavedLoad:
    """A saved result, to be shown. Raises UsageError."""
    saved = open_load(check_file(text, "the saved result"))
    if not are_short(saved.rows, MAX_SAVED):
        raise UsageError(f"the saved result has more than {MAX_SAVED} levels, or one that is too long to be shown here")
    return saved


def _kept(given: object, key: str, plan: Plan) -> tuple[tuple[Row, ...], frozenset[Key]]:
    """Complete levels of an earlier run of the same study, and the levels that it began."""
    if not isinstance(given, dict) or given.get("key") != key:
        return (), frozenset()
    rows, begun = given.get("rows"), given.get("begun")
    most = 4 * len(plan.keys)
    if not isinstance(rows, list) or not isinstance(begun, list) or not are_short([*rows, *begun], most):
        raise UsageError("the study saved in this browser cannot be read; start another one to replace it")
    complete = {(row["lane"], row["concurrency"]): row for raw in rows if is_whole(row := checked_row(raw, plan.keys))}
    keys = {tuple(pair) for pair in begun if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)}
    return tuple(complete.values()), frozenset(key for key in plan.keys if key in keys and key not in complete)
