"""The probe finds hardware whose rows depend on more than the tokens; the plan takes only what was probed exact."""

import copy
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from engine.core.spec import MAX_K, MAX_WIDTH
from engine.exactness.operators import _in_blocks, operator_classes, split, split_by_attention
from engine.exactness.probe import probe
from engine.exactness.widths import DOMINATED, WidthClasses, candidates, plan
from engine.kernels.cpu.linear import NativeLinear, reason_against
from engine.kernels.cpu.packing import PackedLinear, onednn_packs
from engine.runner.prepare import prepare
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from tests.helpers.native_kernels import VARIANTS, compiled
from tests.helpers.planted import last_bit
from tests.helpers.tiny import CONFIGS, DTYPES, LENGTH, build, fresh, prepared

WIDTHS = (1, 2, 4, 8)


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
    model = spoiled(torch.bfloat16, lambda rows: last_bit(rows, torch.arange(len(rows))[:, None] == 2))
    classes = probe(StaticTarget(model, LENGTH, (2, 4, 8)))
    assert {4, 8} <= set(classes.unstable) and 2 not in classes.unstable


def test_rows_that_depend_on_their_neighbours_are_found(few_rows):
    """A rejected draft would change the bits of the token before it."""
    prepared = spoiled(torch.float32, lambda rows: last_bit(rows, rows[-1].float().sum() > 0))
    classes = probe(StaticTarget(prepared, LENGTH, (2, 4, 8)))
    assert classes.unstable == (2, 4, 8) and classes.classes == ()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_depend_on_the_width_split_the_classes(dtype, few_rows):
    """A wide step and a narrow one would be mixed in one race."""
    before = probe(StaticTarget(prepared("llama", dtype), LENGTH, WIDTHS))
    classes = probe(StaticTarget(spoiled(dtype, lambda rows: last_bit(rows, len(rows) >= 4)), LENGTH, WIDTHS))
    halves = (tuple(w for w in c if (w >= 4) == wide) for c in before.classes for wide in (False, True))
    assert sorted(classes.classes) == sorted(filter(None, halves)) and classes.unstable == before.unstable


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


@pytest.mark.parametrize("by_place", [False, True], ids=["widths", "places"])
def test_rows_that_differ_rarely_are_found(by_place, monkeypatch):
    """Kernels that differ in one number of 30,000, at some widths or in the third row, would pass for one."""
    model_class, config = copy.deepcopy(CONFIGS["llama"])
    config.vocab_size = 16_384  # so many that few of a step's numbers tell anything about the layers' kernels
    model = prepare(build(model_class, config, torch.bfloat16))
    plant_rarely(
        monkeypatch,
        lambda rows: torch.arange(len(rows))[:, None] == 2 if by_place else torch.full((len(rows), 1), len(rows) >= 4),
    )
    classes = probe(StaticTarget(model, LENGTH, (2, 4, 8)))
    assert not any(min(c) < 4 <= max(c) for c in classes.classes)
    assert not by_place or ({4, 8} <= set(classes.unstable) and 2 not in classes.unstable)


def test_one_bit_in_one_row_in_one_key_is_enough(few_rows):
    """The logits of this step would be equal and those of the next ones not."""
    whole = probe(StaticTarget(prepared("llama"), LENGTH, (4, 8)))
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
        shares = [share for stage, share in said if f"one-time check for this {what}" in stage]
        assert len(shares) >= 2 and shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1


def layout(x: Tensor) -> tuple[Any, ...]:
    """What of a tensor decides the kernel: its sizes and strides. A single matrix counts as one of a batch, or as the
    only one, by its stride (torch's `should_fold`); the stride of a single row is nobody's."""
    if x.is_mkldnn:
        return tuple(x.shape), "packed"
    *outer, rows, columns = zip(x.shape, x.stride(), strict=True)
    inner = zip(x.shape[1:], x.stride()[1:], strict=True)
    batch = [stride if n > 1 else stride == m * step for (n, stride), (m, step) in zip(outer, inner, strict=False)]
    return tuple(x.shape), *batch, *(stride for n, stride in (rows, columns) if n > 1)


class Products(TorchDispatchMode):
    """The products of matrices that run under it: operators and the layouts of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.all: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if re.search(r"mm|linear|attention", str(operator)):
            tensors = (x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor))
            self.all.add((str(operator), *map(layout, tensors)))
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("packed", [False, True], ids=["torch's", "the CPU's"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["gemma3", "qwen3", "mistral", "qwen3_5"])
def test_what_a_step_computes_with_is_what_is_probed(name, dtype, packed, few_rows):
    """Rows with other strides are multiplied by another kernel, of other classes, than the model's steps run."""
    target = StaticTarget(prepared(name, dtype, packed), LENGTH, (1, 2, 8))
    for width in target.widths:
        with Products() as steps:
            target.extend([1] * width, width)
        with Products() as probed:
            (classes,) = operator_classes(target.prepared, [width]).classes
            split_by_attention(target.prepared, LENGTH, [classes])
        assert steps.all <= probed.all, steps.all - probed.all


@pytest.mark.parametrize("sizes", [(32, 128, 1024), pytest.param((2048, 4096, 4096), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_a_batch_is_invariant_as_thinking_machines_asks(sizes, dtype, few_rows):
    """Thinking Machines Lab, batch_invariant_ops, test_batch_invariance.py (at 37e48aa6; the large sizes at c99026c8):
    numbers from -100 to 100 that nearly cancel, and no difference between a row alone and in a batch. Compiled linears
    would break their promise for all widths, torch's (in float32 off by 16.6 from width to width) that of the probe."""
    num_rows, k, n = sizes
    rows = torch.linspace(-100, 100, num_rows * k, dtype=dtype).view(num_rows, k)[:16]
    weight = torch.linspace(-100, 100, k * n, dtype=dtype)
    stock = nn.Linear(k, n, bias=False, dtype=dtype).requires_grad_(False)
    stock.weight.copy_(weight.view(n, k) if n > k else weight.view(k, n).T)
    linears = [stock, PackedLinear(stock)] if onednn_packs(dtype) else [stock]
    widths = tuple(range(1, 17)) if num_rows < 100 else (1, 2, 5, 16)  # of the large ones each takes a second
    for variant in () if reason_against(stock) else VARIANTS:
        with compiled(variant):
            linears.append(NativeLinear(stock))
    for linear in linears:
        alone: Any = SimpleNamespace(model=nn.ModuleList([linear]), device=rows.device, dtype=dtype)
        classes = [widths] if isinstance(linear, NativeLinear) else [*operator_classes(alone, widths).classes]
        assert split(classes, partial(_in_blocks, rows, call=linear)) == classes, linear

    def by_halves(x: Tensor) -> Any:
        size = k // min(2, x.shape[1])
        return sum(map(F.linear, x.split(size, -1), stock.weight.split(size, -1)))

    assert len(split([(1, 2)], partial(_in_blocks, rows, call=by_halves))) == 2, "another order would go unnoticed"


# The plan


@st.composite
def races(draw):
    """(what the probe found, step seconds of each candidate, k, the width asked for)."""
    k = draw(st.integers(0, MAX_K))
    width = draw(st.just("auto") | st.integers(k + 1, MAX_WIDTH))
    widths = candidates(k, width)
    home = {w: draw(st.integers(-1, 2)) for w in widths}
    classes = tuple(c for c in (tuple(w for w in widths if home[w] == i) for i in range(3)) if c)
    split = WidthClasses(classes, tuple(w for w in widths if home[w] == -1))
    return split, {w: draw(st.floats(1e-3, 1)) for w in widths}, k, width


@given(st.integers(0, MAX_K), st.just("auto") | st.integers(1, MAX_WIDTH), st.booleans())
def test_candidates_hold_what_may_be_needed(k, width, fine):
    """The width asked for, or the one a full draft needs, would never be probed."""
    widths = candidates(k, width, fine)
    assert set(candidates(k, width)) <= set(widths) and (not fine or k < 4 or 6 in widths)
    assert list(widths) == sorted(set(widths)) and widths[0] == 1 and widths[-1] <= MAX_WIDTH
    assert k + 1 in widths and (width == "auto" or width in widths)
    assert len(widths) <= (14 if fine else 10)


@given(races(), st.booleans(), st.integers(1, MAX_WIDTH))
def test_a_plan_mixes_only_widths_of_one_class_and_says_what_it_promises(race, auto_k, other):
    """Lanes would be promised equal and differ in their last bits, an unstable width be taken for one of a class, or a
    draft not fit; the ratio be against a slow baseline; or a race that is not exact look as if it were."""
    classes, seconds, k, width = race
    auto_k = auto_k and width == "auto" and max(seconds) > 1
    chosen = plan(classes, seconds, k, width, auto_k)
    assert set(chosen.step_widths) <= set(classes.of(chosen.width))
    least = max(k, 1) if auto_k else k
    assert max(chosen.step_widths) == chosen.width > least
    assert chosen.exact == (chosen.width not in classes.unstable)
    if width == "auto":
        assert chosen.exact == any(w > least and w not in classes.unstable for w in seconds)
    else:
        assert chosen.step_widths == (width,)
    assert seconds[chosen.plain_width] == min(s for w, s in seconds.items() if w <= 8)
    assert chosen.exact == ("not exact" not in chosen.note) and str(chosen.width) in chosen.note
    assert other in classes.of(other) and all(classes.of(same) == classes.of(other) for same in classes.of(other))


@given(races())
def test_no_step_runs_at_a_width_that_a_wider_one_beats(race):
    """A step without a draft would run slower than one with."""
    classes, seconds, k, _ = race
    steps = plan(classes, seconds, k).step_widths
    assert not any(seconds[wide] < DOMINATED * seconds[narrow] for narrow in steps for wide in steps if wide > narrow)
