"""Compiled linears with weights of 8 bits: the sums of what was rounded, a row's bits its own, and whole models of
them."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.errors import UnsupportedModel
from engine.exactness.probe import probe
from engine.kernels.cpu.bytes import GROUP, MOST_INPUTS, ByteLinear, reason_against_bytes
from engine.kernels.cpu.decoder import NativeDecoder
from engine.kernels.cpu.forward import NativeForward
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cpu.packing import pack
from engine.measure.bandwidth import weight_bytes
from engine.target.target import StaticTarget
from tests.helpers.native_kernels import (
    ACTS,
    BYTE_VARIANTS,
    HALF_A_BIT,
    NAMES,
    assert_rows_have_their_own_bits,
    compiled,
    linear_of,
    needs_byte_kernels,
    prepared,
    random,
    same_bits,
)
from tests.helpers.tiny import random_ids, threads

pytestmark = needs_byte_kernels
MOST = {1: 127, 2: 32639}
EACH_VARIANT = pytest.mark.parametrize("variant", BYTE_VARIANTS)
EACH_ROW = pytest.mark.parametrize("row_bytes", [1, 2])
acts = st.sampled_from([None, 0, 1])


def in_bytes(
    linear: nn.Linear, row_bytes: int = 2, act: int | None = None, variant: str = BYTE_VARIANTS[0]
) -> ByteLinear:
    with compiled(variant):
        return ByteLinear(linear, act, row_bytes)


def rounded(values: Tensor, row_bytes: int) -> Tensor:
    """A row's numbers as bytes.h has them, [n, k] -> float64 [n, k]."""
    parts = [part.float() for part in values.split(GROUP, 1)]
    sizes = [part.abs().amax(1, keepdim=True) for part in parts]
    units = [
        (
            torch.round(part * torch.where(size > 1e-30, torch.full_like(size, MOST[row_bytes]) / size, 0)).double(),
            (size / MOST[row_bytes]).double(),
        )
        for part, size in zip(parts, sizes, strict=True)
    ]
    return torch.cat([whole * unit for whole, unit in units], 1)


def weights_of(weight: Tensor) -> Tensor:
    """As bytes.h has them, float64."""
    parts = []
    for part in weight.split(GROUP, 1):
        scale = (part.float().abs().amax(1, keepdim=True) / 127).bfloat16().float()
        parts.append(
            torch.round((part.float() * torch.where(scale > 0, 1 / scale, 0)).clamp(-127, 127)).double()
            * scale.double()
        )
    return torch.cat(parts, 1)


@EACH_VARIANT
@settings(max_examples=60)
@given(
    st.integers(1, 100),
    st.integers(1, 20),
    st.one_of(st.integers(1, 30), st.just(100)),
    acts,
    st.booleans(),
    st.sampled_from([1, 2]),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.integers(0, 99),
)
def test_the_sums_are_those_of_what_was_rounded(variant, num, sixteens, num_rows, act, bias, row_bytes, spread, seed):
    """A block's last outputs, another group's scale, a half of a row's number, or what is taken off for
    unsigned bytes."""
    num, k = num if act is None else -(-num // 32) * 32, 16 * sixteens
    plain, x = linear_of(num, k, bias, seed), random(num_rows, k, seed=seed + 2, spread=spread)
    plain.weight.mul_(torch.logspace(-3, 1, k).bfloat16()), x.mul_(torch.logspace(1, -3, k).bfloat16())
    weight, rows = weights_of(plain.weight), rounded(x, row_bytes)
    biases = torch.zeros(num, dtype=torch.float64) if plain.bias is None else plain.bias.double()
    expected, error = (
        rows @ weight.T + biases,
        (k / GROUP + 4) * 2.0**-23 * (rows.abs() @ weight.abs().T + biases.abs()),
    )
    if act is not None:
        (gate, value), (gate_error, value_error) = expected.chunk(2, -1), error.chunk(2, -1)
        expected = ACTS[act](gate) * value
        error = (
            1.2 * gate_error * (value.abs() + value_error)
            + (ACTS[act](gate).abs() + 1e-6) * value_error
            + 2e-6 * expected.abs()
        )
    found = in_bytes(plain, row_bytes, act, variant)(x)
    assert found.shape == expected.shape and found.dtype == torch.bfloat16
    assert bool(((found.double() - expected).abs() <= HALF_A_BIT * expected.abs() + 1.001 * error + 2.0**-126).all())


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 20), st.sampled_from([1, 2]), st.integers(0, 99))
def test_rounding_is_to_the_nearest_of_its_group(num, sixteens, row_bytes, seed):
    """One large weight or number would make all others of its row coarse; or all of them be cut off instead of
    rounded."""
    k = 16 * sixteens
    plain, x = linear_of(num, k, False, seed), random(5, k, seed=seed + 2)
    plain.weight[:, 0], x[:, -1] = 100.0, 1000.0
    weight, rows, most = plain.weight.double(), x.double(), MOST[row_bytes]
    error = 0.0
    for weights, values in zip(weight.split(GROUP, 1), rows.split(GROUP, 1), strict=True):
        weight_error, row_error = weights.abs().amax(1) / 127 * 0.76, values.abs().amax(1) / most * 0.51
        error = (
            error
            + values.abs().sum(1)[:, None] * weight_error
            + row_error[:, None] * (weights.abs().sum(1) + len(weights[0]) * weight_error)
        )
    expected = rows @ weight.T
    assert bool(
        (
            (in_bytes(plain, row_bytes)(x).double() - expected).abs() <= HALF_A_BIT * (expected.abs() + error) + error
        ).all()
    )


@EACH_VARIANT
@EACH_ROW
@pytest.mark.parametrize("act", [None, 0])
def test_a_rows_bits_are_its_own(variant, row_bytes, act):
    """Lanes of other widths would part: at any number of rows, at any place, on any number of threads, whatever the
    others hold."""
    linear, x = (
        in_bytes(linear_of(96 if act is not None else 83, 176, True), row_bytes, act, variant),
        random(50, 176, seed=5),
    )
    assert_rows_have_their_own_bits(linear, x)


@EACH_ROW
def test_every_machine_has_the_same_bits(row_bytes):
    """Without VNNI products are made of other instructions, which must not be cut off at 16 bits."""
    plain, x = linear_of(70, 1040, True), random(13, 1040)
    extreme = linear_of(64, 256)
    extreme.weight.fill_(1.0), extreme.weight[:, ::3].fill_(-1.0)
    for linear, rows in ((plain, x), (extreme, extreme.weight[:7].clone()), (extreme, -extreme.weight[:7])):
        ours, theirs = (in_bytes(linear, row_bytes, None, variant)(rows) for variant in BYTE_VARIANTS)
        assert same_bits(ours, theirs)
    assert (theirs + 256).abs().max() == 0


@EACH_VARIANT
@EACH_ROW
def test_what_is_no_number_stays_none(variant, row_bytes):
    """A model that has overflowed would go on writing text as if nothing had been."""
    plain, x = linear_of(64, 144), random(4, 144)
    plain.weight[3, 100] = torch.nan
    plain.weight[5, 7] = -torch.inf
    x[1, 140], x[2, 70] = torch.nan, torch.inf
    found = ~in_bytes(plain, row_bytes, None, variant)(x).isfinite()
    expected = torch.zeros(4, 64, dtype=torch.bool)
    expected[1:3], expected[:, 3], expected[:, 5] = True, True, True
    assert torch.equal(found, expected)


@EACH_ROW
def test_huge_rows_stay_finite(row_bytes):
    """A model whose states are large would overflow where it does not in bfloat16."""
    plain, x = linear_of(40, 192, spread=1e-3), random(3, 192, spread=1e37)
    found, expected = in_bytes(plain, row_bytes)(x), F.linear(x.double(), plain.weight.double())
    assert found.isfinite().all() and float((found.double() - expected).abs().max() / expected.std()) < 0.1


@EACH_ROW
def test_zeros_are_zeros(row_bytes):
    """A scale of nothing is a division by nothing."""
    plain = linear_of(40, 128, True)
    plain.weight[7] = 0
    plain.weight[:, 64:] = 0
    linear = in_bytes(plain, row_bytes)
    assert same_bits(linear(torch.zeros(3, 128, dtype=torch.bfloat16)), plain.bias.expand(3, -1))
    assert (linear(random(3, 128))[:, 7] == plain.bias[7]).all()
    tiny = torch.full((1, 128), 1e-38, dtype=torch.bfloat16)
    assert ((linear(tiny) - plain.bias).abs() < 1e-30).all()


@EACH_ROW
def test_rows_of_many_inputs_are_taken_some_at_a_time(row_bytes):
    """They are rounded on a stack, which holds no more than so many bytes."""
    plain, x = linear_of(32, MOST_INPUTS), random(5, MOST_INPUTS)
    linear = in_bytes(plain, row_bytes)
    found, expected = linear(x), F.linear(x.double(), plain.weight.double())
    assert float((found.double() - expected).abs().mean() / expected.std()) < 0.02
    assert same_bits(found[-1], linear(x[-1:])[0])


def test_it_holds_what_it_reads_and_no_more_is_counted():
    """The first linear's memory would be given to others; or the roofline count other bytes than a step reads."""
    plain, x = linear_of(83, 144, True, seed=4), random(5, 144)
    linear = in_bytes(plain)
    expected = linear(x)
    plain.weight.zero_()
    del plain
    gc.collect()
    junk = [torch.full((96, 144), 255, dtype=torch.uint8) for _ in range(64)]
    assert same_bits(linear(x), expected) and len(junk) == 64
    assert linear.read().nbytes == 83 * (144 + 3 * 2)


def test_a_step_reads_a_byte_a_weight():
    """The roofline would say that a step reads twice what it reads."""
    whole, small = (prepared("gemma3", int8=int8) for int8 in (False, True))
    linears = [module for module in small.model.modules() if isinstance(module, NativeLinear)]
    assert linears and all(isinstance(module, ByteLinear) for module in linears)
    saved = sum(linear.arguments.num * (linear.in_features - 2 * -(-linear.in_features // GROUP)) for linear in linears)
    assert weight_bytes(small.model) == weight_bytes(whole.model) - saved


@pytest.mark.parametrize(
    ("linear", "said"),
    [
        (nn.Linear(32, 8), "float32"),
        (nn.Linear(24, 8, dtype=torch.bfloat16), "24 inputs are no multiple of 16"),
        (nn.Linear(2 * MOST_INPUTS, 1, dtype=torch.bfloat16), "more than 65536"),
        (nn.Identity(), "Identity"),
    ],
    ids=["float32", "odd", "many", "no linear"],
)
def test_what_does_not_fit_says_why(linear, said):
    """It would be read beyond its end."""
    assert said in str(reason_against_bytes(linear))
    assert reason_against_bytes(linear_of(1, 16)) is None


def test_packing_rounds_what_it_can():
    """A linear that does not fit would end the whole model; or a model be called int8 of which nothing is."""
    model = nn.ModuleDict({"fits": linear_of(10, 32), "does not": linear_of(10, 24)}).requires_grad_(False)
    assert pack(model, in_bytes=True) == 2
    assert [type(part) for part in model.values()] == [ByteLinear, NativeLinear]
    with pytest.raises(UnsupportedModel, match="no linear layer whose weights int8 kernels take"):
        pack(nn.ModuleDict({"does not": linear_of(10, 24)}), in_bytes=True)


# Whole models


@pytest.mark.parametrize("name", NAMES)
def test_a_step_in_one_call_is_its_modules_one_by_one(name):
    """Weights of 8 bits read as bfloat16, or a layer's of another kind than the next one's."""
    model = prepared(name, int8=True)
    decoder = model.model.get_decoder()
    assert isinstance(decoder, NativeDecoder) and {type(linear) for linear in decoder.linears} == {ByteLinear}
    assert [linear.row_bytes for linear in (*decoder.linears, model.model.lm_head)] == [2] * len(decoder.linears) + [1]
    ids, found = random_ids(60, model.vocab_size, 3), []
    for whole in (True, False):
        target = StaticTarget(model, 256, (1, 3, 8), (1, 2))
        assert isinstance(target._buffers._whole, NativeForward)
        if not whole:
            target._buffers.__dict__["_whole"] = None
        rows = [target.extend(ids[:30], 0)[1]]
        for start, num in ((30, 1), (31, 3), (34, 8), (42, 5)):
            logits, states = target.extend(ids[start : start + num], num)
            rows += [logits.clone(), states.clone()]
        found.append(rows + [side for layer in target.kv for side in layer])
    assert all(same_bits(a, b) for a, b in zip(*found, strict=True))


@EACH_VARIANT
@pytest.mark.parametrize("name", ["gemma3", "qwen2"])
def test_all_widths_from_1_on_are_one_class(name, variant, few_rows):
    """The plain lane would be another class than the exact ones, and exactness cost what a wider step does."""
    for num_threads in (1, 2):
        with compiled(variant), threads(num_threads):
            assert probe(StaticTarget(prepared(name, variant, int8=True), 256, (1, 2, 3, 8, 16))).classes == (
                (1, 2, 3, 8, 16),
            )
