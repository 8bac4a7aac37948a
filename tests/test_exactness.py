"""The central promise: within a class that the probe finds, every lane writes the same tokens from the same bits, whatever is drafted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest
import torch
from fakes import Adversarial, Empty, Oracle, Random, checksums_of, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import DTYPES, LENGTH, NAMES, fresh, lane, prepared, random_ids
from torch import Tensor, nn

from engine import exactness
from engine.cache import ENVIRONMENT_VARIABLE, cache_dir
from engine.events import Finished
from engine.exactness import explain, fingerprint, probe, probe_cached
from engine.sampling import Sampler
from engine.spec import SamplingParams
from engine.target import Prepared, prepare
from engine.widths import WidthClasses

WIDTHS = (1, 2, 3, 4, 6, 8)
MODELS = (*NAMES, "trained")
DRAFTERS: dict[str, Callable] = {
    "random": lambda truth, seed, vocab: Random(seed, vocab_size=vocab),
    "often right": lambda truth, seed, vocab: Random(seed, truth, vocab),
    "oracle": lambda truth, seed, vocab: Oracle(truth),
    "adversarial": lambda truth, seed, vocab: Adversarial(truth, vocab),
}


@contextmanager
def threads(num: int) -> Iterator[None]:
    """Run with `num` threads: other classes than with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def probed(name: str, dtype: torch.dtype, packed: bool | None, num_threads: int) -> WidthClasses:
    with threads(num_threads):
        return probe(prepared(name, dtype, packed), LENGTH, WIDTHS)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=12)
@given(
    name=st.sampled_from(MODELS),
    packed=st.sampled_from([None, False]),
    drafter=st.sampled_from(sorted(DRAFTERS)),
    temperature=st.sampled_from([0.0, 0.8]),
    num_prompt=st.integers(1, 40),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_lanes_of_one_class_write_the_same_tokens_from_the_same_bits(name, dtype, packed, num_threads, drafter, temperature, num_prompt, seed, data):
    """The page would say "identical, bit for bit" of lanes that are not; this is what the whole engine is for."""
    model = prepared(name, dtype, packed)
    widths = data.draw(st.sampled_from(probed(name, dtype, packed, num_threads).classes))
    mixed = data.draw(st.lists(st.sampled_from(widths), min_size=1, unique=True))
    params = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=24)
    prompt = random_ids(num_prompt, model.vocab_size, seed)
    with threads(num_threads):
        baseline = lane(model, Empty(), prompt, (data.draw(st.sampled_from(widths)),), params)
        truth = tokens_of(baseline)
        speculative = lane(model, DRAFTERS[drafter](truth, seed, model.vocab_size), prompt, mixed, params, k=max(mixed) - 1)
    assert len(truth) == len(checksums_of(baseline)) == 24 and isinstance(speculative[-1], Finished)
    assert tokens_of(speculative) == truth
    assert checksums_of(speculative) == checksums_of(baseline)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_width_is_in_one_class_or_unstable(name, dtype):
    """A width would be raced that was never judged."""
    found = probed(name, dtype, None, 1)
    assert sorted([*[w for c in found.classes for w in c], *found.unstable]) == list(WIDTHS)


def test_a_probe_finds_the_same_again():
    """Each start would promise other widths."""
    assert probe(prepared("llama"), LENGTH, WIDTHS) == probed("llama", torch.float32, None, 1)


# Planted: hardware whose rows are not a function of the tokens alone


class Head(nn.Module):
    """An LM head whose logits [rows, vocab] `spoil` changes as another kernel would: in the last bits."""

    def __init__(self, inner: nn.Module, spoil: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.spoil = inner, spoil

    def forward(self, x: Tensor) -> Tensor:
        return self.spoil(self.inner(x))


def last_bit(x: Tensor, where: Tensor | bool) -> Tensor:
    """x, one unit larger in its last place where it is positive."""
    return torch.where(torch.as_tensor(where) & (x > 0), torch.nextafter(x, torch.full_like(x, torch.inf)), x)


def spoiled(dtype: torch.dtype, spoil: Callable[[Tensor], Tensor]) -> Prepared:
    model = prepare(fresh("llama", dtype))
    model.model.set_output_embeddings(Head(model.model.get_output_embeddings(), spoil))
    return model


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_depend_on_their_place_are_found(dtype):
    """A width at which the third row is rounded otherwise would be promised exact."""
    found = probe(spoiled(dtype, lambda rows: last_bit(rows, torch.arange(len(rows))[:, None] == 2)), LENGTH, (1, 2, 4, 8))
    assert {4, 8} <= set(found.unstable) and not {1, 2} & set(found.unstable)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_depend_on_their_neighbours_are_found(dtype):
    """A rejected draft would change the bits of the token before it."""
    found = probe(spoiled(dtype, lambda rows: last_bit(rows, rows[-1].float().sum() > 0)), LENGTH, (2, 4, 8))
    assert found.unstable == (2, 4, 8) and found.classes == ()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_depend_on_the_width_split_the_classes(dtype):
    """A wide step and a narrow one would be mixed in one race."""
    found = probe(spoiled(dtype, lambda rows: last_bit(rows, len(rows) >= 4)), LENGTH, (1, 2, 3, 4, 8))
    assert not any(min(c) < 4 <= max(c) for c in found.classes) and (4, 8) in found.classes and found.unstable == ()


def test_one_bit_in_one_row_in_one_key_is_enough():
    """The logits of this step would be equal and those of the next ones not."""
    clean = prepared("llama")
    whole = probe(clean, LENGTH, (4, 8))
    model = prepare(fresh("llama"))
    projection = model.model.model.layers[-1].self_attn.k_proj
    inner = projection.forward

    def forward(x: Tensor) -> Tensor:
        keys = inner(x).clone()
        if x.shape[-2] == 8:
            keys[..., 0] = last_bit(keys[..., 0], True)
        return keys

    projection.forward = forward
    assert whole.classes == ((4, 8),)
    assert probe(model, LENGTH, (4, 8)).classes == ((4,), (8,))


def test_the_probe_says_how_far_it_is():
    """The page would stand still for seconds without a word."""
    said: list[tuple[str, float | None]] = []
    probe(prepared("llama"), LENGTH, (1, 4), progress=lambda stage, share: said.append((stage, share)))
    assert [share for _, share in said] == [0, 0.5] and all("width" in stage for stage, _ in said)


# Remembered


@pytest.fixture
def probes(monkeypatch, tmp_path) -> list[int]:
    """An empty cache, and a list that grows by one with every probe."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    done: list[int] = []
    real = exactness.probe

    def counted(*arguments, **more):
        done.append(1)
        return real(*arguments, **more)

    monkeypatch.setattr(exactness, "probe", counted)
    return done


def test_a_probe_is_remembered_as_it_was(probes):
    """Every start would probe again, or read back other classes than were found."""
    model = spoiled(torch.float32, lambda rows: last_bit(rows, torch.arange(len(rows))[:, None] == 2))
    first = probe_cached(model, "digest", LENGTH, (1, 2, 4))
    assert first.unstable == (4,) and probe_cached(model, "digest", LENGTH, (1, 2, 4)) == first and len(probes) == 1


DAMAGE = {
    "cut short": lambda text, value: text[: len(text) // 2],
    "empty": lambda text, value: "",
    "a list": lambda text, value: "[]",
    "another object": lambda text, value: "{}",
    "no classes": lambda text, value: json.dumps({k: v for k, v in value.items() if k != "classes"}),
    "classes of null": lambda text, value: json.dumps({**value, "classes": None}),
    "classes of words": lambda text, value: json.dumps({**value, "classes": [["one"]]}),
    "classes of text": lambda text, value: json.dumps({**value, "classes": "124"}),
    "classes of fractions": lambda text, value: json.dumps({**value, "classes": [[1.5, 2, 4]]}),
    "a width missing": lambda text, value: json.dumps({**value, "classes": [[1, 2]], "unstable": []}),
    "a width too many": lambda text, value: json.dumps({**value, "classes": [[1, 2, 4, 8]], "unstable": []}),
    "a width twice": lambda text, value: json.dumps({**value, "classes": [[1, 2, 4]], "unstable": [4]}),
    "another machine's": lambda text, value: json.dumps({**value, "fingerprint": {**value["fingerprint"], "threads": 77}}),
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_memory_is_probed_anew_and_mended(probes, damage):
    """A broken file in the cache would end every race, or promise widths that were never judged."""
    first = probe_cached(prepared("llama"), "digest", LENGTH, (1, 2, 4))
    (path,) = cache_dir().glob("widths-*.json")
    path.write_text(DAMAGE[damage](path.read_text(), json.loads(path.read_text())))
    assert [probe_cached(prepared("llama"), "digest", LENGTH, (1, 2, 4)) for _ in range(2)] == [first, first]
    assert len(probes) == 2


def test_whatever_may_change_bits_is_in_the_fingerprint(monkeypatch):
    """Classes found with one thread would be believed with two."""
    model = prepared("llama", torch.float32, False)
    kinds = [
        fingerprint(model, "a", 256, (1, 4)),
        fingerprint(model, "b", 256, (1, 4)),
        fingerprint(model, "a", 512, (1, 4)),
        fingerprint(model, "a", 256, (1, 8)),
        fingerprint(prepared("llama", torch.bfloat16, False), "a", 256, (1, 4)),
        fingerprint(replace(model, packed=True), "a", 256, (1, 4)),
    ]
    with threads(torch.get_num_threads() + 1):
        kinds.append(fingerprint(model, "a", 256, (1, 4)))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    kinds.append(fingerprint(model, "a", 256, (1, 4)))
    texts = [json.dumps(kind, sort_keys=True) for kind in kinds]
    assert len(set(texts)) == len(texts) and kinds[-1] == fingerprint(model, "a", 256, (1, 4))


# How close a choice was


@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.7, 2.0]), st.sampled_from([0, 5]), st.sampled_from([1.0, 0.8]), st.floats(1e-4, 1.0))
def test_the_margin_is_what_separates_the_two_choices(seed, temperature, top_k, top_p, noise):
    """A clear difference would be excused as a near tie, or the other way about."""
    generator = torch.Generator().manual_seed(seed)
    row_a = torch.randn(64, generator=generator)
    row_b = row_a + noise * torch.randn(64, generator=generator)
    sampler = Sampler(SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed), 64, "cpu")
    tokens = (sampler(row_a, 3), sampler(row_b, 3))
    margin, rounding, share = explain(sampler, row_a, row_b, 3, tokens)
    scale = temperature or 1.0
    difference = float((row_a - row_b).square().mean().sqrt())
    assert rounding == pytest.approx(difference / scale, rel=1e-4) and share == pytest.approx(difference / float(row_a.std()), rel=1e-4)
    assert margin >= 0
    if tokens[0] != tokens[1] and top_k == 0 and top_p == 1.0:
        # What is no more than rounding apart can have been moved by no more than the rows differ at the two candidates.
        moved = (row_a - row_b)[list(tokens)].abs().sum() / scale
        assert 0 < margin <= float(moved) + 1e-4
