"""A model's whole step in one compiled call: the bits of the modules one by one, and nothing taken for granted of a
model that does more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from engine.kernels.cpu.forward import NativeForward
from engine.target.forward import Buffers
from engine.target.prepare import prepare
from engine.target.target import StaticTarget
from tests.helpers.native_kernels import NAMES, VARIANTS, made, needs_kernels, prepared, same_bits
from tests.helpers.tiny import random_ids

pytestmark = needs_kernels
LENGTH = 256
WIDTHS = (1, 3, 8)


def by_modules(target: StaticTarget) -> StaticTarget:
    """The same target, module by module."""
    assert isinstance(target._buffers._whole, NativeForward)
    target._buffers.__dict__["_whole"] = None
    return target


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layers", [(), (0, 1, 2, 3)], ids=["plain", "states"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_modules_one_by_one(name, layers, variant):
    """A lane with hidden states, or a probe, would run another model than the others: a scale of embeddings left out, a
    state of another layer."""
    model = prepared(name, variant)
    ids = random_ids(60, model.vocab_size, 3)
    whole, parts = StaticTarget(model, LENGTH, WIDTHS, layers), by_modules(StaticTarget(model, LENGTH, WIDTHS, layers))
    found = []
    for target in (whole, parts):
        _, states = target.extend(ids[:30], 0)
        rows = [] if states is None else [states]
        for start, num in ((30, 1), (31, 3), (34, 8), (42, 5)):
            logits, states = target.extend(ids[start : start + num], num)
            rows += [logits.clone()] if states is None else [logits.clone(), states.clone()]
        found.append(rows + [side for layer in target.kv for side in layer])
    assert len(found[0]) == len(found[1]) and all(same_bits(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("token", [-1, 10**6])
def test_what_is_no_token_is_refused(token):
    """C would read whatever lies beyond the embeddings."""
    target = StaticTarget(prepared("llama"), LENGTH, WIDTHS)
    with pytest.raises(IndexError, match="token id"):
        target.extend([1, token], 2)
    with pytest.raises(IndexError, match="token id"):
        target.extend([1, 2, token], 0)


def with_a_hook(model: Any) -> None:
    model.register_forward_pre_hook(lambda module, inputs: None)


def with_a_hook_on_its_head(model: Any) -> None:
    model.lm_head.register_forward_hook(lambda module, inputs, out: out * 2)


def with_another_forward(model: Any) -> None:
    forward = model.get_decoder().forward
    model.get_decoder().forward = lambda **call: forward(**call)


def with_an_embedding_of_its_own(model: Any) -> None:
    class Shifted(nn.Embedding):
        def forward(self, ids):
            return super().forward(ids.roll(1))

    embedding = model.get_decoder().embed_tokens
    model.get_decoder().embed_tokens = Shifted(*embedding.weight.shape, _weight=embedding.weight)


@pytest.mark.parametrize(
    "change", [with_a_hook, with_a_hook_on_its_head, with_another_forward, with_an_embedding_of_its_own]
)
def test_a_model_that_does_more_is_called_itself(change):
    """What somebody put into a model would be left out, without a word."""
    model = prepare(made("llama"))
    kv = StaticTarget(model, LENGTH, WIDTHS).kv
    assert model.kernels.forward(model.model, kv) is not None
    change(model.model)
    assert model.kernels.forward(model.model, kv) is None


def test_logits_last_until_the_next_call_and_lanes_have_their_own():
    """Lanes take turns: one's logits would be judged after the other had written over them."""
    first, second = (StaticTarget(prepared("qwen3"), LENGTH, WIDTHS) for _ in range(2))
    rows, _ = first.extend([1, 2, 3], 3)
    kept = rows.clone()
    second.extend([4, 5, 6], 3)
    assert same_bits(rows, kept)
    assert rows.data_ptr() == first.extend([7, 8, 9], 3)[0].data_ptr()


def test_float32_has_none():
    """Its numbers would be read as something else."""
    model = prepare(made("llama", torch.float32))
    assert (
        isinstance(StaticTarget(model, LENGTH, WIDTHS)._buffers, Buffers)
        and model.kernels.forward(model.model, []) is None
    )
