"""Attention sinks: one more score in every head's softmax, of no value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from engine.core.errors import UnsupportedModel
from engine.exactness.operators import split
from engine.layers import attention
from engine.layers.attention import attend_rows
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from engine.training import written
from tests.helpers.native_kernels import random
from tests.helpers.tiny import DTYPES, LENGTH, build, random_ids
from tests.runner.test_model_families import FAMILIES

PROMPTS = [random_ids(40, 200, seed) for seed in range(4)]
FAULTS: dict[str, Any] = {
    "none": lambda sinks: sinks,
    "left out": lambda sinks: None,
    "of another head": lambda sinks: sinks.roll(1),
}


def stock(family: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model whose sinks take a good part of what heads look at."""
    name, config, settings = FAMILIES[family]
    model: Any = build(getattr(transformers, name), getattr(transformers, config)(**settings), dtype)
    for layer in model.model.layers:
        layer.self_attn.sinks.data += torch.arange(-1, 3)
    return model


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("family", ["gpt-oss", "granite with sinks"])
@torch.inference_mode()
def test_greedy_text_is_that_of_transformers(family, fault, monkeypatch):
    """A model without its sinks, or with another head's, writes something else, and both lanes would agree on it."""
    model = stock(family)
    expected = [model.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)[0, 40:] for ids in PROMPTS]
    monkeypatch.setattr(attention, "attend_rows", lambda *call: attend_rows(*call[:-1], FAULTS[fault](call[-1])))
    try:
        target = StaticTarget(prepare(model), LENGTH, (1, 8))
    except UnsupportedModel:
        assert fault != "none"
        return
    found = []
    for ids in PROMPTS:
        target.jump(0)
        target.extend(ids[:-1], 0)
        tokens = ids[-1:]
        for step in range(24):
            tokens.append(int(target.extend(tokens[-1:], 1, width=(1, 8)[step % 2])[0][0].argmax()))
        found.append(torch.tensor(tokens[1:]))
    assert all(map(torch.equal, found, expected)) == (fault == "none")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sinks_split_no_class_of_widths(dtype):
    """Drafts would change a token only because the model has sinks."""
    heads, kv, dim, length, total = 16, 2, 64, 300, 16
    query = random(1, heads, total, dim, dtype=dtype)
    keys, values = (random(1, kv, length, dim, seed=seed, dtype=dtype) for seed in (1, 2))
    sinks = random(heads, seed=7, dtype=dtype)

    def at_width(width: int, *sinks: Tensor) -> Tensor:
        rows = []
        for start in range(0, total, width):
            places = torch.arange(start, start + width)
            hidden = torch.arange(length) > 200 + places.repeat(heads // kv)[:, None]
            mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
            rows.append(attend_rows(query[:, :, places % total], keys, values, mask, None, *sinks)[0])
        return torch.cat(rows)[:total]

    plain = split([tuple(range(1, total + 1))], at_width)
    assert split(plain, lambda width: at_width(width, sinks)) == plain
    assert not torch.equal(at_width(1), at_width(1, sinks))


@torch.inference_mode()
def test_training_texts_are_written_with_sinks():
    """A head would learn the hidden states of another model."""
    model, ids = stock("gpt-oss"), torch.tensor(PROMPTS)
    expected = model(input_ids=ids).logits
    model.set_attn_implementation(written.NAME)
    torch.testing.assert_close(model(input_ids=ids).logits, expected, atol=1e-3, rtol=1e-3)
