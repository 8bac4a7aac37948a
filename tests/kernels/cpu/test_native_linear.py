"""Compiled linears, with weights of 16 and of 8 bits: the right numbers, and refusals of what does not fit. That a
row's bits are its own is in ../test_row_bits.py."""

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.exactness.operators import same_bits
from engine.kernels.cpu.bytes import GROUP, ByteLinear, reason_against_bytes
from engine.kernels.cpu.linear import MOST_INPUTS, NativeLinear, reason_against
from engine.kernels.cpu.packing import PackedLinear, onednn_packs, pack
from tests.helpers.native_kernels import (
    ACTS,
    BYTE_VARIANTS,
    VARIANTS,
    compiled,
    linear_of,
    needs_byte_kernels,
    needs_kernels,
    random,
)

pytestmark = needs_kernels
EACH_VARIANT = pytest.mark.parametrize("variant", VARIANTS)
EACH_BYTE_VARIANT = pytest.mark.parametrize("variant", BYTE_VARIANTS)
MOST = 32639  # of a row's number in 16 bits
HALF_A_BIT = 1.001 * 2.0**-8  # what rounding to bfloat16 changes
TINY = 2.0**-126  # products of AVX512_BF16 are 0 where they are smaller than a normal float32
acts = st.sampled_from([None, 0, 1])
SIZE, FEW, SEEDS = st.integers(1, 100), st.integers(1, 40), st.integers(0, 99)
SPREADS = st.sampled_from([1.0, 1e-3, 1e3])


def native(linear: nn.Linear, act: int | None = None, variant: str = VARIANTS[0]) -> NativeLinear:
    with compiled(variant):
        return NativeLinear(linear, act)


def in_bytes(linear: nn.Linear, act: int | None = None, variant: str = VARIANTS[0]) -> ByteLinear:
    with compiled(variant):
        return ByteLinear(linear, act)


def check(outputs: Tensor, sums: Tensor, error: Tensor, act: int | None) -> None:
    """Compare with sums in float64 [n, outputs] that float32 may miss by `error`."""
    expected = sums
    if act is not None:
        (gate, value), (gate_error, value_error) = sums.chunk(2, -1), error.chunk(2, -1)
        expected, acted = ACTS[act](gate) * value, ACTS[act](gate).abs() + 1e-6
        error = 1.2 * gate_error * (value.abs() + value_error) + acted * value_error + 2e-6 * expected.abs()
    assert outputs.shape == expected.shape and outputs.dtype == torch.bfloat16
    assert bool(((outputs.double() - expected).abs() <= HALF_A_BIT * expected.abs() + 1.001 * error + TINY).all())


def product(rows: Tensor, weight: Tensor, bias: Tensor | None, unit: float) -> tuple[Tensor, Tensor]:
    """rows @ weight.T + bias in float64, and how far roundings by `unit` may take a sum from there."""
    offsets = torch.zeros(len(weight), dtype=torch.float64) if bias is None else bias.double()
    return rows @ weight.T + offsets, unit * (rows.abs() @ weight.abs().T + offsets.abs())


# Weights of 16 bits


def check_linear(linear: nn.Linear, x: Tensor, act: int | None, variant: str) -> None:
    unit = (x.shape[-1] + 1) * 2.0**-24
    sums, error = product(x.double(), linear.weight.double(), linear.bias, unit)
    check(native(linear, act, variant)(x), sums, error + TINY, act)


@EACH_VARIANT
@settings(max_examples=60)
@given(SIZE, st.integers(1, 130), FEW | st.just(256), acts, st.booleans(), SPREADS, SEEDS)
def test_it_is_the_linear_that_it_was_made_of(variant, num, half_k, num_rows, act, bias, spread, seed):
    """Outputs that fill no block of 32, few inputs, many rows: another output's number, or one left out; a value
    multiplied by another one's gate, or by another function of it than the model's."""
    num, spread = (num, spread) if act is None else (-(-num // 32) * 32, min(spread, 10.0))
    rows = random(num_rows, 2 * half_k, seed=seed + 2, spread=spread)
    check_linear(linear_of(num, 2 * half_k, bias, seed), rows, act, variant)


@EACH_VARIANT
def test_rows_of_many_inputs_are_taken_some_at_a_time(variant):
    """With AVX2 rows are widened once, on a stack of limited size; and long sums are made in parts."""
    for num, k in ((7, 40_000), (2, 140_000), (300, 1026)):
        plain, x = linear_of(32, k, True), random(num, k)
        check_linear(plain, x, None, variant)
        linear = native(plain, None, variant)
        assert same_bits(linear(x)[-1], linear(x[-1:])[0])


@EACH_VARIANT
@pytest.mark.parametrize("act", [None, 0, 1])
def test_infinities_and_nan_are_kept(variant, act):
    """A model that has overflowed would go on writing text as if nothing had happened; large numbers are none."""
    plain = linear_of(64, 32)
    plain.weight.copy_(plain.weight.abs() + 1)
    linear, sign = native(plain, act, variant), torch.ones(1, 32, dtype=torch.bfloat16)
    nan = sign.clone()
    nan[0, 7] = torch.nan
    assert linear(nan).isnan().all()
    assert (linear(sign * torch.inf) == torch.inf).all()
    assert (linear(-sign * torch.inf) == -torch.inf).all() if act is None else linear(-sign * torch.inf).isnan().all()
    huge = linear(sign * -1e36)
    assert (huge.isfinite() & (huge < -1e36)).all() if act is None else (huge.abs() < 1e-30).all()
    assert (linear(sign * 1e-39).float().abs() < 1e-37).all()
    plain.weight[3] = torch.nan
    outputs = native(plain, act, variant)(sign)
    assert outputs[:, 3].isnan().all() and outputs.isnan().sum() == 1


@EACH_VARIANT
def test_negative_gates_of_any_size_close(variant):
    """A gate's exponential is cut off where it would overflow: a very negative gate must give 0."""
    plain = nn.Linear(2, 32, False, dtype=torch.bfloat16).requires_grad_(False)
    plain.weight.zero_()
    plain.weight[:16, 0], plain.weight[16:, 1] = 1, 1
    gates = torch.cat([-torch.logspace(-3, 38, 400), torch.logspace(-3, 38, 400), torch.zeros(1)])
    x = torch.stack((gates, torch.full_like(gates, 0.5)), 1).bfloat16()
    torch.testing.assert_close(ACTS[1](gates.double()), F.gelu(gates.double(), approximate="tanh"))
    for act, function in ACTS.items():
        expected = function(x[:, :1].double()) * 0.5
        outputs = native(plain, act, variant)(x).double()
        assert bool(((outputs - expected).abs() <= HALF_A_BIT * expected.abs() + 1e-30).all())


def test_machines_without_avx512_bf16_sum_alike():
    """AVX2 must sum as AVX-512 does without it. How far all may be off is above."""
    plain, x = linear_of(1000, 512, True), random(12, 512)
    assert same_bits(*(native(plain, None, variant)(x) for variant in VARIANTS[1:]))


# Weights of 8 bits


def rounded(values: Tensor) -> Tensor:
    """A row's numbers as bytes.h has them, [n, k] -> float64 [n, k]."""
    groups = []
    for part in (part.float() for part in values.split(GROUP, 1)):
        size = part.abs().amax(1, keepdim=True)
        whole = torch.round(part * torch.where(size > 1e-30, torch.full_like(size, MOST) / size, 0))
        groups.append(whole.double() * (size / MOST).double())
    return torch.cat(groups, 1)


def weights_of(weight: Tensor) -> Tensor:
    """As bytes.h has them, float64."""
    groups = []
    for part in (part.float() for part in weight.split(GROUP, 1)):
        scale = (part.abs().amax(1, keepdim=True) / 127).bfloat16().float()
        whole = torch.round((part * torch.where(scale > 0, 1 / scale, 0)).clamp(-127, 127))
        groups.append(whole.double() * scale.double())
    return torch.cat(groups, 1)


@needs_byte_kernels
@EACH_BYTE_VARIANT
@settings(max_examples=60)
@given(SIZE, st.integers(1, 20), FEW | st.just(100), acts, st.booleans(), SPREADS, SEEDS)
def test_the_sums_are_those_of_what_was_rounded(variant, num, sixteens, num_rows, act, bias, spread, seed):
    """A block's last outputs, another group's scale, half a number, or what is taken off for unsigned bytes."""
    num, k = num if act is None else -(-num // 32) * 32, 16 * sixteens
    plain, x = linear_of(num, k, bias, seed), random(num_rows, k, seed=seed + 2, spread=spread)
    plain.weight.mul_(torch.logspace(-3, 1, k).bfloat16()), x.mul_(torch.logspace(1, -3, k).bfloat16())
    sums, error = product(rounded(x), weights_of(plain.weight), plain.bias, (k / GROUP + 4) * 2.0**-23)
    check(in_bytes(plain, act, variant)(x), sums, error, act)


@needs_byte_kernels
def test_every_machine_has_the_same_bits():
    """Without VNNI products are made of other instructions, which must not be cut off at 16 bits."""
    plain, x = linear_of(70, 1040, True), random(13, 1040)
    extreme = linear_of(64, 256)
    extreme.weight.fill_(1.0), extreme.weight[:, ::3].fill_(-1.0)
    for linear, rows in ((plain, x), (extreme, extreme.weight[:7].clone()), (extreme, -extreme.weight[:7])):
        ours, theirs = (in_bytes(linear, None, variant)(rows) for variant in BYTE_VARIANTS)
        assert same_bits(ours, theirs)
    assert (theirs + 256).abs().max() == 0


@needs_byte_kernels
@EACH_BYTE_VARIANT
def test_overflow_zeros_and_huge_rows_in_bytes(variant):
    """NaN and infinities would be rounded to some byte; a scale of nothing is a division by nothing; and a model whose
    states are large would overflow where it does not in bfloat16."""
    plain, x = linear_of(64, 144), random(4, 144)
    plain.weight[3, 100], plain.weight[5, 7] = torch.nan, -torch.inf
    x[1, 140], x[2, 70] = torch.nan, torch.inf
    expected = torch.zeros(4, 64, dtype=torch.bool)
    expected[1:3], expected[:, 3], expected[:, 5] = True, True, True
    assert torch.equal(~in_bytes(plain, None, variant)(x).isfinite(), expected)
    plain = linear_of(40, 128, True)
    plain.weight[7], plain.weight[:, 64:] = 0, 0
    linear = in_bytes(plain, None, variant)
    assert same_bits(linear(torch.zeros(3, 128, dtype=torch.bfloat16)), plain.bias.expand(3, -1))
    assert (linear(random(3, 128))[:, 7] == plain.bias[7]).all()
    assert ((linear(torch.full((1, 128), 1e-38, dtype=torch.bfloat16)) - plain.bias).abs() < 1e-30).all()
    plain, x = linear_of(40, 192, spread=1e-3), random(3, 192, spread=1e37)
    outputs, sums = in_bytes(plain, None, variant)(x), F.linear(x.double(), plain.weight.double())
    assert outputs.isfinite().all() and float((outputs.double() - sums).abs().max() / sums.std()) < 0.1


@needs_byte_kernels
def test_the_widest_rows_are_rounded_in_parts():
    """They are rounded on a stack of limited size."""
    plain, x = linear_of(32, MOST_INPUTS), random(5, MOST_INPUTS)
    linear = in_bytes(plain)
    outputs, expected = linear(x), F.linear(x.double(), plain.weight.double())
    assert float((outputs.double() - expected).abs().mean() / expected.std()) < 0.02
    assert same_bits(outputs[-1], linear(x[-1:])[0])


# Both


def test_rows_come_in_any_shape_and_others_are_refused():
    """Rows of a larger or transposed tensor, none, a vector; other dtypes or lengths would be other numbers."""
    plain = linear_of(40, 24, True)
    linear, x = native(plain), random(24, 6, 24, seed=3)
    for rows in (x, x[:, ::2], x[:, 1], x.transpose(0, 1), x[..., 0, :][None, None], x.permute(2, 1, 0), x[0, 0]):
        assert same_bits(linear(rows), linear(rows.clone().contiguous())) and linear(rows).shape == plain(rows).shape
        torch.testing.assert_close(linear(rows), plain(rows), atol=0.1, rtol=0.02)
    assert linear(x[:0]).shape == (0, 6, 40) and linear(x[0, :0]).shape == (0, 40)
    for rows in (torch.zeros(1, 24), torch.zeros(1, 26).bfloat16(), torch.zeros(1, 24).half()):
        with pytest.raises(ValueError, match=", 24"):
            linear(rows)


@pytest.mark.parametrize("made", [native, pytest.param(in_bytes, marks=needs_byte_kernels)])
def test_it_owns_what_it_reads(made):
    """The first linear's memory would be given away while it is read; or the roofline count other bytes."""
    plain, x = linear_of(83, 144, True, seed=4), random(5, 144)
    linear = made(plain)
    expected = linear(x)
    plain.weight.zero_(), plain.bias.zero_()
    del plain
    gc.collect()
    junk = [torch.full((96, 144), torch.nan, dtype=torch.bfloat16) for _ in range(64)]
    assert same_bits(linear(x), expected) and len(junk) == 64
    assert linear.read().nbytes == 83 * (144 + 3 * 2 if made is in_bytes else 2 * 144)


class Halved(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 0.5


UNFIT = (
    (reason_against, nn.Linear(8, 8), "float32"),
    (reason_against, nn.Linear(9, 8, dtype=torch.bfloat16), "odd number of inputs, 9"),
    (reason_against, Halved(8, 8, dtype=torch.bfloat16), "Halved"),
    (reason_against, nn.Linear(8, 8, dtype=torch.bfloat16, device="meta"), "meta"),
    (reason_against_bytes, nn.Linear(32, 8), "float32"),
    (reason_against_bytes, nn.Linear(24, 8, dtype=torch.bfloat16), "24 inputs are no multiple of 16"),
    (reason_against_bytes, nn.Linear(2 * MOST_INPUTS, 1, dtype=torch.bfloat16), "131072 inputs, not from 2 to 65536"),
    (reason_against_bytes, nn.Identity(), "Identity"),
)


@needs_byte_kernels
def test_what_does_not_fit_says_why():
    """It would be read beyond its end, or nobody know why a model is slow."""
    for reason, linear, says in UNFIT:
        assert says in str(reason(linear))
    assert reason_against(linear_of(1, 2)) is None and reason_against_bytes(linear_of(1, 16)) is None


def test_packing_does_what_it_can():
    """One linear that does not fit would end the whole model."""
    model = nn.ModuleDict({"even": linear_of(10, 8), "odd": linear_of(10, 9), "wide": nn.Linear(8, 10)})
    model, packs = model.requires_grad_(False), onednn_packs(torch.bfloat16)
    plain = copy.deepcopy(model)
    pack(model)
    assert [type(part) for part in model.values()] == [NativeLinear, PackedLinear if packs else nn.Linear, PackedLinear]
    for name, k, dtype in (("even", 8, torch.bfloat16), ("odd", 9, torch.bfloat16), ("wide", 8, torch.float32)):
        x = random(3, k).to(dtype)
        torch.testing.assert_close(model[name](x), plain[name](x), atol=0.05, rtol=0.02)
