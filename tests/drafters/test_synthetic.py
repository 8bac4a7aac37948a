"""`synthetic` drafts: right as often as asked, at the same places however a race is cut, and at another drafter's cost
if asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.synthetic import SyntheticDrafter
from engine.interfaces import Draft, Drafter

TRUTH = st.lists(st.integers(0, 99), min_size=1, max_size=60)
RATES = st.floats(0, 1)


def synthetic(truth, rate, seed=0, prompt=(1, 2), vocab_size=100) -> SyntheticDrafter:
    drafter = SyntheticDrafter(truth, rate, seed, vocab_size)
    drafter.prefill(prompt, None)
    return drafter


@given(TRUTH, RATES, st.integers(0, 2**63 - 1), st.randoms(use_true_random=False))
def test_the_corruption_belongs_to_the_position(truth, rate, seed, rng):
    """The same race, cut into other steps, would have other drafts."""
    whole = synthetic(truth, rate, seed).propose([1, 2], None, len(truth)).token_ids
    drafter = synthetic(truth, rate, seed)
    for done in rng.sample(range(len(truth)), len(truth)):
        assert drafter.propose([1, 2, *truth[:done]], None, 3).token_ids == whole[done : done + 3]


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_the_rate_is_the_share_of_right_tokens(rate):
    """Acceptance would not be what was asked for."""
    truth = [i * i % 100 for i in range(4000)]
    ids = synthetic(truth, rate).propose([1, 2], None, 4000).token_ids
    right = sum(a == b for a, b in zip(ids, truth, strict=True)) / 4000
    assert right == pytest.approx(rate, abs=0.03 if 0 < rate < 1 else 0)
    assert len(ids) == 4000 and all(0 <= t < 100 for t in ids)


@given(TRUTH, RATES, st.integers(0, 7))
def test_nothing_past_the_reference(truth, rate, k):
    """Tokens would be drafted that the target never says."""
    drafter = synthetic(truth, rate)
    assert drafter.propose([1, 2, *truth], None, k).token_ids == ()
    assert len(drafter.propose([1, 2, *truth[:-1]], None, k).token_ids) == min(k, 1)


def test_the_cost_of_another_drafter():
    """The other drafter would not be run, miss hidden rows, or its guesses be taken."""

    class Seen(Drafter):
        hidden_layers = (1,)
        max_k = 3

        def __init__(self) -> None:
            self.calls = []

        def prefill(self, prompt_ids, hidden):
            self.calls.append(("prefill", tuple(prompt_ids), hidden))

        def propose(self, token_ids, hidden, k):
            self.calls.append((tuple(token_ids), hidden, k))
            return Draft((99,) * k)

    seen = Seen()
    drafter = SyntheticDrafter([5, 6, 7, 8, 9], 1.0, 0, 100, seen)
    drafter.prefill([1, 2], "rows")
    assert drafter.hidden_layers == (1,)
    assert drafter.propose([1, 2], None, 7).token_ids == (5, 6, 7)
    assert drafter.propose([1, 2, 5], "more", 0).token_ids == ()
    assert seen.calls == [("prefill", (1, 2), "rows"), ((1, 2), None, 3), ((1, 2, 5), "more", 0)]
