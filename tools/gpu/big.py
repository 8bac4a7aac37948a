"""Models of real size: what a step costs by width, where its time goes, and races."""

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from engine.analysis.metrics import lane_metrics
from engine.core.events import Prompt, steps
from engine.core.spec import SPECULATIVE, standard_lanes
from engine.hardware.bandwidth import measured_bandwidth, step_bytes
from engine.loading.loading import load
from engine.progress import RACING
from engine.runner.target import StaticTarget
from tests.helpers import ROOT
from tools.gpu.part import Part, Stages
from tools.gpu.races import judged, raced
from tools.gpu.shapes import DRAFT, head, target

WIDTHS, SHOWN, LENGTHS = tuple(range(1, 17)), (1, 2, 4, 8, 12, 16), (1280, 4352)
PAIRS = {pair["id"]: pair["k"] for pair in json.loads((ROOT / "assets" / "pairs.json").read_text())}
# Whose draft time, k, and the chance that a draft's token is right, which is made up. The first one's shape twice, for
# the seconds of a second race.
RACES = (
    ("dflash", PAIRS["qwen3-8b-dflash"], 0.8), ("eagle3", PAIRS["qwen3-8b-eagle3"], 0.77),
    ("dflash", PAIRS["qwen3-8b-dflash"], 0.8), ("draft_model", PAIRS["qwen3-8b-draft"], 0.8), ("", 7, 0.8),
    ("eagle3", 3, 0.77), ("", 15, 0.95), ("", 7, 0.5),
)  # fmt: skip
NUM_TOKENS = 128


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


def races(part: Part, name: str) -> None:
    """Races, steps, a profile, in the order of what is to be known first."""
    stages = Stages()
    loaded = load(target(part, name), "bfloat16", "cuda", stages)
    kernels, model = loaded.make_ready(stages).kernels, loaded.model
    part.row(f"seconds to load {name}: {stages}; {kernels.runs(model)}", kernels=kernels.describe(model))
    steps_of, work = partial(curve, part, loaded.prepared), list[tuple[str, Callable[[], None]]]()
    for cost, k, rate in RACES[: 5 if part.small else None]:
        work.append((f"a race at the cost of {cost or 'nothing'}", partial(race, part, loaded, cost, k, rate)))
    work[3:3] = [("steps", partial(steps_of, LENGTHS[0])), ("a profile", partial(_profile, part, loaded.prepared))]
    for what, call in part.in_time([*work, ("steps over a longer cache", partial(steps_of, LENGTHS[1]))]):
        with part.sampled(what):
            part.attempt(what, call)


def race(part: Part, loaded: Any, cost: str, k: int, rate: float) -> None:
    """One race with synthetic drafts that take as long as `cost`'s."""
    drafter, k, num_tokens = f"synthetic:{rate}", min(k, 3) if part.small else k, 8 if part.small else NUM_TOKENS
    if cost == "draft_model":
        vocab = {"vocab_size": loaded.prepared.vocab_size}
        drafter += f"+draft_model:{target(part, DRAFT, **vocab)}"
    elif cost:
        drafter += f"+{cost}:{head(part, loaded, cost)}"
    num_words, length = (200, 24) if part.small else (2000, 512)
    prompt = Prompt("", tuple((i * 7919) % num_words + 5 for i in range(length)))
    stages, what = Stages(), f"SYNTHETIC drafts, right at {rate}, at the cost of {cost or 'nothing'}, k {k}"
    done = raced(loaded, standard_lanes(drafter, k), prompt, 0.8, num_tokens, False, progress=stages)
    set_up_s = sum(seconds for stage, seconds in stages.seconds.items() if stage != RACING)
    ok, says, numbers = judged(done)
    if done.failed:
        part.row(f"{what}: {says}", ok)
        return
    lanes = {name: lane_metrics(done.events, name) for name in done.race.lanes}
    ratio, committed = done.gains[SPECULATIVE], lanes[SPECULATIVE].mean_acceptance_length
    taken = steps(done.events, SPECULATIVE)
    draft_ms = 1e3 * statistics.median(step.draft_s for step in taken)
    share = sum(step.draft_s for step in taken) / sum(step.draft_s + step.verify_s for step in taken)
    words = ", ".join(f"{name} {lane.tokens_per_s:.0f}" for name, lane in lanes.items())
    part.row(
        f"{what}: {words} tok/s, {ratio:.2f}x at {committed:.1f} tokens a step, {draft_ms:.2f} ms a draft, "
        f"{100 * share:.0f} % of its step; set up in {set_up_s:.1f} s; {says}",
        ok,
        speedup=ratio,
        draft_ms=draft_ms,
        draft_share=share,
        set_up=stages.seconds,
        lanes={name: asdict(lane) for name, lane in lanes.items()},
        **numbers,
    )
