"""What bench makes of samples: medians, quartiles, and ratios of what ran together."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bench.lanes import Sample
from engine.bench.peers import EAGER, PROMPT_LOOKUP
from engine.bench.prompts import KINDS
from engine.bench.table import against_peers, rows

RATES = st.floats(0.1, 1e4)
SAMPLES = st.lists(
    st.builds(
        Sample,
        st.sampled_from(["plain", "ngram", EAGER]),
        st.sampled_from(KINDS[:3]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 3),
        st.integers(1, 64),
        st.none() | RATES,
        st.none() | RATES,
        st.none() | st.booleans(),
        st.booleans(),
        st.none() | st.floats(0.1, 1.0),
    ),
    max_size=30,
)


@given(SAMPLES, st.randoms())
def test_medians_are_medians(samples, random):
    """A mean, or the best run, would be quoted; a run be lost, or one that differs from the baseline be outvoted."""
    found = rows(samples)
    shuffled = random.sample(samples, len(samples))
    by_name = {(row["kind"], row["name"]): row for row in rows(shuffled)}
    assert by_name == {(row["kind"], row["name"]): row for row in found}
    assert by_name.keys() == {(s.kind, s.name) for s in samples if s.tokens_per_s is not None}
    for (kind, name), row in by_name.items():
        group = [s for s in samples if (s.kind, s.name) == (kind, name)]
        rates = [s.tokens_per_s for s in group if s.tokens_per_s is not None]
        gains = [s.speedup_vs_plain for s in group if s.speedup_vs_plain is not None]
        quartiles = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
        assert [row["p25"], row["tokens_per_s"], row["p75"]] == pytest.approx(quartiles)
        assert row["speedup_vs_plain"] == (pytest.approx(statistics.median(gains)) if gains else None)
        shares = [s.oracle_share for s in group if s.oracle_share is not None]
        assert row["oracle_share"] == (pytest.approx(statistics.median(shares)) if shares else None)
        judged = {s.identical for s in group} - {None}
        assert row["identical"] is (None if not judged else False not in judged)


@given(SAMPLES)
def test_ratios_pair_what_ran_together(samples):
    """A fast prompt of one side would be held against a slow one of the other; or the slower of two peers be chosen."""
    samples = [
        replace(s, prompt=f"{s.prompt}{i}")
        for i, s in enumerate(samples)
        if s.tokens_per_s is not None and s.name != EAGER
    ]
    twice = [replace(s, name=EAGER, tokens_per_s=s.tokens_per_s / 2) for s in samples if s.name == "plain"]
    slow = [replace(s, name=PROMPT_LOOKUP, tokens_per_s=s.tokens_per_s / 4) for s in samples if s.name == "plain"]
    for entry in (
        found := against_peers(
            [*samples, *slow, *twice], [("plain", (PROMPT_LOOKUP, EAGER)), ("ngram", ("hf_assisted",))]
        )
    ):
        assert (entry["name"], entry["peer"], entry["ratio"], entry["p75"]) == ("plain", EAGER, 2.0, 2.0)
    assert {entry["kind"] for entry in found} == {s.kind for s in twice}
