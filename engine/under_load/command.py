"""`python -m engine study`: one or two servers under load. Arguments and the file are checked before any request."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import Any

from ..cli.arguments import Command, integer, list_of, not_empty, number, option, shown, words
from ..cli.commands import read_text
from ..cli.options import JSON, LENGTH, SEED, TEMPERATURE
from ..cli.output import console, print_json, progress_line
from ..errors import RaceError, UsageError
from ..progress import Progress
from ..recordings.recording import OUTPUT_SCHEMA
from ..remote.client import RemoteError
from ..remote.endpoint import PREFIX, Endpoint, Question, endpoint_of
from ..spec import SamplingParams
from .data import WARM_UP, check_enough, read_questions
from .metrics import level_metrics, report
from .users import ask_all

MAX_USERS, MAX_REQUESTS, MAX_LANES, MAX_TIMEOUT_S = 1000, 100_000, 4, 86_400


def _concurrency(text: str) -> list[int]:
    found = [integer(1, MAX_USERS)(each) for each in list_of(text)]
    if found == sorted(set(found)):
        return found
    raise ArgumentTypeError(f"must be in ascending order, each number once, not {shown(text)}")


def _endpoints(given: Sequence[str], model: str) -> list[Endpoint]:
    pairs = [each.partition("=") for each in given]
    names = [name for name, _, _ in pairs]
    if not all(name and spec.startswith(PREFIX) for name, _, spec in pairs):
        raise UsageError(f"--lane must be NAME={PREFIX}http://HOST:PORT/v1")
    if len(set(names)) < len(names) or len(names) > MAX_LANES:
        raise UsageError(f"a study has 1 to {MAX_LANES} lanes, each with a name of its own, not {', '.join(names)}")
    return [endpoint_of(name, spec, model, os.environ) for name, _, spec in pairs]


def _levels(
    endpoints: Sequence[Endpoint],
    questions: Sequence[Question],
    params: SamplingParams,
    options: Namespace,
    progress: Progress,
    levels: list[dict[str, Any]],
    faults: list[str],
) -> None:
    """Run every level, and add what it says to `levels`, and to `faults` why a lane has no answer in it."""
    for endpoint in endpoints:
        progress(f"warming {endpoint.lane} up", 0.0)
        answers, failures, _ = ask_all(endpoint, questions[-WARM_UP:], 1, params, options.timeout)
        if not answers:
            raise failures[0]
    for index, num_users in enumerate(options.concurrency):
        start = index * options.requests
        its = questions[start : start + options.requests]
        for endpoint in endpoints:
            progress(f"{endpoint.lane}: {len(its)} requests of {num_users} users", index / len(options.concurrency))
            seeded = SamplingParams(params.temperature, seed=params.seed + start, max_new_tokens=params.max_new_tokens)
            answers, failures, wall_s = ask_all(endpoint, its, num_users, seeded, options.timeout)
            levels.append(
                {
                    "lane": endpoint.lane,
                    "concurrency": num_users,
                    **level_metrics(answers, len(failures), wall_s, options.dollars),
                    "num_timeouts": sum(failure.kind == "timeout" for failure in failures),
                    "wall_s": wall_s,
                }
            )
            if not answers:
                faults.append(_fault(num_users, failures))


def _fault(num_users: int, failures: Sequence[RemoteError]) -> str:
    return f"with {num_users} users no request was answered: {failures[0]}"


def _study(options: Namespace) -> int:
    endpoints = _endpoints(options.lane, options.model)
    params = SamplingParams(options.temperature, seed=options.seed, max_new_tokens=options.max_new_tokens)
    num_levels = len(options.concurrency)
    SamplingParams(seed=options.seed + num_levels * options.requests)  # the last seed must be one as well
    try:
        questions = read_questions(read_text(options.data), options.data, options.chat)
        check_enough(len(questions), num_levels, options.requests)
    except UsageError as error:
        raise UsageError(f"cannot study {shown(options.data)}: {error}") from error
    levels, faults, interrupted = list[dict[str, Any]](), list[str](), False
    try:
        with progress_line() as progress:
            _levels(endpoints, questions, params, options, progress, levels, faults)
    except KeyboardInterrupt:
        if not levels:
            raise
        interrupted = True
    lanes = [endpoint.lane for endpoint in endpoints]
    found = report(levels, lanes, OUTPUT_SCHEMA)
    if options.json:
        print_json(found)
    else:
        from .table import print_report

        print_report(console(), found, lanes)
    if interrupted:
        raise KeyboardInterrupt  # the command line says so and ends with its status
    if faults:
        raise RaceError("; ".join(dict.fromkeys(faults)))
    return 0


STUDY = Command(
    (
        option(
            "--lane",
            metavar="NAME=openai:URL",
            type=words,
            action="append",
            required=True,
            help="a server; give it again for the one to compare. The first is what the second is compared with",
        ),
        option("--model", metavar="NAME", type=words, required=True, help="the model, as the servers call it"),
        option(
            "--concurrency",
            metavar="C[,C]",
            type=_concurrency,
            required=True,
            help="how many users ask at once, a level each, as 1,5,25,50,100,200",
        ),
        option("--requests", metavar="N", type=integer(1, MAX_REQUESTS), default=100, help="a level's (default 100)"),
        option(
            "--data",
            metavar="FILE",
            type=not_empty,
            required=True,
            help="JSON lines with prompt, messages or turns, one prompt a line, or ShareGPT's JSON; - is stdin",
        ),
        option("--chat", action="store_true", help="send each prompt as a user's message, to the chat endpoint"),
        LENGTH,
        TEMPERATURE,
        SEED,
        option(
            "--timeout",
            metavar="S",
            type=number(0.1, MAX_TIMEOUT_S),
            default=600.0,
            help="seconds after which a request has failed (default 600)",
        ),
        option(
            "--dollars",
            metavar="D",
            type=number(0, 1e6),
            help="what a lane's machine costs an hour, for the price of a million output tokens",
        ),
        JSON,
    ),
    _study,
    "Example: python -m engine study --lane baseline=openai:http://localhost:8000/v1 --lane "
    "speculative=openai:http://localhost:8001/v1 --model NAME --concurrency 1,5,25 --data prompts.jsonl --chat. Keys "
    "come from OPENAI_API_KEY, or PHOTOFINISH_KEY_<LANE>. Lanes run one after the other at each level, with the same "
    "prompts in the same order, and no prompt is used twice within a lane. A failed request is counted and not asked "
    "again. Exit status: 0 finished; 1 a server answered nothing at a level; 2 the arguments or the file cannot be "
    "used; 130 interrupted, after what the finished levels say was printed.",
)
