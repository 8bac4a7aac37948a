"""Metrics of a level, by the definitions of the gpt-oss study (docs/servers.md). Standard library only."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...analysis.metrics import cost_per_million, percentile
from ...recordings.recording import OUTPUT_SCHEMA
from ...remote.reply import BUFFERED, FIELDS
from .pays_under_load import differ, pairs_of, ranks, recommends, rough, same_work, says, speedups

FORMAT = "photofinish-load"

HIGHER = {
    **dict.fromkeys(("output_tokens_per_s", "total_tokens_per_s"), True),
    **dict.fromkeys(("ttft_p95_s", "itl_p95_s", "tpot_p95_s", "latency_median_s"), False),
    "mean_acceptance_length": True,
    "dollars_per_million": False,
}  # metric -> whether more of it is better
# Standard deviation of the time that users wait at a level's end for the last one, as a share of it. In 24 simulated
# kinds of levels the 95 % intervals of ratios then contained the true one in 91 to 100 % of the cases.
IDLE = 0.35
# A level has no times of pieces if this many of its answers, and this share of them, came at one moment.
MANY, OF_ALL = 2, 0.1


@dataclass(frozen=True)
class Answer:
    """One finished request. Seconds count from when it was sent.

    first_s, last_s, latency_s: to the first piece, to the last, to the end. Without text, or if all pieces came at one
        moment, there is neither a first nor a last.
    answer_s: to the first piece of the answer, if thinking came before it.
    num_first: tokens that came with the first piece or before it, hidden ones too.
    num_prompt_tokens: None if the server does not report it.
    num_accepted, num_steps: accepted draft tokens, and verified drafts; None if the server does not report them.
    """

    first_s: float | None
    last_s: float | None
    latency_s: float
    num_tokens: int
    num_prompt_tokens: int | None = None
    num_accepted: int | None = None
    num_steps: int | None = None
    answer_s: float | None = None
    num_chunks: int = 0
    has_text: bool = True
    num_first: int = 1


def level_metrics(
    answers: Sequence[Answer], num_errors: int, wall_s: float, dollars_per_hour: float | None = None
) -> dict[str, Any]:
    """The counts and metrics of a level that took wall_s seconds. A metric without a value is None: so are the times of
    first and later pieces where those of several answers came at one moment, as the rest would not stand for all."""
    num_tokens = sum(answer.num_tokens for answer in answers)
    num_prompt = [answer.num_prompt_tokens for answer in answers]
    rate = num_tokens / wall_s if num_tokens else None
    total = None if rate is None or None in num_prompt else rate + sum(num or 0 for num in num_prompt) / wall_s
    num_buffered = sum(answer.has_text and answer.first_s is None for answer in answers)
    timed = () if num_buffered >= max(MANY, OF_ALL * len(answers)) else answers
    both = [(a, a.first_s, a.last_s) for a in timed if a.first_s is not None and a.last_s is not None]
    spans = [(last - first, a.num_tokens - a.num_first) for a, first, last in both]
    return {
        "num_requests": len(answers) + num_errors,
        "num_errors": num_errors,
        "num_output_tokens": num_tokens,
        "num_textless": sum(not answer.has_text for answer in answers),
        "num_buffered": num_buffered,
        "output_tokens_per_s": rate,
        "total_tokens_per_s": total,
        "ttft_p95_s": percentile([answer.first_s for answer in timed if answer.first_s is not None], 0.95),
        "answer_p95_s": percentile([answer.answer_s for answer in timed if answer.answer_s is not None], 0.95),
        "itl_p95_s": percentile([span / num for span, num in spans if num > 0], 0.95),
        "tpot_p95_s": percentile([a.latency_s / a.num_tokens for a in answers if a.num_tokens], 0.95),
        "latency_median_s": percentile([answer.latency_s for answer in answers], 0.5),
        "mean_acceptance_length": _acceptance_length(answers),
        "dollars_per_million": cost_per_million(rate, dollars_per_hour),
    }


def rate_error(answers: Sequence[Answer], num_users: int, wall_s: float) -> float | None:
    """The relative standard error of a level's output tokens per second, from the spread of its requests; None with
    fewer than two. With all users busy the rate is their number times a ratio of sums, tokens over latencies, whose
    variance is in Cochran (Sampling Techniques, 1977, chapter 6). At the end users wait for the last one: see IDLE."""
    num, tokens, latency_s = len(answers), sum(a.num_tokens for a in answers), sum(a.latency_s for a in answers)
    if num < 2 or not tokens or not latency_s:
        return None
    spread = sum((a.num_tokens / tokens - a.latency_s / latency_s) ** 2 for a in answers) * num / (num - 1)
    return math.hypot(math.sqrt(spread), IDLE * max(0.0, 1 - latency_s / (num_users * wall_s)))


def improvement_percent(metric: str, first: float | None, second: float | None) -> float | None:
    """How much better the second is, as a share of the first; negative if it is worse."""
    if first is None or second is None or first <= 0:
        return None
    return 100 * (second - first) / first * (1 if HIGHER[metric] else -1)


def report(levels: Sequence[dict[str, Any]], lanes: Sequence[str], said: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of --json, from at least one level. `improvement_by_users` covers the levels that both lanes have
    finished. `says` is the verdict, in sentences; `differ`: where texts do; `causes`: why they may. `recommends`,
    `speedup_by_users`: see `recommends` and `speedups`. `gains_with`, `gains_little_with`: numbers of users with which
    a lane gives more output tokens per second than the first one, by the threshold or less; `loses_with`: fewer.
    `notes`: sentences below the figures. said: see `Plan.said`."""
    differs, causes = differ(levels, said.get("temperature"))
    both = pairs_of(levels, *lanes, are_equal=False) if len(lanes) == 2 else {}
    gains = speedups(levels, *lanes) if len(lanes) == 2 else {}
    placed = ranks(levels, *lanes) if len(lanes) == 2 else {}
    return {
        "schema": OUTPUT_SCHEMA,
        "format": FORMAT,
        "said": said,
        "lanes": list(lanes),
        "levels": list(levels),
        "improvement_by_users": {
            str(num): {
                metric: improvement_percent(metric, a[metric], b[metric]) if same_work(a, b) else None
                for metric in HIGHER
            }
            for num, (a, b) in both.items()
        },
        "says": [*says(levels, lanes), *_remarks(levels)],
        "differ": differs,
        "causes": causes,
        "recommends": recommends(levels, lanes),
        "speedup_by_users": {str(num): gain for num, gain in gains.items()},
        "gains_with": sorted(num for num, rank in placed.items() if rank == 2),
        "gains_little_with": sorted(num for num, rank in placed.items() if rank == 1),
        "loses_with": sorted(num for num, rank in placed.items() if rank == -1),
        "rough": rough(levels),
        "notes": list(_notes(levels)),
    }


def _remarks(levels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each level about what was not measured, or is not what was asked for."""
    for level in levels:
        num_answers = level["num_requests"] - level.get("num_errors", 0)
        users = _lane_with(level)
        if num := level.get("num_textless"):
            answers = f"{num} of {num_answers} answers of {users}"
            yield f"{answers} count tokens, but no text came (it was looked for in {', '.join(FIELDS)})."
        if num := level.get("num_buffered"):
            yield f"Of {num} of {num_answers} answers of {users} {BUFFERED}."
        if num := level.get("num_short"):
            mean = level["num_output_tokens"] / num_answers
            answers = f"{num} of {num_answers} answers of {users} end early"
            yield f"{answers}, after {mean:.3g} tokens (mean): ignore_eos has no effect there."
        if wait := level.get("answer_p95_s"):
            yield f"{users}: after its thinking the answer itself begins within {wait:.3f} s (P95)."
        if doubt := level.get("acceptance_doubt"):
            yield f"The drafts of {users} are not known: {doubt}."


def _notes(levels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each level with failed requests, and what else belongs below the figures."""
    for level in levels:
        if level.get("num_errors"):
            failed = f"{level['num_errors']} of {level['num_requests']} requests failed"
            kinds = ", ".join(f"{num} x {kind}" for kind, num in level["errors"].items())
            yield f"{_lane_with(level)}: {failed} ({kinds}). The first: {level['fault']}."
    if few := [level for level in levels if level["num_requests"] < level["concurrency"]]:
        num, most = few[-1]["num_requests"], few[-1]["concurrency"]
        yield f"{most} users sent {num} request{'s' * (num != 1)}, so no more than that ran at once: ask for more."
    if any(level.get("acceptance_from") == "server" for level in levels):
        yield "Tokens per step come from the servers' own counters, which cover all their users."
    yield "Output tokens a second include each answer's wait for its first text; a race and a study of prompts do not."


def _lane_with(level: Mapping[str, Any]) -> str:
    return f"{level['lane']} with {level['concurrency']} user{'s' * (level['concurrency'] != 1)}"


def _acceptance_length(answers: Sequence[Answer]) -> float | None:
    """vLLM's definition: 1 + accepted draft tokens per verified draft; None unless every answer reports them."""
    num_steps = [answer.num_steps for answer in answers if answer.num_accepted is not None]
    if len(num_steps) < len(answers) or None in num_steps or not sum(num or 0 for num in num_steps):
        return None
    return 1 + sum(answer.num_accepted or 0 for answer in answers) / sum(num or 0 for num in num_steps)
