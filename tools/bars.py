"""Measure the engine on this machine, one figure per line: what README and docs/measurements.md quote.

    python -m tools.bars [exact] [speed] [--tokens N] [--only TEXT] [--repeats N] [--json FILE]

exact   N committed tokens over drafters, chains, trees, temperatures, dtypes and targets: how many tokens and rows of
        logits differ from the baseline's (bar: 0)
speed   medians of interleaved repeats: n-gram drafts against plain, all time counted, on CSV to JSON, SQL, code and a
        sampled story; a step of width 8 against a plain step; the sum of a lane's step times against its wall time.
        `python -m engine bench` compares with transformers
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.analysis.metrics import lane_metrics, race_speedup, speedup
from engine.core.events import steps, token_ids
from engine.core.spec import RaceSpec, SamplingParams, lanes_of, standard_lanes
from engine.hardware import environment
from engine.kernels.choose import choose
from engine.loading.loading import load
from engine.session import TorchRace
from engine.session.lanes import build_lane, decode_lane
from engine.text import encode_prompt

ROOT = Path(__file__).resolve().parent.parent
TRAINED = ROOT / "tests" / "fixtures" / "trained"
PROMPTS = {
    "csv": (ROOT / "assets/prompts/csv_to_json.txt").read_text(),
    "story": "The lighthouse keeper had not spoken to anyone for eleven days when the boat came. She",
    "code": "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        "
    "self.items.append(item)\n\n    def pop(self):\n",
    "sql": "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL);\nINSERT INTO orders VALUES (1, "
    "'Ada', 19.5);\nINSERT INTO orders VALUES (2, 'Bob', 7.25);\nINSERT INTO orders VALUES (3,",
}


LENGTHS = "auto", "tree:7", 5, "tree:15"
TEMPERATURES = 0.0, 0.8, 1.2


def finished_race(
    loaded: Any, text: str, lanes: Any, params: SamplingParams, **more: Any
) -> tuple[TorchRace, list[Any]]:
    """The race and its events."""
    race = TorchRace(loaded, RaceSpec(tuple(lanes), params, **more), encode_prompt(loaded.tokenizer, text))
    return race, list(race.events())


def exact(num_tokens: int, only: str) -> list[dict[str, Any]]:
    rows = []
    trained, small = str(TRAINED / "target"), ["ngram", "synthetic:0.5", f"draft_model:{TRAINED / 'draft'}"]
    large = ["ngram", "synthetic:0.7", "eagle3", "dflash", "hybrid:ngram+eagle3"]
    plans = [  # the last: its share of the tokens
        ("gemma-3-270m", "bfloat16", large, 160, 0.1),
        ("gemma-3-270m", "int8", large, 160, 0.08),
        ("gemma-3-270m", "float32", large, 160, 0.02),
        (trained, "float32", small, 300, 0.1),
        (trained, "bfloat16", small, 300, 0.7),
    ]
    for target, dtype, drafters, length, share in plans:
        if only not in f"{Path(target).name}:{dtype}":
            continue
        loaded, seed = load(target, dtype=dtype), 0
        found = {"tokens": 0, "trees": 0, "rows_compared": 0, "tokens_different": 0, "rows_different": 0}
        while found["tokens"] < share * num_tokens:
            text, temperature = list(PROMPTS.values())[seed % len(PROMPTS)], TEMPERATURES[seed // 2 % len(TEMPERATURES)]
            top_p = 0.95 if seed % 3 == 0 and temperature else 1.0
            params = SamplingParams(temperature, top_p=top_p, seed=seed, max_new_tokens=length)
            k = LENGTHS[seed % len(LENGTHS)]
            lanes = lanes_of((drafter, drafter, k) for drafter in drafters)
            race, events = finished_race(loaded, text, lanes, params, audit=True)
            base = token_ids(events, "baseline")
            for drafter in drafters:
                own, verdict = token_ids(events, drafter), race.result()["verdicts"][drafter]
                found["tokens"] += len(own)
                found["trees"] += sum(bool(step.parents) for step in steps(events, drafter))
                found["tokens_different"] += sum(a != b for a, b in zip(base, own, strict=False))
                found["tokens_different"] += abs(len(base) - len(own))
                for key in ("rows_compared", "rows_different"):
                    found[key] += verdict[key]
            seed += 1
        names = [drafter.partition("/")[0].rstrip(":") for drafter in drafters]
        rows.append({"bar": "exact", "target": Path(target).name, "dtype": dtype, "drafters": names, **found})
        print(rows[-1], flush=True)
    return rows


def speed(repeats: int) -> list[dict[str, Any]]:
    loaded, greedy = load(), SamplingParams(max_new_tokens=128)
    figures: dict[str, list[float]] = {}
    for repeat in range(repeats + 1):
        for name, text in PROMPTS.items():
            params = greedy if name != "story" else replace(greedy, temperature=0.9, seed=repeat)
            race, events = finished_race(loaded, text, standard_lanes("ngram", 7), params)
            verdict = race.result()["verdicts"]["speculative"]
            assert verdict["kind"] in ("identical_tokens", "identical_bits"), verdict
            if repeat == 0:
                continue
            plain, drafting = lane_metrics(events, "plain"), lane_metrics(events, "speculative")
            lane = build_lane(race.order, race.widths, race.spec.lanes[0])
            start = time.perf_counter()
            steps = list(decode_lane(race.order, lane))
            wall = time.perf_counter() - start
            for bar, value in {
                f"{name}: ngram k=7 / plain": race_speedup(events),
                f"{name}: ngram k=7 / baseline": speedup(race.lanes["baseline"].steps, race.lanes["speculative"].steps),
                f"{name}: plain tok/s": plain.tokens_per_s,
                f"{name}: ngram tok/s": drafting.tokens_per_s,
                f"{name}: mean acceptance length": drafting.mean_acceptance_length,
                "width 8 / plain step": race.widths.seconds[8] / race.widths.seconds[race.widths.plan.plain_width],
                "step times and prefill / wall time": (sum(s.seconds for s in steps[1:-1]) + steps[0].prefill_s) / wall,
            }.items():
                figures.setdefault(bar, []).append(value)
    rows = []
    for bar, values in figures.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        middle = {"median": statistics.median(values), "p25": quartiles[0], "p75": quartiles[2]}
        rows.append({"bar": bar, **{key: round(value, 3) for key, value in middle.items()}, "runs": len(values)})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {
        "exact": lambda: exact(options.tokens, options.only),
        "speed": lambda: speed(options.repeats),
    }
    parser.add_argument("what", nargs="*", help=f"{', '.join(parts)} (default: both)")
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="exact: only targets whose name:dtype contains this")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [row for what in options.what or ("speed", "exact") for row in parts[what]()]
    if options.json:
        kernels = choose(torch.device("cpu"))
        about = {
            "device": kernels.about_device(),
            "versions": environment.versions(kernels.describe()),
            "commit": environment.commit(),
        }
        options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
