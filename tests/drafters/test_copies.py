"""Copies from the context, alone and first in a hybrid: what is proposed, how far, and at no cost of a long context."""

import random
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import drafters
from engine.drafters.hybrid import HybridDrafter, parts_of
from engine.drafters.ngram import LONG_MATCH, MAX_CANDIDATES, MAX_MATCH, NEIGHBOURHOOD, TRUST, NgramDrafter
from tests.helpers.fakes import Oracle

# Small alphabets, so that there are many matches, of every length, and more candidates than are looked at.
TEXTS = st.integers(1, 6).flatmap(lambda size: st.lists(st.integers(0, size), min_size=1, max_size=400))


def expected(text: list[int], k: int, min_match: int) -> list[int]:
    """The stated rule, by comparing everything with everything."""
    for n in (max(min_match, LONG_MATCH), min_match):
        starts = [p for p in range(n, len(text)) if text[p - n : p] == text[-n:]][::-1][:MAX_CANDIDATES]
        if starts:
            break
    else:
        return []
    length_at = {
        p: next((i for i in range(min(p, MAX_MATCH)) if text[p - 1 - i] != text[-1 - i]), min(p, MAX_MATCH))
        for p in starts
    }
    longest = max(length_at.values())
    copies = []
    alike = {p: len(set(text[-NEIGHBOURHOOD:]) & set(text[max(0, p - NEIGHBOURHOOD) : p])) for p in starts}
    for start in sorted([p for p in starts if length_at[p] == longest], key=lambda p: (-alike[p], -p))[:2]:
        grown = list(text)
        for i in range(k):
            grown.append(grown[start + i])
        copies.append(grown[len(text) :])
    if len(copies) == 1:
        return copies[0][: TRUST.get(longest, k)]
    return copies[0][: max(1, next((i for i in range(k) if copies[0][i] != copies[1][i]), k))]


def propose(text: list[int], k: int, min_match: int = 1) -> list[int]:
    drafter = NgramDrafter(min_match)
    drafter.prefill(text, None)
    return list(drafter.propose(text, None, k).token_ids)


@given(TEXTS, st.integers(0, 15), st.integers(1, 6))
def test_the_index_finds_what_brute_force_finds(text, k, min_match):
    """The chains would miss a match, prefer a shorter or an older one, or copy from beside it."""
    assert propose(text, k, min_match) == expected(text, k, min_match)


@given(TEXTS, st.integers(0, 15), st.integers(1, 6), st.randoms(use_true_random=False))
def test_proposals_do_not_depend_on_how_tokens_came(text, k, min_match, rng):
    """A position would be indexed twice, or not at all, where a step commits many tokens."""
    drafter = NgramDrafter(min_match)
    at = rng.randint(1, len(text))
    drafter.prefill(text[:at], None)
    while at < len(text):
        at = min(len(text), at + rng.randint(1, 9))
        assert list(drafter.propose(text[:at], None, k).token_ids) == propose(text[:at], k, min_match)


def call_s(size: int, kind: str) -> float:
    """Median seconds of a call, indexing included, after `size` tokens of context."""
    rng = random.Random(1)
    make = {"varied": lambda: rng.randrange(50_000), "few words": lambda: rng.randrange(3), "one word": lambda: 7}[kind]
    text = [make() for _ in range(size)]
    drafter = NgramDrafter()
    drafter.prefill(text, None)
    seconds = []
    for _ in range(200):
        text += [make() for _ in range(3)]
        started = time.perf_counter()
        drafter.propose(text, None, 7)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


@pytest.mark.parametrize("kind", ["varied", "few words", "one word"])
def test_a_call_costs_the_same_in_a_long_context(kind):
    """A scan of the context would make every token of a long chat slower than the one before."""
    assert call_s(100_000, kind) < 4 * call_s(1_000, kind) + 50e-6


# In a hybrid


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 7))
def test_the_copy_comes_first(tokens, k):
    """X would be asked although the text repeats itself, or nobody where it does not."""
    second, alone = Oracle([9] * 20), NgramDrafter(2)
    second.hidden_layers = ()
    hybrid = HybridDrafter(NgramDrafter(2), second)
    hybrid.prefill(tokens, None)
    alone.prefill(tokens, None)
    copied = alone.propose(tokens, None, k)
    assert hybrid.propose(tokens, None, k) == (copied if len(copied) else second.guess(0, k))
    assert second.asked == [0 if len(copied) else k]


@pytest.mark.parametrize("first", ["ngram", "ngram:2"])
@pytest.mark.parametrize("second", ["draft_model:a/b", "draft_model:/x+y/c++", "ngram:5"])
def test_the_second_part_may_hold_anything(first, second):
    """A path with a plus in it would be cut."""
    argument = f"{first}+{second}"
    assert parts_of(argument) == (first, second)
    assert drafters.parse(f"hybrid:{argument}") == ("hybrid", argument)
    drafters.check(f"hybrid:{argument}")
