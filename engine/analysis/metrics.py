"""The definition of every number, in one place. Standard library only.

All lanes are measured by the same formulas, each from its own events alone. A number that does not exist (nothing
drafted, no step, no time) is None, never NaN or infinity.
"""
# Twin: app/web/base/model.js, for replays; compared by test_the_numbers_of_a_replay_are_those_of_the_engine.

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

from ..core.events import LaneEvent, Started, Step, steps, width_words
from ..core.spec import BASELINE, PLAIN, SPECULATIVE, LaneSpec

Key = TypeVar("Key")
Value = TypeVar("Value")
DISTURBED = 3.0
MIN_STEPS_TO_JUDGE = 20
# Threads that wait for a core this share of their time make every step two thirds slower. On a quiet machine they wait
# up to 2 % of it, up to 10 % with a browser that watches on the same two cores, and 70 % on an overloaded one.
BUSY = 0.4
NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class LaneMetrics:
    """The numbers of one lane. Times are in seconds, rates per second, shares from 0 to 1."""

    num_tokens: int  # committed tokens, including the end token, which is computed but not shown
    # Includes the drafter's prefill. None before the lane has started.
    prefill_s: float | None
    decode_s: float | None  # sum of draft_s + verify_s over the steps
    # num_tokens / decode_s, without prefill. A server's lane leaves out the tokens that came first: see `_untimed`.
    tokens_per_s: float | None
    ttft_s: float | None  # time to first token: prefill_s + the first step's seconds
    # Time per output token: decode_s / num_tokens. A server's lane leaves out the tokens that came first.
    tpot_s: float | None
    # Median seconds of a step: how long a streaming reader waits between updates. Percentiles interpolate linearly.
    itl_p50_s: float | None
    itl_p95_s: float | None
    num_steps: int
    per_step_drafted: tuple[int, ...]
    per_step_accepted: tuple[int, ...]
    # Accepted / proposed draft tokens. None when nothing was drafted.
    acceptance_rate: float | None
    # Committed tokens per verification step, the target's own and steps without a draft included (vLLM omits these).
    mean_acceptance_length: float | None
    # As in vLLM: share of drafts (steps that drafted at all) whose token i was accepted; of a tree, any of its tokens
    # at depth i. A draft shorter than i counts as not accepted.
    acceptance_by_position: tuple[float, ...]
    # Share of drafts that reached token i (it exists, and all before it were accepted) whose token i was accepted. A
    # tree reaches depth i if any of its tokens follows the i - 1 that were kept: other branches are not compared with
    # the target's token there. None if no draft reached it.
    conditional_acceptance_by_position: tuple[float | None, ...]


def lane_metrics(events: Iterable[LaneEvent], lane: str) -> LaneMetrics:
    """All numbers of the lane called `lane`; events of other lanes are ignored."""
    events = [e for e in events if e.lane == lane]
    done = steps(events, lane)
    prefill_s = next((e.event.prefill_s for e in events if isinstance(e.event, Started)), None)
    seconds = [step.seconds for step in done]
    num_tokens, decode_s, untimed = num_tokens_of(done), sum(seconds), _untimed(done)
    num_timed = num_tokens - num_tokens_of(untimed)
    drafted, accepted = tuple(step.num_drafted for step in done), tuple(step.num_accepted for step in done)
    by_position, conditional = _by_position(done)
    return LaneMetrics(
        num_tokens=num_tokens,
        prefill_s=_finite(prefill_s),
        decode_s=_finite(decode_s),
        tokens_per_s=ratio(num_timed, decode_s),
        ttft_s=_finite(prefill_s + seconds[0]) if prefill_s is not None and seconds else None,
        tpot_s=ratio(decode_s, num_timed),
        itl_p50_s=percentile(seconds[len(untimed) :], 0.50),
        itl_p95_s=percentile(seconds[len(untimed) :], 0.95),
        num_steps=len(done),
        per_step_drafted=drafted,
        per_step_accepted=accepted,
        acceptance_rate=ratio(sum(accepted), sum(drafted)),
        mean_acceptance_length=ratio(num_tokens, len(done)),
        acceptance_by_position=by_position,
        conditional_acceptance_by_position=conditional,
    )


def speedup(plain_steps: Sequence[Step], lane_steps: Sequence[Step]) -> float | None:
    """Seconds per token of the plain lane divided by those of this lane, over the same number of tokens.

    That number n is the smaller of the two counts. Each lane is charged for its steps up to the one that reaches n, and
    credited with all tokens of those steps (the last one may commit some beyond n)."""
    n = min(num_tokens_of(plain_steps), num_tokens_of(lane_steps))
    return ratio(_seconds_per_token(plain_steps, n), _seconds_per_token(lane_steps, n))


def race_speedup(
    events: Iterable[LaneEvent], lane: str = SPECULATIVE, plain: str = PLAIN, baseline: str = BASELINE
) -> float | None:
    """The `speedup` of a lane over the `fastest_plain` decoding of its race; None without one."""
    events = list(events)
    return speedup(steps(events, fastest_plain(events, lane, plain, baseline)), steps(events, lane))


def fastest_plain(
    events: Sequence[LaneEvent], lane: str = SPECULATIVE, plain: str = PLAIN, baseline: str = BASELINE
) -> str:
    """The name of the lane to compare with: `plain`; or `baseline` if it drafted nothing and was faster, or if there is
    no plain lane, as in a race of two servers. Often both run at the same width, so the same work is measured twice and
    the ratio uses the faster measurement."""
    done, undrafted = steps(events, lane), steps(events, baseline)
    against = speedup(steps(events, plain), done), speedup(undrafted, done)
    if any(step.num_drafted for step in undrafted) or against[1] is None or (plain and against[0] is None):
        return plain
    if against[0] is None:
        return baseline
    return plain if against[0] <= against[1] else baseline


def race_speedups(events: Iterable[LaneEvent], lanes: Iterable[LaneSpec]) -> dict[str, float | None]:
    """The `race_speedup` of every speculative lane among `lanes`, by name."""
    events, lanes = list(events), list(lanes)
    own = {lane.role: lane.name for lane in lanes}
    return {
        lane.name: race_speedup(events, lane.name, own.get(PLAIN, ""), own.get(BASELINE, ""))
        for lane in lanes
        if lane.role == SPECULATIVE
    }


def disturbance(events: Iterable[LaneEvent], waited_share: float | None = None) -> str:
    """That the machine must have been busy with something else, in a sentence: overloaded, so that the race waited for
    a core for more than BUSY of its time; or else with the worst lane whose 95th percentile of step times exceeds
    DISTURBED times its median. "" for a quiet race.

    waited_share: the recording's; None if unknown.

    Compares only steps of equal width, where a lane has at least MIN_STEPS_TO_JUDGE of them. If the width is unknown,
    the lane is a server's, which may also have sent one step's tokens in several pieces."""
    if waited_share is not None and waited_share > BUSY:
        return (
            f"The machine was disturbed: the race waited for a core {100 * waited_share:.0f} % of its time, so do not "
            "quote its ratio."
        )
    seconds = grouped(((e.lane, e.event.width), e.event.seconds) for e in events if isinstance(e.event, Step))
    worst, said = DISTURBED, ""
    for (lane, width), times in seconds.items():
        median_s, p95_s = percentile(times, 0.50), percentile(times, 0.95)
        if len(times) >= MIN_STEPS_TO_JUDGE and median_s and p95_s is not None and p95_s > worst * median_s:
            worst, said = p95_s / median_s, _unequal(lane, width, median_s, p95_s)
    return said


def _unequal(lane: str, width: int | None, median_s: float, p95_s: float) -> str:
    times = f"{1000 * median_s:.1f} ms at the median and {1000 * p95_s:.1f} ms at the 95th percentile"
    if width is None:
        return f"Pieces of lane {lane} arrived {times} apart: its server sends a step's tokens one by one, or was busy."
    return (
        f"The machine was disturbed: steps of lane {lane} of {width_words(width)} took {times}, so do not quote this "
        "race's ratio."
    )


def ratio_noise(plain: Sequence[Step], lane_steps: Sequence[Step]) -> float | None:
    """Half the 95 % interval of the ratio of the two lanes' times, relative to the ratio: at 0.03, 1.02x is no
    difference. None if a lane has no two steps of the same kind.

    Steps of equal width and draft length do the same work. The differences between successive ones give their variance
    free of any drift of the machine, which affects both lanes alike because they take turns (von Neumann 1941)."""
    errors = [_relative_error(steps) for steps in (plain, lane_steps)]
    if errors[0] is None or errors[1] is None:
        return None
    return NORMAL_95 * math.hypot(errors[0], errors[1])


def is_noise(speedup: float, noise: float | None) -> bool:
    """Whether a ratio is indistinguishable from 1."""
    return noise is not None and abs(math.log(speedup)) <= noise


def cost_per_million(tokens_per_s: float | None, dollars_per_hour: float | None) -> float | None:
    """Dollars per million tokens on a machine that costs `dollars_per_hour` and never stops writing `tokens_per_s`."""
    if dollars_per_hour is None or dollars_per_hour < 0:
        return None
    return ratio(dollars_per_hour * 1e6 / 3600, tokens_per_s)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` of the values lie, interpolated linearly; None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return _finite(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """The quotient; None if an operand is missing, the denominator is not positive, or the result is not finite."""
    if numerator is None or denominator is None or not denominator > 0:
        return None
    return _finite(numerator / denominator)


def share(right: Sequence[bool]) -> float:
    """The share that is true; of nothing 0."""
    return sum(right) / len(right) if right else 0.0


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of each key, both in their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def num_tokens_of(done: Sequence[Step]) -> int:
    return sum(len(step.token_ids) for step in done)


def seconds_of(done: Sequence[Step]) -> float:
    return sum(step.seconds for step in done)


def until(done: Sequence[Step], num_tokens: int) -> Sequence[Step]:
    """The steps up to and including the one that reaches `num_tokens`."""
    counts = list(accumulate(len(step.token_ids) for step in done))
    return done[: bisect_left(counts, num_tokens) + 1] if num_tokens else []


def _untimed(done: Sequence[Step]) -> Sequence[Step]:
    """The first steps of a server's lane, which arrived with its first text: their time is the prefill's."""
    first = next((i for i, step in enumerate(done) if step.seconds > 0 or step.width is not None), len(done))
    return done[:first]


def _seconds_per_token(done: Sequence[Step], n: int) -> float | None:
    charged = until(done, n)
    return ratio(seconds_of(charged), num_tokens_of(charged) - num_tokens_of(_untimed(done)))


def _relative_error(steps: Iterable[Step]) -> float | None:
    """The standard error of a lane's time, divided by that time."""
    kinds = grouped(((step.width, step.num_drafted), step.seconds) for step in steps)
    known = [(times, _variance(times)) for times in kinds.values() if len(times) > 1]
    if not known:
        return None
    pooled = sum((len(times) - 1) * variance for times, variance in known) / sum(len(times) - 1 for times, _ in known)
    variance = sum(len(times) * (_variance(times) if len(times) > 1 else pooled) for times in kinds.values())
    total = sum(sum(times) for times in kinds.values())
    return math.sqrt(variance) / total if total > 0 else None


def _variance(times: Sequence[float]) -> float:
    return sum((b - a) ** 2 for a, b in pairwise(times)) / (2 * (len(times) - 1))


def _by_position(done: Sequence[Step]) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
    drafts = [step for step in done if step.num_drafted]
    longest = max((step.depth for step in drafts), default=0)
    kept = _num_from((step.num_accepted for step in drafts), longest)
    reached = _num_from((step.num_accepted + step.is_refuted for step in drafts), longest)
    share = (num / len(drafts) for num in kept[1:])
    return tuple(share), tuple(map(ratio, kept[1:], reached[1:]))


def _num_from(values: Iterable[int], most: int) -> list[int]:
    """How many of the values are at least 0, 1, ..., most."""
    counts = Counter(values)
    return list(accumulate(counts[value] for value in range(most, -1, -1)))[::-1]
