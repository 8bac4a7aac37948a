"""Sampling: noise that belongs to the position, the right distribution, and top-k and top-p without a sort."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.choice import sampler as sampling
from engine.choice.in_reach import LikelyBits
from engine.choice.noise import first_argmax
from engine.choice.nucleus import NUCLEUS_FIRST, kept_by_top_k, kept_by_top_p
from engine.choice.sampler import Sampler
from engine.errors import RaceError
from engine.spec import SamplingParams
from tests.helpers.chances import excess
from tests.helpers.tiny import PACKED

SEEDS = st.integers(0, 2**63 - 1)
POSITIONS = st.integers(0, 100_000)
DTYPES = [torch.float32, torch.bfloat16]


def arange(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.int32)


# The distribution


def draw(sampler: Sampler, row: torch.Tensor, num: int) -> torch.Tensor:
    """Counts [vocab] of the choices at `num` positions."""
    return torch.bincount(torch.tensor([sampler(row, p) for p in range(num)]), minlength=len(row)).float()


def reference_kept(scores: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Which tokens stand, by sorting: mask [vocab]. Ties as they fall."""
    order = scores.double().argsort(descending=True, stable=True)
    kept = torch.zeros(len(scores), dtype=torch.bool)
    if top_k:
        order = order[:top_k]
    probs = scores.double()[order].softmax(-1)
    before = probs.cumsum(0) - probs
    kept[order[before < top_p]] = True
    return kept


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 5},
        {"top_p": 0.8},
        {"top_k": 12, "top_p": 0.9, "temperature": 1.5},
    ],
    ids=str,
)
def test_the_choices_follow_the_models_distribution(params, dtype):
    """A sampled text would be hotter, colder or otherwise other than asked for."""
    params = SamplingParams(**{"temperature": 1.0, "seed": 4, **params})
    row = (torch.randn(24, generator=torch.Generator().manual_seed(1)) * 1.5).to(dtype)
    scores = row.float() / params.temperature
    kept = reference_kept(scores, params.top_k, params.top_p)
    num = 2000
    expected = num * torch.where(kept, scores, -torch.inf).softmax(-1)
    counts = draw(Sampler(params, 24, PACKED), row, num)
    assert abs(excess(counts, expected)) < 4


@pytest.mark.parametrize("bias", [1.2, 0.85])
def test_a_biased_sampler_would_be_noticed(bias):
    """The test above would pass for a wrong temperature."""
    row = torch.randn(24, generator=torch.Generator().manual_seed(1)) * 1.5
    counts = draw(Sampler(SamplingParams(temperature=bias, seed=4), 24, PACKED), row, 2000)
    assert abs(excess(counts, 2000 * row.softmax(-1))) > 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_scores_that_are_maximised_are_what_is_chosen(dtype):
    """The margin in a verdict would belong to another choice than the one made."""
    row = torch.randn(300, generator=torch.Generator().manual_seed(2)).to(dtype)
    for params in (SamplingParams(), SamplingParams(temperature=0.7, top_k=40, top_p=0.95, seed=8)):
        sampler = Sampler(params, 300, PACKED)
        for position in range(20):
            scores = sampler.scores(row, position)
            assert scores.dtype == torch.float32 and sampler(row, position) == int(scores.argmax())
            assert bool((scores == -torch.inf).any()) == (params.top_k > 0)


def test_a_choice_depends_on_position_not_on_the_call():
    """The tokens would depend on how steps were cut."""
    sampler, rows = (
        Sampler(SamplingParams(temperature=1.0, seed=2), 100, PACKED),
        torch.randn(30, 100, generator=torch.Generator().manual_seed(3)),
    )
    forth = [sampler(rows[p], p) for p in range(30)]
    back = [sampler(rows[p], p) for p in reversed(range(30))]
    assert forth == back[::-1] and len(set(forth)) > 10


# top-k and top-p


@st.composite
def score_rows(draw):
    """float32 scores [vocab]: peaked, flat or with many equals; some beyond NUCLEUS_FIRST so that bisection is used."""
    size = draw(st.sampled_from([1, 2, 7, 100, NUCLEUS_FIRST, 3 * NUCLEUS_FIRST]))
    spread = draw(st.sampled_from([0.0, 1e-3, 0.3, 1.0, 10.0]))
    offset = draw(st.sampled_from([0.0, -50.0, 300.0]))
    scores = torch.randn(size, generator=torch.Generator().manual_seed(draw(st.integers(0, 2**31)))) * spread + offset
    if draw(st.booleans()):
        scores = (scores * 4).round() / 4
    return scores


@given(score_rows(), st.integers(0, 4000))
def test_top_k_is_the_k_largest_and_their_ties(scores, k):
    """Fewer words than asked for would stand, or small ones."""
    kept = kept_by_top_k(scores, k) > -torch.inf
    if not 0 < k < len(scores):
        assert bool(kept.all())
        return
    smallest = scores.sort(descending=True).values[k - 1]
    assert torch.equal(kept, scores >= smallest)


@given(score_rows(), st.floats(0.01, 0.9999) | st.just(1.0))
def test_top_p_is_the_smallest_set_that_reaches_p(scores, p):
    """The nucleus would be too small or too large, above all where the distribution is flat and found by bisection."""
    out = kept_by_top_p(scores, p)
    kept = out > -torch.inf
    assert torch.equal(out[kept], scores[kept])
    probs = scores.double().softmax(-1)
    threshold = scores[kept].min()
    assert torch.equal(kept, scores >= threshold)
    slack = 1e-4
    assert float(probs[kept].sum()) >= p - slack
    close = scores <= threshold + 2e-6 * max(1.0, float(scores.abs().max()))
    assert p == 1.0 or float(probs[kept & ~close].sum()) < p + slack
    assert bool(kept[scores.argmax()])


@given(score_rows(), st.integers(0, 50), st.floats(0.05, 0.999))
def test_top_k_then_top_p_agrees_with_a_sort(scores, k, p):
    """Both lanes would agree, on another distribution than the one asked for."""
    assume(len(scores.unique()) == len(scores))
    got = kept_by_top_p(kept_by_top_k(scores, k), p) > -torch.inf
    low, high = (reference_kept(scores, k, p + d) for d in (-1e-4, 1e-4))
    assert bool((got | ~low).all())
    edge = scores[high].min() - 2e-6 * max(1.0, float(scores.abs().max()))
    assert bool((scores[got] >= edge).all())


def test_a_flat_distribution_goes_through_the_bisection_and_is_cut_right():
    """262,144 words of nearly equal mass: the nucleus of 0.5 is about half of them."""
    scores = torch.randn(50_000, generator=torch.Generator().manual_seed(0)) * 0.05
    for p in (0.1, 0.5, 0.9):
        got = (kept_by_top_p(scores, p) > -torch.inf).sum().item()
        assert abs(got - int(reference_kept(scores, 0, p).sum())) <= 50_000 * 1e-4
    assert bool((kept_by_top_p(torch.zeros(50_000), 0.5) > -torch.inf).all())


# The maximum


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16], ids=str)
@given(data=st.data())
def test_greedy_takes_the_first_of_equal_maxima(dtype, data):
    """Equal logits, common in bfloat16, would be decided by the kernel's order."""
    values = data.draw(st.lists(st.integers(-3, 3), min_size=1, max_size=100))
    row = torch.tensor(values, dtype=dtype)
    assert first_argmax(row) == Sampler(SamplingParams(), len(values), PACKED)(row, 0) == values.index(max(values))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16], ids=str)
@pytest.mark.parametrize("where", ["one", "last", "all"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.8},
        {"temperature": 0.8, "top_k": 5},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 0.8, "top_k": 5, "top_p": 0.9},
    ],
    ids=str,
)
def test_logits_that_are_no_numbers_are_an_error_not_a_token(params, where, dtype):
    """A model that overflows would write token 0 for ever, or end in a traceback."""
    row = torch.randn(3000, generator=torch.Generator().manual_seed(0)).to(dtype)
    row[{"one": 17, "last": -1, "all": slice(None)}[where]] = torch.nan
    with pytest.raises(RaceError, match="NaN"):
        Sampler(SamplingParams(**params), 3000, PACKED)(row, 0)


def test_the_row_is_not_changed():
    """The checksum is taken after the choice: it would be of other bits."""
    for dtype in DTYPES:
        row = torch.randn(2000, generator=torch.Generator().manual_seed(0)).to(dtype)
        before = row.clone()
        Sampler(SamplingParams(temperature=0.8, top_k=50, top_p=0.9), 2000, PACKED)(row, 3)
        Sampler(SamplingParams(), 2000, PACKED)(row, 3)
        assert np.array_equal(row.float().numpy(), before.float().numpy())


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 10**6),
    st.integers(1, 3000),
    st.sampled_from([0.05, 1.0, 4.0, 12.0, 40.0]),
    st.sampled_from([0.3, 0.8, 1.5]),
    st.sampled_from(DTYPES),
    st.booleans(),
)
def test_only_tokens_that_cannot_win_go_without_noise(seed, position, size, spread, temperature, dtype, cut):
    """A word with a poor logit and great noise would be passed over: another distribution, and other tokens than a
    device that looks at all of them."""
    row = (torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)
    if cut:
        row[torch.rand(size, generator=torch.Generator().manual_seed(position)) < 0.5] = -torch.inf
        assume(bool((row > -torch.inf).any()))
    sampler = Sampler(SamplingParams(temperature, seed=seed), size, PACKED)
    assert sampler(row, position) == first_argmax(sampler.scores(row, position))


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=200), st.floats(-70, 70), st.sampled_from([0.3, 0.8, 1.5]))
def test_no_column_is_missed_by_its_bits(values, least, temperature):
    """A word in reach would go without its noise: negative values, zeros of either sign, values at the limit itself."""
    row = torch.tensor([*values, 1.0, 0.0, -0.0, -torch.inf], dtype=torch.bfloat16)
    likely = LikelyBits.of(row, temperature)
    scaled = row.float() / temperature
    assert likely is not None and likely.top == pytest.approx(float(scaled.max()))
    for limit in (least, *scaled[:-1].tolist()):
        assert set((scaled >= limit).nonzero()[:, 0].tolist()) <= set(likely.at_least(limit).tolist())
    assert torch.equal(likely.scaled(np.arange(len(row))), scaled)


@given(
    st.integers(0, 2**63 - 1),
    st.integers(1, 400),
    st.sampled_from([0.05, 1.0, 4.0]),
    st.sampled_from([0.0, 0.8]),
    st.sampled_from(DTYPES),
    st.sampled_from([0, 5]),
)
def test_the_margin_is_the_lead_of_the_choice(seed, size, spread, temperature, dtype, top_k):
    """`auto` would think a draft surer than it is, or judge another token than the one drafted."""
    row = (torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)
    sampler = Sampler(SamplingParams(temperature, top_k=top_k, seed=seed), size, PACKED)
    token, margin = sampler.with_margin(row, 3)
    assert token == sampler(row, 3)
    best = sampler.scores(row, 3).topk(min(2, size)).values
    lead = float(best[0] - best[1]) if size > 1 else math.inf
    assert margin == pytest.approx(lead, abs=1e-5) or margin >= lead > 15


def test_noise_has_a_bound_and_a_smaller_one_would_be_noticed(monkeypatch):
    """The bound would be a guess, or the test above could not fail."""
    assert -np.log(-np.log1p(-0.5 * 2.0**-32)) < sampling.MAX_NOISE
    row = torch.cat([torch.tensor([12.0]), torch.zeros(4000)])
    sampler = Sampler(SamplingParams(1.0, seed=1), len(row), PACKED)
    whole = [first_argmax(sampler.scores(row, position)) for position in range(300)]
    assert [sampler(row, position) for position in range(300)] == whole and len(set(whole)) > 2
    monkeypatch.setattr(sampling, "MAX_NOISE", 8.0)
    assert [sampler(row, position) for position in range(300)] != whole
