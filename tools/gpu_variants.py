"""For gpu_session.py: other ways to make a step, timed on a whole Qwen3-8B-shaped step beside the one that the engine
takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_part import Part
from gpu_shapes import TARGET
from gpu_tiles import linears_of
from gpu_widths import FEW, _put_tuned, curve, measured


def variants(part: Part) -> None:
    """Steps as they are; linears by F.linear over rows padded to 16; attention in one launch; linears that begin
    early."""
    from engine.kernels.cuda.available import can_begin_early

    prepared = part.model(TARGET).prepared
    if not linears_of(prepared.model):
        part.put(skipped="no kernels run here")
        return
    _put_tuned(part, prepared)
    bandwidth, before = measured(part, prepared), _rows(part, prepared)

    def timed(what: str, promise: str) -> None:
        rows = _rows(part, prepared)
        row = curve(part, prepared, bandwidth, 256 if part.small else 1280, FEW)
        part.row(
            "variants",
            what=what,
            bits=f"{promise}: {_same(rows, before)}; rows of widths 1, 8 and 16 are equal: {_one_class(rows)}",
            **row,
        )

    ways: dict[str, Callable[[], None]] = {
        "as it is": lambda: timed("as it is", "bits are repeated"),
        "F.linear": lambda: _with_library(
            prepared.model, lambda: timed("F.linear over 16 rows, norms and activations as launches", "the same bits")
        ),
        "merged": lambda: _merged(prepared.model, lambda: timed("attention in one launch", "the same bits")),
        "early": lambda: _early(prepared.model, lambda: timed("linears that begin early", "the same bits, as it must")),
    }
    if not can_begin_early(prepared.device):
        del ways["early"]
    for name in part.each(ways):  # the last is the likeliest to take the device down
        try:
            ways[name]()
        except Exception as error:
            part.row("variants", what=name, failed=f"{type(error).__name__}: {error}"[:2000])
    if wrong := [row["what"] for row in part.found.get("variants", ()) if "failed" in row]:
        raise SystemExit(f"failed: {', '.join(wrong)}")


def _merged(model: Any, timed: Callable[[], None]) -> None:
    decoder = model.get_decoder()
    decoder.merge()
    timed()
    decoder.merge(False)


def _early(model: Any, timed: Callable[[], None]) -> None:
    linears = linears_of(model)
    before = [linear.early for linear in linears]
    for linear in linears:
        linear.early = True
    timed()
    for linear, early in zip(linears, before, strict=True):
        linear.early = early


def _with_library(model: Any, timed: Callable[[], None]) -> None:
    """The same step with cuBLAS's linears, always over 16 rows, so that every width runs one kernel. What our linears
    do on the way becomes launches of its own: an addition with its norm, and the activation, both as Triton kernels of
    one pass."""
    from unittest import mock

    from engine.kernels.cuda.decoder import GpuDecoder

    with (
        mock.patch.object(GpuDecoder, "_pre_normed", library_step),
        mock.patch.object(model.lm_head, "forward", lambda x: _padded_linear(x, model.lm_head)),
    ):
        timed()


def _padded_linear(x: Any, linear: Any) -> Any:
    from torch.nn import functional as F

    num = x.shape[-2]
    return (
        F.linear(F.pad(x, (0, 0, 0, 16 - num)), linear.weight)[..., :num, :]
        if num <= 16
        else F.linear(x, linear.weight)
    )


def library_step(decoder: Any, x: Any, turns: Any, state: Any) -> list[Any]:
    """In the place of GpuDecoder._pre_normed."""
    from gpu_library_kernels import added_normed, gated
    from torch.nn import functional as F

    from engine.kernels.cuda.rmsnorm import normed

    layers, num = decoder._layers, len(x)
    rows = [F.pad(x, (0, 0, 0, 16 - num))]
    entered = normed(rows[0], layers[0].norms[0], decoder.eps)
    for layer, following, kind in zip(layers, [*layers[1:], None], decoder.kinds, strict=True):
        mixed = layer.mix(F.linear(entered, layer.enter.weight, layer.enter.bias)[:num], *turns[kind], state)
        added, inner = added_normed(
            rows[-1], F.linear(F.pad(mixed, (0, 0, 0, 16 - num)), layer.leave.weight), layer.norms[1], decoder.eps
        )
        down = F.linear(gated(F.linear(inner, layer.gate_up.weight)), layer.down.weight)
        added, entered = added_normed(
            added, down, decoder.scale if following is None else following.norms[0], decoder.eps
        )
        rows.append(added)
    rows[-1] = entered
    return [row[:num] for row in rows]


def _rows(part: Part, prepared: Any) -> dict[int, Any]:
    """Logits of one sequence of 16 tokens, in captured steps of 1, 8 and 16."""
    import torch

    from engine.target.target import StaticTarget

    target, out = StaticTarget(prepared, 256, FEW), {}
    target.warm()
    vocab = min(2000, prepared.vocab_size - 5)
    tokens = [i * 7919 % vocab + 5 for i in range(16)]
    for width in target.widths:
        out[width] = torch.cat(
            [
                target.extend(tokens[start : start + width], width, width=width)[0].clone()
                for start in range(0, 16, width)
            ]
        )
        target.jump(0)
    return out


def _same(rows: dict[int, Any], others: dict[int, Any]) -> bool:
    from engine.exactness.operators import same_bits

    return all(same_bits(rows[width], others[width]) for width in rows)


def _one_class(rows: dict[int, Any]) -> bool:
    return _same(rows, dict.fromkeys(rows, rows[1]))
