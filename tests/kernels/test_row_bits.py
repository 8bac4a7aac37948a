"""A row's bits are its own: width of the step, place in it, other rows and number of threads change nothing.

That is why drafts cannot change a token, so every kernel is in a table of tests/helpers/row_kernels.py."""

from collections.abc import Iterable
from functools import partial
from math import isnan
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.exactness.operators import _in_blocks, operator_classes, same_bits, split
from engine.kernels.cpu.build import has
from engine.kernels.cpu.linear import NativeLinear, reason_against
from engine.kernels.cpu.packing import PackedLinear, onednn_packs
from tests.helpers.native_kernels import VARIANTS, compiled
from tests.helpers.row_kernels import ROWS, SEQUENCES
from tests.helpers.tiny import DTYPES, threads

# Of Triton's interpreter, where garbage is NaN or infinite; rows without garbage are looked at by `numbers`.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|All-NaN slice) encountered:RuntimeWarning")
COMPILED = {
    "compiled bytes": "pack_bytes",
    "compiled EAGLE-3": "head",
    "compiled": "forward",
}  # beginning of a name -> the compiled function that such a kernel needs


def params(table: Iterable[str]) -> Any:
    """Names of kernels; those that this machine cannot compile are skipped; what takes the interpreter long is slow."""

    def marks(name: str) -> Any:
        needs = next((function for start, function in COMPILED.items() if name.startswith(start)), None)
        if needs and not has(f"photofinish_{needs}"):
            yield pytest.mark.skip(reason="not compiled here")
        if name.startswith(("Triton decoder", "Triton linear")):
            yield pytest.mark.slow

    return [pytest.param(name, marks=list(marks(name))) for name in table]


def same(outputs: list[Tensor], expected: list[Tensor], rows: Any = slice(None)) -> bool:
    return all(same_bits(a[rows], b[rows]) for a, b in zip(outputs, expected, strict=True))


def numbers(tensors: list[Tensor]) -> list[Tensor]:
    """The same: NaN would be the same as NaN, whatever the kernel does."""
    assert all(x.isfinite().all() for x in tensors)
    return tensors


@pytest.mark.parametrize("name", params(ROWS))
def test_a_row_is_the_same_alone_and_in_any_company(name: str) -> None:
    """A draft that is rejected would have changed the tokens before it; or widths would be no class."""
    kernel = ROWS[name]()
    looked_at = kernel.looked_at
    singles = [kernel.run(*(x[row : row + 1] for x in kernel.inputs)) for row in looked_at]
    alone = numbers([torch.cat(parts) for parts in zip(*singles, strict=True)])
    for num_threads in kernel.num_threads:
        with threads(num_threads):
            for group in kernel.groups():
                outputs = kernel.run(*(x[group] for x in kernel.inputs))
                places = [i for i, row in enumerate(group) if row in looked_at]
                rows = [looked_at.index(group[i]) for i in places]
                assert same([x[places] for x in outputs], [x[rows] for x in alone]), (num_threads, group)
    for garbage in kernel.garbage:
        for num in (5,) if kernel.is_interpreted else (2, 8, 12, 13):
            rows = [x[:1].repeat(num, 1) for x in kernel.inputs]
            for tensor in (tensor for tensor in rows if tensor.is_floating_point()):
                tensor[torch.arange(num) != num // 2] = garbage
            outputs = [x[num // 2 : num // 2 + 1] for x in kernel.run(*rows)]
            assert same(outputs, [x[:1] for x in alone]), (garbage, num)


@pytest.mark.parametrize("name", params(SEQUENCES))
def test_steps_of_any_widths_compute_and_write_the_same(name: str) -> None:
    """Lanes that draft and lanes that do not would part: a sum whose order depends on the width, a row of the padding,
    or a token that looks at those after it. NaN must stay NaN: a model that has overflowed would go on writing text as
    if nothing had happened."""
    kernel = SEQUENCES[name]()
    expected = numbers(kernel.run(kernel.cuts[0]))
    for num_threads in kernel.num_threads:
        with threads(num_threads):
            for widths in kernel.cuts[num_threads == 1 :]:
                assert same(kernel.run(widths), expected), (widths, num_threads)
    for room in (1, 15, 100) if kernel.grows else ():
        assert same(kernel.run(kernel.cuts[1], room=room), expected), f"{room} columns more"
    for at in (1, kernel.total // 2 + 1)[kernel.is_interpreted :] if kernel.spoils else ():
        last = kernel.total if kernel.reach is None else min(kernel.total, at + kernel.reach)
        unseen = [i for i in range(kernel.total) if not at <= i < last]
        for garbage in kernel.garbage:
            outputs = kernel.run(kernel.cuts[1], at=at, garbage=garbage)
            assert same(outputs, expected, unseen), (at, garbage)
            assert not isnan(garbage) or outputs[0][at:last].isnan().all(), at


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
