"""Everything a bare NVIDIA machine is asked in one call: python tools/gpu_session.py --out DIR [--parts ...] [--small]

    probe         tools/gpu_probe.py: bandwidth, which GEMM widths are exact on this chip, what width costs
    correctness   fixtures/trained on this device, float32 and bfloat16: every drafter against the baseline, rows compared bit by bit; golden lists
    widths        a Qwen3-8B-shaped model with random weights: the engine's own probe, step time by width (captured graphs), share of bandwidth
    race          the same model raced with `synthetic` drafts: plain, baseline and speculative lanes on the fair clock
    bench         `python -m engine bench` on both: our lanes, transformers' generate eager, compiled, with prompt lookup and assisted

Needs torch and transformers, no network, no gradio. Every part writes DIR/gpu_PART.json as soon as it is done; one that fails says so and leaves the
others running; a short table comes last. --small uses tiny shapes and the CPU where there is no GPU: the dry run. Labelled random or synthetic where it is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
FIXTURES = ROOT / "tests" / "fixtures"
TEXTS = ("class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def ", "import os\nimport sys\n\n\ndef main(argv):\n", "    for line in lines:\n")
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


def probe(options: argparse.Namespace) -> dict[str, Any]:
    """The stand-alone probe, in a process of its own."""
    out = options.out / "probe_raw.json"
    command = [sys.executable, str(ROOT / "tools" / "gpu_probe.py"), "--out", str(out), *(["--small"] if options.small else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    print(done.stdout[-3000:], done.stderr[-2000:], flush=True)
    return json.loads(out.read_text())


def correctness(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens and rows that differ, by dtype, drafter and temperature; and whether golden lists are reproduced in float32."""
    from engine.backends.torch import TorchRace
    from engine.loading import load
    from engine.spec import LaneSpec, RaceSpec, SamplingParams
    from engine.text import encode_prompt

    trained = FIXTURES / "trained"
    drafters = ["ngram", f"draft_model:{trained / 'draft'}", f"eagle3:{trained / 'eagle3'}", f"dflash:{trained / 'dflash'}", "synthetic:0.7"]
    rows = []
    for dtype in ("float32", "bfloat16"):
        loaded = load(str(trained / "target"), dtype, options.device)
        for text in TEXTS:
            for temperature in (0.0, 0.8):
                lanes = [LaneSpec("plain", width="fastest"), LaneSpec("baseline")]
                lanes += [LaneSpec(name.partition("/")[0].rstrip("."), drafter=name, k=5 if "eagle3" in name else 7) for name in drafters]
                params = SamplingParams(temperature=temperature, seed=3, max_new_tokens=32 if options.small else 96)
                race = TorchRace(loaded, RaceSpec(tuple(lanes), params, audit=True), encode_prompt(loaded.tokenizer, text, False))
                steps: dict[str, list[Any]] = {}
                for event in race.events():
                    if hasattr(event.event, "num_accepted"):
                        steps.setdefault(event.lane, []).append(event.event)
                    elif type(event.event).__name__ == "Failed":
                        rows.append({"dtype": dtype, "lane": event.lane, "failed": event.event.message})
                written = {name: [t for s in lane for t in s.token_ids] for name, lane in steps.items()}
                sums = {name: [c for s in lane for c in s.checksums] for name, lane in steps.items()}
                for name in steps:
                    if name in ("plain", "baseline"):
                        continue
                    same = len(written[name]) == len(written["baseline"])
                    rows.append(
                        {
                            "dtype": dtype,
                            "temperature": temperature,
                            "lane": name,
                            "num_tokens": len(written[name]),
                            "num_tokens_different": sum(a != b for a, b in zip(written[name], written["baseline"], strict=False)) if same else -1,
                            "num_rows_different": sum(a != b for a, b in zip(sums[name], sums["baseline"], strict=False)) if same else -1,
                            "tokens_a_step": len(written[name]) / len(steps[name]),
                        }
                    )
                last = {"dtype": dtype, "classes": race.classes.classes, "unstable": race.classes.unstable, "plan": race.plan.note, "seconds": race.seconds}
        rows.append(last)
        print(dtype, last, flush=True)
    compared = [r for r in rows if "num_tokens" in r]
    total = {key: sum(r[key] for r in compared) for key in ("num_tokens", "num_tokens_different", "num_rows_different")}
    print("correctness:", total, flush=True)
    return {"total": total, "rows": rows, "golden": golden(options)}


def golden(options: argparse.Namespace) -> dict[str, Any]:
    """Whether each list of golden.json is reproduced on this device in float32."""
    from engine.accept import coupled
    from engine.decode import decode
    from engine.drafters import DrafterContext, make
    from engine.events import Prompt, Step
    from engine.loading import load
    from engine.progress import silent
    from engine.sampling import Sampler
    from engine.spec import SamplingParams
    from engine.target import StaticTarget
    from engine.text import StopAt

    known = json.loads((FIXTURES / "golden.json").read_text())
    trained = FIXTURES / "trained"
    loaded = load(str(trained / "target"), "float32", options.device)
    found = {}
    for key, text in (("eagle3", f"eagle3:{trained / 'eagle3'}"), ("dflash", f"dflash:{trained / 'dflash'}"), ("dflash_causal_in_block", f"dflash:{trained / 'dflash'}#causal")):
        params, k = SamplingParams(max_new_tokens=61), known[key]["k"]
        sampler = Sampler(params, loaded.prepared.vocab_size, loaded.prepared.device)
        ids = tuple(known["prompt_token_ids"])
        drafter = make(text, DrafterContext(loaded, params, k, 256, sampler, Prompt("", ids), None, silent))
        target = StaticTarget(loaded.prepared, 256, (k + 1,), drafter.hidden_layers)
        steps = [e for e in decode(target, drafter, coupled(params, sampler), ids, StopAt(params, (), None), 61, k) if isinstance(e, Step)]
        accepted, wanted = [s.num_accepted for s in steps], [0, *known[key]["per_step_accepted"]]
        found[key] = accepted[: len(wanted)] == wanted and [t for s in steps for t in s.token_ids][:60] == known["greedy_token_ids"]
    print("golden:", found, flush=True)
    return found


def _random_model(options: argparse.Namespace) -> Any:
    """The engine's own random model of Qwen3-8B's shape, or of a small one."""
    from engine.loading import load

    if not options.small:
        return load("random:Qwen/Qwen3-8B", "bfloat16", options.device)
    config = options.out / "small" / "config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps(SMALL))
    return load(f"random:{config}", "bfloat16", options.device)


def _dflash(options: argparse.Namespace, loaded: Any) -> str:
    """A DFlash head for that model with random weights, of the published heads' size (5 layers as wide as the target, block 16, the target's own
    embedding and output rows): its drafts mean nothing, its time does."""
    import torch

    from engine.heads.dflash import DFlashHead
    from engine.training.heads import Design, TargetWeights, new_spec, save_head

    folder = options.out / "dflash_random"
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
    """Step time of every width, captured, at up to 1k live tokens; share of the bandwidth that the best read kernel measured; classes of widths."""
    from engine.bandwidth import bandwidth_share, measured_bandwidth, step_bytes
    from engine.exactness import probe as probe_widths
    from engine.target import StaticTarget

    loaded = options.model()
    prepared = loaded.prepared
    bandwidth = measured_bandwidth(prepared.device)
    print("bandwidth", round(bandwidth.bytes_per_s / 1e9), "GB/s:", bandwidth.how, flush=True)
    out: dict[str, Any] = {"model": loaded.info.name, "weights": loaded.info.licence, "bandwidth": asdict(bandwidth), "lengths": {}}
    for length in (256,) if options.small else (512, 1280, 4352):
        target, live = StaticTarget(prepared, length, WIDTHS), min(length - 64, 1000)
        target.warm()
        seconds = target.time_widths(rounds=5 if options.small else 21, position=live)
        num_bytes = step_bytes(prepared, live)
        shares = {width: bandwidth_share(step_s, num_bytes, bandwidth) for width, step_s in seconds.items()}
        out["lengths"][length] = {"live_tokens": live, "bytes_per_step": num_bytes, "seconds": seconds, "bandwidth_share": shares}
        print("S", length, {w: f"{1e3 * s:.3f} ms, {100 * shares[w]:.0f} %" for w, s in seconds.items()}, flush=True)
    found = probe_widths(prepared, 256 if options.small else 1280, WIDTHS)
    out |= {"classes": found.classes, "unstable": found.unstable}
    print("classes", found.classes, "unstable", found.unstable, flush=True)
    return out


def race(options: argparse.Namespace) -> dict[str, Any]:
    """Races with synthetic drafts, free and at the cost of a DFlash head: seconds per token of every lane, and the host's share of a step."""
    from engine.backends.torch import TorchRace
    from engine.events import Prompt
    from engine.spec import LaneSpec, RaceSpec, SamplingParams

    loaded = options.model()
    ids = tuple((i * 7919) % 2000 + 5 for i in range(40 if options.small else 512))
    dflash, out = _dflash(options, loaded), []
    for rate, cost, k in ((0.5, "", 7), (0.8, "", 7), (0.95, "", 7), (0.8, dflash, 7), (0.8, dflash, 15)):  # 0.8, k 15: 4.9 tokens a step
        lanes = (LaneSpec("plain", width="fastest"), LaneSpec("baseline"), LaneSpec("speculative", drafter=f"synthetic:{rate}{'+' if cost else ''}{cost}", k=k))
        made = TorchRace(loaded, RaceSpec(lanes, SamplingParams(temperature=0.8, seed=1, max_new_tokens=48 if options.small else 256), audit=False), Prompt("", ids))
        steps: dict[str, list[Any]] = {}
        for event in made.events():
            if hasattr(event.event, "num_accepted"):
                steps.setdefault(event.lane, []).append(event.event)
        row: dict[str, Any] = {
            "rate": rate,
            "k": k,
            "cost": "a random DFlash head" if cost else "",
            "synthetic": True,
            "widths": made.plan.note,
            "plain_width": made.plan.plain_width,
            "step_s": made.seconds,
        }
        for name, lane in steps.items():
            num = sum(len(s.token_ids) for s in lane)
            row[name] = {"tokens_per_s": num / sum(s.seconds for s in lane), "tokens_a_step": num / len(lane), "step_ms": 1e3 * statistics.median(s.seconds for s in lane)}
        row["speedup"] = row["speculative"]["tokens_per_s"] / row["plain"]["tokens_per_s"]
        row["verdict"] = made.result()["verdict"]
        out.append(row)
        print({k: v for k, v in row.items() if k != "verdict"}, (row["verdict"] or {}).get("kind"), flush=True)
    return {"model": loaded.info.name, "rows": out}


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


def _table(out: Path) -> None:
    """What the parts found, in a few lines."""
    found = {part: json.loads(path.read_text()) for part in PARTS if (path := out / f"gpu_{part}.json").exists()}
    print("=== summary")
    for part, result in found.items():
        if "failed" in result:
            print(f"{part}: FAILED: {result['failed'].strip().splitlines()[-1]}")
    if "rows" in (right := found.get("correctness", {})):
        print(f"correctness: {right['total']}, golden {right['golden']}")
    if "lengths" in (step := found.get("widths", {})):
        for length, at in step["lengths"].items():
            first = at["seconds"]["1"]
            print(f"S {length}: " + ", ".join(f"{w}: {1e3 * s:.2f} ms ({s / first:.2f}x, {100 * at['bandwidth_share'][w]:.0f} % of bandwidth)" for w, s in at["seconds"].items()))
        print(f"exact classes {step['classes']}, unstable {step['unstable']}")
    for row in found.get("race", {}).get("rows", ()):
        print(
            f"race, synthetic {row['rate']}, k {row['k']}{row['cost'] and ', ' + row['cost']}: plain {row['plain']['tokens_per_s']:.1f} tok/s, speculative {row['speculative']['tokens_per_s']:.1f}: {row['speedup']:.2f}x, {(row['verdict'] or {}).get('kind')}"
        )
    for name in ("trained", "random"):
        report = found.get("bench", {}).get(name)
        if report:
            gap = (report["host_gap"] or {}).get("share")
            print(
                f"bench {name}: bandwidth share {report['bandwidth_share']}, host gap {gap}; "
                + "; ".join(f"{e['name'].partition(':')[0]} / {e['peer']} ({e['kind']}) {e['ratio']:.2f}" for e in report["against_peers"])
            )


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {"probe": probe, "correctness": correctness, "widths": widths, "race": race, "bench": bench}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    import torch

    from engine import environment

    options.device = "cuda" if torch.cuda.is_available() else "cpu"
    made: list[Any] = []

    def model() -> Any:
        if not made:
            made.append(_random_model(options))
        return made[0]

    options.model = model
    about = {"device": environment.device(torch.device(options.device)), "versions": environment.versions(), "commit": environment.commit(), "small": options.small}
    if options.device == "cuda":
        query = "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,memory.total"
        about["nvidia_smi"] = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    print(about, flush=True)
    failed = 0
    for part in options.parts:
        started = time.monotonic()
        print(f"--- {part}", flush=True)
        try:
            result = PARTS[part](options)
        except Exception:
            failed += 1
            traceback.print_exc()
            result = {"failed": traceback.format_exc()[-3000:]}
        (options.out / f"gpu_{part}.json").write_text(json.dumps({**about, "seconds": time.monotonic() - started, **result}, indent=1, default=str) + "\n")
        print(f"--- {part}: {time.monotonic() - started:.0f} s", flush=True)
    _table(options.out)
    return failed


if __name__ == "__main__":
    sys.exit(main())
