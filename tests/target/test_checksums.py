"""Checksums of rows of logits: any bit changes them, and they see what comparisons do not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.target.target import StaticTarget
from tests.helpers.dispatch import bits
from tests.helpers.tiny import DTYPES, LENGTH, prepared


@settings(max_examples=20)
@given(st.sampled_from(DTYPES), st.integers(0, 2**31))
def test_any_single_flipped_bit_changes_the_checksum(dtype, seed):
    """An audit would call rows equal that differ."""
    generator = torch.Generator().manual_seed(seed)
    num_flips, vocab = 200, 200
    rows = torch.randn(1, vocab, generator=generator).to(dtype).repeat(num_flips, 1)
    before = bits(rows).clone()
    tokens = torch.randint(vocab, (num_flips,), generator=generator)
    width = 8 * rows.element_size()
    shifts = torch.randint(width, (num_flips,), generator=generator)
    flips = (torch.ones((), dtype=torch.long) << shifts).to(before.dtype)  # the sign bit wraps around
    flipped = before.clone()
    flipped[torch.arange(num_flips), tokens] ^= flips
    target = StaticTarget(prepared("llama", dtype), LENGTH, (8,))
    (original,) = target.checksums(rows[:1])
    changed = target.checksums(flipped.view(dtype))
    assert original not in changed and min(original, *changed) >= 0 and max(original, *changed) < 2**64
    assert target.checksums(rows) == (original,) * num_flips


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_checksums_see_what_comparisons_do_not(dtype):
    """Two tokens' logits exchanged, a sign of zero, or a NaN would pass for equal."""
    target = StaticTarget(prepared("llama", dtype), LENGTH, (8,))
    row = torch.randn(1, 200, generator=torch.Generator().manual_seed(0)).to(dtype)
    row[0, 5] = 0.0
    swapped, negative, nan = row.clone(), row.clone(), row.clone()
    swapped[0, [7, 9]] = row[0, [9, 7]]
    negative[0, 5] = -0.0
    nan[0, 5] = torch.nan
    sums = [target.checksums(x)[0] for x in (row, swapped, negative, nan)]
    assert len(set(sums)) == 4
    assert StaticTarget(prepared("llama", dtype), LENGTH, (8,)).checksums(row.clone())[0] == sums[0]
