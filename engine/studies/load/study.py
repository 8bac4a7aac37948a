"""A study of servers: each lane's questions at each level, and the levels one after the other."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from ...analysis.same import are_alike
from ...core.spec import SamplingParams
from ...progress import Progress
from ...recordings.words import clean, prompts_words, sent_as
from ...remote.endpoint import Endpoint
from ...remote.look import servers_say
from ...remote.metrics import per_step, read_counters
from ...remote.request import Question
from .data import WARM_UP
from .level_metrics import level_metrics, rate_error
from .users import Outcome, ask_all

REPEATS = (
    "Prompts were repeated: {} different ones for {} requests to each server. A server that caches prompts answers a "
    "repeated one faster, whichever lane it is."
)
MAX_OTHER = 100  # prompts with differing answers that a level's row names
Key = tuple[str, int]  # a level of a lane: its name and the number of users
Texts = Mapping[int, int | None]  # see `Outcome.texts`
Row = dict[str, Any]  # the result of a level of a lane; an entry of `levels` in --json


@dataclass(frozen=True)
class Plan:
    """Level i takes num_requests questions from the i-th multiple of that on; the last WARM_UP questions warm up.
    timeout_s: of a request. dollars: per hour of a lane's machine. data: what the prompts are called next to the
    results."""

    endpoints: tuple[Endpoint, ...]
    questions: tuple[Question, ...]
    concurrency: tuple[int, ...]
    num_requests: int
    params: SamplingParams
    timeout_s: float = 600.0
    dollars: float | None = None
    data: str = ""

    @property
    def keys(self) -> list[Key]:
        """All levels, in the order in which they run."""
        return [(endpoint.lane, num_users) for num_users in self.concurrency for endpoint in self.endpoints]

    @cached_property
    def numbers(self) -> list[int]:
        """The prompt number of each question. Distinct prompts are numbered from 1, in the order of their first use."""
        number_of = {question: number for number, question in enumerate(dict.fromkeys(self.questions), 1)}
        return [number_of[question] for question in self.questions]

    def said(self, kinds: Mapping[str, str]) -> dict[str, Any]:
        """What the study says about itself next to its figures, now. kinds: the servers', see `look.kinds_of`. repeats:
        a sentence if it uses prompts more than once, else ""."""
        num, different, params = len(self.questions), len(set(self.questions)), self.params
        models = dict.fromkeys(endpoint.model for endpoint in self.endpoints)
        created, prompts = prompts_words(different, self.data)
        asked = sent_as(bool(self.questions[0].messages), params.max_new_tokens)
        settings = f"temperature {params.temperature:g}, seed {params.seed}; {asked}"
        turns = "the servers took turns" if len(self.endpoints) > 1 else ""
        requests = f"{self.num_requests} requests a level"
        parts = (" and ".join(models), servers_say(kinds), turns, settings, requests, prompts)
        return {
            "model": ", ".join(models),
            "created": created,
            "circumstances": clean("; ".join(filter(None, parts))),
            "temperature": params.temperature,
            "repeats": REPEATS.format(different, num) if different < num else "",
        }


async def run(plan: Plan, progress: Progress, over: Callable[[Row, Outcome], Any]) -> None:
    """Run all levels. progress: told of each request. over: called with a level that is over. Raises RemoteError if a
    server does not answer its warm-up."""
    for endpoint in plan.endpoints:
        await _warm_up(plan, progress, endpoint)
    for index in range(len(plan.concurrency)):
        first: Texts | None = None
        for endpoint in plan.endpoints:
            row, outcome = await _level(plan, index, progress, endpoint)
            first = outcome.texts if first is None else first
            over(row | _compared(plan, index, endpoint, first, outcome.texts), outcome)


async def _warm_up(plan: Plan, progress: Progress, endpoint: Endpoint) -> None:
    tell = partial(progress, f"warming {endpoint.lane} up", 0.0)
    tell()
    asked = plan.questions[-WARM_UP:], 1, plan.params, plan.timeout_s
    warmed = await ask_all(endpoint, *asked, lambda _: tell())
    if not warmed.answers:
        raise warmed.failures[0]


async def _level(plan: Plan, index: int, progress: Progress, endpoint: Endpoint) -> tuple[Row, Outcome]:
    key = (endpoint.lane, plan.concurrency[index])
    start = index * plan.num_requests
    questions = plan.questions[start : start + plan.num_requests]
    params = replace(plan.params, seed=plan.params.seed + start)
    num_before, num_all = plan.keys.index(key) * plan.num_requests, len(plan.keys) * plan.num_requests

    def tell(now: Outcome) -> None:
        num_failed = len(now.failures)
        num = len(now.answers) + num_failed
        users, failed = f"{key[1]} user{'s' * (key[1] != 1)}", f", {num_failed} failed" if num_failed else ""
        progress(f"{key[0]}, {users}: {num} of {plan.num_requests} requests{failed}", (num_before + num) / num_all)

    tell(Outcome())
    before = await read_counters(endpoint)
    outcome = await ask_all(endpoint, questions, key[1], params, plan.timeout_s, tell)
    after = await read_counters(endpoint)
    answers = outcome.answers
    sizes = len(answers), sum(answer.num_tokens for answer in answers), sum(answer.num_chunks for answer in answers)
    row = row_of(key, outcome, *per_step(before, after, *sizes), plan.dollars)
    if questions[0].to_the_end:
        row |= {"num_short": sum(answer.num_tokens < params.max_new_tokens for answer in answers)}
    return row, outcome


def _compared(plan: Plan, level: int, endpoint: Endpoint, first: Texts, texts: Texts) -> Row:
    """num_compared, num_same_text: of the questions that both this lane and the first one answered, one of them with a
    text; other_prompts: numbers of prompts (`Plan.numbers`) whose answers differ. None for the first lane itself, for
    another model, and where nothing can be compared."""
    alike = {index: are_alike(first[index], texts[index]) for index in first.keys() & texts.keys()}
    both = [index for index, same in alike.items() if same is not None]
    if endpoint is plan.endpoints[0] or endpoint.model != plan.endpoints[0].model or not both:
        return {"num_compared": None, "num_same_text": None, "other_prompts": None}
    others = [index for index in both if not alike[index]]
    numbers = sorted({plan.numbers[level * plan.num_requests + index] for index in others})[:MAX_OTHER]
    return {"num_compared": len(both), "num_same_text": len(both) - len(others), "other_prompts": numbers}


def row_of(key: Key, outcome: Outcome, server_wide: float | None, why_not: str, dollars: float | None) -> Row:
    """The result of a level.

    server_wide: the acceptance length by the server's counters, used if its answers have none; `acceptance_from` says
    which it is. why_not: why those counters cannot be right, else "". `errors`: how many failures of each kind;
    `fault`: the message of the first."""
    row = level_metrics(outcome.answers, len(outcome.failures), outcome.wall_s, dollars)
    own = row["mean_acceptance_length"]
    if own is None:
        row["mean_acceptance_length"] = server_wide
    return {
        "lane": key[0],
        "concurrency": key[1],
        **row,
        "rate_error": rate_error(outcome.answers, key[1], outcome.wall_s),
        "acceptance_from": "answers" if own is not None else "server" if server_wide is not None else None,
        "acceptance_doubt": why_not if own is None else "",
        "errors": dict(Counter(failure.kind for failure in outcome.failures)),
        "fault": str(outcome.failures[0]) if outcome.failures else None,
        "wall_s": outcome.wall_s,
    }


def faults(rows: Sequence[Row]) -> list[str]:
    """A sentence for each level without an answer."""
    return [
        f"with {row['concurrency']} users no request was answered: {row['fault']}"
        for row in rows
        if row["num_requests"] == row["num_errors"]
    ]
