"""The race that a table gives, the oracle and costs, against brute force: of chains and of trees."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.analysis.costs import CUT, Costs, draft_costs, filled, verify_costs
from engine.analysis.metrics import seconds_of
from engine.core.events import Step
from engine.core.interfaces import Draft
from engine.core.spec import is_tree
from engine.what_if.oracle import oracle
from engine.what_if.tables import TREES, Table, Text, steps_at, table_name
from tests.helpers.fakes import Fake, FakeTarget, run, tokens_of

PROMPT = (3, 1, 2)
LONGEST = 5
SECONDS = st.floats(0, 10, width=32)


class Answers(Fake):
    """Proposes what a table has."""

    def __init__(self, drafts: Sequence[Draft]) -> None:
        super().__init__()
        self.drafts = drafts

    def guess(self, done: int, k: int) -> Draft:
        return self.drafts[done].first(k)


@st.composite
def texts(draw: st.DrawFn, most: int = 24) -> tuple[Text, frozenset[int]]:
    """What the fake target writes, and its end tokens: ended by one of them, or by its limit."""
    limit, seed = draw(st.integers(1, most)), draw(st.integers(0, 4))
    ends = draw(st.frozensets(st.integers(0, 31), max_size=2))
    return Text(PROMPT, tuple(written(seed, limit, ends)), limit), ends


@cache
def written(seed: int, limit: int, ends: frozenset[int]) -> list[int]:
    return tokens_of(list(run(FakeTarget(seed), Fake(), PROMPT, limit, 0, sorted(ends))))


def drafted(position: int, text: Text, branches: bool) -> st.SearchStrategy[Draft]:
    """A chain or a tree for this position: a token goes on rightly as often as not, also beyond the text's end."""
    truth = (*text.token_ids[position:], *[7] * (LONGEST + 1))

    def grown(nodes: list[tuple[int, int]]) -> Draft:
        ids: list[int] = []
        parents: list[int] = []
        depths = [0]
        for back, shift in nodes:
            parent = max(0, len(ids) - back) if branches else len(ids)
            token = (truth[depths[parent]] + shift) % 32
            if is_tree([*parents, parent], [*ids, token]):
                ids.append(token)
                parents.append(parent)
                depths.append(depths[parent] + 1)
        return Draft(tuple(ids), parents=tuple(parents) if branches else ())

    nodes = st.tuples(st.integers(0, LONGEST), st.sampled_from([0, 0, 0, 1, 2]))
    return st.lists(nodes, max_size=LONGEST).map(grown)


def rising(size: int) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(SECONDS, min_size=size, max_size=size).map(lambda values: tuple(sorted(values)))


@st.composite
def races(draw: st.DrawFn, most: int = 24, num_tables: int = 1) -> tuple[Text, list[Table], Costs, frozenset[int]]:
    """With tables of chains and of trees."""
    text, ends = draw(texts(most))
    tables = []
    for i in range(num_tables):
        trees = draw(st.booleans())
        drafts = tuple(draw(drafted(at, text, trees)) for at in range(len(text.token_ids)))
        tables.append(Table(table_name(f"t{i}", TREES) if trees else f"t{i}", f"t{i}", drafts))
    costs = Costs(draw(rising(LONGEST + 1)), {table.name: draw(rising(LONGEST + 1)) for table in tables})
    return text, tables, costs, ends


class TreeTarget(FakeTarget):
    """Takes trees."""

    num_rows = 0

    def extend(self, token_ids: Sequence[int], num_logits: int, *, parents: tuple[int, ...] = ()) -> tuple[Any, Any]:
        self.num_rows = len(token_ids)
        logits, hidden = super().extend(token_ids, num_logits)
        paths = [[*self.cache[: len(self.cache) - len(token_ids)], token_ids[0]]]
        for parent, token in zip(parents, token_ids[1:], strict=False):
            paths.append([*paths[parent], token])
        return [self.row(path) for path in paths] if parents else logits, hidden

    def keep(self, rows: Sequence[int]) -> None:
        start = len(self.cache) - self.num_rows
        self.cache[start:] = [self.cache[start + row] for row in rows]


@given(races(), st.integers(1, LONGEST + 2))
def test_a_table_gives_the_race_of_the_real_loop(race, size):
    """A last draft too long, a token beyond the end, a step at another place, or a branch kept that the loop drops."""
    text, (table,), costs, ends = race
    seed = next(seed for seed in range(5) if written(seed, text.limit, ends) == list(text.token_ids))
    events = run(TreeTarget(seed), Answers(table.drafts), PROMPT, text.limit, size, sorted(ends))
    real = [e for e in events if isinstance(e, Step)]
    steps = steps_at(table, text, size, costs)
    fields = ("index", "position", "drafted", "num_accepted", "token_ids", "kept")
    assert [[getattr(s, f) for f in fields] for s in steps] == [[getattr(s, f) for f in fields] for s in real]
    at = costs.draft_s[table.name]
    assert seconds_of(steps) == pytest.approx(sum(costs.verify_s[len(s.drafted)] + at[len(s.drafted)] for s in real))


def fastest(race: tuple[Text, list[Table], Costs, frozenset[int]], position: int = 0) -> float:
    """Every way to draft, right tokens and wrong ones."""
    text, tables, costs, _ = race
    if position >= len(text.token_ids):
        return 0.0
    seconds = []
    for table in tables:
        draft = table.drafts[position].first(text.room(position))
        for n in range(len(draft) + 1):
            step = text.step(0, position, draft.first(n), costs.draft_s[table.name][n], costs.verify_s[n])
            seconds.append(step.seconds + fastest(race, position + len(step.token_ids)))
    return min(seconds)


@given(races(most=7, num_tables=2), st.integers(1, LONGEST))
def test_the_oracle_is_the_fastest_of_all(race, size):
    """`auto` would be judged by something that a rule can beat, or that no rule can reach."""
    text, tables, costs, _ = race
    seconds = oracle(tables, text, costs)
    assert seconds == pytest.approx(fastest(race))
    for table in tables:
        alone = oracle([table], text, costs)
        assert seconds <= alone <= seconds_of(steps_at(table, text, size, costs)) * (1 + 1e-12)


# --- costs

TIMES = st.dictionaries(st.integers(0, 12), st.lists(SECONDS, min_size=1, max_size=6), max_size=6)


@given(TIMES, st.lists(SECONDS, min_size=13, max_size=13))
def test_a_larger_size_never_costs_less(times, shape):
    """The oracle would draft wrong tokens because they are cheaper."""
    costs = filled(times, dict(enumerate(shape)))
    assert list(costs) == list(range(13))
    assert all(a <= b * (1 + 1e-9) + 1e-12 for a, b in pairwise(costs.values()))


@given(st.lists(st.integers(1, 60), min_size=2, max_size=6, unique=True).map(sorted), st.integers(1, 5))
def test_what_was_timed_stands(sizes, num):
    """A size would take its neighbour's time although its own is known and nothing speaks against it."""
    costs = filled({size: [0.25 * size] * num for size in sizes}, {size: size for size in range(61)})
    assert [costs[size] for size in sizes] == [0.25 * size for size in sizes]
    assert all(abs(seconds - 0.25 * size) < 1e-9 for size, seconds in costs.items()), "in proportion, and in between"


@given(st.lists(st.floats(1, 2), min_size=5, max_size=20), st.floats(10, 1e6))
def test_one_hiccup_tells_nothing(values, hiccup):
    """A race during which the machine slept for a second would say that every step takes long."""
    calm, disturbed = (filled({1: times}, {1: 1.0})[1] for times in (values, [*values, hiccup]))
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
