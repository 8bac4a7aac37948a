"""The central promise: within a class that the probe finds, every lane writes the same tokens from the same bits,
whatever is drafted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.events import Finished
from engine.exactness.probe import probe
from engine.exactness.widths import WidthClasses
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cpu.packing import PackedLinear
from engine.spec import SamplingParams
from engine.target.prepare import prepare
from engine.target.prepared import Prepared
from engine.target.target import StaticTarget
from tests.helpers.fakes import Adversarial, Empty, Oracle, Random, checksums_of, tokens_of
from tests.helpers.planted import last_bit
from tests.helpers.tiny import CONFIGS, DTYPES, LENGTH, build, fresh, lane, prepared, random_ids, threads

WIDTHS = (1, 2, 4, 8)
Configuration = tuple[str, torch.dtype, bool]
CONFIGURATIONS: list[Configuration] = [
    ("gemma3", torch.bfloat16, True),
    ("mistral", torch.bfloat16, False),
    ("qwen3", torch.float32, False),
    ("trained", torch.bfloat16, True),
    ("trained", torch.float32, True),
]
"""(model, dtype, packed): the promised architectures and the trained fixture, both dtypes, both kinds of linear."""
DRAFTERS: dict[str, Callable] = {
    "random": lambda truth, seed, vocab: Random(seed, vocab_size=vocab),
    "often right": lambda truth, seed, vocab: Random(seed, truth, vocab),
    "oracle": lambda truth, seed, vocab: Oracle(truth),
    "adversarial": lambda truth, seed, vocab: Adversarial(truth, vocab),
}


@cache
def probed(name: str, dtype: torch.dtype, packed: bool, num_threads: int) -> WidthClasses:
    with threads(num_threads):
        return probe(StaticTarget(prepared(name, dtype, packed), LENGTH, WIDTHS))


def check_a_race(
    configuration: Configuration,
    num_threads: int,
    temperature: float,
    drafter: str,
    num_prompt: int,
    seed: int,
    data: st.DataObject,
) -> None:
    """A baseline at one width of a class against a lane that drafts and mixes its widths: the same tokens, the same
    bits."""
    model = prepared(*configuration)
    widths = data.draw(st.sampled_from(probed(*configuration, num_threads).classes))
    mixed = data.draw(st.lists(st.sampled_from(widths), min_size=1, unique=True))
    params = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=24)
    prompt = random_ids(num_prompt, model.vocab_size, seed)
    with threads(num_threads):
        baseline = lane(model, Empty(), prompt, (data.draw(st.sampled_from(widths)),), params)
        truth = tokens_of(baseline)
        speculative = lane(
            model, DRAFTERS[drafter](truth, seed, model.vocab_size), prompt, mixed, params, k=max(mixed) - 1
        )
    assert len(truth) == len(checksums_of(baseline)) == 24 and isinstance(speculative[-1], Finished)
    assert tokens_of(speculative) == truth
    assert checksums_of(speculative) == checksums_of(baseline)


races = given(
    temperature=st.sampled_from([0.0, 0.8]),
    drafter=st.sampled_from(sorted(DRAFTERS)),
    num_prompt=st.integers(1, 40),
    seed=st.integers(0, 99),
    data=st.data(),
)


@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
@settings(max_examples=6)
@races
def test_lanes_of_one_class_write_the_same_tokens_from_the_same_bits(
    configuration, temperature, drafter, num_prompt, seed, data
):
    """The page would say "identical, bit for bit" of lanes that are not; this is what the whole engine is for."""
    check_a_race(configuration, 1, temperature, drafter, num_prompt, seed, data)


@pytest.mark.slow
@settings(max_examples=4)
@races
def test_lanes_of_one_class_are_equal_on_two_threads_too(temperature, drafter, num_prompt, seed, data):
    """Threads share out rows: other widths are exact than on one, and at some a row's bits depend on its place."""
    check_a_race(("qwen3", torch.float32, False), 2, temperature, drafter, num_prompt, seed, data)


@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_class_holds_over_many_rows(configuration):
    """In bfloat16 two kernels' sums round apart in one number of 10,000: a probe of a few rows of a small model calls
    such widths equal by luck."""
    model = prepared(*configuration)
    params = SamplingParams(temperature=1.0, max_new_tokens=120)
    for widths in filter(lambda c: len(c) > 1, probed(*configuration, 1).classes):
        narrow, wide = (
            checksums_of(lane(model, Empty(), random_ids(40, model.vocab_size), (w,), params))
            for w in (widths[0], widths[-1])
        )
        assert narrow == wide, f"widths {widths[0]} and {widths[-1]}"


@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_every_width_is_in_one_class_or_unstable(configuration):
    """A width would be raced that was never judged."""
    found = probed(*configuration, 1)
    assert sorted([*[w for c in found.classes for w in c], *found.unstable]) == list(WIDTHS)


def test_a_probe_finds_the_same_again(few_rows):
    """Each start would promise other widths."""
    for dtype in DTYPES:
        assert probe(StaticTarget(prepared("llama", dtype), LENGTH, WIDTHS)) == probe(
            StaticTarget(prepared("llama", dtype), LENGTH, WIDTHS)
        )


# Planted: hardware whose rows are not a function of the tokens alone


def spoiled(dtype: torch.dtype, spoil: Callable[[Tensor], Tensor]) -> Prepared:
    """A model whose LM head's rows [n, vocab] go through `spoil`."""
    model = prepare(fresh("llama", dtype))
    head = model.model.get_output_embeddings()
    inner = head.forward

    def forward(x: Tensor) -> Tensor:
        rows = inner(x)
        return spoil(rows.reshape(-1, rows.shape[-1])).view_as(rows)

    head.forward = forward
    return model


def test_rows_that_depend_on_their_place_are_found(few_rows):
    """A width at which the third row is rounded otherwise would be promised exact."""
    found = probe(
        StaticTarget(
            spoiled(torch.bfloat16, lambda rows: last_bit(rows, torch.arange(len(rows))[:, None] == 2)),
            LENGTH,
            (2, 4, 8),
        )
    )
    assert {4, 8} <= set(found.unstable) and 2 not in found.unstable


def test_rows_that_depend_on_their_neighbours_are_found(few_rows):
    """A rejected draft would change the bits of the token before it."""
    found = probe(
        StaticTarget(spoiled(torch.float32, lambda rows: last_bit(rows, rows[-1].float().sum() > 0)), LENGTH, (2, 4, 8))
    )
    assert found.unstable == (2, 4, 8) and found.classes == ()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_depend_on_the_width_split_the_classes(dtype, few_rows):
    """A wide step and a narrow one would be mixed in one race."""
    before = probe(StaticTarget(prepared("llama", dtype), LENGTH, WIDTHS))
    found = probe(StaticTarget(spoiled(dtype, lambda rows: last_bit(rows, len(rows) >= 4)), LENGTH, WIDTHS))
    halves = [
        half for c in before.classes for half in (tuple(w for w in c if w < 4), tuple(w for w in c if w >= 4)) if half
    ]
    assert sorted(found.classes) == sorted(halves) and found.unstable == before.unstable


def many_words(name: str) -> Prepared:
    """In bfloat16, with so large a vocabulary that most of a step's numbers are logits: many numbers, of which few tell
    of the layers' kernels."""
    model_class, config = CONFIGS[name]
    config = copy.deepcopy(config)
    config.vocab_size = 16_384
    return prepare(build(model_class, config, torch.bfloat16))


def plant_rarely(monkeypatch: pytest.MonkeyPatch, where: Callable[[Tensor], Tensor]) -> None:
    """Every linear 64 -> 64 rounds one number of 30,000 otherwise, in those rows [n, 64] that `where` picks, [n, 1]."""

    def plant(kind: type[nn.Linear] | type[PackedLinear] | type[NativeLinear]) -> None:
        inner = kind.forward

        def forward(self: nn.Linear | PackedLinear | NativeLinear, x: Tensor) -> Tensor:
            out = inner(self, x)  # type: ignore[arg-type]
            if (self.in_features, self.out_features) != (64, 64):
                return out
            words = out.contiguous().view(torch.int16).long()
            rare = (words * 40503 + words.roll(1, -1) * 30011 + words.roll(2, -1) * 20021) % 30_000 < 1
            return last_bit(out, rare & where(out.view(-1, 64)).view(*out.shape[:-1], 1))

        monkeypatch.setattr(kind, "forward", forward)

    plant(nn.Linear)
    plant(PackedLinear)
    plant(NativeLinear)


def test_widths_that_differ_rarely_are_told_apart(monkeypatch):
    """Two kernels that round apart in one number of 30,000 would be called one by luck, and a race of some hundred
    tokens would show it."""
    model = many_words("llama")
    plant_rarely(monkeypatch, lambda rows: torch.full((len(rows), 1), len(rows) >= 4))
    found = probe(StaticTarget(model, LENGTH, (2, 4, 8)))
    assert not any(min(c) < 4 <= max(c) for c in found.classes)


def test_rows_that_depend_on_their_place_rarely_are_found(monkeypatch):
    """A width at which the third row is rounded otherwise in one number of 30,000 would be a class of its own, and
    promised exact."""
    model = many_words("llama")
    plant_rarely(monkeypatch, lambda rows: torch.arange(len(rows))[:, None] == 2)
    found = probe(StaticTarget(model, LENGTH, (2, 4, 8)))
    assert {4, 8} <= set(found.unstable) and 2 not in found.unstable


@pytest.mark.parametrize(("name", "seed"), [("llama", 4), ("qwen3", 7)])
def test_a_large_vocabulary_does_not_stand_for_the_layers(name, seed):
    """Widths would be merged because their many logits agree, and the attention's few numbers round apart some hundred
    tokens later."""
    model = many_words(name)
    params = SamplingParams(temperature=1.0, max_new_tokens=190, seed=seed)
    for widths in filter(lambda c: len(c) > 1, probe(StaticTarget(model, LENGTH, (1, 8))).classes):
        narrow, wide = (
            checksums_of(lane(model, Empty(), random_ids(40, model.vocab_size, seed), (w,), params))
            for w in (widths[0], widths[-1])
        )
        assert narrow == wide, f"widths {widths[0]} and {widths[-1]}"


def test_one_bit_in_one_row_in_one_key_is_enough(few_rows):
    """The logits of this step would be equal and those of the next ones not."""
    clean = prepared("llama")
    whole = probe(StaticTarget(clean, LENGTH, (4, 8)))
    model = prepare(fresh("llama"))
    attention = model.model.model.layers[-1].self_attn
    projection, first_key = attention.qkv, attention.num_heads * attention.head_dim
    inner = projection.forward

    def forward(x: Tensor) -> Tensor:
        rows = inner(x).clone()
        if x.shape[-2] == 8:
            rows[..., first_key] = last_bit(rows[..., first_key], True)
        return rows

    projection.forward = forward
    assert whole.classes == ((4, 8),)
    assert probe(StaticTarget(model, LENGTH, (4, 8))).classes == ((4,), (8,))


def test_the_probe_says_how_far_it_is(few_rows):
    """The page would stand still for seconds without a word."""
    said: list[tuple[str, float | None]] = []
    probe(StaticTarget(prepared("llama"), LENGTH, (1, 4)), progress=lambda stage, share: said.append((stage, share)))
    for what in ("length", "model"):
        shares = [share for stage, share in said if f"first race of this {what}" in stage and "once" in stage]
        assert len(shares) >= 2 and shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1
