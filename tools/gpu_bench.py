"""For gpu_session.py: our lanes beside transformers' `generate`, and torch's own matrix products."""

from __future__ import annotations

import argparse
import os
from typing import Any

from gpu_part import FIXTURES, Part
from gpu_shapes import TARGET

WIDTHS = (1, 2, 4, 5, 8, 12, 16, 32)
PRODUCTS = ((4096, 6144), (4096, 4096), (4096, 24576), (12288, 4096), (4096, 151936))
"""Inputs and outputs of an 8B target's linears."""


def bench(part: Part) -> None:
    """Reports of `bench`: Qwen3-8B's shape with synthetic drafts, then tests/fixtures/trained with its draft model."""
    from engine.bench.measure import measure
    from engine.bench.prompts import Size
    from engine.models.loading import give_back_memory
    from engine.progress import silent
    from engine.spec import SamplingParams

    trained = FIXTURES / "trained"
    runs = {
        "random": (f"random:{part.shape(TARGET)}", ("synthetic:0.8",)),
        "trained": (str(trained / "target"), ("ngram", f"draft_model:{trained / 'draft'}")),
    }
    for name in part.each(runs):
        target, drafters = runs[name]
        size = Size(
            prompts=1,
            repeats=1 if part.small else 2,
            tokens=8 if part.small else 64,
            rounds=1 if part.small else 3,
            compiled=not part.small,
        )
        asked = argparse.Namespace(
            target=target,
            dtype="bfloat16",
            device=part.device,
            threads=None if part.device == "cuda" else 1,
            k=7,
            quick=part.small,
        )
        give_back_memory()  # the model before is not referred to any more
        report, faults = measure(
            asked,
            drafters,
            ("json",) if part.small else ("json", "sql", "chat"),
            size,
            SamplingParams(max_new_tokens=size.tokens),
            [],
            silent,
        )
        part.put(**{name: {**report, "faults": faults}})


def probe(part: Part) -> None:
    """Torch's own kernels, ours switched off: of each matrix product of an 8B target which widths give a row the same
    bits, wherever it stands, and what each width costs; then the same of whole steps."""
    os.environ["PHOTOFINISH_TRITON"] = "0"
    from gpu_widths import FEW, curve, measured

    shapes = ((128, 256), (128, 512)) if part.small else PRODUCTS
    for num_in, num_out in part.each(shapes):
        part.row("products", num_in=num_in, num_out=num_out, **_product(part, num_in, num_out))
    if part.small or part.left_s > 30:
        from engine.exactness.probe import probe as probe_widths
        from engine.target.target import StaticTarget

        prepared = part.model(TARGET, default_tiles=False).prepared
        some = FEW if part.small else WIDTHS
        part.row("lengths", **curve(part, prepared, measured(part, prepared), 256 if part.small else 1280, some))
        found = probe_widths(StaticTarget(prepared, 256 if part.small else 1280, some))
        part.put(classes=found.classes, unstable=found.unstable)


def _product(part: Part, num_in: int, num_out: int) -> dict[str, Any]:
    """Classes of widths of one linear, those at which a row's place changes its bits, and microseconds of a call at
    each."""
    import torch
    from torch import nn

    from engine.exactness.operators import _in_blocks, same_bits, split
    from engine.kernels.choose import choose

    some = (1, 8, 16) if part.small else WIDTHS
    device = torch.device(part.device)
    torch.manual_seed(0)
    with torch.inference_mode():
        linear = nn.Linear(num_in, num_out, bias=False, device="meta", dtype=torch.bfloat16).requires_grad_(False)
        linear.weight = nn.Parameter(
            torch.randn(num_out, num_in, dtype=torch.bfloat16, device=device) / num_in**0.5, requires_grad=False
        )
        rows = torch.randn(32 if part.small else 192, num_in, dtype=torch.bfloat16, device=device)
        unstable = [
            w
            for w in some
            if not same_bits(_in_blocks(rows, w, linear), _in_blocks(rows.roll(1, 0), w, linear).roll(-1, 0))
        ]
        groups = split([tuple(some)], lambda width: _in_blocks(rows, width, linear))
        calls = {width: choose(device).fixed(lambda width=width: linear(rows[:width])) for width in some}
        seconds = {width: _seconds(call, device, part.small) for width, call in calls.items()}
    num_bytes = linear.weight.numel() * 2
    return {
        "classes": groups,
        "unstable": unstable,
        "us": {w: 1e6 * s for w, s in seconds.items()},
        "GB_per_s": {w: num_bytes / s / 1e9 for w, s in seconds.items()},
    }


def _seconds(call: Any, device: Any, small: bool) -> float:
    """The median of some calls, what they read driven out of the L2 cache before each."""
    import statistics
    import time

    import torch

    other = torch.empty(1 << 10 if small else 256 << 20, dtype=torch.uint8, device=device)
    found = []
    for _ in range(3 if small else 15):
        other.zero_()
        if device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / 1e3)
        else:
            started = time.perf_counter()
            call()
            found.append(time.perf_counter() - started)
    return statistics.median(found[1:])
