"""Models of real size: what a step costs by width, where its time goes, races, and memory."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

from engine.analysis.metrics import lane_metrics
from engine.core.errors import PhotofinishError
from engine.core.events import Prompt, steps
from engine.core.spec import SPECULATIVE, standard_lanes
from engine.hardware.bandwidth import measured_bandwidth, step_bytes
from engine.loading.loading import load
from engine.runner import prepare
from engine.runner.agreement import agreement
from engine.runner.target import StaticTarget
from tools.gpu.part import Part
from tools.gpu.races import allocated, judged, raced
from tools.gpu.shapes import DRAFT, TARGET, head, target

WIDTHS = tuple(range(1, 17))
SHOWN = (1, 2, 4, 8, 12, 16)
LENGTHS = (1280, 4352)
# Whose draft time, k, and the acceptance rate. All drafts are synthetic.
RACES = (
    ("dflash", 15, 0.8), ("eagle3", 7, 0.85), ("eagle3", 3, 0.77), ("draft_model", 5, 0.8),
    ("", 7, 0.8), ("", 15, 0.95), ("", 7, 0.5),
)  # fmt: skip
NUM_TOKENS, NUM_RACES = 128, 10
LEFT_BYTES = 256 << 20  # device memory left for the race that should run out of it


def widths(part: Part) -> None:
    """Steps of Qwen3-8B's shape, a profile of them, a race with drafts that cost nothing, steps over a longer cache."""
    with forced(part):
        loaded = ready(part, TARGET)
    work = {
        "steps": partial(curve, part, loaded.prepared, LENGTHS[0]),
        "profile": partial(_profile, part, loaded.prepared),
        "race": partial(race, part, loaded, "", 7, 0.8),
        "longer": partial(curve, part, loaded.prepared, LENGTHS[1]),
    }
    for what in part.in_time(work):
        part.attempt(what, work[what])


@contextmanager
def forced(part: Part) -> Iterator[None]:
    """Within it models get all Triton kernels, tried or not: what would stop a load from it is only noted."""

    def noted(prepared: Any) -> None:
        report = agreement(prepared)
        worst = ", ".join(f"{step['worst']}" for step in report["steps"])
        says = f"Triton against torch deep in the cache, shares of the allowed error: {worst}"
        part.row(says, report["agrees"], **report)

    with mock.patch.multiple(prepare, check_agreement=noted, tried=lambda *unused: ""):
        yield


def ready(part: Part, name: str, dtype: str = "bfloat16") -> Any:
    """A model of that shape, loaded, and what runs its steps noted."""
    loaded = load(target(part, name), dtype, "cuda")
    kernels, model = loaded.prepared.kernels, loaded.prepared.model
    part.row(f"{name}, {dtype}: {kernels.runs(model)}", kernels=kernels.describe(model))
    return loaded


def curve(part: Part, prepared: Any, length: int) -> None:
    """Seconds of a step by width over a cache of that length, and the share of the measured bandwidth."""
    bandwidth = measured_bandwidth(prepared.device)
    length = 256 if part.small else length
    step, live = StaticTarget(prepared, length, WIDTHS), length - 256 if length > 256 else 192
    step.warm()
    seconds = step.time_widths(rounds=2 if part.small else 21, position=live)
    num_bytes = step_bytes(prepared, live)
    share = num_bytes / seconds[1] / bandwidth.bytes_per_s
    says = ", ".join(f"{width}: {1e3 * seconds[width]:.3f} ms ({seconds[width] / seconds[1]:.2f})" for width in SHOWN)
    part.row(
        f"steps at token {live}: {says}; width 1 takes {100 * share:.0f} % of {bandwidth.bytes_per_s / 1e9:.0f} GB/s",
        seconds=seconds,
        bytes_per_step=num_bytes,
        bandwidth_share=share,
        bandwidth=bandwidth.samples,
    )


def _profile(part: Part, prepared: Any) -> None:
    """Every kernel's launches and microseconds in a step of width 1 and 16."""
    num_steps = 2 if part.small else 10
    for width in (1, 16):
        step = StaticTarget(prepared, 256 if part.small else 1280, (width,))
        step.warm()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            step.time_widths(rounds=num_steps, position=100, untimed=0)
        kernels: dict[str, list[float]] = {}
        for event in seen.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                kernels.setdefault(event.name, []).append(float(event.time_range.elapsed_us()))
        table = sorted(((sum(us) / num_steps, len(us) / num_steps, name) for name, us in kernels.items()), reverse=True)
        most = ", ".join(f"{us:.0f} us in {num:.0f} {name[:40]}" for us, num, name in table[:6])
        total, num = sum(us for us, _, _ in table), sum(num for _, num, _ in table)
        part.row(f"width {width}: {total:.0f} us in {num:.0f} launches: {most}", kernels=table[:40])


def races(part: Part, argument: str) -> None:
    """argument: "NAME" or "NAME DTYPE"; in float32 one race, as no kernel of ours runs there."""
    name, _, dtype = argument.partition(" ")
    loaded = ready(part, name, dtype or "bfloat16")
    curve(part, loaded.prepared, LENGTHS[0])
    for cost, k, rate in part.in_time(RACES[-3:-2] if dtype else RACES[::2] if part.small else RACES):
        part.attempt(f"race at the cost of {cost or 'nothing'}", race, part, loaded, cost, k, rate)


def race(part: Part, loaded: Any, cost: str, k: int, rate: float) -> None:
    """One race with synthetic drafts that take as long as `cost`'s."""
    drafter, k, num_tokens = f"synthetic:{rate}", min(k, 3) if part.small else k, 8 if part.small else NUM_TOKENS
    if cost == "draft_model":
        vocab = {"vocab_size": loaded.prepared.vocab_size}
        drafter += f"+draft_model:{target(part, DRAFT, **vocab)}"
    elif cost:
        drafter += f"+{cost}:{head(part, loaded, cost)}"
    done = raced(loaded, standard_lanes(drafter, k), _prompt(part), 0.8, num_tokens, False)
    ok, says, numbers = judged(done)
    what = f"SYNTHETIC drafts at the cost of {cost or 'nothing'}, k {k}"
    if done.failed:
        part.row(f"{what}: {says}", ok)
        return
    lanes = {name: lane_metrics(done.events, name) for name in done.race.lanes}
    ratio, length = done.gains[SPECULATIVE], lanes[SPECULATIVE].mean_acceptance_length
    draft_ms = 1e3 * statistics.median(step.draft_s for step in steps(done.events, SPECULATIVE))
    words = ", ".join(f"{name} {lane.tokens_per_s:.0f}" for name, lane in lanes.items())
    part.row(
        f"{what}: {words} tok/s, {ratio:.2f}x at {length:.1f} tokens a step, {draft_ms:.2f} ms a draft; {says}",
        ok,
        speedup=ratio,
        draft_ms=draft_ms,
        lanes={name: asdict(lane) for name, lane in lanes.items()},
        **numbers,
    )


def _prompt(part: Part) -> Prompt:
    return Prompt("", tuple((i * 7919) % (400 if part.small else 2000) + 5 for i in range(24 if part.small else 512)))


def memory(part: Part) -> None:
    """Ten races in one process must not pile up memory; a race that finds none must say so; the next one must run."""
    loaded = ready(part, TARGET)
    lanes, num_tokens = standard_lanes("synthetic:0.8", 3 if part.small else 7), 4 if part.small else 32
    used = []
    for number in range(NUM_RACES):
        ok, says, _ = judged(raced(loaded, lanes, _prompt(part), 0.8, num_tokens, False))
        used.append(allocated())
        part.row(f"race {number + 1}: {says}; {used[-1]:.2f} GiB in use after it", ok, allocated_gib=used[-1])
    part.row(f"in use after race 2 {used[1]:.2f} GiB, after race {NUM_RACES} {used[-1]:.2f}", used[-1] < used[1] + 0.5)
    with full(loaded.prepared.device):
        try:
            raced(loaded, lanes, _prompt(part), 0.8, num_tokens, False)
            part.row("a race on a full device ran to its end")
        except Exception as error:
            says = f"a race on a full device: {type(error).__name__}: {error}"
            part.row(says[:400], isinstance(error, PhotofinishError))
    ok, says, _ = judged(raced(loaded, lanes, _prompt(part), 0.8, num_tokens, False))
    part.row(f"a race after that: {says}; {loaded.prepared.kernels.runs(loaded.prepared.model)}", ok)


@contextmanager
def full(device: torch.device) -> Iterator[None]:
    """While entered, nearly all of the device's memory is taken."""
    torch.cuda.empty_cache()
    filler = torch.empty(max(1, torch.cuda.mem_get_info(device)[0] - LEFT_BYTES), dtype=torch.uint8, device=device)
    yield
    del filler
    torch.cuda.empty_cache()
