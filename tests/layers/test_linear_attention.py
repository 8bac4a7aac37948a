"""Hybrid models with linear attention: one arithmetic at every width. That they are the stock models is in
tests/runner/test_target.py and test_model_families.py."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.core.errors import UnsupportedModel
from engine.exactness.probe import probe
from engine.layers import delta_rule as linear_attention
from engine.layers.delta_places import Places
from engine.layers.delta_rule import DeltaLayer, delta_rule_in_chunks
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers.planted import last_bit
from tests.helpers.tiny import LENGTH, fresh, prepared


@settings(max_examples=15)
@given(st.integers(1, 200), st.integers(0, 99), st.sampled_from([0.01, 1.0, 30.0]))
def test_chunks_are_the_same_sums_as_tokens(num, seed, forgetting):
    """The triangular system would solve another recurrence, or overflow where gates are nearly shut."""
    heads, keys, values = 2, 5, 7
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(num, heads, size, generator=generator, dtype=torch.float64) for size in (keys, keys, values))
    k = k / k.norm(dim=-1, keepdim=True)
    b, g = (torch.rand(num, heads, generator=generator, dtype=torch.float64) for _ in range(2))
    g *= -forgetting
    state = torch.randn(heads, keys, values, generator=generator, dtype=torch.float64)
    states = torch.zeros(num, 1, 1, heads, keys, values, dtype=torch.float64)
    rows = linear_attention._delta_rule(q, k, v, b, g.exp(), state, states, torch.arange(num))
    ours, last = delta_rule_in_chunks(q, k, v, b, g, state)
    torch.testing.assert_close(ours, rows, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(last, states[-1, 0, 0], atol=1e-9, rtol=1e-9)


def test_a_linear_layer_that_is_not_handled_is_refused(monkeypatch):
    """It would run as transformers runs it, without a state: as if every step were the first."""
    monkeypatch.setattr("engine.runner.prepare.fix_linear_layers", lambda model: None)
    with pytest.raises(UnsupportedModel, match="layer 0 does not go through"):
        prepare(fresh("qwen3_next"))


# What the probe of widths sees of linear layers


def plant(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Tensor], Tensor]) -> None:
    """What the recurrence gives of a step goes through `spoil` [n, values]."""
    right = DeltaLayer.mix

    def mix(self: DeltaLayer, rows: Any, places: Places, states: Tensor, inputs: Tensor) -> Tensor:
        out = right(self, rows, places, states, inputs)
        return out if places.chunked else spoil(out)

    monkeypatch.setattr(DeltaLayer, "mix", mix)


def test_a_width_whose_rows_differ_in_a_linear_layer_is_found(few_rows, monkeypatch):
    """A kernel chosen by the width would be mixed with another in one race."""
    assert probe(StaticTarget(prepared("qwen3_5"), LENGTH, (4, 8))).classes == ((4, 8),)
    plant(monkeypatch, lambda out: last_bit(out, len(out) >= 8))
    assert probe(StaticTarget(prepared("qwen3_5"), LENGTH, (4, 8))).classes == ((4,), (8,))


def test_rows_of_a_linear_layer_that_depend_on_their_place_are_found(few_rows, monkeypatch):
    """A width at which the third row is rounded otherwise would be promised exact."""
    plant(monkeypatch, lambda out: last_bit(out, (torch.arange(len(out)) == 2)[:, None]))
    assert set(probe(StaticTarget(prepared("qwen3_next"), LENGTH, (2, 4))).unstable) == {4}
