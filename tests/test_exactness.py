"""The central promise: within a class that the probe finds, every lane writes the same tokens from the same bits, whatever is drafted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest
import torch
from fakes import Adversarial, Empty, Oracle, Random, checksums_of, tokens_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import CONFIGS, DTYPES, LENGTH, build, fresh, lane, prepared, random_ids
from torch import Tensor, nn

from engine import exactness
from engine.cache import ENVIRONMENT_VARIABLE, cache_dir
from engine.events import Finished
from engine.exactness import explain, fingerprint, probe, probe_cached
from engine.packing import PackedLinear
from engine.sampling import Sampler
from engine.spec import SamplingParams
from engine.target import Prepared, prepare
from engine.widths import WidthClasses

WIDTHS = (1, 2, 4, 8)
Configuration = tuple[str, torch.dtype, bool | None]
CONFIGURATIONS: list[Configuration] = [
    ("gemma3", torch.bfloat16, None),
    ("mistral", torch.bfloat16, False),
    ("qwen3", torch.float32, False),
    ("trained", torch.bfloat16, None),
    ("trained", torch.float32, None),
]
"""(model, dtype, packed): the promised architectures and the trained fixture, both dtypes, both kinds of linear."""
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


probed_llama = cache(lambda length, widths: probe(prepared("llama"), length, widths))


def check_a_race(configuration: Configuration, num_threads: int, temperature: float, drafter: str, num_prompt: int, seed: int, data: st.DataObject) -> None:
    """A baseline at one width of a class against a lane that drafts and mixes its widths: the same tokens, the same bits."""
    model = prepared(*configuration)
    widths = data.draw(st.sampled_from(probed(*configuration, num_threads).classes))
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


races = given(
    temperature=st.sampled_from([0.0, 0.8]),
    drafter=st.sampled_from(sorted(DRAFTERS)),
    num_prompt=st.integers(1, 40),
    seed=st.integers(0, 99),
    data=st.data(),
)


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
@settings(max_examples=6)
@races
def test_lanes_of_one_class_write_the_same_tokens_from_the_same_bits(configuration, temperature, drafter, num_prompt, seed, data):
    """The page would say "identical, bit for bit" of lanes that are not; this is what the whole engine is for."""
    check_a_race(configuration, 1, temperature, drafter, num_prompt, seed, data)


@settings(max_examples=4)
@races
def test_lanes_of_one_class_are_equal_on_two_threads_too(temperature, drafter, num_prompt, seed, data):
    """Threads share out rows: other widths are exact than on one, and at some a row's bits depend on its place."""
    check_a_race(("qwen3", torch.float32, False), 2, temperature, drafter, num_prompt, seed, data)


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_class_holds_over_many_rows(configuration):
    """In bfloat16 two kernels' sums round apart in one number of 10,000: a probe of a few rows of a small model calls such widths equal by luck."""
    model = prepared(*configuration)
    params = SamplingParams(temperature=1.0, max_new_tokens=120)
    for widths in filter(lambda c: len(c) > 1, probed(*configuration, 1).classes):
        narrow, wide = (checksums_of(lane(model, Empty(), random_ids(40, model.vocab_size), (w,), params)) for w in (widths[0], widths[-1]))
        assert narrow == wide, f"widths {widths[0]} and {widths[-1]}"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_every_width_is_in_one_class_or_unstable(configuration):
    """A width would be raced that was never judged."""
    found = probed(*configuration, 1)
    assert sorted([*[w for c in found.classes for w in c], *found.unstable]) == list(WIDTHS)


def test_a_probe_finds_the_same_again(few_rows):
    """Each start would promise other widths."""
    for dtype in DTYPES:
        assert probe(prepared("llama", dtype), LENGTH, WIDTHS) == probe(prepared("llama", dtype), LENGTH, WIDTHS)


# Planted: hardware whose rows are not a function of the tokens alone


def last_bit(x: Tensor, where: Tensor | bool) -> Tensor:
    """x, one unit larger in its last place where it is positive: what another kernel's order of sums does."""
    return torch.where(torch.as_tensor(where) & (x > 0), torch.nextafter(x, torch.full_like(x, torch.inf)), x)


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
    found = probe(spoiled(torch.bfloat16, lambda rows: last_bit(rows, torch.arange(len(rows))[:, None] == 2)), LENGTH, (2, 4, 8))
    assert {4, 8} <= set(found.unstable) and 2 not in found.unstable


def test_rows_that_depend_on_their_neighbours_are_found(few_rows):
    """A rejected draft would change the bits of the token before it."""
    found = probe(spoiled(torch.float32, lambda rows: last_bit(rows, rows[-1].float().sum() > 0)), LENGTH, (2, 4, 8))
    assert found.unstable == (2, 4, 8) and found.classes == ()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_depend_on_the_width_split_the_classes(dtype, few_rows):
    """A wide step and a narrow one would be mixed in one race."""
    before = probe(prepared("llama", dtype), LENGTH, WIDTHS)
    found = probe(spoiled(dtype, lambda rows: last_bit(rows, len(rows) >= 4)), LENGTH, WIDTHS)
    halves = [half for c in before.classes for half in (tuple(w for w in c if w < 4), tuple(w for w in c if w >= 4)) if half]
    assert sorted(found.classes) == sorted(halves) and found.unstable == before.unstable


def many_words(name: str) -> Prepared:
    """In bfloat16, with so large a vocabulary that most of a step's numbers are logits: many numbers, of which few tell of the layers' kernels."""
    model_class, config = CONFIGS[name]
    config = copy.deepcopy(config)
    config.vocab_size = 16_384
    return prepare(build(model_class, config, torch.bfloat16))


def plant_rarely(monkeypatch: pytest.MonkeyPatch, where: Callable[[Tensor], Tensor]) -> None:
    """Every linear 64 -> 64 rounds one number of 30,000 otherwise, in those rows [n, 64] that `where` picks, [n, 1]."""

    def plant(kind: type[nn.Linear] | type[PackedLinear]) -> None:
        inner = kind.forward

        def forward(self: nn.Linear | PackedLinear, x: Tensor) -> Tensor:
            out = inner(self, x)  # type: ignore[arg-type]
            if (self.in_features, self.out_features) != (64, 64):
                return out
            words = out.contiguous().view(torch.int16).long()
            rare = (words * 40503 + words.roll(1, -1) * 30011 + words.roll(2, -1) * 20021) % 30_000 < 1
            return last_bit(out, rare & where(out.view(-1, 64)).view(*out.shape[:-1], 1))

        monkeypatch.setattr(kind, "forward", forward)

    plant(nn.Linear)
    plant(PackedLinear)


def test_widths_that_differ_rarely_are_told_apart(monkeypatch):
    """Two kernels that round apart in one number of 30,000 would be called one by luck, and a race of some hundred tokens would show it."""
    model = many_words("llama")
    plant_rarely(monkeypatch, lambda rows: torch.full((len(rows), 1), len(rows) >= 4))
    found = probe(model, LENGTH, (2, 4, 8))
    assert not any(min(c) < 4 <= max(c) for c in found.classes)


def test_rows_that_depend_on_their_place_rarely_are_found(monkeypatch):
    """A width at which the third row is rounded otherwise in one number of 30,000 would be a class of its own, and promised exact."""
    model = many_words("llama")
    plant_rarely(monkeypatch, lambda rows: torch.arange(len(rows))[:, None] == 2)
    found = probe(model, LENGTH, (2, 4, 8))
    assert {4, 8} <= set(found.unstable) and 2 not in found.unstable


@pytest.mark.parametrize(("name", "seed"), [("llama", 4), ("qwen3", 7)])
def test_a_large_vocabulary_does_not_stand_for_the_layers(name, seed):
    """Widths would be merged because their many logits agree, and the attention's few numbers round apart some hundred tokens later."""
    model = many_words(name)
    params = SamplingParams(temperature=1.0, max_new_tokens=190, seed=seed)
    for widths in filter(lambda c: len(c) > 1, probe(model, LENGTH, (1, 8)).classes):
        narrow, wide = (checksums_of(lane(model, Empty(), random_ids(40, model.vocab_size, seed), (w,), params)) for w in (widths[0], widths[-1]))
        assert narrow == wide, f"widths {widths[0]} and {widths[-1]}"


def test_one_bit_in_one_row_in_one_key_is_enough(few_rows):
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


def test_the_probe_says_how_far_it_is(few_rows):
    """The page would stand still for seconds without a word."""
    said: list[tuple[str, float | None]] = []
    probe(prepared("llama"), LENGTH, (1, 4), progress=lambda stage, share: said.append((stage, share)))
    shares = [share for _, share in said if share is not None]
    assert len(shares) >= 2 and shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1
    assert all("width" in stage for stage, _ in said)


# Remembered


@pytest.fixture
def probes(monkeypatch, tmp_path, few_rows) -> list[int]:
    """An empty cache, and a list that grows by one with every probe (whose result is worked out once for all tests here)."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    done: list[int] = []

    def counted(model, length, widths, **more):
        done.append(1)
        return probed_llama(length, widths)

    monkeypatch.setattr(exactness, "probe", counted)
    return done


def test_a_probe_is_remembered_as_it_was(probes):
    """Every start would probe again, or read back other classes than were found."""
    first = probe_cached(prepared("llama"), "digest", LENGTH, (1, 2, 4))
    assert first == probed_llama(LENGTH, (1, 2, 4)) == probe_cached(prepared("llama"), "digest", LENGTH, (1, 2, 4)) and len(probes) == 1
    assert probe_cached(prepared("llama"), "another", LENGTH, (1, 2, 4)) == first and len(probes) == 2


@given(st.lists(st.sets(st.integers(1, 64), min_size=1).map(sorted).map(tuple), max_size=3), st.sets(st.integers(1, 64)).map(sorted).map(tuple))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_classes_are_read_back_as_they_were_written(monkeypatch, tmp_path, classes, unstable):
    """Unstable widths would come back as exact ones."""
    taken: set[int] = set()
    apart = tuple(c for c in (tuple(w for w in c if w not in taken and not taken.add(w)) for c in classes) if c)
    found = WidthClasses(apart, tuple(w for w in unstable if w not in taken))
    widths = sorted([*[w for c in found.classes for w in c], *found.unstable])
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / str(hash(found))))
    monkeypatch.setattr(exactness, "probe", lambda *arguments, **more: found)
    assert probe_cached(prepared("llama"), "digest", LENGTH, widths) == found
    monkeypatch.setattr(exactness, "probe", None)
    assert probe_cached(prepared("llama"), "digest", LENGTH, widths) == found


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
