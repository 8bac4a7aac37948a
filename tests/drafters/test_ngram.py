"""Prompt lookup: what it proposes, how far, and that a long context costs nothing. Standard library only, as the
drafter is."""

from __future__ import annotations

import json
import random
import re
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.ngram import (
    LONG_MATCH,
    MAX_CANDIDATES,
    MAX_MATCH,
    NEIGHBOURHOOD,
    TRUST,
    NgramDrafter,
    min_match_of,
)
from engine.errors import UsageError
from tests.helpers.auto_races import TEXTS

STEP_COST = {0: 1.0, 1: 1.0, 2: 1.1, 3: 1.1}
"""A step's measured cost by its draft's length, relative to a step of width 2; 4 to 7 drafted tokens, width 8: 1.3."""


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
    agreed = next((i for i in range(k) if copies[0][i] != copies[1][i]), k)
    return copies[0][: max(1, agreed)]


def propose(text: list[int], k: int, min_match: int = 1) -> list[int]:
    drafter = NgramDrafter(min_match)
    drafter.prefill(text, None)
    return list(drafter.propose(text, None, k).token_ids)


@given(TEXTS, st.integers(0, 15), st.integers(1, 6))
def test_the_index_finds_what_brute_force_finds(text, k, min_match):
    """The chains would miss a match, prefer a shorter or an older one, or copy from beside it."""
    assert propose(text, k, min_match) == expected(text, k, min_match)


def test_after_a_value_that_differs_the_copy_goes_on_with_the_same_field():
    """The most recent of equally short matches, another field of the record, would be drafted after every value."""
    key, quote, end = (11, 12, 13), 7, 8
    record = [t for name, value in zip(key, (21, 22, 23), strict=True) for t in (name, quote, value, end)]
    assert propose([*record, 9, *record, 9, 11, quote, 99, end], 3)[:1] == [12]


@given(TEXTS, st.integers(0, 15), st.integers(1, 6), st.randoms(use_true_random=False))
def test_proposals_do_not_depend_on_how_tokens_came(text, k, min_match, rng):
    """A position would be indexed twice, or not at all, where a step commits many tokens."""
    drafter = NgramDrafter(min_match)
    at = rng.randint(1, len(text))
    drafter.prefill(text[:at], None)
    while at < len(text):
        at = min(len(text), at + rng.randint(1, 9))
        assert list(drafter.propose(text[:at], None, k).token_ids) == propose(text[:at], k, min_match)


@given(TEXTS, st.integers(0, 15), st.integers(1, 16))
def test_proposals_come_from_the_context(text, k, min_match):
    """An id of nowhere would be drafted, or more than were asked for."""
    ids = propose(text, k, min_match)
    assert len(ids) <= k and set(ids) <= set(text)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True), st.integers(3, 9), st.integers(1, 40))
def test_a_loop_yields_k_tokens(period, repeats, k):
    """A copy would stop at the end of the text, which is one period away at most."""
    text = period * (repeats + LONG_MATCH)
    assert propose(text, k) == (period * (k + 1))[:k]


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=40),
    st.lists(st.integers(30, 60), min_size=1, max_size=MAX_MATCH - 1, unique=True),
    st.integers(1, 9),
)
def test_a_longer_match_beats_a_more_recent_one(old, suffix, k):
    """The continuation would come from where less of the context is the same."""
    text = [*old, 100, *suffix, 77, 78, *old, 101, *suffix, 88, *old, 100, *suffix]
    assert propose(text, k)[0] == 77


def test_drafts_end_where_two_equal_matches_part():
    """Tokens would be drafted of which it is known that they depend on more than the match."""
    text = [1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 3, 4, 5, 7, 8, 8, 1, 2, 3]
    assert propose(text, 7) == [4, 5]


@pytest.mark.parametrize(("length", "drafted"), [(1, 1), (2, 3), (3, 7), (4, 7), (9, 7)])
def test_one_short_match_is_trusted_little(length, drafted):
    """A chance match would cost a wide step."""
    suffix = list(range(100, 100 + length))
    text = [1, *suffix, *range(2, 20), 50, *suffix]
    assert propose(text, 7) == list(range(2, 2 + drafted))


@pytest.mark.parametrize("min_match", [2, 3, 5])
def test_no_match_below_the_minimum(min_match):
    """`ngram:3` would draft after two equal tokens."""
    suffix = list(range(100, 100 + min_match - 1))
    assert propose([1, *suffix, 2, 3, 50, *suffix], 7, min_match) == []


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


def words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def speed(prompt: str, completion: str, k: int = 7) -> float:
    """Plain decoding's cost over that of n-gram drafts, if the target goes on from `prompt` with `completion`."""
    ids: dict[str, int] = {}
    before, after = ([ids.setdefault(w, len(ids)) for w in words(t)] for t in (prompt, completion))
    drafter = NgramDrafter(min_match_of(""))
    drafter.prefill(before, None)
    done, cost = 0, 0.0
    while done < len(after):
        draft = drafter.propose(before + after[:done], None, min(k, len(after) - done - 1)).token_ids
        cost += STEP_COST.get(len(draft), 1.3)
        done += 1 + next((i for i, t in enumerate(draft) if t != after[done + i]), len(draft))
    return len(after) / cost


def test_the_default_pays_where_text_repeats_and_costs_nothing_where_it_does_not():
    """The default minimum, or the length of drafts, would be a bad choice: slower than plain on prose, or little gained
    on a table."""
    rng = random.Random(4)
    rows = [(f"name{i}", rng.randrange(100), f"city{rng.randrange(9)}") for i in range(20)]
    table = "name,age,city\n" + "".join(f"{n},{a},{c}\n" for n, a, c in rows)
    assert speed(table, json.dumps([{"name": n, "age": a, "city": c} for n, a, c in rows])) > 2
    nouns = [f"word{i}" for i in range(400)]
    prose = " ".join(rng.choices(nouns, weights=[1 / (i + 1) for i in range(400)], k=600))
    assert speed(prose[:500], prose[500:]) > 1


@pytest.mark.parametrize("argument", ["0", "17", "-1", "1.5", "x", " 2", "٣", "9" * 5000])
def test_an_unusable_minimum_is_refused(argument):
    """A race would start with a drafter that fails or never drafts."""
    with pytest.raises(UsageError, match="from 1 to 16"):
        min_match_of(argument)
