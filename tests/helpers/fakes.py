"""A fake target that needs the invariant, fake drafters that break every rule, and a fake clock.

The fake's logits are a function of the last three tokens in its own cache, so a cache that is wrong by one token writes
other tokens.
"""

import hashlib
import math
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from engine.core.decode import decode
from engine.core.events import Event, Step
from engine.core.interfaces import Choice, Draft, Drafter
from engine.core.sampling.accept import Coupled

VOCAB = 32
MEMORY = 3


@lru_cache(maxsize=4)
def tables(seed: int, vocab_size: int) -> list[list[list[float]]]:
    """[MEMORY][vocab_size][vocab_size]: what a cached token adds to the logits, by how far back it is."""
    rng = random.Random(seed)
    return [[[rng.gauss(0, 1) for _ in range(vocab_size)] for _ in range(vocab_size)] for _ in range(MEMORY)]


class FakeClock:
    """Time that passes only when somebody spends it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeTarget:
    """Implements `interfaces.Target` over a list of cached token ids.

    hidden: also return one (position, token) pair per extended token. width: None, or every step costs that many
    rows."""

    seed: int = 0
    vocab_size: int = VOCAB
    width: int | None = None
    hidden: bool = False
    cache: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def row(self, context: Sequence[int]) -> list[float]:
        """Logits [vocab_size] after `context`; only its last MEMORY tokens matter."""
        total = [0.0] * self.vocab_size
        for table, token in zip(tables(self.seed, self.vocab_size), reversed(context), strict=False):
            total = [a + b for a, b in zip(total, table[token], strict=True)]
        return total

    def extend(self, token_ids: Sequence[int], num_logits: int, *, parents: tuple[int, ...] = ()) -> tuple[Any, Any]:
        assert num_logits <= len(token_ids) and all(0 <= t < self.vocab_size for t in token_ids)
        self.calls.append("extend")
        start = len(self.cache)
        self.cache += token_ids
        logits = [self.row(self.cache[: start + i + 1]) for i in range(num_logits)]
        return logits, [(start + i, t) for i, t in enumerate(token_ids)] if self.hidden else None

    def rollback(self, length: int) -> None:
        assert 0 <= length <= len(self.cache)
        self.calls.append("rollback")
        del self.cache[length:]

    def width_for(self, num_tokens: int) -> int:
        return self.width or num_tokens

    def synchronize(self) -> None:
        pass

    def checksums(self, logits: Sequence[Sequence[float]]) -> tuple[int, ...]:
        return tuple(
            int.from_bytes(hashlib.blake2b(struct.pack(f"{len(row)}d", *row), digest_size=8).digest(), "big")
            for row in logits
        )


@dataclass
class Ends:
    """An Ending by token ids and length."""

    max_new_tokens: int
    end_ids: frozenset[int] = frozenset()
    seen: int = 0

    def cut(self, token_ids: Sequence[int]) -> tuple[int, str | None]:
        for i, token in enumerate(token_ids):
            self.seen += 1
            if token in self.end_ids:
                return i + 1, "stop"
            if self.seen == self.max_new_tokens:
                return i + 1, "length"
        return len(token_ids), None


class FakeChoice(Choice):
    """A choice by (row, position) alone: argmax, with Gumbel noise of its own above temperature 0."""

    def __init__(self, temperature: float = 0.0, seed: int = 0) -> None:
        self.temperature, self.seed = temperature, seed

    def __call__(self, row: Any, position: int) -> int:
        if self.temperature == 0:
            return max(range(len(row)), key=row.__getitem__)
        rng = random.Random(f"{self.seed}/{position}")
        scores = [x / self.temperature - math.log(-math.log(rng.random())) for x in row]
        return max(range(len(row)), key=scores.__getitem__)


class Fake(Drafter):
    """Proposes `guess(number of tokens so far in the completion, k)`. Subclasses keep what they were told."""

    def __init__(self) -> None:
        self.num_prompt = 0
        self.num_proposals = 0
        self.asked: list[int] = []
        self.hidden: list[Any] = []

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self.num_prompt = len(prompt_ids)
        self.hidden += hidden or []

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        self.hidden += hidden or []
        self.asked.append(k)
        self.num_proposals += 1
        return self.guess(len(token_ids) - self.num_prompt, k)

    def guess(self, done: int, k: int) -> Any:
        return Draft()


Empty = Fake


class Random(Fake):
    """Any number of any tokens; with `truth`, right ones as often as wrong ones, so that every accept length occurs."""

    def __init__(self, seed: int = 0, truth: Sequence[int] = (), vocab_size: int = VOCAB) -> None:
        super().__init__()
        self.rng, self.truth, self.vocab_size = random.Random(seed), truth, vocab_size

    def guess(self, done: int, k: int) -> Draft:
        num = self.rng.randint(0, k)
        right = self.truth[done : done + num]
        noise = [self.rng.randrange(self.vocab_size) for _ in range(num)]
        return Draft(tuple(right[i] if i < len(right) and self.rng.random() < 0.7 else t for i, t in enumerate(noise)))


class Oracle(Fake):
    """The truth, as far as it is known."""

    def __init__(self, truth: Sequence[int]) -> None:
        super().__init__()
        self.truth = truth

    def guess(self, done: int, k: int) -> Draft:
        return Draft(tuple(self.truth[done : done + k]))


class Adversarial(Oracle):
    """k tokens of which each is wrong."""

    def __init__(self, truth: Sequence[int], vocab_size: int = VOCAB) -> None:
        super().__init__(truth)
        self.vocab_size = vocab_size

    def guess(self, done: int, k: int) -> Draft:
        right = [*self.truth[done : done + k], *[0] * k][:k]
        return Draft(tuple((t + 1) % self.vocab_size for t in right))


def run(
    target: Any,
    drafter: Any,
    prompt: Sequence[int],
    max_new_tokens: int,
    k: int,
    end_ids: Sequence[int] = (),
    sample: Any = None,
    **more: Any,
) -> Iterator[Event]:
    """`decode` with the fakes' own ending and the coupled rule."""
    rule: Any = Coupled(sample or FakeChoice())
    return decode(target, drafter, rule, prompt, Ends(max_new_tokens, frozenset(end_ids)), max_new_tokens, k, **more)


def tokens_of(events: Sequence[Event]) -> list[int]:
    """All committed tokens of one lane's events."""
    return [t for e in events if isinstance(e, Step) for t in e.token_ids]


def checksums_of(events: Sequence[Event]) -> list[int]:
    """All checksums of one lane's events."""
    return [c for e in events if isinstance(e, Step) for c in e.checksums]


@st.composite
def races(draw):
    """Random races: keyword arguments of a lane, its table, and what the loop writes with the empty drafter."""
    prompt = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6))
    lane = {
        "prompt": prompt,
        "max_new_tokens": draw(st.integers(1, 24)),
        "k": draw(st.integers(0, 7)),
        "end_ids": draw(st.lists(st.integers(0, VOCAB - 1), max_size=2)),
        "sample": FakeChoice(draw(st.sampled_from([0.0, 0.8])), draw(st.integers(0, 9))),
    }
    table = draw(st.integers(0, 3))
    return lane, table, list(run(FakeTarget(table), Empty(), **lane, audit=True))
