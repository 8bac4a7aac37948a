"""The probe's magnifying glass: every distinct operator of a model alone, on many random rows.

Two kernels that sum in another order differ in the last bits of float32 and, rounded to bfloat16, in one value of tens
of thousands. A replay of the whole model compares few rows of a small model and can miss that; a linear alone costs
microseconds, so thousands of rows of each can be compared. A kernel is chosen by shape, dtype and layout, never by the
weights' values, so one module of each shape stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..layers.attention import additive_masks, attend_rows
from ..layers.delta_places import Places
from ..layers.delta_rule import DeltaLayer
from ..layers.modules import StepLinear
from ..progress import Progress, silent
from .widths import WidthClasses

if TYPE_CHECKING:
    from ..runner.prepared import Prepared

SEED = 0
LINEAR_VALUES, LINEAR_ROWS = 2**22, (16, 4096)
ATTENTION_VALUES, ATTENTION_ROUNDS, ATTENTION_ROWS = 2**20, (2, 48), 64
DELTA_ROWS = 32


@torch.inference_mode()
def operator_classes(prepared: Prepared, widths: Sequence[int], progress: Progress = silent) -> WidthClasses:
    """The classes of widths at which every distinct operator whose work does not depend on the cache's length gives the
    same bits for the same rows. Unstable: widths at which a linear gives a row different bits at a different place
    among the same rows."""
    generator = torch.Generator().manual_seed(SEED)
    groups = [tuple(widths)]
    unstable: set[int] = set()

    def at_width(width: int) -> Tensor:
        result = _in_blocks(rows, width, linear)
        if not same_bits(result, _in_blocks(rolled, width, linear).roll(-1, 0)):
            unstable.add(width)
        return result

    linears = _linears(prepared)
    for done, linear in enumerate(linears):
        progress("one-time check for this model: do both lanes round alike?", done / len(linears))
        num_rows = max(LINEAR_ROWS[0], min(LINEAR_ROWS[1], LINEAR_VALUES // linear.out_features))
        rows = torch.randn(num_rows, linear.in_features, generator=generator).to(prepared.device, prepared.dtype)
        rolled = rows.roll(1, 0)
        groups = split(groups, at_width)
    for over_delta_rule in _delta_rule_at_widths(prepared.model, prepared.dtype, DELTA_ROWS, generator):
        groups = split(groups, over_delta_rule)
    classes = (tuple(w for w in group if w not in unstable) for group in groups)
    return WidthClasses(tuple(filter(None, classes)), tuple(sorted(unstable)))


@torch.inference_mode()
def split_by_attention(prepared: Prepared, length: int, groups: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The groups, each split into widths at which attention over a cache of that length gives the same bits."""
    parts = list(groups)
    for at_width in _attention(prepared, length, torch.Generator().manual_seed(SEED)):
        parts = split(parts, at_width)
    return parts


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one floating dtype hold the same bits (0.0 and -0.0 differ, NaN equals itself)."""
    return torch.equal(bits(a), bits(b))


def bits(a: Tensor) -> Tensor:
    """A floating tensor as 16-bit integers, two for each float32."""
    return a.contiguous().view(torch.int16)


def split(groups: list[tuple[int, ...]], at_width: Callable[[int], Tensor]) -> list[tuple[int, ...]]:
    """The groups, each split into widths whose results are bit-equal over their common length."""
    parts: list[tuple[int, ...]] = []
    for group in groups:
        results: list[tuple[Tensor, list[int]]] = []
        for width in group:
            result, members = at_width(width), [width]
            for at, (rows, others) in enumerate(results):
                if same_bits(rows, result[: len(rows)]):
                    members = [*others, width]
                    del results[at]
                    break
            results.append((result, members))
        parts += [tuple(members) for _, members in results]
    return parts


def _in_blocks(rows: Tensor, width: int, call: Callable[[Tensor], Tensor]) -> Tensor:
    """`call` on `rows` [n, in], `width` at a time, the last block padded with the first row; [n, out]."""
    missing = -len(rows) % width
    full = torch.cat([rows, rows[:1].expand(missing, -1)]) if missing else rows
    return torch.cat([call(full[i : i + width][None])[0] for i in range(0, len(full), width)])[: len(rows)]


def _filled(rows: Tensor, start: int, width: int) -> Tensor:
    """The rows [width, ...] from `start` on, padded with the first row of all."""
    block = rows[start : start + width]
    return torch.cat([block, rows[:1].expand(width - len(block), *rows.shape[1:])])


def _linears(prepared: Prepared) -> list[nn.Linear | StepLinear]:
    """One linear of each kind and shape."""
    linears = (module for module in prepared.model.modules() if isinstance(module, (nn.Linear, StepLinear)))
    kinds = {(type(m), m.in_features, m.out_features, getattr(m, "bias", None) is None): m for m in linears}
    return list(kinds.values())


def _attention(prepared: Prepared, length: int, generator: torch.Generator) -> Iterator[Callable[[int], Tensor]]:
    """Attention of random queries over random keys and values, at each of the model's windows: width -> rows."""
    shape, columns = prepared.shape, torch.arange(length, device=prepared.device)
    heads = shape.num_kv_heads * shape.groups
    num_rows = min(ATTENTION_ROWS, length // 2)
    owned = (getattr(module, "sinks", None) for module in prepared.model.modules())
    sinks = [own for own in owned if isinstance(own, Tensor)][:1]
    rounds = max(ATTENTION_ROUNDS[0], min(ATTENTION_ROUNDS[1], ATTENTION_VALUES // (num_rows * heads * shape.head_dim)))

    def attend(block: Tensor, keys: Tensor, values: Tensor, first: int) -> list[Tensor]:
        at = torch.arange(first, first + len(block), device=prepared.device).clamp_(max=length - 1)
        kernel, scaling = prepared.kernels.attention(prepared.model, len(block)), shape.head_dim**-0.5
        if kernel is not None:
            return [kernel(block, keys, values, at, window, scaling, *sinks) for window in shape.windows]
        query, masks = block.transpose(0, 1)[None], additive_masks(shape, at, columns, prepared.dtype)
        return [attend_rows(query, keys, values, masks[window], None, *sinks)[0] for window in shape.windows]

    def random(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(prepared.device, prepared.dtype)

    def at_width(queries: Tensor, keys: Tensor, values: Tensor, first: int, width: int) -> Tensor:
        parts = [
            [rows[: num_rows - i] for rows in attend(_filled(queries, i, width), keys, values, first + i)]
            for i in range(0, num_rows, width)
        ]
        return torch.cat([torch.cat(window) for window in zip(*parts, strict=True)])

    for _ in range(rounds):
        queries = random(num_rows, heads, shape.head_dim)
        keys, values = (random(1, shape.num_kv_heads, length, shape.head_dim) for _ in range(2))
        room = length - num_rows - 64
        first = int(torch.randint(1, room, (1,), generator=generator)) if room > 1 else 1
        yield partial(at_width, queries, keys, values, first)


def _delta_rule_at_widths(
    model: nn.Module, dtype: torch.dtype, num_rows: int, generator: torch.Generator
) -> Iterator[Callable[[int], Tensor]]:
    """One linear layer's outputs and states on `num_rows` random tokens, float32 [values], by width; the last step is
    padded with the first token. Nothing for a model without linear layers."""
    layer = next((module for module in model.modules() if isinstance(module, DeltaLayer)), None)
    if layer is None:
        return
    s, device = layer.shape, layer.taps.device
    rows = tuple(
        torch.randn(num_rows, size, generator=generator).to(device, dtype)
        for size in (s.conv_dim, s.num_value_heads * s.value_dim, s.num_value_heads, s.num_value_heads)
    )

    def at_width(width: int) -> Tensor:
        states, inputs = (
            torch.zeros(size, dtype=kind, device=device)
            for size, kind in zip(s.ring_sizes(width + 1), (torch.float32, dtype), strict=True)
        )
        outs, kept = [], []
        for start in range(0, num_rows, width):
            count = min(width, num_rows - start)
            block: Any = tuple(_filled(x, start, width) for x in rows)
            places = Places.of(torch.arange(start, start + width, device=device), s, width + 1, False)
            outs.append(layer.mix(block, places, states, inputs)[:count].float().flatten())
            kept.append(states[places.next_states[:count]].flatten())
        return torch.cat(outs + kept)

    yield at_width
