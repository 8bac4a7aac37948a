"""For gpu_session.py: what a step costs by width, with default and tuned tiles, where its time goes, and which widths
are exact."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gpu_part import Part
from gpu_shapes import HYBRID, TARGET
from gpu_tiles import linears_of, put_tiles

FEW, MANY = (1, 8, 16), (1, 2, 4, 5, 8, 12, 16, 32)


def widths(part: Part) -> None:
    """Bandwidth, then steps of Qwen3-8B's shape at 1, 8 and 16 rows, default tiles."""
    prepared = part.model(TARGET).prepared
    bandwidth = measured(part, prepared)
    for length in part.each((256,) if part.small else (1280, 4352)):
        part.row("lengths", **curve(part, prepared, bandwidth, length, FEW))


def widths_tuned(part: Part) -> None:
    """The same with the tiles that `tuning` found, and more widths and lengths."""
    prepared = part.model(TARGET).prepared
    _put_tuned(part, prepared)
    bandwidth = measured(part, prepared)
    for length, some in part.each(
        [(256, FEW)] if part.small else [(1280, MANY), (4352, MANY), (512, FEW), (16640, FEW)]
    ):
        part.row("lengths", **curve(part, prepared, bandwidth, length, some))


def hybrid(part: Part) -> None:
    """Qwen3.5-9B's shape, three quarters of whose layers are linear attention: widths, classes, audited races."""
    from gpu_race import race_of

    loaded = part.model(HYBRID)
    bandwidth = measured(part, loaded.prepared)
    for length in part.each((256,) if part.small else (1280, 4352)):
        part.row("lengths", **curve(part, loaded.prepared, bandwidth, length, FEW))
    _classes(part, loaded.prepared)
    for rate in part.each((0.8, 0.5)):
        part.row("races", what=f"free drafts at {rate}", **race_of(part, loaded, f"synthetic:{rate}", 7, audit=True))


def classes(part: Part) -> None:
    """The engine's probe on Qwen3-8B's shape: groups of widths whose rows are bit-equal."""
    _classes(part, part.model(TARGET).prepared)


def _classes(part: Part, prepared: Any) -> None:
    from engine.exactness.probe import probe
    from engine.target.target import StaticTarget

    found = probe(StaticTarget(prepared, 256 if part.small else 1280, FEW if part.small else MANY))
    part.put(classes=found.classes, unstable=found.unstable)


def tuning(part: Part) -> None:
    """The fastest tiles of every linear of both shapes."""
    from engine.models.loading import give_back_memory

    for name in part.each((TARGET, HYBRID)):
        linears = linears_of(part.model(name).prepared.model)
        began = part.left_s
        if not linears:
            part.put(skipped="no kernels run here")
            return
        from engine.kernels.cuda.tuning import compile_all, tune

        part.put(num_compiled=compile_all(linears), compiling_s=began - part.left_s)
        began, found = part.left_s, tune(linears, lambda text, share: print(text, flush=True))
        part.row("models", model=name, entries=found, seconds=began - part.left_s)
        del linears
        give_back_memory()


def _put_tuned(part: Part, prepared: Any) -> None:
    """Tiles that an earlier part has found for Qwen3-8B's shape; and how many linears got theirs."""
    known = part.earlier.get("tuning", {}).get("models", [])
    part.put(
        num_linears_with_tuned_tiles=put_tiles(
            linears_of(prepared.model),
            [entry for model in known if model["model"] == TARGET for entry in model["entries"]],
        )
    )


def measured(part: Part, prepared: Any) -> Any:
    """The device's bandwidth, kept."""
    from engine.measure.bandwidth import measured_bandwidth

    found = measured_bandwidth(prepared.device)
    part.put(bandwidth={**asdict(found), "how": found.how}, GB_per_s=round(found.bytes_per_s / 1e9))
    return found


def curve(part: Part, prepared: Any, bandwidth: Any, length: int, some: tuple[int, ...]) -> dict[str, Any]:
    """Step time at each width, captured, over a cache of that length; and its share of the bandwidth that was
    measured."""
    from engine.measure.bandwidth import step_bytes
    from engine.measure.roofline import Roofline
    from engine.target.target import StaticTarget

    target, live = StaticTarget(prepared, length, some), min(length - 64, 1000 if length <= 4352 else 16000)
    target.warm()
    seconds = target.time_widths(rounds=2 if part.small else 21, position=live)
    num_bytes = step_bytes(prepared, live)
    shares = {width: Roofline(step_s, num_bytes, bandwidth.bytes_per_s).share for width, step_s in seconds.items()}
    return {
        "length": length,
        "live_tokens": live,
        "bytes_per_step": num_bytes,
        "seconds": seconds,
        "bandwidth_share": shares,
    }


def profile(part: Part) -> None:
    """Where a step's time goes: every kernel's launches and microseconds a step at widths 1, 8 and 16, tuned tiles
    where there are any."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    from engine.target.target import StaticTarget

    prepared = part.model(TARGET).prepared
    _put_tuned(part, prepared)
    on_gpu = prepared.device.type == "cuda"
    for width in part.each(FEW):
        target, steps = StaticTarget(prepared, 256 if part.small else 1280, (width,)), 2 if part.small else 10
        target.warm()
        target.time_widths(rounds=1, position=100)
        with profiler(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as seen:
            target.time_widths(rounds=steps - 1, position=100)  # one more is untimed
        kernels: dict[str, list[float]] = {}
        for event in seen.events():
            if not on_gpu or event.device_type == torch.autograd.DeviceType.CUDA:
                kernels.setdefault(event.name, []).append(float(event.time_range.elapsed_us()))
        table = sorted(((sum(us) / steps, len(us) / steps, name) for name, us in kernels.items()), reverse=True)
        part.row(
            "widths",
            width=width,
            us_a_step=sum(us for us, _, _ in table),
            launches_a_step=sum(num for _, num, _ in table),
            kernels=[{"name": name[:120], "us_a_step": us, "launches_a_step": num} for us, num, name in table[:30]],
        )
