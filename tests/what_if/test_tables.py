"""The race that a table tells, the oracle and costs, against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import Step
from engine.interfaces import Draft
from engine.what_if.costs import CUT, Costs, draft_costs, filled, verify_costs
from engine.what_if.oracle import oracle
from engine.what_if.tables import Table, Text, seconds_at, seconds_of, steps_at
from tests.helpers.fakes import Fake, FakeTarget, run, tokens_of

PROMPT = (3, 1, 2)
LONGEST = 5
SECONDS = st.floats(0, 10, width=32)


class Answers(Fake):
    """Proposes what a table has."""

    def __init__(self, drafts: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.drafts = drafts

    def guess(self, done: int, k: int) -> Draft:
        return Draft(self.drafts[done][:k])


@st.composite
def texts(draw: st.DrawFn, most: int = 24) -> tuple[Text, frozenset[int]]:
    """What the fake target writes, and its end tokens: ended by one of them, or by its limit."""
    limit, seed = draw(st.integers(1, most)), draw(st.integers(0, 4))
    ends = draw(st.frozensets(st.integers(0, 31), max_size=2))
    return Text(PROMPT, tuple(written(seed, limit, ends)), limit), ends


@cache
def written(seed: int, limit: int, ends: frozenset[int]) -> list[int]:
    return tokens_of(list(run(FakeTarget(seed), Fake(), PROMPT, limit, 0, sorted(ends))))


def drafts_for(text: Text) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """A table over it, right as often as wrong, also beyond its end."""

    def spoiled(position: int, marks: list[bool]) -> tuple[int, ...]:
        truth = (*text.token_ids[position:], *[7] * LONGEST)
        return tuple(t if right else (t + 1) % 32 for t, right in zip(truth, marks, strict=False))

    marks = st.lists(st.booleans() | st.just(True), max_size=LONGEST)
    return st.tuples(*(marks.map(lambda each, i=i: spoiled(i, each)) for i in range(len(text.token_ids))))


def rising(size: int) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(SECONDS, min_size=size, max_size=size).map(lambda values: tuple(sorted(values)))


@st.composite
def races(draw: st.DrawFn, most: int = 24, num_tables: int = 1) -> tuple[Text, list[Table], Costs, frozenset[int]]:
    text, ends = draw(texts(most))
    tables = [Table(f"t{i}", f"t{i}", draw(drafts_for(text))) for i in range(num_tables)]
    costs = Costs(draw(rising(LONGEST + 1)), {table.name: draw(rising(LONGEST + 1)) for table in tables})
    return text, tables, costs, ends


@given(races(), st.integers(1, LONGEST + 2), st.integers(0, 4))
def test_a_table_tells_the_race_of_the_real_loop(race, k, seed):
    """The last draft would be too long, a token beyond the end be counted, or a step begin at another place."""
    text, (table,), costs, ends = race
    for seed in range(5):
        if written(seed, text.limit, ends) == list(text.token_ids):
            break
    events = run(FakeTarget(seed), Answers(table.drafts), PROMPT, text.limit, k, sorted(ends))
    real = [e for e in events if isinstance(e, Step)]
    told = steps_at(table, text, k, costs)
    fields = ("index", "position", "drafted", "num_accepted", "token_ids")
    assert [[getattr(s, f) for f in fields] for s in told] == [[getattr(s, f) for f in fields] for s in real]
    assert seconds_of(told) == pytest.approx(
        sum(costs.verify_s[len(s.drafted)] + costs.draft_s[table.name][len(s.drafted)] for s in real)
    )
    assert seconds_at(table, text, [1, k], costs)[k] == pytest.approx(seconds_of(told))


def fastest(race: tuple[Text, list[Table], Costs, frozenset[int]], position: int = 0) -> float:
    """Every way to draft, right tokens and wrong ones."""
    text, tables, costs, _ = race
    if position >= len(text.token_ids):
        return 0.0
    found = []
    for table in tables:
        for m in range(len(table.drafts[position][: text.room(position)]) + 1):
            step = text.step(0, position, table.drafts[position][:m], costs.draft_s[table.name][m], costs.verify_s[m])
            found.append(step.seconds + fastest(race, position + len(step.token_ids)))
    return min(found)


@given(races(most=7, num_tables=2), st.integers(1, LONGEST))
def test_the_oracle_is_the_fastest_of_all(race, k):
    """`auto` would be judged by something that a rule can beat, or that no rule can reach."""
    text, tables, costs, _ = race
    found = oracle(tables, text, costs)
    assert found.seconds == pytest.approx(fastest(race))
    assert sum(m + 1 for m in found.ks) in (len(text.token_ids), len(text.token_ids) + 1)
    for table in tables:
        alone = oracle([table], text, costs)
        assert found.seconds <= alone.seconds <= seconds_of(steps_at(table, text, k, costs)) * (1 + 1e-12)


@given(races(most=9, num_tables=2))
def test_a_copy_may_follow_a_heads_tokens(race):
    """`auto` lets a head's draft end in a copy: it would beat a hybrid's oracle that cannot."""
    text, (copies, head), costs, _ = race
    joined = []
    for position in range(len(text.token_ids)):
        right = text.step(0, position, head.drafts[position], 0, 0).num_accepted
        ways = [(m, position + m) for m in range(1, right + 1) if position + m < len(text.token_ids)]
        joined += [(position, m, copies.drafts[at]) for m, at in ways]
    best = oracle([copies, head], text, costs, copies).seconds
    assert best <= oracle([copies, head], text, costs).seconds
    for position, m, copy in joined:  # one such draft, and the oracle without them before and after it
        draft = (*text.token_ids[position : position + m], *copy)[: min(text.room(position), LONGEST)]
        step = text.step(0, position, draft, costs.draft_s[head.name][m], costs.verify_s[len(draft)])
        rest = position + len(step.token_ids)
        assert best <= part(race, 0, position) + step.seconds + part(race, rest, len(text.token_ids)) + 1e-9


def part(race: tuple[Text, list[Table], Costs, frozenset[int]], start: int, stop: int) -> float:
    """Seconds from a position to another, which a step begins at, without a draft: an upper bound."""
    return (stop - start) * (race[2].verify_s[0] + min(of[0] for of in race[2].draft_s.values()))


# --- costs

TIMES = st.dictionaries(st.integers(0, 12), st.lists(SECONDS, min_size=1, max_size=6), max_size=6)


@given(TIMES, st.lists(SECONDS, min_size=13, max_size=13))
def test_a_larger_size_never_costs_less(times, shape):
    """The oracle would draft wrong tokens because they are cheaper."""
    found = filled(times, dict(enumerate(shape)))
    assert list(found) == list(range(13))
    assert all(a <= b * (1 + 1e-9) + 1e-12 for a, b in pairwise(found.values()))


@given(st.lists(st.integers(1, 60), min_size=2, max_size=6, unique=True).map(sorted), st.integers(1, 5))
def test_what_was_timed_stands(sizes, num):
    """A size would take its neighbour's time although its own is known and nothing speaks against it."""
    found = filled({size: [0.25 * size] * num for size in sizes}, {size: size for size in range(61)})
    assert [found[size] for size in sizes] == [0.25 * size for size in sizes]
    assert all(abs(seconds - 0.25 * size) < 1e-9 for size, seconds in found.items()), "in proportion, and in between"


@given(st.lists(st.floats(1, 2), min_size=5, max_size=20), st.floats(10, 1e6))
def test_one_hiccup_tells_nothing(values, hiccup):
    """A race during which the machine slept for a second would say that every step takes long."""
    calm, disturbed = (filled({1: each}, {1: 1.0})[1] for each in (values, [*values, hiccup]))
    assert disturbed <= calm + CUT * 2 / len(values)


def test_what_was_never_timed():
    """A table of a drafter that raced alone in no lane would have no costs, and fail, or a draft cost seconds."""
    assert filled({}, {1: 2.0, 2: 1.0, 4: 3.0}) == {1: 2.0, 2: 2.0, 4: 3.0}
    assert draft_costs({}, 3, True) == (0.0,) * 4


def step(width: int | None, verify_s: float) -> Step:
    return Step(0, 0, (), 0, (1,), 0.0, verify_s, width)


def test_steps_are_priced_by_the_width_that_holds_them():
    """Three drafts would cost what two do, or steps of another class of widths be counted."""
    done = [step(1, 9.0), step(None, 9.0), step(2, 1.0), step(2, 3.0), step(8, 6.0)]
    assert verify_costs(done, {2: 0.1, 4: 0.2, 8: 0.3}) == (2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 6.0, 6.0)


def test_a_blocks_draft_costs_the_same_at_any_length():
    """The shorter one would seem cheap: its block is as large."""
    assert draft_costs({5: [2.0]}, 5, False) == (0.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    assert draft_costs({5: [2.0]}, 5, True) == pytest.approx((0.0, 0.4, 0.8, 1.2, 1.6, 2.0))
