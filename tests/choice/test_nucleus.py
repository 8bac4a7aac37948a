"""Top-k and top-p of many rows without asking the host: the host's choice, however many rows there are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.choice.nucleus import kept_by_top_k, nucleus_rows
from engine.choice.sampler import Sampler
from engine.errors import RaceError
from engine.spec import SamplingParams
from tests.helpers.dispatch import Watch
from tests.helpers.tiny import PACKED

TOLERANCE = 1e-5
"""Of a row's mass: float32 rounds the distance to the largest score, the exponential, and the host's sums."""
EDGE = 2e-6
"""Of the scores, relative: as near as the host's bisection goes."""
SIZES = [1, 2, 7, 100, 1500, 3001]
seeds, positions = st.integers(0, 2**63 - 1), st.integers(0, 400)
top_ks, top_ps = st.sampled_from([0, 1, 5, 40, 4000]), st.sampled_from([1e-6, 0.3, 0.9, 0.999, 1.0])


@st.composite
def rows_of_logits(draw: st.DrawFn, numbers_alone: bool = False) -> torch.Tensor:
    """[n, vocab]: flat, peaked, with ties, with what is out of the question, and with rows that are no numbers."""
    num, size = draw(st.integers(1, 6)), draw(st.sampled_from(SIZES))
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
        wrong = None if numbers_alone else draw(st.sampled_from([None, None, None, torch.nan, torch.inf]))
        if wrong is not None:
            row[int(torch.randint(size, (), generator=generator))] = wrong
        made.append(row)
    return torch.stack(made).to(draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16])))


def sampler_of(rows: torch.Tensor, top_k: int, top_p: float, temperature: float, seed: int) -> Sampler:
    return Sampler(SamplingParams(temperature, top_k, top_p, seed), rows.shape[1], PACKED)


@pytest.mark.slow
@settings(max_examples=200)
@given(rows_of_logits(), top_ks, top_ps, st.sampled_from([0.3, 1.0, 2.5]), seeds, st.data())
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
    num = data.draw(st.integers(1, len(rows)))
    order = order[:num]
    assert torch.equal(sampler.pick_rows(rows[order], keys[order]), together[order])


@settings(max_examples=200)
@given(rows_of_logits(), top_ks, top_ps, st.sampled_from([0.3, 1.0, 2.5]), seeds)
def test_the_choice_is_the_hosts(rows, top_k, top_p, temperature, seed):
    """A race on CUDA would sample from another distribution: top-k or top-p left out, swapped, or cut elsewhere."""
    sampler = sampler_of(rows, top_k, top_p, temperature, seed)
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


def assert_rounding_decides(ours: torch.Tensor, theirs: torch.Tensor, scores: torch.Tensor, top_p: float) -> None:
    """What is kept by one and not by the other lies where the mass is p, but for rounding."""
    differs = (ours > -torch.inf) != (theirs > -torch.inf)
    assert bool(differs.any()) and top_p < 1
    probs = scores.double().softmax(-1)
    nearly = EDGE * max(1.0, float(scores[scores > -torch.inf].abs().max()))
    for edge in (scores[differs].min(), scores[differs].max()):
        above, down_to = float(probs[scores > edge + nearly].sum()), float(probs[scores >= edge - nearly].sum())
        assert above - TOLERANCE <= top_p <= down_to + TOLERANCE


@settings(max_examples=200)
@given(rows_of_logits(numbers_alone=True), st.floats(1e-9, 1, exclude_max=True))
def test_the_nucleus_is_the_smallest_set_of_largest_scores_that_reaches_p(rows, p):
    """Unlikely words would be written, or likely ones never."""
    for row, kept_row in zip(rows.float(), nucleus_rows(rows.float(), p), strict=True):
        kept = kept_row > -torch.inf
        threshold = row[kept].min()
        assert torch.equal(kept_row[kept], row[kept]) and torch.equal(kept, row >= threshold) and threshold > -torch.inf
        probs = row.double().softmax(-1)
        assert float(probs[kept].sum()) >= p - TOLERANCE and float(probs[row > threshold].sum()) < p + TOLERANCE


def test_both_zeros_are_one_score():
    """A tie would be torn apart by a sign that means nothing."""
    rows = torch.tensor([[0.0, -0.0, -1.0], [-0.0, 0.0, -1.0], [-0.0, -0.0, -1.0]])
    assert (nucleus_rows(rows, 0.3) > -torch.inf).tolist() == [[True, True, False]] * 3


@pytest.mark.parametrize("params", [{"top_k": 5}, {"top_p": 0.9}, {"top_k": 5, "top_p": 0.9}], ids=str)
def test_the_host_is_never_asked_and_every_run_is_the_same(params):
    """It could not be captured as a CUDA graph."""
    sampler = Sampler(SamplingParams(temperature=0.8, seed=3, **params), 3000, PACKED)
    seen = []
    for seed, spread in enumerate((0.0, 1.0, 20.0)):
        rows, keys = torch.randn(3, 3000, generator=torch.Generator().manual_seed(seed)) * spread, sampler.keys(3)
        with torch.inference_mode(), Watch() as watch:
            sampler.pick_rows_with_margins(rows, keys)
        seen.append(watch.seen)
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
def test_a_whole_vocabulary_of_nearly_equal_words_is_cut_right(p, spread):
    """The mass of 262,144 words would overflow, or be too coarse to tell them apart."""
    row = torch.randn(262_144, generator=torch.Generator().manual_seed(0)) * spread
    kept = int((nucleus_rows(row[None], p) > -torch.inf).sum())
    right = int((row.double().softmax(-1).sort(descending=True).values.cumsum(0) < p).sum()) + 1 if spread else len(row)
    assert abs(kept - right) <= 3
