"""Int8 weights as an option of the target, by kernels of our own and without: rows are theirs alone, and a race of them is as exact as any other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from fakes import Adversarial, Empty, Oracle, checksums_of, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st
from native_kernels import needs_byte_kernels
from tiny import DTYPES, LENGTH, NAMES, TRAINED, fresh, lane, random_ids, stock
from torch import Tensor, nn

from engine import int8
from engine import prepare as preparing
from engine.bandwidth import weight_bytes
from engine.errors import UnsupportedModel, UsageError
from engine.exactness import fingerprint, probe
from engine.int8 import Int8Linear, round_weights, sums_exactly
from engine.loading import load
from engine.native.build import has_kernels
from engine.native.bytes import ByteLinear
from engine.native.linear import NativeLinear
from engine.operators import same_bits
from engine.packing import PackedLinear, can_pack
from engine.prepare import prepare
from engine.spec import SamplingParams
from engine.target import Prepared, StaticTarget

pytestmark = pytest.mark.skipif(not sums_exactly(), reason="this CPU does not sum products of bytes exactly: int8 is refused on it")
WIDTHS = (1, 2, 4, 8)
DTYPE = torch.bfloat16 if can_pack(torch.bfloat16) else torch.float32
KINDS = [pytest.param(True, id="our kernels", marks=needs_byte_kernels), pytest.param(False, id="oneDNN")]
EACH_KIND = pytest.mark.parametrize("kernels", KINDS)


def rounded(name: str, kernels: bool, dtype: torch.dtype = DTYPE, least: int = 1) -> Prepared:
    """In int8, by kernels of our own or as where there are none: linears of so many weights then."""
    with pytest.MonkeyPatch.context() as patch:
        if not kernels:
            patch.setattr(preparing, "by_kernels", lambda: False)
        return prepare(fresh(name, dtype), int8_from=least)


@cache
def prepared(name: str, kernels: bool) -> Prepared:
    """Every linear in int8, however small."""
    return rounded(name, kernels)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there are no kernels of our own for it."""
    for module in (preparing, int8):
        monkeypatch.setattr(module, "by_kernels", lambda: False)


def linear_of(num_in: int, num_out: int, bias: bool, seed: int, dtype: torch.dtype = torch.float32) -> nn.Linear:
    generator = torch.Generator().manual_seed(seed)
    linear = nn.Linear(num_in, num_out, bias=bias)
    for parameter in linear.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    return linear.to(dtype).requires_grad_(False)


def rows_of(num: int, size: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Random rows of very different sizes, one of them nothing but zeros."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(num, size, generator=generator) * torch.logspace(-3, 3, num)[:, None]
    rows[num // 2] = 0
    return rows.to(dtype)


sizes = st.integers(1, 300)


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, st.booleans(), st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 999))
def test_the_rows_are_those_of_exact_sums(num_in, num_out, bias, dtype, seed):
    """Sums cut off at 16 bits, or a scale of another row or output, would still look like text."""
    linear, rows = linear_of(num_in, num_out, bias, seed, dtype), rows_of(9, num_in, seed, dtype)
    exact = Int8Linear(linear)
    weight, x = linear.weight.double(), rows.double()
    weight_step, row_step = weight.abs().amax(1).clamp_min(1e-12) / 127, x.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    most = row_step * weight_step * num_in * (127 + 0.5)  # each factor off by half a step and, with luck at the edge, float32's own rounding
    expected = x @ weight.t() + (linear.bias.double() if bias else 0)
    found = exact(rows)
    assert found.dtype == dtype and found.shape == (9, num_out)
    assert ((found.double() - expected).abs() <= most + expected.abs() * (2**-7 if dtype == torch.bfloat16 else 1e-5)).all()

    rounded = (rows.float() * (127 / rows.float().abs().amax(1, keepdim=True).clamp_min(1e-12)) + 128.5).floor() - 128
    steps = (linear.weight.float() * (127 / linear.weight.float().abs().amax(1).clamp_min(1e-12))[:, None]).round()
    sums = (rounded.double() @ steps.double().t()) * exact.scale.double() * rows.double().abs().amax(1, keepdim=True).clamp_min(1e-12) + (linear.bias.double() if bias else 0)
    assert ((found.double() - sums).abs() <= sums.abs() * (2**-8 if dtype == torch.bfloat16 else 1e-5) + 1e-5 * float(sums.abs().max())).all()


@settings(max_examples=25, deadline=None)
@given(sizes, sizes, st.booleans(), st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 999))
def test_a_row_is_a_function_of_itself_alone(num_in, num_out, bias, dtype, seed):
    """The place of a row, its neighbours or how many they are would be in its bits, and lanes would part."""
    linear, rows = Int8Linear(linear_of(num_in, num_out, bias, seed, dtype)), rows_of(16, num_in, seed, dtype)
    kept, whole = rows.clone(), linear(rows[None])[0]
    for width in (1, 2, 3, 4, 5, 7, 8):
        parts = torch.cat([linear(rows[None, start : start + width])[0] for start in range(0, 16, width)])
        assert same_bits(parts, whole), width
    order = torch.randperm(16, generator=torch.Generator().manual_seed(seed))
    assert same_bits(linear(rows[order]), whole[order]) and torch.equal(rows, kept), "the input belongs to the caller"


def test_what_is_no_number_is_not_hidden():
    """A broken activation would come out as a small number, and nobody would hear of it."""
    linear, rows = Int8Linear(linear_of(64, 32, True, 0)), torch.ones(3, 64)
    rows[1, 5] = torch.nan
    found = linear(rows)
    assert found[1].isnan().all() and not found[[0, 2]].isnan().any()


@EACH_KIND
@pytest.mark.parametrize("name", (*NAMES, "trained"))
def test_a_probe_finds_classes_and_their_lanes_are_equal(name, kernels, few_rows):
    """A race in int8 would be promised exact, and not be it."""
    model = prepared(name, kernels)
    found = probe(model, LENGTH, WIDTHS)
    assert not found.unstable and {2, 4, 8} <= set(max(found.classes, key=len))
    widths = max(found.classes, key=len)
    for temperature in (0.0, 0.8):
        params, prompt = SamplingParams(temperature=temperature, seed=3, max_new_tokens=40), random_ids(30, model.vocab_size, 1)
        baseline = lane(model, Empty(), prompt, widths[-1:], params)
        truth = tokens_of(baseline)
        for drafter in (Oracle(truth), Adversarial(truth, model.vocab_size)):
            other = lane(model, drafter, prompt, widths, params, k=widths[-1] - 1)
            assert tokens_of(other) == truth and checksums_of(other) == checksums_of(baseline)


@EACH_KIND
def test_an_operator_of_other_bits_is_found(kernels, few_rows):
    """The probe would look at every linear but these."""
    model = rounded("llama", kernels)
    layer = model.model.model.layers[0].mlp.down_proj
    inner = layer.forward
    assert isinstance(layer, ByteLinear if kernels else Int8Linear)
    before = probe(model, LENGTH, (4, 8)).classes
    layer.forward = lambda x: inner(x) * (1.25 if x.shape[-2] == 8 else 1)
    assert before == ((4, 8),) and probe(model, LENGTH, (4, 8)).classes == ((4,), (8,))


@EACH_KIND
@pytest.mark.parametrize("name", (*NAMES, "trained"))
def test_int8_changes_no_more_than_its_rounding(name, kernels):
    """Weights in another place, or scales of another row, would pass for the model's."""
    model = prepared(name, kernels)
    ids = random_ids(24, model.vocab_size, 2)
    expected = stock(name, DTYPE)(input_ids=torch.tensor([ids])).logits[0].detach().float()
    found = StaticTarget(model, LENGTH, (24,)).extend(ids, 24)[0].float()
    assert 0 < float((found - expected).abs().mean() / expected.std()) < int8.LIMIT / (6 if kernels else 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_only_large_linears_are_rounded_and_the_embedding_never(dtype):
    """A small linear would become slower and worse; a tied embedding would lend its rows to drafters from rounded weights."""
    model = stock("gemma3", dtype)
    before = model.get_input_embeddings().weight
    ready = rounded("gemma3", False, dtype, model.lm_head.in_features * model.lm_head.out_features)
    kinds = {name: type(module) for name, module in ready.model.named_modules() if isinstance(module, nn.Linear | PackedLinear | NativeLinear | Int8Linear)}
    assert [name for name, kind in kinds.items() if kind is Int8Linear] == ["lm_head"] and len(kinds) > 1
    assert set(kinds.values()) == {Int8Linear, (NativeLinear if dtype == torch.bfloat16 and has_kernels() else PackedLinear) if ready.packed else nn.Linear}
    assert torch.equal(ready.model.get_input_embeddings().weight, before)


@needs_byte_kernels
def test_kernels_round_every_linear_and_never_the_embedding():
    """Half of the model would be read at twice the bytes; a tied embedding lend its rows to drafters from rounded weights."""
    ready = rounded("gemma3", True, torch.bfloat16, 2**40)
    assert {type(module) for module in ready.model.modules() if isinstance(module, nn.Linear | PackedLinear | NativeLinear | Int8Linear)} == {ByteLinear}
    assert torch.equal(ready.model.get_input_embeddings().weight, stock("gemma3", torch.bfloat16).get_input_embeddings().weight)
    assert ready.int8_from == 1


def test_a_step_reads_a_byte_a_weight():
    """The roofline would say that a step reads twice what it reads."""
    whole, rounded = fresh("qwen3", DTYPE), fresh("qwen3", DTYPE)
    num_rounded = round_weights(rounded, 1)
    linears = [module for module in whole.modules() if type(module) is nn.Linear]
    assert num_rounded == len(linears)
    saved = sum(linear.weight.numel() * (linear.weight.element_size() - 1) for linear in linears)
    added = sum(4 * linear.out_features + 8 for linear in linears)
    assert weight_bytes(rounded) == weight_bytes(whole) - saved + added


def test_a_model_that_int8_ruins_is_refused(monkeypatch, without_kernels):
    """The page would call a model by its name that it is no longer."""
    monkeypatch.setattr(int8, "STEPS", 1)
    with pytest.raises(UnsupportedModel, match="int8 weights cost it too much"):
        prepare(fresh("llama", DTYPE), int8_from=1)


@needs_byte_kernels
def test_a_model_that_kernels_ruin_is_refused(monkeypatch):
    """Likewise."""
    monkeypatch.setattr(preparing, "LIMIT", 1e-3)
    with pytest.raises(UnsupportedModel, match="int8 weights cost it too much"):
        prepare(fresh("llama", torch.bfloat16), int8_from=1)


def test_a_model_without_large_linears_is_not_called_int8(without_kernels):
    """The record would say int8 of a race that ran without."""
    with pytest.raises(UnsupportedModel, match="no linear layer of 4194304 weights"):
        _ = load(str(TRAINED), "int8", "cpu").prepared


@EACH_KIND
def test_what_is_loaded_as_int8(kernels, monkeypatch, request):
    """The option would be recorded and not done, or a drafter rounded too, whose error costs acceptance and saves little."""
    if not kernels:
        request.getfixturevalue("without_kernels")
        monkeypatch.setattr(int8, "LEAST_WEIGHTS", 1)
    loaded = load(str(TRAINED), "int8", "cpu")
    assert loaded.info.dtype == "int8" and loaded.model.dtype == DTYPE and loaded.prepared.int8_from == 1 and loaded.prepared.dtype == DTYPE
    assert isinstance(loaded.model.get_output_embeddings(), ByteLinear if kernels else Int8Linear)
    draft = loaded.companion(str(TRAINED.parent / "draft"))
    assert draft.info.dtype == str(DTYPE).removeprefix("torch.") and draft.prepared.int8_from is None


def test_where_int8_is_not_to_be_had_the_choices_are_named(monkeypatch, without_kernels):
    """A GPU would run a step of the CPU, or a CPU without the instructions write nonsense."""
    with pytest.raises(UsageError, match="for the CPU, not for 'cuda:0'; choose device cpu, or one of: auto, bfloat16, float32"):
        int8.check(torch.device("cuda", 0), ("auto", "bfloat16", "float32"))
    monkeypatch.setattr(int8, "sums_exactly", lambda: False)
    with pytest.raises(UsageError, match=r"AVX512_VNNI.*choose one of: auto, bfloat16"):
        load(str(TRAINED), "int8", "cpu")


def test_classes_of_other_weights_are_not_believed():
    """What was found with bfloat16 weights would be promised of int8."""
    model = prepared("llama", False)
    kinds = [fingerprint(replace(model, int8_from=least), "a", 256, (1, 4)) for least in (None, 1, 2)]
    assert all(a != b for i, a in enumerate(kinds) for b in kinds[:i])
