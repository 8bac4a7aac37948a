"""How demos show a larger ratio, simulated on a finished race from its own times. Pure; standard library only.

Let p and s be the seconds per token of the plain lane and of the other, n the number of tokens, and r the plain lane's
prefill in seconds:

    ratio = max over (p, s) of (max(c, e p) + r / n) / s

e (how much slower an eager decoder is), c = CHUNK_S and r count only if their switch is on. (p, s) are those of the
whole race; with "best" also those of each fifth of its tokens; with "loop" also the whole race's p and the s of a step
that keeps all its guesses: the minimum over draft lengths k, or depths of trees, of (mean seconds of a step with that
k) / (k + 1). So slower plain tokens multiply the ratio, additions to plain's time add up, and of "best" and "loop" the
better counts. No switch can lower the ratio."""

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

from ..core.events import Step
from .breakdown import Compared
from .metrics import grouped, ratio

SWITCHES = ("eager", "prefill", "chunks", "best", "loop")
CHUNK_S = 0.05  # seconds between two chunks of a stream, as on the page itself
STRETCHES = 5


def inflated(race: Compared, eager: float, choices: Iterable[Collection[str]]) -> list[float]:
    """The ratio for each choice of SWITCHES; with none of them on, the race's own.

    eager: how many times slower an eager plain decoder is, at least 1."""
    alone, lane = _per_token(race.plain), _per_token(race.lane)
    whole, loop = (fmean(alone), fmean(lane)), (fmean(alone), all_kept(race)[1])
    fifths = list(zip(_stretches(alone), _stretches(lane), strict=True))
    reading_s = (race.prefill_s[0] or 0.0) / len(alone)

    def one(on: Collection[str]) -> float:
        slower, chunk_s = eager if "eager" in on else 1.0, CHUNK_S if "chunks" in on else 0.0
        added = reading_s if "prefill" in on else 0.0
        pairs = [whole, *(fifths if "best" in on else ()), *([loop] if "loop" in on else ())]
        ratios = (ratio(max(chunk_s, slower * plain_s) + added, lane_s) for plain_s, lane_s in pairs)
        return max(value for value in ratios if value is not None)

    own = race.speedup / one(())  # not 1 where a server sends more tokens at once than the shorter text has left
    return [own * one(on) for on in choices]


def stretches(race: Compared) -> list[float]:
    """The ratio over each fifth of the tokens; empty if there are fewer than five."""
    pairs = zip(_stretches(_per_token(race.plain)), _stretches(_per_token(race.lane)), strict=True)
    return [value for p, s in pairs if (value := ratio(p, s)) is not None]


def all_kept(race: Compared) -> tuple[int, float]:
    """Tokens per step and seconds per token if every guess were right (of a tree: its longest path), at the draft
    length that is then fastest."""
    by_length = grouped((step.depth, step.seconds) for step in race.lane)
    seconds = {k + 1: fmean(times) / (k + 1) for k, times in by_length.items()}
    best = min(seconds, key=seconds.__getitem__)
    return best, seconds[best]


def _per_token(done: Sequence[Step]) -> list[float]:
    """Seconds of each token: an equal part of its step."""
    return [step.seconds / len(step.token_ids) for step in done for _ in step.token_ids]


def _stretches(values: Sequence[float]) -> list[float]:
    num, size = len(values), STRETCHES
    return [fmean(values[num * i // size : num * (i + 1) // size]) for i in range(size)] if num >= size else []
