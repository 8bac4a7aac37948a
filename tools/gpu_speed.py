"""For gpu_session.py: what steps cost on this device, with the Triton kernels and without, where the time goes, races with synthetic drafts, and `bench`."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
WIDTHS = (1, 2, 4, 5, 8, 12, 16, 32)
SMALL = {
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 2048,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "max_position_embeddings": 40960,
}


SMALL_HYBRID = SMALL | {
    "model_type": "qwen3_5_text",
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}


def random_model(options: argparse.Namespace, name: str = "Qwen/Qwen3-8B", small: dict[str, Any] = SMALL) -> Any:
    """The engine's own random model of a published shape, or of a small one."""
    from engine.loading import load

    if not options.small:
        return load(f"random:{name}", "bfloat16", options.device)
    config = options.out / f"small_{small['model_type']}" / "config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps(small))
    return load(f"random:{config}", "bfloat16", options.device)


def _dflash(options: argparse.Namespace, loaded: Any) -> str:
    """A DFlash head for that model with random weights, of the published heads' size (5 layers as wide as the target, block 16, the target's own
    embedding and output rows): its drafts mean nothing, its time does."""
    import torch

    from engine.heads.dflash import DFlashHead
    from engine.training.heads import Design, TargetWeights, new_spec, save_head

    folder = Path(tempfile.mkdtemp()) / "dflash_random"  # not what comes back from the machine: it has 2 GB
    config, num_layers = loaded.model.config.get_text_config(), 1 if options.small else 5
    shape = torch.empty(config.vocab_size, config.hidden_size, device="meta")
    layers = tuple(sorted({1 + i * (config.num_hidden_layers - 2) // max(1, num_layers - 1) for i in range(num_layers)}))
    design = Design("dflash", num_layers, config.intermediate_size, config.vocab_size, 16)
    with torch.device(options.device):
        head = DFlashHead(new_spec(design, TargetWeights(shape, shape, config), layers, 4), config.hidden_size, None).to(torch.bfloat16)
    for parameter in head.parameters():
        parameter.data.normal_(std=0.02)
    save_head(head, folder, loaded.info.name, 15)
    return f"dflash:{folder}"


def widths(options: argparse.Namespace) -> dict[str, Any]:
    """Of Qwen3-8B's shape; see `_measured`."""
    return _measured(options, options.model(), (256,) if options.small else (512, 1280, 4352, 16640))


def hybrid(options: argparse.Namespace) -> dict[str, Any]:
    """Of Qwen3.5-9B's shape, three quarters of whose layers are linear attention: the same, and audited races."""
    loaded = random_model(options, "Qwen/Qwen3.5-9B", SMALL_HYBRID)
    return {**_measured(options, loaded, (256,) if options.small else (1280,)), "rows": [_raced(options, loaded, f"synthetic:{rate}", 7, True) for rate in (0.5, 0.9)]}


def _measured(options: argparse.Namespace, loaded: Any, lengths: tuple[int, ...]) -> dict[str, Any]:
    """Step time of every width, captured, at up to 1k live tokens; share of the bandwidth that the best read kernel measured; classes of widths; and the
    same steps with attention in one launch, by torch's own kernels, and with linears that begin early."""
    from engine.bandwidth import measured_bandwidth
    from engine.exactness import probe as probe_widths

    prepared = loaded.prepared
    bandwidth = measured_bandwidth(prepared.device)
    print("bandwidth", round(bandwidth.bytes_per_s / 1e9), "GB/s:", bandwidth.how, flush=True)
    print("Triton kernels" if prepared.kernels else "NO TRITON KERNELS", flush=True)
    out: dict[str, Any] = {"model": loaded.info.name, "weights": loaded.info.licence, "bandwidth": asdict(bandwidth), "kernels": prepared.kernels}
    if prepared.kernels:
        from engine.gpu.choice import description
        from engine.gpu.put import configurations

        out |= {"kernels_of": description(prepared.device), "configurations": configurations(prepared.model)}
        print(*out["configurations"], sep="\n", flush=True)
    out["lengths"] = {length: _curve(prepared, length, bandwidth, options.small) for length in lengths}
    found = probe_widths(prepared, 256 if options.small else 1280, WIDTHS)
    out |= {"classes": found.classes, "unstable": found.unstable}
    print("classes", found.classes, "unstable", found.unstable, flush=True)
    if prepared.kernels:
        from engine.gpu.choice import can_begin_early
        from engine.gpu.put import put_kernels, take_out_kernels

        decoder = prepared.model.get_decoder()
        if hasattr(decoder, "merge"):
            decoder.merge()
            print("attention in one launch:", flush=True)
            out["attention_in_one_launch"] = _curve(prepared, 256 if options.small else 4352, bandwidth, options.small)
            decoder.merge(False)
        take_out_kernels(prepared.model)
        print("without Triton kernels:", flush=True)
        out["without_kernels"] = _curve(replace(prepared, kernels=False), 256 if options.small else 1280, bandwidth, options.small)
        put_kernels(prepared.model)
        if can_begin_early(prepared.device):
            print("linears that begin early:", flush=True)
            try:  # last, and by itself: of all that is measured here this is the likeliest to fail, and nothing else is to be lost with it
                out["early"] = _early(prepared, 256 if options.small else 4352, bandwidth, options.small)
            except Exception as error:
                out["early_failed"] = f"{type(error).__name__}: {error}"[:2000]
                print("FAILED:", out["early_failed"], flush=True)
    return out


def _curve(prepared: Any, length: int, bandwidth: Any, small: bool) -> dict[str, Any]:
    from engine.bandwidth import bandwidth_share, step_bytes
    from engine.target import StaticTarget

    target, live = StaticTarget(prepared, length, WIDTHS), min(length - 64, 1000 if length <= 4352 else 16000)
    target.warm()
    seconds = target.time_widths(rounds=5 if small else 21, position=live)
    num_bytes = step_bytes(prepared, live)
    shares = {width: bandwidth_share(step_s, num_bytes, bandwidth) for width, step_s in seconds.items()}
    print("S", length, {w: f"{1e3 * s:.3f} ms, {100 * shares[w]:.0f} %" for w, s in seconds.items()}, flush=True)
    return {"live_tokens": live, "bytes_per_step": num_bytes, "seconds": seconds, "bandwidth_share": shares}


def _early(prepared: Any, length: int, bandwidth: Any, small: bool) -> dict[str, Any]:
    """The curve where linears begin before the launch before them has ended, and at which widths steps have other bits then: there should be none."""
    from engine.gpu.linear import GpuLinear
    from engine.operators import same_bits

    linears = [module for module in prepared.model.modules() if isinstance(module, GpuLinear)]
    before, rows = [linear.early for linear in linears], {}
    for early in (False, True):
        for linear in linears:
            linear.early = early
        rows[early] = _rows(prepared, length, small)
    curve = _curve(prepared, length, bandwidth, small)
    for linear, early in zip(linears, before, strict=True):
        linear.early = early
    different = [width for width in rows[True] if not same_bits(rows[True][width], rows[False][width])]
    print(f"!!! BITS DIFFER FROM THOSE WITHOUT at widths {different}: do not use it" if different else "bits are those without", flush=True)
    return {**curve, "widths_with_other_bits": different}


def _rows(prepared: Any, length: int, small: bool) -> dict[int, Any]:
    """Logits of a few captured steps, each over those before it, at three widths."""
    import torch

    from engine.target import StaticTarget

    target, out = StaticTarget(prepared, length, (1, 8, 16)), {}
    target.warm()
    for width in target.widths:
        starts = range(0, (1 if small else 12) * width, width)
        out[width] = torch.cat([target.extend([i * 7919 % 2000 + 5 for i in range(start, start + width)], width, width=width)[0].clone() for start in starts])
        target.jump(0)
    return out


def profile(options: argparse.Namespace) -> dict[str, Any]:
    """Where a step's time goes: every kernel's launches and microseconds a step, and the time between kernels, at widths 1, 8 and 16."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    from engine.target import StaticTarget

    prepared, out = options.model().prepared, {}
    on_gpu = prepared.device.type == "cuda"
    for width in (1, 8, 16):
        target, steps = StaticTarget(prepared, 256 if options.small else 1280, (width,)), 2 if options.small else 10
        target.warm()
        target.time_widths(rounds=1, position=100)
        with profiler(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as seen:
            target.time_widths(rounds=steps - 1, position=100)  # one more is untimed
        kernels: dict[str, list[float]] = {}
        for event in seen.events():
            if not on_gpu or event.device_type == torch.autograd.DeviceType.CUDA:
                kernels.setdefault(event.name, []).append(float(event.time_range.elapsed_us()))
        table = sorted(((sum(us) / steps, len(us) / steps, name) for name, us in kernels.items()), reverse=True)
        out[width] = [{"name": name[:120], "us_a_step": us, "launches_a_step": num} for us, num, name in table[:30]]
        print(
            f"width {width}: {sum(row[0] for row in table) / 1e3:.3f} ms in {sum(row[1] for row in table):.0f} kernels a step",
            *(f"{us:8.1f} us in {num:5.1f}: {name[:70]}" for us, num, name in table[:12]),
            sep="\n  ",
            flush=True,
        )
    return {"widths": out}


def race(options: argparse.Namespace) -> dict[str, Any]:
    """Races with synthetic drafts, free and at the cost of a DFlash head: seconds per token of every lane, and the host's share of a step."""
    loaded = options.model()
    head = _dflash(options, loaded)
    asked = ((0.5, "", 7), (0.8, "", 7), (0.95, "", 7), (0.8, f"+{head}", 7), (0.8, f"+{head}", 15))  # 0.8, k 15: 4.9 tokens a step
    return {"model": loaded.info.name, "rows": [_raced(options, loaded, f"synthetic:{rate}{cost}", k, False) for rate, cost, k in asked]}


def _raced(options: argparse.Namespace, loaded: Any, drafter: str, k: int, audit: bool) -> dict[str, Any]:
    from engine.backends.torch import TorchRace
    from engine.events import Prompt
    from engine.spec import LaneSpec, RaceSpec, SamplingParams

    ids = tuple((i * 7919) % 2000 + 5 for i in range(40 if options.small else 512))
    lanes = (LaneSpec("plain", width="fastest"), LaneSpec("baseline"), LaneSpec("speculative", drafter=drafter, k=k))
    made = TorchRace(loaded, RaceSpec(lanes, SamplingParams(temperature=0.8, seed=1, max_new_tokens=48 if options.small else 256), audit=audit), Prompt("", ids))
    steps: dict[str, list[Any]] = {}
    for event in made.events():
        if hasattr(event.event, "num_accepted"):
            steps.setdefault(event.lane, []).append(event.event)
    rate, _, head = drafter.partition("+")
    row: dict[str, Any] = {"drafter": rate, "k": k, "cost": "a random DFlash head" if head else "", "synthetic": True, "audit": audit}
    row |= {"widths": made.plan.note, "plain_width": made.plan.plain_width, "step_s": made.seconds}
    for name, lane in steps.items():
        num = sum(len(s.token_ids) for s in lane)
        row[name] = {"tokens_per_s": num / sum(s.seconds for s in lane), "tokens_a_step": num / len(lane), "step_ms": 1e3 * statistics.median(s.seconds for s in lane)}
    row["speedup"] = row["speculative"]["tokens_per_s"] / row["plain"]["tokens_per_s"]
    row["verdict"] = made.result()["verdict"]
    print({key: value for key, value in row.items() if key != "verdict"}, (row["verdict"] or {}).get("kind"), flush=True)
    return row


def bench(options: argparse.Namespace) -> dict[str, Any]:
    """Reports of `bench`: fixtures/trained with its draft model, and the random model with synthetic drafts."""
    from engine.bench.command import Size, measure
    from engine.progress import silent
    from engine.spec import SamplingParams

    trained = FIXTURES / "trained"
    size = Size(prompts=1, repeats=2, tokens=16 if options.small else 64, rounds=3, compiled=not options.small)
    runs = {"trained": (str(trained / "target"), ("ngram", f"draft_model:{trained / 'draft'}")), "random": (options.model().info.name, ("synthetic:0.8",))}
    out: dict[str, Any] = {}
    for name, (target, drafters) in runs.items():
        asked = argparse.Namespace(target=target, dtype="bfloat16", device=options.device, threads=None, k=7, quick=options.small)
        report, faults = measure(asked, drafters, ("json",) if options.small else ("json", "sql", "chat"), size, SamplingParams(max_new_tokens=size.tokens), [], silent)
        out[name] = {**report, "faults": faults}
        for row in report["rows"]:
            print(f"{name:8} {row['kind']:5} {row['name'][:40]:40} {row['tokens_per_s']:8.1f} tok/s {row['speedup_vs_plain'] or 0:5.2f}x identical {row['identical']}", flush=True)
    return out
