"""Hybrid models with linear attention: the stock model's logits whatever the cut, one arithmetic at every width, and
refusals in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from engine.errors import UnsupportedModel
from engine.exactness.operators import same_bits
from engine.kernels.cpu import build as native_build
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cpu.packing import PackedLinear, onednn_packs
from engine.model import delta_rule as linear_attention
from engine.model.delta_rule import DeltaLayer, delta_rule_in_chunks
from engine.target.prepare import prepare
from engine.target.target import StaticTarget
from tests.helpers.dispatch import Watch
from tests.helpers.linear_models import (
    HYBRID,
    LINEAR,
    NAMES,
    VOCAB,
    WIDTHS,
    equal,
    fresh,
    memory,
    names,
    prepared,
    stock_rows,
    target_of,
)
from tests.helpers.tiny import BASE, DTYPES, LENGTH, build, random_ids


@settings(max_examples=12)
@given(names, st.integers(0, 150), st.lists(st.integers(1, 8), min_size=1, max_size=8), st.integers(0, 1))
def test_any_cut_gives_the_stock_models_logits(name, num_prefill, cuts, seed):
    """A race would be one of another model: states lost between steps, or a prefill that is not the same recurrence."""
    ids, logits, _ = stock_rows(name, seed)
    target = target_of(name)
    target.extend(ids[:num_prefill], 0)
    done = num_prefill
    for cut in cuts:
        rows, hidden = target.extend(ids[done : done + cut], cut)
        assert hidden is None
        torch.testing.assert_close(rows, logits[done : done + cut], atol=1e-3, rtol=1e-3)
        done += cut


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_the_same_model_rounded(name):
    """States kept in bfloat16, or a norm in another dtype, would hide behind rounding."""
    ids, logits, _ = stock_rows(name)
    target = target_of(name, torch.bfloat16)
    target.extend(ids[:60], 0)
    rows = torch.cat([target.extend(ids[i : i + 8], 8)[0].float() for i in range(60, 124, 8)])
    theirs = stock_rows(name, dtype=torch.bfloat16)[1][60:124]
    ours_off, theirs_off = (float((x - logits[60:124]).abs().mean()) for x in (rows, theirs))
    assert ours_off < 1.5 * theirs_off


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_of_several_chunks_is_one_prompt_with_transformers_hidden_states(name):
    """Prompts beyond the prefill's chunk would begin anew, and a draft head would read other rows than it was trained
    on."""
    ids, logits, hidden = stock_rows(name)
    target = StaticTarget(prepared(name), 2 * LENGTH, WIDTHS, hidden_layers=range(len(HYBRID) + 1))
    num = len(ids) - 8
    _, rows = target.extend(ids[:num], 0)
    torch.testing.assert_close(rows, hidden[:num], atol=1e-3, rtol=1e-3)
    found, rows = target.extend(ids[num:], 8)
    torch.testing.assert_close(found, logits[num:], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(rows, hidden[num:], atol=1e-3, rtol=1e-3)


@settings(max_examples=15)
@given(st.integers(1, 200), st.integers(0, 99), st.sampled_from([0.01, 1.0, 30.0]))
def test_chunks_are_the_same_sums_as_tokens(num, seed, forgetting):
    """In double precision, where order does not matter: the triangular system would solve another recurrence, or
    overflow where gates are nearly shut."""
    heads, keys, values = 2, 5, 7
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(num, heads, size, generator=generator, dtype=torch.float64) for size in (keys, keys, values))
    k = k / k.norm(dim=-1, keepdim=True)
    b, g = (
        torch.rand(num, heads, generator=generator, dtype=torch.float64),
        -forgetting * torch.rand(num, heads, generator=generator, dtype=torch.float64),
    )
    state, states = (
        torch.randn(heads, keys, values, generator=generator, dtype=torch.float64),
        torch.zeros(num, 1, 1, heads, keys, values, dtype=torch.float64),
    )
    rows = linear_attention._delta_rule(q, k, v, b, g.exp(), state, states, torch.arange(num))
    ours, last = delta_rule_in_chunks(q, k, v, b, g, state)
    torch.testing.assert_close(ours, rows, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(last, states[-1, 0, 0], atol=1e-9, rtol=1e-9)


# Rollback


@contextmanager
def forbidden(name: str) -> Iterator[None]:
    """No chunked kernel, ours or transformers', may run inside."""
    modules = [__import__(f"transformers.models.{kind}.modeling_{kind}", fromlist=["x"]) for kind in NAMES]
    places = [
        (linear_attention, "delta_rule_in_chunks"),
        *[(module, "torch_chunk_gated_delta_rule") for module in modules],
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module, function in places:

            def refuse(*_: Any, where: str = function, **__: Any) -> None:
                raise AssertionError(f"{where} in {name}")

            patch.setattr(module, function, refuse)
        yield


@pytest.mark.parametrize("name", NAMES)
def test_a_step_never_takes_tokens_in_chunks(name):
    """A lane that drafts and one that does not would sum in other orders."""
    target = target_of(name)
    target.extend(random_ids(9, VOCAB), 0)
    with forbidden("a step"):
        for width in WIDTHS:
            target.extend(random_ids(width, VOCAB), width)
        target.warm()
        target.time_widths(1)
        with pytest.raises(AssertionError, match="in a step"):
            target.extend([1, 2, 3], 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_step_never_asks_the_host_never_changes_shape_and_does_the_same_again(name, dtype):
    """It could not be captured as a CUDA graph; and capturing runs it several times before it counts."""
    target = target_of(name, dtype)
    target.extend(random_ids(9, VOCAB), 0)
    target.extend(random_ids(8, VOCAB, 1), 8)
    seen = []
    for position in (14, 40, 200):
        target.jump(position)
        with torch.inference_mode(), Watch() as watch:
            target._steps[8]()
        seen.append(watch.seen)
    assert len(seen[0]) > 50 and seen[0] == seen[1] == seen[2]
    with torch.inference_mode():
        first = target._steps[8]()[0]
        kept = [side.clone() for layer in target.kv for side in layer]
        second = target._steps[8]()[0]
    assert first is not None and second is not None
    assert same_bits(first, second) and equal(kept, [side for layer in target.kv for side in layer])


def test_padding_does_not_touch_what_counts():
    """Zeros in the rows after the real tokens, or any others: the same states."""
    a, b = target_of("qwen3_next"), target_of("qwen3_next")
    for target, filling in ((a, 0), (b, 7)):
        target.extend(random_ids(20, VOCAB), 0)
        for i in range(0, 24, 3):
            target.extend([*random_ids(3, VOCAB, i), *[filling] * 5], 3)
            target.rollback(target.length - 5)
    assert equal(memory(a), memory(b))


def test_warming_and_timing_leave_the_sequence_empty():
    """The first step of a lane would go on from the warm-up's state."""
    ids, logits, _ = stock_rows("qwen3_5")
    target = target_of("qwen3_5")
    target.warm(ids[:48])
    target.time_widths(rounds=1, position=40)
    assert target.length == 0
    torch.testing.assert_close(target.extend(ids[:8], 8)[0], logits[:8], atol=1e-3, rtol=1e-3)


# Which models


def test_projections_are_packed_as_others_are():
    """Most of a hybrid's weights would be read in the slow layout."""
    model = prepared("qwen3_5", torch.bfloat16).model
    layers = [module for module in model.modules() if isinstance(module, DeltaLayer)]
    assert len(layers) == HYBRID.count("linear_attention")
    projections = [
        child
        for layer in layers
        for child in layer.children()
        if isinstance(child, nn.Linear | PackedLinear | NativeLinear)
    ]
    assert len(projections) == 2 * len(layers) and all(
        isinstance(p, nn.Linear) != (native_build.has_kernels() or onednn_packs(torch.bfloat16)) for p in projections
    )


def plain(name: str, **more: Any) -> Callable[[], Any]:
    return lambda: getattr(transformers, name)(
        **{**BASE, **LINEAR, "num_hidden_layers": 4, "layer_types": HYBRID, "vocab_size": 256, **more}
    )


REFUSED = {
    "olmo hybrid": ("OlmoHybridForCausalLM", plain("OlmoHybridConfig"), r"linear attention in layer 0 of a kind"),
    "mamba and attention": (
        "BambaForCausalLM",
        lambda: transformers.BambaConfig(
            **{**BASE, "attn_layer_indices": [1]}, vocab_size=256, mamba_n_heads=8, mamba_d_state=16
        ),
        "Bamba",
    ),
}


@pytest.mark.parametrize("family", sorted(REFUSED))
def test_other_recurrences_are_refused_in_words(family):
    """A layer that keeps a state elsewhere would be raced as if it had none."""
    name, config, said = REFUSED[family]
    with pytest.raises(UnsupportedModel, match=said) as caught:
        prepare(build(getattr(transformers, name), config()))
    assert name in str(caught.value)


def test_a_linear_layer_that_computes_otherwise_is_refused():
    """What the comparison with the stock model is for: a later transformers may change the layer under the same
    name."""
    model = fresh("qwen3_5")
    layer = model.model.layers[1].linear_attn
    layer.A_log.data += 3.0
    forward = DeltaLayer.__init__

    def older(self: DeltaLayer, stock: Any) -> None:
        forward(self, stock)
        self.rate.mul_(0.01)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(UnsupportedModel, match="differ"):
        patch.setattr(DeltaLayer, "__init__", older)
        prepare(model)


def test_a_linear_layer_that_is_not_handled_is_refused(monkeypatch):
    """It would run as transformers runs it, without a state: as if every step were the first."""
    monkeypatch.setattr("engine.target.prepare.fix_linear_layers", lambda model: None)
    with pytest.raises(UnsupportedModel, match="layer 0 does not go through"):
        prepare(fresh("qwen3_next"))


def test_a_mixture_of_experts_is_served_too():
    """Qwen3-Next as published: experts behind linear layers."""
    experts: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    }
    model = fresh("qwen3_next", mlp_only_layers=[], **experts)
    ids = random_ids(40, VOCAB)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 24:]
    target = StaticTarget(prepare(model), LENGTH, (8,))
    target.extend(ids[:24], 0)
    rows = torch.cat([target.extend(ids[i : i + 8], 8)[0].clone() for i in (24, 32)])
    torch.testing.assert_close(rows, logits, atol=1e-3, rtol=1e-3)
