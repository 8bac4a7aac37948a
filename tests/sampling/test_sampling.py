"""Sampling: noise of the position, the right distribution, top-k and top-p without a sort, many rows as one by one."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import RaceError
from engine.core.sampling.noise import first_argmax
from engine.core.sampling.nucleus import NUCLEUS_FIRST, kept_by_top_k, kept_by_top_p, nucleus_rows
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.exactness.operators import bits
from tests.helpers.chances import excess
from tests.helpers.tiny import PACKED

SEEDS = st.integers(0, 2**63 - 1)
DTYPES = [torch.float32, torch.bfloat16]


# The distribution


def reference_kept(scores: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Which tokens stand, by sorting: mask [vocab]. Ties as they fall."""
    order = scores.double().argsort(descending=True, stable=True)
    kept = torch.zeros(len(scores), dtype=torch.bool)
    if top_k:
        order = order[:top_k]
    probs = scores.double()[order].softmax(-1)
    kept[order[probs.cumsum(0) - probs < top_p]] = True
    return kept


CHOSEN: list[dict[str, Any]] = [
    {}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 5}, {"top_p": 0.8},
    {"top_k": 12, "top_p": 0.9, "temperature": 1.5},
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("params", CHOSEN, ids=str)
def test_the_choices_follow_the_models_distribution(params, dtype):
    """A sampled text would be hotter, colder or otherwise other than asked for."""
    params = SamplingParams(**{"temperature": 1.0, "seed": 4, **params})
    row = (torch.randn(24, generator=torch.Generator().manual_seed(1)) * 1.5).to(dtype)
    scores = row.float() / params.temperature
    kept = reference_kept(scores, params.top_k, params.top_p)
    num = 2000
    expected = num * torch.where(kept, scores, -torch.inf).softmax(-1)
    sampler = Sampler(params, 24, PACKED)
    counts = torch.bincount(torch.tensor([sampler(row, p) for p in range(num)]), minlength=24)
    assert abs(excess(counts, expected)) < 4


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
    assert torch.equal(kept, scores >= scores.sort(descending=True).values[k - 1])


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


# The maximum


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16], ids=str)
@given(data=st.data())
def test_greedy_takes_the_first_of_equal_maxima(dtype, data):
    """Equal logits would be decided by the kernel's order; or the row be changed, whose checksum is taken later."""
    values = data.draw(st.lists(st.integers(-3, 3), min_size=1, max_size=100))
    row = torch.tensor(values, dtype=dtype)
    assert first_argmax(row) == Sampler(SamplingParams(), len(values), PACKED)(row, 0) == values.index(max(values))
    assert row.tolist() == values


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16], ids=str)
@pytest.mark.parametrize("where", ["one", "last", "all"])
@pytest.mark.parametrize("cut", [None, {}, {"top_k": 5}, {"top_p": 0.9}, {"top_k": 5, "top_p": 0.9}], ids=str)
def test_logits_that_are_no_numbers_are_an_error_not_a_token(cut, where, dtype):
    """A model that overflows would write token 0 for ever, or end in a traceback."""
    row = torch.randn(3000, generator=torch.Generator().manual_seed(0)).to(dtype)
    row[{"one": 17, "last": -1, "all": slice(None)}[where]] = torch.nan
    with pytest.raises(RaceError, match="NaN"):
        Sampler(SamplingParams() if cut is None else SamplingParams(0.8, **cut), 3000, PACKED)(row, 0)


SIZES = st.integers(1, 400)
HOW = st.sampled_from([0.05, 1.0, 4.0]), st.sampled_from([0.0, 0.8]), st.sampled_from(DTYPES), st.sampled_from([0, 5])


@given(SEEDS, SIZES, *HOW)
def test_the_best_are_the_choice_and_what_comes_next(seed, size, spread, temperature, dtype, top_k):
    """Branches would be other tokens, or have chances of other tokens."""
    row = (torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)
    sampler = Sampler(SamplingParams(temperature, top_k=top_k, seed=seed), size, PACKED)
    picks, scores = sampler.best(row, 3, 4), sampler.scores(row, 3)
    assert picks[0][0] == sampler(row, 3)
    possible = int((scores > -math.inf).sum())
    assert 1 <= len(picks) <= min(4, possible) and len({token for token, _ in picks}) == len(picks)
    for (token, score), best in zip(picks, scores.topk(len(picks)).values.tolist(), strict=True):
        assert score == pytest.approx(float(scores[token]), abs=1e-5) and score == pytest.approx(best, abs=1e-5)
    if len(picks) < min(4, possible):  # the others are out of reach of any noise
        assert picks[0][1] - float(scores.topk(len(picks) + 1).values[-1]) > 15


# Many rows at once, without asking the host


# Of a row's mass: float32 rounds the distance to the largest score, the exponential, and the host's sums.
TOLERANCE = 1e-5
EDGE = 2e-6  # of the scores, relative: as near as the host's bisection goes


@st.composite
def rows_of_logits(draw: st.DrawFn) -> torch.Tensor:
    """[n, vocab]: flat, peaked, with ties, with impossible tokens, and with rows that are not numbers."""
    num, size = draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 7, 100, 1500, 3001]))
    made = []
    for _ in range(num):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
        spread, offset = draw(st.sampled_from([0.0, 1e-3, 0.3, 1.0, 10.0])), draw(st.sampled_from([0.0, -50.0, 300.0]))
        row = torch.randn(size, generator=generator) * spread + offset
        if draw(st.booleans()):
            row = (row * 4).round() / 4
        if draw(st.booleans()):
            row[torch.rand(size, generator=generator) < 0.5] = -torch.inf
            row[int(torch.randint(size, (), generator=generator))] = offset
        wrong = draw(st.sampled_from([None, None, None, torch.nan, torch.inf]))
        if wrong is not None:
            row[int(torch.randint(size, (), generator=generator))] = wrong
        made.append(row)
    return torch.stack(made).to(draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16])))


CHOICES = (
    rows_of_logits(),
    *(st.sampled_from([0, 1, 5, 40, 4000]), st.sampled_from([1e-6, 0.3, 0.9, 0.999, 1.0])),
    *(st.sampled_from([0.3, 1.0, 2.5]), SEEDS),
)  # (rows, top_k, top_p, temperature, seed)


def sampler_of(rows: torch.Tensor, top_k: int, top_p: float, temperature: float, seed: int) -> Sampler:
    return Sampler(SamplingParams(temperature, top_k, top_p, seed), rows.shape[1], PACKED)


@settings(max_examples=150)
@given(*CHOICES, st.data())
def test_a_rows_choice_does_not_depend_on_the_rows_beside_it(rows, top_k, top_p, temperature, seed, data):
    """A token would depend on the width of its step: lanes of one race would write different texts."""
    sampler = sampler_of(rows, top_k, top_p, temperature, seed)
    keys = sampler.keys(len(rows))
    together, margins = sampler.pick_rows_with_margins(rows, keys)
    assert torch.equal(together, sampler.pick_rows(rows, keys))
    alone = [sampler.pick_rows_with_margins(rows[i : i + 1], keys[i : i + 1]) for i in range(len(rows))]
    assert together.tolist() == [int(best) for best, _ in alone]
    numbers = together >= 0
    assert torch.equal(margins[numbers], torch.cat([margin for _, margin in alone])[numbers])
    order = torch.tensor(data.draw(st.permutations(range(len(rows)))))
    order = order[: data.draw(st.integers(1, len(rows)))]
    assert torch.equal(sampler.pick_rows(rows[order], keys[order]), together[order])


@settings(max_examples=150)
@given(*CHOICES)
def test_the_choice_is_the_hosts(rows, top_k, top_p, temperature, seed):
    """A race on CUDA would sample otherwise: top-k or top-p left out, swapped or elsewhere; or its rows be changed."""
    sampler, before = sampler_of(rows, top_k, top_p, temperature, seed), bits(rows).clone()
    chosen = sampler.pick_rows(rows, sampler.keys(len(rows))).tolist()
    processed = sampler.processed_rows(rows)
    for position, row in enumerate(rows):
        try:
            expected = sampler(row, position)
        except RaceError:
            assert chosen[position] == -1
            continue
        if torch.equal(processed[position], sampler.processed(row)):
            assert chosen[position] == expected
        else:
            scores = kept_by_top_k(row.float() / temperature, top_k)
            assert_rounding_decides(processed[position], sampler.processed(row), scores, top_p)
    assert torch.equal(bits(rows), before)


def assert_rounding_decides(ours: torch.Tensor, theirs: torch.Tensor, scores: torch.Tensor, top_p: float) -> None:
    """What is kept by one and not by the other lies where the mass is p, but for rounding."""
    differs = (ours > -torch.inf) != (theirs > -torch.inf)
    assert bool(differs.any()) and top_p < 1
    probs = scores.double().softmax(-1)
    nearly = EDGE * max(1.0, float(scores[scores > -torch.inf].abs().max()))
    for edge in (scores[differs].min(), scores[differs].max()):
        above, down_to = float(probs[scores > edge + nearly].sum()), float(probs[scores >= edge - nearly].sum())
        assert above - TOLERANCE <= top_p <= down_to + TOLERANCE


def test_both_zeros_are_one_score():
    """A tie would be torn apart by a sign that means nothing."""
    rows = torch.tensor([[0.0, -0.0, -1.0], [-0.0, 0.0, -1.0], [-0.0, -0.0, -1.0]])
    assert (nucleus_rows(rows, 0.3) > -torch.inf).tolist() == [[True, True, False]] * 3


@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
def test_a_whole_vocabulary_of_nearly_equal_words_is_cut_right(p, spread):
    """The mass of 262,144 words would overflow, or be too coarse to tell them apart."""
    row = torch.randn(262_144, generator=torch.Generator().manual_seed(0)) * spread
    kept = int((nucleus_rows(row[None], p) > -torch.inf).sum())
    right = int((row.double().softmax(-1).sort(descending=True).values.cumsum(0) < p).sum()) + 1 if spread else len(row)
    assert abs(kept - right) <= 3
