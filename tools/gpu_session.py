"""Everything a bare NVIDIA machine is asked in one call: python tools/gpu_session.py --out DIR [--parts ...] [--small]

    correctness   fixtures/trained on this device, float32 and bfloat16: every drafter against the baseline, rows compared bit by bit; golden lists
    widths        a Qwen3-8B-shaped model with random weights: step time by width (captured graphs), share of bandwidth, exact classes, with Triton kernels and without
    profile       where the time of a step goes, kernel by kernel
    race          the same model raced with `synthetic` drafts: plain, baseline and speculative lanes on the fair clock
    hybrid        a Qwen3.5-9B-shaped model, three quarters of it linear attention: widths, and audited races
    bench         `python -m engine bench` on both: our lanes, transformers' generate eager, compiled, with prompt lookup and assisted
    probe         tools/gpu_probe.py: bandwidth, which of torch's own GEMM widths are exact on this chip, what width costs

Where a call may take ten minutes at most, make two: the first four parts, then the others.
Needs torch and transformers, no network, no gradio. Every part writes DIR/gpu_PART.json as soon as it is done; one that fails says so and leaves the
others running; a short table comes last. --small uses tiny shapes and the CPU where there is no GPU: the dry run. Labelled random or synthetic where it is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import gpu_exact  # noqa: E402
import gpu_speed  # noqa: E402


def probe(options: argparse.Namespace) -> dict[str, Any]:
    """The stand-alone probe, in a process of its own."""
    out = options.out / "probe_raw.json"
    command = [sys.executable, str(ROOT / "tools" / "gpu_probe.py"), "--out", str(out), *(["--small"] if options.small else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    print(done.stdout[-3000:], done.stderr[-2000:], flush=True)
    return json.loads(out.read_text())


def _line(at: dict[str, Any]) -> str:
    first = at["seconds"]["1"]
    return ", ".join(f"{w}: {1e3 * s:.2f} ms ({s / first:.2f}x, {100 * at['bandwidth_share'][w]:.0f} % of bandwidth)" for w, s in at["seconds"].items())


def _table(out: Path) -> None:
    """What the parts found, in a few lines."""
    found = {part: json.loads(path.read_text()) for part in PARTS if (path := out / f"gpu_{part}.json").exists()}
    print("=== summary")
    for part, result in found.items():
        if "failed" in result:
            print(f"{part}: FAILED: {result['failed'].strip().splitlines()[-1]}")
    if "rows" in (right := found.get("correctness", {})):
        print(f"correctness: {right['total']}, golden {right['golden']}")
    for part in ("widths", "hybrid"):
        if "lengths" in (step := found.get(part, {})):
            for length, at in step["lengths"].items():
                print(f"{part}, S {length}: {_line(at)}")
            print(f"exact classes {step['classes']}, unstable {step['unstable']}, Triton kernels: {step['kernels']}")
            for name in ("attention_in_one_launch", "early", "without_kernels"):
                if name in step:
                    print(f"{name}: {_line(step[name])}")
    for part in ("race", "hybrid"):
        for row in found.get(part, {}).get("rows", ()):
            what = f"{part}, {row['drafter']}, k {row['k']}{row['cost'] and ', ' + row['cost']}"
            print(f"{what}: plain {row['plain']['tokens_per_s']:.1f} tok/s, speculative {row['speculative']['tokens_per_s']:.1f}: {row['speedup']:.2f}x, {(row['verdict'] or {}).get('kind')}")
    for name in ("trained", "random"):
        report = found.get("bench", {}).get(name)
        if report:
            gap = (report["host_gap"] or {}).get("share")
            print(
                f"bench {name}: bandwidth share {report['bandwidth_share']}, host gap {gap}; "
                + "; ".join(f"{e['name'].partition(':')[0]} / {e['peer']} ({e['kind']}) {e['ratio']:.2f}" for e in report["against_peers"])
            )


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "correctness": gpu_exact.correctness,
    "widths": gpu_speed.widths,
    "profile": gpu_speed.profile,
    "race": gpu_speed.race,
    "hybrid": gpu_speed.hybrid,
    "bench": gpu_speed.bench,
    "probe": probe,
}


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
            made.append(gpu_speed.random_model(options))
        return made[0]

    options.model = model
    about = {"device": environment.device(torch.device(options.device)), "versions": environment.versions(), "commit": environment.commit(), "small": options.small}
    if options.device == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,memory.total", "--format=csv,noheader"]
        about["nvidia_smi"] = subprocess.run(query, capture_output=True, text=True).stdout.strip() if shutil.which(query[0]) else ""
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
