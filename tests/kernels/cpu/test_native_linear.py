"""Compiled linears: the right numbers, and a row's bits a function of that row alone."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.kernels.cpu.linear import NativeLinear, reason_against
from engine.kernels.cpu.packing import PackedLinear, onednn_packs, pack
from tests.helpers.native_kernels import (
    ACTS,
    HALF_A_BIT,
    VARIANTS,
    assert_rows_have_their_own_bits,
    compiled,
    linear_of,
    needs_kernels,
    random,
    same_bits,
)

pytestmark = needs_kernels
EACH_VARIANT = pytest.mark.parametrize("variant", VARIANTS)
TINY = 2.0**-126
"""Products of AVX512_BF16 are 0 where they are smaller than a normal float32."""


def native(linear: nn.Linear, act: int | None = None, variant: str = VARIANTS[0]) -> NativeLinear:
    with compiled(variant):
        return NativeLinear(linear, act)


def sums_of(linear: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """What a linear gives in float64, and how far additions in float32 may take it from there."""
    weight, rows = linear.weight.double(), x.double()
    bias = torch.zeros(len(weight), dtype=torch.float64) if linear.bias is None else linear.bias.double()
    return rows @ weight.T + bias, (x.shape[-1] + 1) * 2.0**-24 * (rows.abs() @ weight.abs().T + bias.abs()) + TINY


def check(linear: nn.Linear, x: Tensor, act: int | None, variant: str) -> None:
    found, (sums, error) = native(linear, act, variant)(x), sums_of(linear, x)
    if act is None:
        expected = sums
    else:
        (gate, value), (gate_error, value_error) = sums.chunk(2, -1), error.chunk(2, -1)
        expected = ACTS[act](gate) * value
        error = (
            1.2 * gate_error * (value.abs() + value_error)
            + (ACTS[act](gate).abs() + 1e-6) * value_error
            + 2e-6 * expected.abs()
        )
    assert found.shape == expected.shape and found.dtype == torch.bfloat16
    assert bool(((found.double() - expected).abs() <= HALF_A_BIT * expected.abs() + 1.001 * error).all())


@EACH_VARIANT
@settings(max_examples=60)
@given(
    st.integers(1, 100),
    st.integers(1, 130),
    st.one_of(st.integers(1, 40), st.just(256)),
    st.booleans(),
    st.sampled_from([1.0, 1e-3, 1e3]),
    st.integers(0, 99),
)
def test_it_is_the_linear_that_it_was_made_of(variant, num, half_k, num_rows, bias, spread, seed):
    """Outputs that fill no block of 32, few inputs, many rows: a number of another output, or one left out."""
    check(
        linear_of(num, 2 * half_k, bias, seed),
        random(num_rows, 2 * half_k, seed=seed + 2, spread=spread),
        None,
        variant,
    )


@EACH_VARIANT
@settings(max_examples=40)
@given(
    st.integers(1, 5),
    st.integers(1, 100),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from([0, 1]),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.integers(0, 99),
)
def test_gates_and_values_find_each_other(variant, blocks, half_k, num_rows, bias, act, spread, seed):
    """A value would be multiplied by another one's gate; or the gate not be what the model's class says."""
    check(
        linear_of(32 * blocks, 2 * half_k, bias, seed),
        random(num_rows, 2 * half_k, seed=seed + 2, spread=spread),
        act,
        variant,
    )


@EACH_VARIANT
@pytest.mark.parametrize("act", [None, 0, 1])
def test_a_rows_bits_are_its_own(variant, act):
    """Width 1 would be no longer in the class of all others: at any number of rows, at any place, on any number of
    threads, whatever the others hold."""
    linear, x = native(linear_of(96 if act is not None else 83, 54, True), act, variant), random(40, 54, seed=5)
    assert_rows_have_their_own_bits(linear, x)


@EACH_VARIANT
@pytest.mark.parametrize("act", [None, 0, 1])
def test_what_is_no_number_stays_none(variant, act):
    """A model that has overflowed would go on writing text as if nothing had been; and a large number is none that has
    overflowed."""
    plain = linear_of(64, 32)
    plain.weight.copy_(plain.weight.abs() + 1)
    linear, sign = native(plain, act, variant), torch.ones(1, 32, dtype=torch.bfloat16)
    nan = sign.clone()
    nan[0, 7] = torch.nan
    assert linear(nan).isnan().all()
    assert (linear(sign * torch.inf) == torch.inf).all()
    assert (linear(-sign * torch.inf) == -torch.inf).all() if act is None else linear(-sign * torch.inf).isnan().all()
    assert linear(torch.tensor([[torch.inf, -torch.inf] * 16], dtype=torch.bfloat16)).isnan().all()
    huge = linear(sign * -1e36)
    assert (huge.isfinite() & (huge < -1e36)).all() if act is None else (huge.abs() < 1e-30).all()
    assert (linear(sign * 1e-39).float().abs() < 1e-37).all()
    plain.weight[3] = torch.nan
    found = native(plain, act, variant)(sign)
    assert found[:, 3].isnan().all() and found.isnan().sum() == 1


@EACH_VARIANT
def test_negative_gates_of_any_size_close(variant):
    """The exponential in a gate is cut off where it would overflow: a very negative gate must give 0, not a small part
    of a huge number."""
    weight = torch.zeros(32, 2, dtype=torch.bfloat16)
    weight[:16, 0], weight[16:, 1] = 1, 1
    plain = nn.Linear(2, 32, False, dtype=torch.bfloat16).requires_grad_(False)
    plain.weight.copy_(weight)
    gates = torch.cat([-torch.logspace(-3, 38, 400), torch.logspace(-3, 38, 400), torch.zeros(1)])
    x = torch.stack((gates, torch.full_like(gates, 0.5)), 1).bfloat16()
    torch.testing.assert_close(ACTS[1](gates.double()), F.gelu(gates.double(), approximate="tanh"))
    for act, function in ACTS.items():
        expected = function(x[:, :1].double()) * 0.5
        found = native(plain, act, variant)(x).double()
        assert bool(((found - expected).abs() <= HALF_A_BIT * expected.abs() + 1e-30).all())


def test_rows_come_in_any_shape():
    """Rows of a larger tensor, of a transposed one, none at all, a single vector."""
    plain = linear_of(40, 24, True)
    linear, x = native(plain), random(24, 6, 24, seed=3)
    for rows in (x, x[:, ::2], x[:, 1], x.transpose(0, 1), x[..., 0, :][None, None], x.permute(2, 1, 0), x[0, 0]):
        assert same_bits(linear(rows), linear(rows.clone().contiguous())) and linear(rows).shape == plain(rows).shape
        torch.testing.assert_close(linear(rows), plain(rows), atol=0.1, rtol=0.02)
    assert linear(x[:0]).shape == (0, 6, 40) and linear(x[0, :0]).shape == (0, 40)


@pytest.mark.parametrize(
    "rows",
    [torch.zeros(1, 24), torch.zeros(1, 26, dtype=torch.bfloat16), torch.zeros(1, 24, dtype=torch.float16)],
    ids=str,
)
def test_other_rows_are_refused(rows):
    """Bytes would be read as other numbers, or beyond the end."""
    with pytest.raises(AssertionError, match="rows of 24"):
        native(linear_of(40, 24))(rows)


class Halved(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 0.5


@pytest.mark.parametrize(
    ("linear", "said"),
    [
        (nn.Linear(8, 8), "float32"),
        (nn.Linear(9, 8, dtype=torch.bfloat16), "odd number of inputs, 9"),
        (Halved(8, 8, dtype=torch.bfloat16), "Halved"),
        (nn.Linear(8, 8, dtype=torch.bfloat16, device="meta"), "meta"),
    ],
    ids=["float32", "odd", "another class", "another device"],
)
def test_what_does_not_fit_says_why(linear, said):
    """It would be compiled wrong, or nobody know why a model is slow."""
    assert said in str(reason_against(linear))
    assert reason_against(linear_of(1, 2)) is None


def test_packing_falls_back_where_it_must():
    """A linear with an odd number of inputs would end the whole model; with AVX2 only, torch has no packed form for it
    either."""
    model = nn.ModuleDict({"even": linear_of(10, 8), "odd": linear_of(10, 9), "wide": nn.Linear(8, 10)}).requires_grad_(
        False
    )
    plain = copy.deepcopy(model)
    packs = onednn_packs(torch.bfloat16)
    assert pack(model) == 2 + packs
    assert [type(part) for part in model.values()] == [NativeLinear, PackedLinear if packs else nn.Linear, PackedLinear]
    for name, k, dtype in (("even", 8, torch.bfloat16), ("odd", 9, torch.bfloat16), ("wide", 8, torch.float32)):
        x = random(3, k).to(dtype)
        torch.testing.assert_close(model[name](x), plain[name](x), atol=0.05, rtol=0.02)


def test_it_holds_what_it_reads():
    """The first linear's memory would be given to others while the compiled one reads it; or the roofline count other
    bytes than a step reads."""
    plain, x = linear_of(83, 54, True, seed=4), random(5, 54)
    linear = native(plain)
    expected = linear(x)
    plain.weight.zero_(), plain.bias.zero_()
    del plain
    gc.collect()
    junk = [torch.full((96, 54), torch.nan, dtype=torch.bfloat16) for _ in range(64)]
    assert same_bits(linear(x), expected) and len(junk) == 64
    assert linear.read().numel() == 83 * 54


def test_variants_differ_by_rounding_only():
    """A machine without AVX512_BF16 would run another model; and AVX2 is to sum as AVX-512 does without it."""
    plain, x = linear_of(1000, 512, True), random(12, 512)
    ours, *others = (native(plain, None, variant)(x).float() for variant in VARIANTS)
    for theirs in others:
        assert (
            float((ours - theirs).abs().max()) <= 2.0**-7 * float(ours.abs().max())
            and float((ours != theirs).float().mean()) < 0.05
        )
    assert torch.equal(*others)


@EACH_VARIANT
def test_rows_of_many_inputs_are_taken_some_at_a_time(variant):
    """With AVX2 rows are widened once, on a stack that holds no more than so many; and long sums are made in parts."""
    for num, k in ((7, 40_000), (2, 140_000), (300, 1026)):
        plain, x = linear_of(32, k, True), random(num, k)
        check(plain, x, None, variant)
        linear = native(plain, None, variant)
        assert same_bits(linear(x)[-1], linear(x[-1:])[0])
