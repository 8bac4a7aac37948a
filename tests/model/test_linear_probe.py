"""What the probe of widths sees of linear layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.exactness.operators import _delta_rule_at_widths as linear_attention_at_widths
from engine.exactness.operators import same_bits
from engine.exactness.probe import probe
from engine.model.delta_places import Places
from engine.model.delta_rule import DeltaLayer
from engine.target.target import StaticTarget
from tests.helpers.linear_models import (
    prepared,
)
from tests.helpers.tiny import DTYPES, LENGTH

# What the probe sees


def test_the_layers_own_arithmetic_is_the_same_at_every_width():
    """Tokens would be rounded by their place in a step; the probe would leave no width to race at."""
    for dtype in DTYPES:
        (at_width,) = linear_attention_at_widths(
            prepared("qwen3_5", dtype).model, dtype, 48, torch.Generator().manual_seed(0)
        )
        with torch.inference_mode():
            reference = at_width(8)
            assert all(same_bits(reference, at_width(width)) for width in (1, 2, 3, 5, 16)) and reference.std() > 0


def plant(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Tensor], Tensor]) -> None:
    """What the recurrence gives of a step goes through `spoil` [n, values]."""
    right = DeltaLayer.mix

    def mix(self: DeltaLayer, rows: Any, places: Places, states: Tensor, inputs: Tensor) -> Tensor:
        out = right(self, rows, places, states, inputs)
        return out if places.chunked else spoil(out)

    monkeypatch.setattr(DeltaLayer, "mix", mix)


def shifted(x: Tensor, where: Any) -> Tensor:
    return torch.where(torch.as_tensor(where), torch.nextafter(x, torch.full_like(x, torch.inf)), x)


def test_a_width_whose_rows_differ_in_a_linear_layer_is_found(few_rows, monkeypatch):
    """A kernel chosen by the width would be mixed with another in one race."""
    assert probe(StaticTarget(prepared("qwen3_5"), LENGTH, (4, 8))).classes == ((4, 8),)
    plant(monkeypatch, lambda out: shifted(out, len(out) >= 8))
    assert probe(StaticTarget(prepared("qwen3_5"), LENGTH, (4, 8))).classes == ((4,), (8,))
    (at_width,) = linear_attention_at_widths(
        prepared("qwen3_5").model, torch.float32, 24, torch.Generator().manual_seed(0)
    )
    with torch.inference_mode():
        assert same_bits(at_width(2), at_width(4)) and not same_bits(at_width(4), at_width(8))


def test_rows_of_a_linear_layer_that_depend_on_their_place_are_found(few_rows, monkeypatch):
    """A width at which the third row is rounded otherwise would be promised exact."""
    plant(monkeypatch, lambda out: shifted(out, (torch.arange(len(out)) == 2)[:, None]))
    assert set(probe(StaticTarget(prepared("qwen3_next"), LENGTH, (2, 4))).unstable) == {4}
