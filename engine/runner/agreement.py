"""Checks that steps on the Triton kernels compute the same model deep in the cache: against torch's kernels over the
same keys and values, and both against float64.

Some faults need many columns to show (a split whose sums are lost, a window's edge, a pointer beyond 255). So caches
are filled with random keys and values that have each layer's own mean and spread; values have so much more spread that
the mean over all columns is not lost in rounding. Columns that no row may see, behind the step and before a window,
hold GARBAGE; the first visible ones count EDGE times."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.errors import UnsupportedModel, UsageError
from ..kernels.torch import Kernels
from ..layers.attention import additive_masks, caches, windows_of
from ..layers.decoder import FusedDecoder
from ..layers.delta_places import WINDOW, Places
from ..layers.delta_rule import DeltaLayer
from ..layers.step import StepState
from .forward import Buffers

if TYPE_CHECKING:
    from .prepared import Prepared

MOST_ROWS = 16  # no more than any kernels take
# Columns before the step. 16 rows from there on cross the end of a split, which is a multiple of 64.
DEPTHS = (1017, 4089)
WIDTHS = (1, 8, MOST_ROWS)
MOST_COLUMNS = 8192  # wider windows are not crossed: their caches would need too much memory while a model is loaded
PAST_WINDOW = 41
GARBAGE, EDGE, LARGEST = 30.0, 8.0, 1e4
FACTOR = 4.0  # the kernels' error may be this many times torch's
LEAST_ROUNDING = 0.125  # in rounding steps of the dtype: an error of torch's below this is luck
UNJUDGED = 0.1  # the share of a layer's numbers by which kernels and torch may differ if nothing decides which is right


@torch.inference_mode()
def agreement(prepared: Prepared) -> dict[str, Any]:
    """Compare steps of a model on its kernels, at every depth and width, with those on torch's.

    {"agrees": bool, "steps": [{"columns", "width", "worst", "layer", "agrees"}]}. worst: a row's largest error in any
    layer's outputs, against those in float64 where the decoder is fused, else against torch's, as a share of the limit,
    and its layer, from 0; None: it is not finite. The model has other modules of the same kernels afterwards. Needs
    memory for one cache and for one layer in float64. Raises UsageError for a model without kernels."""
    if not prepared.kernels.compares_with_torch:
        raise UsageError(f"{type(prepared.model).__name__} runs no Triton kernels: there is nothing to compare")
    depths = _depths(prepared)
    sequence = _Sequence.of(prepared, max(depths))
    steps = [step for depth in depths for step in _compared(sequence, depth)]
    return {"agrees": all(step["agrees"] for step in steps), "steps": steps}


def check_agreement(prepared: Prepared) -> None:
    """`agreement`, raising UnsupportedModel if the kernels' error is more than rounding."""
    for step in agreement(prepared)["steps"]:
        if not step["agrees"]:
            what = f"{type(prepared.model).__name__}: a step of width {step['width']} over {step['columns']} columns"
            error = "not finite" if step["worst"] is None else f"{step['worst']:.3g} times the limit"
            raise UnsupportedModel(f"{what} is wrong: in layer {step['layer']} its error is {error}")


@dataclass(frozen=True)
class _Sequence:
    """The caches of one sequence."""

    prepared: Prepared  # with kernels
    buffers: Buffers
    # By layer of attention, spread and mean [1, kv_heads, 1, dim] of the keys and of the values that the model writes.
    sizes: dict[int, list[tuple[Tensor, Tensor]]]
    noise: Tensor  # [1, kv_heads, S, dim], of mean 0 and spread 1
    ids: Tensor
    fused: FusedDecoder | None  # for the judge, over plain linears

    @staticmethod
    def of(prepared: Prepared, depth: int) -> _Sequence:
        model, shape, device = prepared.model, prepared.shape, prepared.device
        length = -(-(depth + MOST_ROWS) // 256) * 256
        num_states = MOST_ROWS + 1
        kv = caches(shape, length, num_states, prepared.dtype, device)
        layers = tuple(range(1, shape.num_layers + 1))
        columns = torch.arange(length, device=device)
        buffers = Buffers(prepared, kv, torch.zeros_like(columns[:1]), columns, layers, num_states)
        num_tokens = min(prepared.vocab_size, len(model.get_input_embeddings().weight))
        ids = (torch.arange(MOST_ROWS, device=device) * 7919 % num_tokens)[None]
        with _removed(prepared):
            replace(buffers, prepared=_plain(prepared)).forward(ids, True)
            fused = model.get_decoder()
        attending = [layer for layer, window in windows_of(model).items() if window != WINDOW]
        written = {layer: [side[:, :, :MOST_ROWS].float() for side in kv[layer]] for layer in attending}
        sizes = {layer: [torch.std_mean(side, 2, keepdim=True) for side in sides] for layer, sides in written.items()}
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(1, shape.num_kv_heads, length, shape.head_dim, generator=generator).to(device)
        return _Sequence(prepared, buffers, sizes, noise, ids, fused if isinstance(fused, FusedDecoder) else None)

    def fill(self, depth: int) -> None:
        """Go to `depth`, over columns as described above. Rings of linear layers stay as the first tokens left them."""
        self.buffers.pointer.fill_(depth)
        columns, windows = self.buffers.columns, windows_of(self.prepared.model)
        for layer, ((key_spread, key_mean), (spread, mean)) in self.sizes.items():
            window, (keys, values) = windows[layer], self.buffers.kv[layer]
            first = 0 if window is None else max(0, depth - window + 1)
            is_seen = (columns >= first) & (columns < depth)
            weight = torch.where(is_seen, math.sqrt((depth - first) / math.e), GARBAGE)
            weight[first : first + MOST_ROWS] *= EDGE
            noise = self.noise.roll(31 * layer, 2)  # each layer its own
            keys.copy_(key_mean + key_spread * noise)
            values.copy_((mean + spread * weight[:, None] * noise.roll(1, 3)).clamp_(-LARGEST, LARGEST))

    def rows(self, width: int, kernels: bool) -> Tensor:
        """The outputs of all layers for one step: [width, layers, hidden]."""
        buffers = self.buffers if kernels else replace(self.buffers, prepared=_plain(self.prepared))
        hidden = buffers.forward(self.ids[:, :width], True)[1]
        assert hidden is not None
        return hidden.view(width, self.prepared.shape.num_layers, -1).double()

    def judged(self, fused: FusedDecoder) -> Tensor:
        """The same for the widest step in float64; linear layers, whose own sums are float32, in float32. Writes no
        cache."""
        shape, buffers = self.prepared.shape, self.buffers
        at = buffers.pointer + buffers.columns[:MOST_ROWS]
        places = None if shape.linear is None else Places.of(at, shape.linear, buffers.num_states, chunked=False)
        masks = additive_masks(shape, at, buffers.columns, torch.float64)
        turns = {kind: angles(at[None], torch.float64) for kind, angles in fused.angles.items()}
        x, rows = fused.embed_tokens(self.ids).double(), []
        for number, (layer, kind) in enumerate(zip(fused.layers, fused.kinds, strict=True)):
            dtype = torch.float32 if isinstance(layer.self_attn, DeltaLayer) else torch.float64
            kv: list[Any] = [None] * shape.num_layers
            kv[number] = tuple(side.to(dtype, copy=True) for side in buffers.kv[number])
            state = StepState(at, kv, masks, None, places)
            x = copy.deepcopy(layer).to(dtype)(x.to(dtype), *turns[kind], state).double()
            rows.append(x)
        rows[-1] = copy.deepcopy(fused.norm).double()(x)
        return torch.stack([row[0] for row in rows], 1)


@contextmanager
def _removed(prepared: Prepared) -> Iterator[None]:
    """Within it the model has no kernels."""
    prepared.kernels.remove(prepared.model)
    try:
        yield
    finally:
        prepared.kernels.install(prepared.model)


def _plain(prepared: Prepared) -> Prepared:
    return replace(prepared, kernels=Kernels(prepared.device))


def _depths(prepared: Prepared) -> list[int]:
    """DEPTHS and, for each window without one, a depth beyond it, as far as the model goes."""
    most = prepared.shape.max_length - MOST_ROWS
    depths = {min(depth, most) for depth in DEPTHS}
    for window in set(windows_of(prepared.model).values()) - {None, WINDOW}:
        assert window is not None
        if max(depths) <= window + MOST_ROWS and window + PAST_WINDOW <= min(most, MOST_COLUMNS):
            depths.add(window + PAST_WINDOW)
    return sorted(depths)


def _compared(sequence: _Sequence, depth: int) -> list[dict[str, Any]]:
    sequence.fill(depth)
    ours = [sequence.rows(width, True) for width in WIDTHS]  # in this order there is still garbage behind a step
    with _removed(sequence.prepared):
        theirs = sequence.rows(MOST_ROWS, False)
        right = theirs if sequence.fused is None else sequence.judged(sequence.fused)
    eps = None if sequence.fused is None else torch.finfo(sequence.prepared.dtype).eps
    return [{"columns": depth, "width": len(rows), **_errors(rows, theirs, right, eps)} for rows in ours]


def _errors(ours: Tensor, theirs: Tensor, right: Tensor, eps: float | None) -> dict[str, Any]:
    """Errors of ours [n, layers, hidden] against the first n rows of the others; eps None: torch is the judge. A row's
    error is the median of its numbers: a few far larger ones, which many models have, do not hide the others."""
    theirs, right = theirs[: len(ours)], right[: len(ours)]
    size = right.abs().mean(-1, keepdim=True)
    error, torch_error = (ours - right).abs() / size, (theirs - right).abs() / size
    of_rows = error.median(-1).values
    if eps is None:
        shares = of_rows.median(0, keepdim=True).values / UNJUDGED
    else:
        shares = of_rows / (FACTOR * torch_error.median(-1).values.clamp(min=LEAST_ROUNDING * eps))
    worst = shares.nan_to_num(nan=math.inf).amax(0)
    return {
        "worst": float(worst.max()) if worst.max().isfinite() else None,
        "layer": int(worst.argmax()),
        "agrees": bool(worst.max() <= 1),
    }
