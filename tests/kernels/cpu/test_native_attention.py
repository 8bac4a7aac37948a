"""Compiled attention: softmax as it is defined, over the columns that a row may look at and no others. That a row's
bits are its own, and that NaN stays NaN, is in ../test_row_bits.py."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.cpu.attention import attend
from tests.helpers.native_kernels import VARIANTS, compiled, needs_kernels, random

pytestmark = needs_kernels
EACH_VARIANT = pytest.mark.parametrize("variant", VARIANTS)
HEADS = ((1, 1), (4, 1), (4, 2), (3, 3), (6, 2))
DIMS = (32, 64, 96, 128, 256)


def unseen_by(num: int, at: int, window: int | None, length: int) -> Tensor:
    """The columns that a step's rows may not look at, [num, length]."""
    rows, columns = torch.arange(at, at + num)[:, None], torch.arange(length)
    return (columns > rows) | (columns <= rows - (window or length))


def check(
    query: Tensor, keys: Tensor, values: Tensor, at: int, window: int | None, scale: float, sinks: Tensor | None
) -> None:
    """Compare with softmax in float64."""
    outputs = attend(query, keys, values, torch.tensor([at]), window, scale, sinks)
    unseen = unseen_by(len(query), at, window, keys.shape[2])
    its_query, groups = query.double().transpose(0, 1), query.shape[1] // keys.shape[1]
    its_keys, its_values = (side[0].double().repeat_interleave(groups, 0) for side in (keys, values))
    scores, sizes = its_query @ its_keys.mT * scale, its_query.abs() @ its_keys.abs().mT * scale
    more = torch.full((len(scores),), -torch.inf) if sinks is None else sinks
    every = torch.cat(
        [scores.masked_fill(unseen, -torch.inf), more.double()[:, None, None].expand(-1, len(query), 1)], -1
    )
    weights = torch.softmax(every, -1)[..., :-1]
    expected, size = (weights @ part for part in (its_values, its_values.abs()))
    largest, most = (x.abs().masked_fill(unseen, 0).amax(-1, keepdim=True) for x in (sizes, scores))
    num_seen = (~unseen).sum(-1, keepdim=True)
    off = query.shape[-1] * 2.0**-24 * largest + (most + num_seen) * 2.0**-23
    error = torch.expm1(2 * off) * size + 1.001 * 2.0**-8 * expected.abs() + 1e-37
    assert bool(((outputs.double().transpose(0, 1) - expected).abs() <= error).all())


SHAPES = st.sampled_from(HEADS), st.sampled_from(DIMS), st.one_of(st.integers(1, 9), st.just(33))
POSITIONS, BEHIND = st.integers(0, 90) | st.sampled_from([2492, 4093]), st.integers(0, 20)
WINDOWS = st.sampled_from([None, 1, 5, 16, 40, 512])
SPREADS = st.sampled_from([0.0, 0.1, 1.0, 30.0, 1000.0])


@EACH_VARIANT
@settings(max_examples=60)
@example((4, 2), 64, 8, 2492, 0, 512, 1.0, 7, None)
@given(*SHAPES, POSITIONS, BEHIND, WINDOWS, SPREADS, st.integers(0, 99), st.sampled_from([None, 1, 300]))
def test_it_is_softmax_over_what_a_row_sees(variant, heads, dim, num, at, behind, window, spread, seed, sink):
    """Shared heads, windows, first positions, any cache, great scores or all alike, sinks: another column's value, or
    none. Sums over thousands of columns, and the last ones of a cache whose length fills no block of 16."""
    (num_heads, kv), length = heads, at + num + behind
    query = random(num, num_heads, dim, seed=seed, spread=spread)
    keys, values = (random(1, kv, length, dim, seed=seed + i) for i in (1, 2))
    sinks = None if sink is None else random(num_heads, seed=seed, spread=sink)
    with compiled(variant):
        check(query, keys, values, at, window, dim**-0.5, sinks)


@EACH_VARIANT
def test_one_column_far_above_the_others_is_all_that_counts(variant):
    """Weights that are cut off where an exponential ends would add up, or multiply huge values."""
    keys = torch.zeros(1, 1, 600, 32, dtype=torch.bfloat16)
    values = torch.full_like(keys, 3e38)
    keys[0, 0, 123], values[0, 0, 123] = 100, 1.5
    with compiled(variant):
        for size in (1.0, 1e4, 1e18):
            query = torch.full((1, 1, 32), size, dtype=torch.bfloat16)
            assert (attend(query, keys, values, torch.tensor([599]), None, 1.0) == 1.5).all()
