"""What demos do to show a larger ratio, done to a race that was held: simulated, from its own times. Pure; standard
library only.

With p and s the seconds of a token of the plain lane and of the other, n the tokens and r the seconds in which the
plain lane read the prompt:

    ratio = max over (p, s) of (max(c, e p) + r / n) / s

where e, c and r count only if their switch is on: e is how much slower an eager decoder is, c = CHUNK_S. (p, s) are of
the whole race; also of each fifth of its tokens ("best"); also p of the whole with the s of a step that keeps all its
guesses ("loop"), which is the least over lengths k of (mean seconds of a step with k guesses) / (k + 1). So slower
plain tokens multiply, what is added to plain's time adds up, and of luck and loop the better one counts. No switch can
lower the ratio."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .events import Step
from .metrics import ratio
from .why import Compared

SWITCHES = ("eager", "prefill", "chunks", "best", "loop")
CHUNK_S = 0.05
"""How often a stream sends what has gathered; the page's own does it so."""
STRETCHES = 5


def inflated(race: Compared, eager: float, on: Collection[str]) -> float:
    """The ratio with these SWITCHES on; with none the race's own. eager: how many times slower an eager plain decoder
    is, at least 1."""
    alone, lane = _per_token(race.plain), _per_token(race.lane)
    p, s = _mean(alone), _mean(lane)
    added = (race.prefill_s[0] or 0.0) / len(alone) if "prefill" in on else 0.0
    pairs = [(p, s)]
    if "best" in on:
        pairs += zip(_stretches(alone), _stretches(lane), strict=True)
    if "loop" in on:
        pairs.append((p, all_kept(race)[1]))
    slower, chunk_s = eager if "eager" in on else 1.0, CHUNK_S if "chunks" in on else 0.0
    found = (ratio(max(chunk_s, slower * plain_s) + added, lane_s) for plain_s, lane_s in pairs)
    return max(each for each in found if each is not None)


def stretches(race: Compared) -> list[float]:
    """The ratio of each fifth of the tokens; none of a text with fewer tokens than that."""
    pairs = zip(_stretches(_per_token(race.plain)), _stretches(_per_token(race.lane)), strict=True)
    return [each for p, s in pairs if (each := ratio(p, s)) is not None]


def all_kept(race: Compared) -> tuple[int, float]:
    """If every guess were right: tokens a step and seconds a token, at the length of guesses that is fastest then."""
    by_length: dict[int, list[float]] = {}
    for step in race.lane:
        by_length.setdefault(step.num_drafted, []).append(step.seconds)
    seconds = {k + 1: _mean(times) / (k + 1) for k, times in by_length.items()}
    best = min(seconds, key=seconds.__getitem__)
    return best, seconds[best]


def _per_token(done: Sequence[Step]) -> list[float]:
    """Seconds of each token: of its step, in equal parts."""
    return [step.seconds / len(step.token_ids) for step in done for _ in step.token_ids]


def _stretches(values: Sequence[float]) -> list[float]:
    num, size = len(values), STRETCHES
    return [_mean(values[num * i // size : num * (i + 1) // size]) for i in range(size)] if num >= size else []


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
