"""What a study of servers says, in sentences that page and command line share. Standard library only."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...analysis.verdict_words import LITTLE, THRESHOLD, capital
from ...core.spec import BASELINE, PLAIN
from ...recordings.words import causes

NOISE, WAIT_NOISE = 1.03, 1.1  # smaller ratios, of a level's rates and of its 95th percentiles, are chance
DEVIATIONS = 1.96  # standard errors from the middle to the ends of a 95 % interval
PLAINS = (PLAIN, BASELINE)
ROUGH = 3  # with fewer requests of each user, a level's rate is mostly that of its beginning and end
MOST_NAMED = 5  # prompts whose texts differ that are named
NEITHER = {0: "no clear difference", None: "no answer"}
SAME_WORK = 1.02  # of tokens in all, where answers should all have one length and did not
MOST_FAILED = 0.25  # of a level's requests: the others had the server more to themselves
UNEQUAL = "requests failed, or answers that should all be as long had different lengths: not compared."
LITTLE_GAIN = f"{LITTLE} (below {THRESHOLD}x)"
# Rank of speculation against plain decoding -> its words in the recommendation.
SWITCH = {2: "speculation on", 1: LITTLE_GAIN, -1: "speculation off", **NEITHER}
# The same where texts differ: nobody should switch on what may write something else.
SPEED = {2: "faster", 1: LITTLE_GAIN, -1: "slower", **NEITHER}
# The same for any other lanes.
OTHERS = {2: "{other} is ahead", 1: "{other} is ahead a little", -1: "{first} is ahead", **NEITHER}
NO_BATCHES = "With 1 user there is no batch, and they differ as well. "
Level = Mapping[str, Any]
Pairs = Mapping[int, tuple[Level, Level]]


def says(levels: Sequence[Level], lanes: Sequence[str]) -> list[str]:
    """The second lane against the first one: at which of the measured numbers of users it gives more output tokens per
    second, and how many answers differ; a line for each number of users; the wait for the first text where it ranks the
    lanes differently, and whether the texts are the same. A lane alone: its rates."""
    if len(lanes) == 1:
        rates = {level["concurrency"]: f"{rate:.1f}" for level in levels if (rate := level["output_tokens_per_s"])}
        alone = {level["concurrency"]: (level,) for level in levels}
        return [f"{lanes[0]}, output tokens a second: {_by_users(rates)}.", *_lines(alone)] if rates else []
    first, second = lanes
    pairs = pairs_of(levels, first, second)
    unequal = pairs_of(levels, first, second, are_equal=False).keys() - pairs.keys()
    sentences = list(_against(first, second, pairs) if pairs or not unequal else ())
    return sentences + [f"With {num} user{'s' * (num != 1)} {UNEQUAL}" for num in sorted(unequal)]


def ranks(levels: Sequence[Level], first: str, second: str) -> dict[int, int | None]:
    """By number of users that both lanes have finished: 2 where `second` gives more output tokens per second by the
    THRESHOLD of a study of prompts, 1 where it gives more, -1 where it gives fewer, 0 where NOISE or the spread of the
    requests may explain the difference; None where one of them answered nothing."""
    return {num: _graded(*pair) for num, pair in pairs_of(levels, first, second).items()}


def differ(levels: Sequence[Level], temperature: float | None) -> tuple[str, str]:
    """Where texts differ, and why they may, in sentences; each may be ""."""
    others = [level for level in levels if level.get("num_compared") and level["num_same_text"] < level["num_compared"]]
    if not others:
        return "", ""
    alone = any(level["concurrency"] == 1 for level in others)
    numbers = _others(others)  # none if a result does not say which
    more = len(numbers) - MOST_NAMED
    named = ", ".join(map(str, numbers[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
    where = f"Prompts with differing answers, numbered in their order: {named}. " if numbers else ""
    return f"{where}{NO_BATCHES * alone}".strip(), causes(temperature, in_batches=not alone)


def recommends(levels: Sequence[Level], lanes: Sequence[str]) -> str:
    """What to do with each number of users, if the texts are right: `speculation on with 1 user, little gain (below
    1.3x) with 4, off with 16`. "" without two lanes."""
    return _words(lanes[0], lanes[1], ranks(levels, *lanes)) if len(lanes) == 2 else ""


def speedups(levels: Sequence[Level], first: str, second: str) -> dict[int, float]:
    """By number of users, ascending, how many times the first lane's output tokens per second the second one gives."""
    return _gains(pairs_of(levels, first, second), "output_tokens_per_s")


def rough(levels: Sequence[Level]) -> str:
    """A sentence if levels had fewer than ROUGH requests of each user, else ""."""
    few = [level for level in levels if level["num_requests"] < ROUGH * level["concurrency"]]
    if not few:
        return ""
    users = " and ".join(str(num) for num in sorted({level["concurrency"] for level in few}))
    num = few[0]["num_requests"]
    return f"{num} requests with {users} users: fewer than {ROUGH} each, so the ratio there is rough."


def _against(first: str, second: str, pairs: Pairs) -> Iterator[str]:
    gains = _gains(pairs, "output_tokens_per_s")
    if not gains:
        yield f"{second} and {first}: no level was answered by both."
        return
    rank_at = {num: _graded(*pair) for num, pair in pairs.items()}
    same = {num: level for num, (_, level) in pairs.items() if level.get("num_compared")}
    num = sum(level["num_compared"] for level in same.values())
    num_other = num - sum(level["num_same_text"] for level in same.values())
    words = _words(first, second, rank_at, some_differ=num_other > 0)
    head = words if words.startswith((first, second)) else capital(words)
    ratios = ", ".join(f"{gain:.2f}x" for gain in gains.values())
    prompts = len(_others(same.values()))
    to_prompts = f", to {prompts} prompt{'s' * (prompts != 1)}" if prompts else ""
    differ = f"; {num_other} of {num} answers differ{to_prompts}" if num_other else ""
    yield f"{head}: {ratios} output tokens a second{differ}."
    yield from _lines(pairs)
    sooner = {num: _rank(1 / gain, WAIT_NOISE) for num, gain in _gains(pairs, "ttft_p95_s").items()}
    if waits := {
        num: " against ".join(f"{level['ttft_p95_s']:.3f} s" for level in reversed(pairs[num]))
        for num, rank in rank_at.items()
        if rank is not None and sooner.get(num, 0) not in (0, (rank > 0) - (rank < 0))
    }:
        yield f"The wait for the first text (TTFT P95) says otherwise, {second} against {first}: {_by_users(waits)}."
    if same:
        counts = {num: f"{level['num_same_text']} of {level['num_compared']}" for num, level in same.items()}
        rest = ", ".join(str(num) for num in pairs if num not in same)
        yield f"Same text: {_by_users(counts)}{'; not compared with ' if rest else ''}{rest}."


def _others(levels: Iterable[Level]) -> list[int]:
    """The numbers of the prompts with differing answers."""
    return sorted({number for level in levels for number in level.get("other_prompts") or ()})


def _words(first: str, second: str, rank_at: Mapping[int, int | None], some_differ: bool = False) -> str:
    """`speculation on with 1 user, little gain (below 1.3x) with 4, off with 16`. Names only measured numbers of users.
    rank_at: rank by number of users. some_differ: whether texts do."""
    drafts, parts = first in PLAINS and second not in PLAINS, list[str]()
    words = OTHERS if not drafts else SPEED if some_differ else SWITCH
    for rank in dict.fromkeys(rank_at.values()):
        *most, last = (str(num) for num, graded in rank_at.items() if graded == rank)
        users = "" if parts else " user" if (most, last) == ([], "1") else " users"
        numbers = f"{', '.join(most)} and {last}" if most else last
        parts.append(f"{words[rank].format(first=first, other=second)} with {numbers}{users}")
    said = ", ".join(parts)
    if words is OTHERS:
        return said
    head, phrase, tail = said.partition("speculation ")  # say it once
    return head + phrase + tail.replace("speculation ", "")


def same_work(first: Level, second: Level) -> bool:
    """Whether both answered the requests, but for a few, and answers that should all have had one length, if any, had
    the same on both. Of a lane without any answer this says nothing."""
    both = (first, second)
    failed = any(level.get("num_errors", 0) > MOST_FAILED * level.get("num_requests", 0) for level in both)
    if failed and all(level["output_tokens_per_s"] for level in both):
        return False
    if not (first.get("num_short") or second.get("num_short")):
        return True
    means = [level["num_output_tokens"] / max(1, level["num_requests"] - level["num_errors"]) for level in both]
    return max(means) <= SAME_WORK * min(means)


def _lines(by_users: Mapping[int, Sequence[Level]]) -> Iterator[str]:
    """`With 4 users: 1.20x (95 % interval 1.12 to 1.29), 183.1 against 152.7 output tokens a second, answers in 1.71
    against 2.06 s (median).` The first line names the lanes."""
    names = " against ".join(level["lane"] for level in reversed(next(iter(by_users.values()))))
    for num, levels in by_users.items():
        rates = [level["output_tokens_per_s"] for level in levels]
        parts = (
            _ratio(*levels) if len(rates) == 2 and all(rates) else "",
            _each(levels, "output_tokens_per_s", "{:.1f}", "{} output tokens a second"),
            _each(levels, "latency_median_s", "{:.2f}", "answers in {} s (median)"),
            _each(levels, "dollars_per_million", "${:.2f}", "{} per million output tokens"),
        )
        if said := ", ".join(filter(None, parts)):
            yield f"With {num} user{'' if num == 1 else 's'}{f' ({names})' if names else ''}: {said}."
            names = ""


def _each(levels: Sequence[Level], metric: str, value: str, words: str) -> str:
    """A metric of the lanes, last one first; "" if none has it."""
    values = [level.get(metric) for level in reversed(levels)]
    if all(number is None for number in values):
        return ""
    return words.format(" against ".join("unknown" if number is None else value.format(number) for number in values))


def pairs_of(
    levels: Sequence[Level], first: str, second: str, *, are_equal: bool = True
) -> dict[int, tuple[Level, Level]]:
    """The levels of both lanes by number of users, ascending, where both have one. are_equal: and did the same work."""
    by_key = {(level["lane"], level["concurrency"]): level for level in levels}
    both = {num: (by_key.get((first, num)), by_key.get((second, num))) for num in sorted({num for _, num in by_key})}
    return {num: (a, b) for num, (a, b) in both.items() if a and b and (same_work(a, b) or not are_equal)}


def _gains(pairs: Pairs, metric: str) -> dict[int, float]:
    """By number of users, the second lane's value over the first one's, where both have one."""
    return {num: b[metric] / a[metric] for num, (a, b) in pairs.items() if a[metric] and b[metric]}


def _interval(first: Level, second: Level) -> tuple[float, float] | None:
    """The 95 % interval of the ratio of their rates; None if a level lacks the spread of its requests."""
    a, b = first.get("rate_error"), second.get("rate_error")
    if a is None or b is None:
        return None
    gain, wide = _gain(first, second), math.exp(DEVIATIONS * math.hypot(a, b))
    return gain / wide, gain * wide


def _ratio(first: Level, second: Level) -> str:
    interval = _interval(first, second)
    within = f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{_gain(first, second):.2f}x{within}"


def _gain(first: Level, second: Level) -> float:
    return second["output_tokens_per_s"] / first["output_tokens_per_s"]


def _graded(first: Level, second: Level) -> int | None:
    """A rank, see `ranks`."""
    if not (first["output_tokens_per_s"] and second["output_tokens_per_s"]):
        return None
    gain, (low, high) = _gain(first, second), _interval(first, second) or (0, 0)
    if low < 1 < high:
        return 0
    return 2 if round(gain, 2) >= THRESHOLD else _rank(gain, NOISE)  # as it is shown


def _rank(gain: float, noise: float) -> int:
    return (gain > noise) - (gain < 1 / noise)


def _by_users(values: Mapping[int, str]) -> str:
    """`1.41x with 1 user, 1.20x with 2`."""
    first, *rest = (f"{value} with {num}" for num, value in values.items())
    return ", ".join([f"{first} user{'' if next(iter(values)) == 1 else 's'}", *rest])
