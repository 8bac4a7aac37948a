"""A row's bits are its own: width of the step, place in it, other rows and number of threads change nothing.

That is why drafts cannot change a token, so every kernel that computes rows, compiled or interpreted, is in a table
here: of `ROWS` from the row alone, of `SEQUENCES` in a cache. That rows are chosen from alone by the compiled choice is
in cpu/test_native_choose.py, how linears take numbers that nearly cancel in ../exactness/test_probe.py."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import isnan
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.core.sampling.noise import keys_of
from engine.exactness.operators import same_bits
from engine.kernels.cpu.attention import attend as attend_natively
from engine.kernels.cpu.build import has
from engine.kernels.cpu.bytes import ByteLinear
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cuda.attention import attend, splits_of
from engine.kernels.cuda.delta import mix_step
from engine.kernels.cuda.qkv_rope_cache import place
from engine.kernels.cuda.rmsnorm import add_normed, normed
from engine.kernels.cuda.runtime import MOST_ROWS
from engine.kernels.cuda.sample import pick_rows
from engine.layers.delta_places import Places
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers import heads
from tests.helpers.gpu_kernels import LINEARS, Config, gpu_linear
from tests.helpers.gpu_models import DELTA, delta_layer, delta_rings, delta_rows, prepared
from tests.helpers.native_kernels import BYTE_VARIANTS, NAMES, STOCK, VARIANTS, compiled, linear_of, made, random
from tests.helpers.tiny import LENGTH, PACKED, random_ids, threads

# What other rows may hold -> the token whose embedding is that number in the models here.
GARBAGE = {torch.nan: 7, torch.inf: 8, -torch.inf: 9, 3e38: 10}


# Rows


@dataclass(frozen=True)
class Rowwise:
    """run: rows, one tensor [n, ...] per input -> results [n, ...]. inputs: the same number of rows each."""

    run: Callable[..., Sequence[Tensor]]
    inputs: tuple[Tensor, ...]
    is_interpreted: bool = True

    @property
    def num_threads(self) -> Sequence[int]:
        return (1,) if self.is_interpreted else (1, 2, 3)

    @property
    def garbage(self) -> Iterable[float]:
        return (torch.nan, torch.inf) if self.is_interpreted else GARBAGE

    @property
    def looked_at(self) -> Sequence[int]:
        """The rows that are computed alone, 0 the first: of interpreted kernels those at the edges of half a tile."""
        num = len(self.inputs[0])
        return sorted({0, 3, 4, num // 2 - 1, num // 2, num - 1}) if self.is_interpreted else range(num)

    def groups(self) -> Iterator[list[int]]:
        """Rows that are computed together."""
        most = len(self.inputs[0])
        yield list(reversed(range(most)))
        if self.is_interpreted:
            yield from ([most - 1], [1, 4, 3, 0, 5])
        else:
            yield from (list(range(num)) for num in range(2, most + 1))
            yield [i % most for i in range(256)]


def cancelling(linear: Any, num_rows: int) -> Tensor:
    """Rows [num_rows, k] of numbers of very different sizes, whose products cancel but for a small bias, so that bits
    show the order of the additions. The linear is changed for it."""
    half = linear.in_features // 2
    rows = random(num_rows, linear.in_features, seed=5) * torch.logspace(-2, 2, linear.in_features).bfloat16()
    linear.weight[:, half : 2 * half] = -linear.weight[:, :half]
    rows[:, half : 2 * half] = rows[:, :half]
    if linear.bias is not None:
        linear.bias.div_(64)
    return rows


def compiled_linear(variant: str, act: int | None, in_bytes: bool = False) -> Rowwise:
    stock = linear_of(83 if act is None else 96, 176 if in_bytes else 54, True)
    rows = cancelling(stock, 40)
    with compiled(variant):
        linear = (ByteLinear if in_bytes else NativeLinear)(stock, act)
    return Rowwise(lambda x: [linear(x)], (rows,), False)


def triton_linear(shape: tuple[Any, ...]) -> Rowwise:
    """Alone, and where its outputs fit, added to a residual whose norm the next linear takes."""
    n = shape[0]
    linear, scale = gpu_linear(shape), 1 + 0.1 * random(n, seed=2).float()
    follows = linear.act is None and n % 16 == 0
    following = gpu_linear((48, n, "silu", True, Config(16, 64, 2, 3))) if follows else None

    def run(x: Tensor, residual: Tensor) -> list[Tensor]:
        outputs = [linear(x)]
        if following is not None:
            added = linear.add_to(x, residual, scale)
            outputs += [added.rows, added.scaled, added.squares[: len(x)], following.normed(added, 1e-6)]
        return outputs

    return Rowwise(run, (cancelling(linear, MOST_ROWS), random(MOST_ROWS, n, seed=1)))


def triton_norms() -> Rowwise:
    after, before = (random(640, seed=i).float() for i in (3, 4))
    inputs = (random(MOST_ROWS, 640, seed=1), random(MOST_ROWS, 640, seed=2))
    return Rowwise(lambda x, y: [normed(x, before, 1e-6), *add_normed(x, y, after, before, 1e-6)], inputs)


def triton_pick(temperature: float) -> Rowwise:
    tokens = torch.arange(5000, dtype=torch.int32)
    inputs = (random(7, 5000, spread=3.0), keys_of(12345, torch.arange(7) * 1000))
    return Rowwise(lambda rows, keys: pick_rows(rows, tokens, keys, temperature), inputs)


ROWS: dict[str, Callable[[], Rowwise]] = {
    **{f"compiled linear, {v}, {act}": partial(compiled_linear, v, act) for v in VARIANTS for act in (None, 0, 1)},
    **{f"compiled bytes, {v}": partial(compiled_linear, v, None, True) for v in BYTE_VARIANTS},
    **{f"compiled bytes, {v}, gated": partial(compiled_linear, v, 0, True) for v in BYTE_VARIANTS},
    **{f"Triton linear, {shape[:4]}": partial(triton_linear, shape) for shape in LINEARS},
    "Triton norms": triton_norms,
    "Triton pick, greedy": partial(triton_pick, 0.0),
    "Triton pick, with noise": partial(triton_pick, 0.8),
}


# Sequences


@dataclass(frozen=True)
class Cached:
    """run(widths, at=, garbage=, room=) puts the same `total` tokens in, in steps of those widths over and over, and
    returns everything that was computed or written, by position. With `at` that token is garbage; with `room` the cache
    is longer by so many columns.

    reach: how many rows from a token on may see it; None: all. spoils, grows: whether `run` takes `at`, and `room`."""

    run: Callable[..., list[Tensor]]
    total: int
    cuts: Sequence[tuple[int, ...]] = ((1,), (8,), (2,), (3,), (5,), (13, 1))
    is_interpreted: bool = False
    reach: int | None = None
    spoils: bool = True
    grows: bool = False
    num_threads = Rowwise.num_threads
    garbage = Rowwise.garbage


def steps(total: int, widths: tuple[int, ...]) -> Iterator[slice]:
    start, turn = 0, 0
    while start < total:
        stop = min(total, start + widths[turn % len(widths)])
        yield slice(start, stop)
        start, turn = stop, turn + 1


def compiled_attention(variant: str, window: int | None, num_heads: int, kv: int, dim: int) -> Cached:
    total, first = 40, 21
    sinks = random(num_heads, seed=2) if window else None

    def run(widths: tuple[int, ...], at: int | None = None, garbage: float = 0, room: int = 0) -> list[Tensor]:
        query = random(total, num_heads, dim, seed=3)
        keys, values = (random(1, kv, first + total, dim, seed=i) for i in (4, 5))
        if at is not None:
            query[at] = keys[:, :, first + at] = garbage
            values[:, :, first + at] = 3e38 if isnan(garbage) else garbage  # NaN must come of the weights
        keys, values = (torch.cat([x, random(1, kv, room, dim, seed=9)], 2) for x in (keys, values))
        with compiled(variant):
            parts = [
                attend_natively(query[s], keys, values, torch.tensor([first + s.start]), window, 0.2, sinks)
                for s in steps(total, widths)
            ]
        return [torch.cat(parts)]

    return Cached(run, total, reach=window, grows=True)


def triton_attention(window: int | None, programs: int, sinks: Tensor | None = None) -> Cached:
    """programs: few make splits of several blocks."""
    total, first, dim = 16, 120, 128

    def run(widths: tuple[int, ...], at: int | None = None, garbage: float = 0, room: int = 0) -> list[Tensor]:
        query = random(total, 2, dim, seed=1)
        keys, values = (random(1, 1, 200 + room, dim, seed=i) for i in (2, 3))
        hidden = [slice(first + total, None)] + ([] if window is None else [slice(0, first + 1 - window)])
        for side in (keys, values):
            for columns in hidden:
                side[:, :, columns] = torch.nan
        if at is not None:
            query[at] = keys[:, :, first + at] = garbage
            values[:, :, first + at] = 3e38  # infinities or NaN would reach the rows before, times a weight of 0
        places = torch.arange(first, first + total)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("engine.kernels.cuda.attention.PROGRAMS", programs)
            assert splits_of(200, 1, dim, window).blocks == (1 if programs == 128 else 2)
            parts = [attend(query[s], keys, values, places[s], window, 0.1, sinks=sinks) for s in steps(total, widths)]
        return [torch.cat(parts)]

    return Cached(run, total, ((1, 5, 8), (16,), (9, 7)), True, reach=window, grows=programs == 128)


def triton_placing(is_scaled: bool) -> Cached:
    """Queries are turned, keys and values put into the cache."""
    total, num_heads, kv, dim, turned = 5, 4, 2, 16, 6

    def run(widths: tuple[int, ...], at: int | None = None, garbage: float = 0) -> list[Tensor]:
        qkv, angles = random(total, (num_heads + 2 * kv) * dim, seed=1), random(total, turned, seed=2)
        if at is not None:
            qkv[at] = garbage
        scales = 1 + random(num_heads + kv, dim, seed=3).float() / 8 if is_scaled else None
        sides = [torch.full((1, kv, 40, dim), torch.nan, dtype=torch.bfloat16) for _ in range(2)]
        places = torch.arange(17, 17 + total)
        parts = [
            place(qkv[s], angles[s].cos(), angles[s].sin(), scales, 1e-6, *sides, places[s], num_heads)
            for s in steps(total, widths)
        ]
        return [torch.cat(parts), *(side[0, :, 17 : 17 + total].transpose(0, 1) for side in sides)]

    return Cached(run, total, ((1,), (5,), (2, 3)), True, reach=1)


def triton_delta() -> Cached:
    total, layer = 17, delta_layer(linear_num_value_heads=1)

    @torch.inference_mode()
    def run(widths: tuple[int, ...], at: int | None = None, garbage: float = 0) -> list[Tensor]:
        rows, rings, outputs = delta_rows(layer, total), delta_rings(layer), []
        for part in rows if at is not None else ():
            part[at] = garbage
        for s in steps(total, widths):
            places = Places.of(torch.arange(s.start, s.stop), layer.shape, len(rings[0]), False)
            outputs.append(mix_step(layer, tuple(part[s] for part in rows), places, *rings))
        return [torch.cat(outputs), rings[0][1 : total + 1], rings[1][:total]]

    return Cached(run, total, ((1,), (16, 1), (17,)), True)


@cache
def spoilt(name: str) -> Any:
    """A model, or transformers' own over compiled attention and linears, some of whose embeddings are garbage."""
    model = prepare(made(name), PACKED)
    for number, token in GARBAGE.items():
        model.model.get_input_embeddings().weight.data[token] = number
    return model


def decoder(name: str, is_interpreted: bool) -> Cached:
    """Logits and hidden states of steps, and the keys and values that they write. The compiled kernels take prefills in
    steps as well; the interpreter would be too slow for that."""
    total, first, hidden = (6, 19, () if name == DELTA else (0, 1)) if is_interpreted else (40, 0, ())
    model, widths_of_steps = (prepared(name), (1, 2, 8)) if is_interpreted else (spoilt(name), (1, 2, 3, 8, 13))
    ids = [token if token > 10 else token + 50 for token in random_ids(first + total, model.vocab_size, 1)]
    linear = model.shape.linear

    def run(widths: tuple[int, ...], at: int | None = None, garbage: float = 0, room: int = 0) -> list[Tensor]:
        target, outputs = StaticTarget(model, LENGTH + room, widths_of_steps, hidden), []
        target.extend(ids[:first], 0)
        tokens = ids[first:] if at is None else [*ids[:at], GARBAGE[garbage], *ids[at + 1 :]]
        for s in steps(total, widths):
            rows, states = target.extend(tokens[s], s.stop - s.start)
            outputs.append([rows.clone()] if states is None else [rows.clone(), states.clone()])
        layers = [layer for i, layer in enumerate(target.kv) if linear is None or i not in linear.layers]
        sides = [side[0, :, first : target.length].transpose(0, 1) for layer in layers for side in layer]
        return [torch.cat(parts) for parts in zip(*outputs, strict=True)] + sides

    if is_interpreted:
        return Cached(run, total, ((1, 5), (2, 4)), True, spoils=False)
    return Cached(run, total, grows=True)


def compiled_head(form: str, rounded: bool) -> Cached:
    """An EAGLE-3 head takes the prompt's hidden states in parts; then its rows of logits."""
    first, total, head = 3, len(heads.PROMPT) - 5, heads.packed("eagle3", form, rounded)

    def run(widths: tuple[int, ...]) -> list[Tensor]:
        ends = [first, *(first + s.stop for s in steps(total, widths))]
        drafter = heads.drafter_with(head, k=64)
        rows = torch.stack(heads.rows_of(drafter, ends, [5, 500]))
        sides = (*drafter.buffers.keys, *drafter.buffers.values)
        return [rows, *(side[0, :, : len(heads.PROMPT) - 1].transpose(0, 1) for side in sides)]

    return Cached(run, total, ((1,), (11, 1), (29,), (total,)), spoils=False)


SHAPES = ((None, 4, 1, 64), (3, 4, 2, 96), (20, 2, 2, 32))
SEQUENCES: dict[str, Callable[[], Cached]] = {
    **{f"compiled attention, {v}, {s}": partial(compiled_attention, v, *s) for v in VARIANTS for s in SHAPES},
    **{f"compiled decoder, {name}": partial(decoder, name, False) for name in (*NAMES, *STOCK)},
    **{
        f"compiled EAGLE-3, {form}, {rounded}": partial(compiled_head, form, rounded)
        for form in ("speculators", "sliding layers", "one head of keys")
        for rounded in (True, False)
    },
    "Triton attention, splits of a block": partial(triton_attention, 40, 128),
    "Triton attention, splits of two": partial(triton_attention, None, 2, torch.tensor([-1.0, 2.0])),
    "Triton placing": partial(triton_placing, False),
    "Triton placing, normed": partial(triton_placing, True),
    "Triton delta rule": triton_delta,
    **{f"Triton decoder, {name}": partial(decoder, name, True) for name in ("gemma3", DELTA)},
}


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
