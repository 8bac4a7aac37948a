"""`python -m engine study`: one or two servers under load. Arguments and the file are checked before any request."""

import asyncio
from argparse import ArgumentTypeError, Namespace

from ..core.errors import RaceError
from ..core.spec import SamplingParams
from ..remote.look import kinds_of
from ..studies.load.data import SYNTHETIC, WARM_UP, dealt, name_of, questions_of, synthetic
from ..studies.load.level_metrics import report
from ..studies.load.study import Plan, Row, faults, run
from .arguments import Command, integer, list_of, not_empty, number, repeated, setting, shown, switch
from .commands import read_prompts_file
from .lane_options import CACERT, MODEL, given_lane, servers_of
from .options import JSON, LENGTH, SEED, TEMPERATURE
from .output import console, print_json, progress_line

MAX_USERS, MAX_REQUESTS, MAX_LANES, MAX_TIMEOUT_S = 1000, 100_000, 2, 86_400


def _concurrency(text: str) -> list[int]:
    counts = [integer(1, MAX_USERS)(count) for count in list_of(text)]
    if counts == sorted(set(counts)):
        return counts
    raise ArgumentTypeError(f"must be in ascending order, each number once, not {shown(text)}")


def _plan(options: Namespace) -> Plan:
    """The study that the options define, with all its prompts. Raises UsageError before any request."""
    endpoints = servers_of(options.lane, options, most=MAX_LANES, one_model=True)
    num = len(options.concurrency) * options.requests
    SamplingParams(seed=options.seed + num)  # the last seed must be valid too
    length = options.max_new_tokens
    if options.data.startswith(SYNTHETIC):
        questions, length = synthetic(options.data, options.chat, num + WARM_UP, options.seed)
    else:
        questions = questions_of(read_prompts_file(options.data), options.chat)
    params = SamplingParams(options.temperature, seed=options.seed, max_new_tokens=length)
    more = (options.timeout, options.dollars, name_of(options.data))
    return Plan(tuple(endpoints), dealt(questions, num), tuple(options.concurrency), options.requests, params, *more)


def _study(options: Namespace) -> int:
    plan = _plan(options)
    rows, interrupted = list[Row](), False
    kinds = asyncio.run(kinds_of(plan.endpoints))
    try:
        with progress_line() as progress:
            asyncio.run(run(plan, progress, lambda row, _: rows.append(row)))
    except KeyboardInterrupt:
        if not rows:
            raise
        interrupted = True
    lanes = [endpoint.lane for endpoint in plan.endpoints]
    rows.sort(key=lambda row: plan.keys.index((row["lane"], row["concurrency"])))
    result = report(rows, lanes, plan.said(kinds))
    if options.json:
        print_json(result)
    else:
        from .report_tables import print_load

        print_load(console(), result, lanes)
    if interrupted:
        raise KeyboardInterrupt  # the command line says so and ends with its status
    if failed := faults(rows):
        raise RaceError("; ".join(failed))
    return 0


STUDY = Command(
    (
        repeated(
            "--lane NAME=openai:URL",
            given_lane,
            "a server; give it again for a second one, which is compared with the first",
            required=True,
        ),
        MODEL,
        CACERT,
        setting(
            "--concurrency C[,C]",
            _concurrency,
            "numbers of simultaneous users, one per level, as 1,5,25,50,100,200",
            required=True,
        ),
        setting("--requests N", integer(1, MAX_REQUESTS), "per level (default 100)", 100),
        setting(
            "--data FILE",
            not_empty,
            "a file as for study-prompts: JSON as published, CSV, or one prompt a line; - is stdin; or "
            f"{SYNTHETIC}INPUT,OUTPUT: so many random words, answered with so many tokens",
            required=True,
        ),
        switch("--chat", "send each prompt as a user's message, to the chat endpoint"),
        LENGTH,
        TEMPERATURE,
        SEED,
        setting(
            "--timeout S", number(0.1, MAX_TIMEOUT_S), "seconds after which a request has failed (default 600)", 600.0
        ),
        setting(
            "--dollars D",
            number(0, 1e6),
            "what a lane's machine costs an hour, for the price of a million output tokens",
        ),
        JSON,
    ),
    _study,
    "Example: python -m engine study --lane baseline=openai:http://localhost:8000/v1 --lane "
    "speculative=openai:http://localhost:8001/v1 --model NAME --concurrency 1,5,25 --data prompts.jsonl --chat. Keys "
    "come from OPENAI_API_KEY, or PHOTOFINISH_KEY_<LANE>. Lanes run one after the other at each level, "
    "with the same prompts in the same order. A file with too few prompts is used again, which "
    "the result says. A failed request is counted and not repeated. Exit status: 0 finished; 1 a server answered "
    "nothing at a level; 2 the arguments or the file cannot be used; 130 interrupted, after the results of the "
    "finished levels were printed.",
)
