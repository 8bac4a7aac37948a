"""The verdict: what it must be whatever the numbers, and that it says what it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.traffic.rows import SHOWN, Row, row_of
from engine.traffic.verdict import LEAST, interval, of_speedups, report

SPEEDUPS = st.lists(st.floats(0.5, 4), min_size=LEAST, max_size=12)
RANK = {"do not ship": 0, "unclear": 1, "ship": 2}


def rows(values: Sequence[float | None], drafter: str = "ngram", **more) -> list[Row]:
    common = {"noise": 0.02, "acceptance_rate": 0.5, "mean_acceptance_length": 1.5, "num_tokens": 9, "identical": True}
    return [
        Row(line, f"p{line}", "ab"[line % 2], drafter, "auto", value, **{**common, **more})
        for line, value in enumerate(values, 1)
    ]


@given(SPEEDUPS, st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_of_the_rows_does_not_matter(values, rng):
    """A file sorted in another way, or a study that was interrupted, would have another verdict."""
    two = rows(values) + rows([value * 0.9 for value in values], "eagle3")
    assert report(rng.sample(two, len(two))) == report(two)


@given(SPEEDUPS, st.floats(1.01, 2))
@settings(max_examples=15)
def test_faster_is_never_judged_worse(values, factor):
    """Speed-ups that all grow could turn a yes into a no."""
    faster = [value * factor for value in values]
    assert RANK[of_speedups(faster)] >= RANK[of_speedups(values)]
    assert interval(faster) == pytest.approx([factor * bound for bound in interval(values)])
    assert min(values) <= interval(values)[0] <= interval(values)[1] <= max(values)


@given(st.lists(st.floats(1.31, 9), min_size=LEAST, max_size=12), st.booleans())
@settings(max_examples=15)
def test_all_above_ships_and_all_below_does_not(values, above):
    """The plainest cases would be called unclear, or the wrong way round."""
    values = values if above else [1.69 / value for value in values]
    found = report(rows(values))
    assert found["verdict"] == ("ship" if above else "do not ship") and "measured" in found["reason"]
    assert found["summary"]["ngram"]["share_above_1_3"] == float(above)


def test_one_slow_prompt_of_many_does_not_decide_and_a_split_is_unclear():
    """A median is asked for; but half above and half below says nothing."""
    assert report(rows([2.0] * 19 + [0.5]))["verdict"] == "ship"
    assert report(rows([2.0] * 10 + [0.9] * 10))["verdict"] == "unclear"


@pytest.mark.parametrize("num", range(LEAST))
def test_few_prompts_are_no_verdict(num):
    """Two lucky prompts would decide; and what could not be measured would count as a prompt."""
    found = report(rows([9.0] * num + [None]))
    assert (
        found["verdict"] == "unclear"
        and f"at least {LEAST}" in found["reason"]
        and f"there are {num}." in found["reason"]
    )


def test_it_is_said_where_texts_that_repeat_themselves_carry_the_verdict():
    """Loops are easy to guess: a model that only loops would be shipped for it, and nobody would be told."""
    plain, loops = rows([1.1] * 6), rows([3.0] * 14, loops=True)
    found = report([*plain, *(replace(row, line=row.line + 9) for row in loops)])
    assert found["verdict"] == "ship"
    assert "14 of 20 texts repeat themselves" in found["reason"] and "would be: do not ship" in found["reason"]
    assert found["summary"]["ngram"]["without_loops"] == "do not ship"
    mixed = report([*rows([2.0] * 6), *(replace(row, line=row.line + 9) for row in loops)])
    assert mixed["verdict"] == "ship" and "14 of 20 texts repeat themselves" in mixed["reason"]


def test_the_best_drafter_is_the_one_that_was_measured_fastest():
    """The verdict would be about a drafter that nobody should choose."""
    slow, fast = rows([1.1] * 6), rows([1.9] * 5 + [0.8], "hybrid:ngram+eagle3")
    found = report([row for pair in zip(slow, fast, strict=True) for row in pair])
    assert found["best"] == {
        "drafter": "hybrid:ngram+eagle3", "k": "auto", "median_speedup": 1.9, "measured": True,
    }  # fmt: skip
    assert found["verdict"] == "ship" and "5 gain (b 3, a 2), 1 lose (a 1)" in found["reason"]
    assert list(found["summary"]) == ["ngram", "hybrid:ngram+eagle3"]


@pytest.mark.parametrize("num_kinds", [1, 4, 5, 6, 9])
def test_a_kind_of_the_table_is_named_in_the_reason_or_counted(num_kinds):
    """A single kind would be called "others" above a table that names it, or some be told nowhere."""
    each = [replace(row, kind=f"kind{i}") for i, row in enumerate(rows([2.0] * num_kinds))]
    reason = report([*each, *(replace(row, line=row.line + 100) for row in each * 2)])["reason"]
    named = sum(f"kind{i} 3" in reason for i in range(num_kinds))
    assert named == num_kinds or (num_kinds - named > 1 and f"{num_kinds - named} more kinds" in reason)
    assert "others" not in reason


@pytest.mark.parametrize(("fixed", "k"), [(1.54, 7), (1.52, "auto"), (1.0, "auto")])
def test_a_fixed_k_wins_only_where_it_is_clearly_computed_to_be_faster_than_auto(fixed, k):
    """auto, measured with its thinking, would lose to a k that is only computed; or a better k never be told."""
    found = report(rows([1.4] * 6, computed={"auto": 1.5, "3": 1.0, "7": fixed}))
    assert found["best"]["k"] == k and found["best"]["measured"] == (k == "auto")
    assert found["best"]["median_speedup"] == (1.4 if k == "auto" else fixed)
    assert found["summary"]["ngram"]["median_speedup"] == 1.4 and ("k = 7" in found["reason"]) == (k == 7)


def test_within_the_noise_is_neither_gain_nor_loss():
    """A drafter that drafts nothing would be said to lose on half of the prompts."""
    found = report(rows([1.01, 0.99, 1.5, 0.7, 1.0], disturbed=True))["summary"]["ngram"]
    assert found["num_disturbed"] == 5
    assert (found["num_gain"], found["num_lose"], found["num_prompts"]) == (1, 1, 5)


def test_a_row_is_read_back_as_it_was_written():
    """A study that goes on would go on with other numbers."""
    (row,) = rows([1.5], computed={"auto": 1.4, "3": 1.2}, fault="x", loops=True)
    assert row_of(row.to_json()) == row and tuple(row.shown()) == SHOWN
