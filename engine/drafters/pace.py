"""What a lane's steps and drafts cost, and what its speed makes a second worth. Standard library only."""

from collections import deque
from collections.abc import Sequence

# Steps over which the achieved rate is averaged; how many steps without a draft it starts from, and of how many tokens
# each. Measured (simulated; docs/log.md, `auto` judged by the oracle): 32 and 200 steps, a start from 2 or 4, change
# nothing; a start from 1 token a step loses 0.3 % (median).
RATE_STEPS, RATE_PRIOR, RATE_TOKENS = 64, 8, 2
NUM_TIMES = 5  # how many of the last times count at each size. Chosen by hand, never measured alone.


class Pace:
    """The lane's speed: tokens and seconds of its last steps. step_s: seconds of the target's step that verifies 0, 1,
    ... drafted tokens."""

    def __init__(self, step_s: Sequence[float]) -> None:
        self._num_tokens, self._seconds = float(RATE_PRIOR * RATE_TOKENS), RATE_PRIOR * step_s[0]

    @property
    def rate(self) -> float:
        """What a second is worth, in tokens."""
        return self._num_tokens / self._seconds

    def add(self, num_tokens: int, seconds: float) -> None:
        """Take in a step."""
        keep = 1 - 1 / RATE_STEPS
        self._num_tokens = keep * self._num_tokens + num_tokens
        self._seconds = keep * self._seconds + seconds


class SizeTime:
    """Seconds by size: a line, fixed + size * slope, through the medians of the last times at each size."""

    def __init__(self) -> None:
        self._recent: dict[int, deque[float]] = {}
        self._fixed = self._slope = 0.0

    def add(self, size: int, seconds: float) -> None:
        """Take in a time. The median of an even number of times is the lower middle one: disturbance only slows."""
        self._recent.setdefault(size, deque(maxlen=NUM_TIMES)).append(seconds)
        points = [(n, sorted(times)[(len(times) - 1) // 2], len(times)) for n, times in self._recent.items()]
        total = sum(weight for _, _, weight in points)
        mean_n = sum(n * weight for n, _, weight in points) / total
        mean_s = sum(s * weight for _, s, weight in points) / total
        spread = sum(weight * (n - mean_n) ** 2 for n, _, weight in points)
        slope = sum(weight * (n - mean_n) * (s - mean_s) for n, s, weight in points) / spread if spread else 0.0
        self._slope = min(max(slope, 0.0), mean_s / mean_n if mean_n else 0.0)
        self._fixed = mean_s - self._slope * mean_n

    def __call__(self, size: int) -> float:
        """If only one size was timed, the best case for others: smaller ones take their share, larger ones as long."""
        if len(self._recent) == 1 and (known := next(iter(self._recent))):
            return self._fixed * min(1.0, size / known)
        return self._fixed + self._slope * size


def num_matching(ids: Sequence[int], written: Sequence[int]) -> int:
    """How many of the first tokens are the same."""
    pairs = zip(ids, written, strict=False)
    return next((i for i, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(ids), len(written)))
