"""Measure the bars of the engine, one figure a line, on this machine: what README and the issue's table quote comes
from here.

python tools/bars.py [exact] [speed] [start] [lanes] [--tokens N] [--only TEXT] [--repeats N] [--json FILE]

exact   N committed tokens over drafters, temperatures, dtypes and targets: how many tokens and rows of logits differ
from the baseline's (bar: 0) speed   interleaved, medians of repeats: plain lane against transformers `generate`; width
8 against the plain step; CSV to JSON and a sampled
        story with n-gram drafts against plain, all time counted; a lane's sum of step times against its wall time,
        alone
lanes   four lanes that guess in one race: each lane's median step of each width and draft length, over that of the same
        lane alone with plain and baseline; races alternate, all times of a lane together
start   import time of the engine; a fresh process from its start to the first step (later start, cache warm)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PROMPTS = {
    "csv": (ROOT / "assets/prompts/csv_to_json.txt").read_text(),
    "story": "The lighthouse keeper had not spoken to anyone for eleven days when the boat came. She",
    "code": "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        "
    "self.items.append(item)\n\n    def pop(self):\n",
    "sql": "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL);\nINSERT INTO orders VALUES (1, "
    "'Ada', 19.5);\nINSERT INTO orders VALUES (2, 'Bob', 7.25);\nINSERT INTO orders VALUES (3,",
}


def fixture(name: str) -> str:
    return str(ROOT / "tests/fixtures/trained" / name)


def run_race(loaded, text, drafter, k, params, **more):
    """A finished race: (race, events, result)."""
    from engine.session import TorchRace
    from engine.spec import RaceSpec, standard_lanes
    from engine.text import encode_prompt

    lanes = standard_lanes(drafter, k, more.pop("width", "auto"))
    if more.pop("no_plain", False):
        lanes = lanes[1:]
    race = TorchRace(loaded, RaceSpec(lanes, params, **more), encode_prompt(loaded.tokenizer, text))
    events = list(race.events())
    return race, events, race.result()


def exact(num_tokens: int, only: str = "") -> list[dict]:
    from engine.models.loading import load
    from engine.spec import SamplingParams

    rows = []
    drafters = ["ngram", "synthetic:0.5", f"draft_model:{fixture('draft')}"]
    plans = [  # the last: its share of the tokens
        ("gemma-3-270m", "bfloat16", ["ngram", "synthetic:0.7", "hybrid:ngram+eagle3"], 160, 0.1),
        ("gemma-3-270m", "int8", ["ngram", "synthetic:0.7"], 160, 0.08),
        ("gemma-3-270m", "float32", ["ngram", "synthetic:0.7"], 160, 0.02),
        (fixture("target"), "float32", drafters, 300, 0.3),
        (fixture("target"), "bfloat16", drafters, 300, 0.5),
    ]
    for target, dtype, drafters, length, part in plans:
        if only not in f"{Path(target).name}:{dtype}":
            continue
        loaded = load(target, dtype=dtype)
        share = part * num_tokens
        total = different_tokens = different_rows = compared = 0
        seed = 0
        while total < share:
            for drafter in drafters:
                for temperature in (0.0, 0.8):
                    text = list(PROMPTS.values())[seed % len(PROMPTS)]
                    params = SamplingParams(
                        temperature=temperature,
                        top_p=0.95 if seed % 3 == 0 and temperature else 1.0,
                        seed=seed,
                        max_new_tokens=length,
                    )
                    race, _, result = run_race(
                        loaded, text, drafter, (3, 5, 7)[seed % 3], params, audit=True, no_plain=True
                    )
                    lanes = [[t for s in race.lanes[n].steps for t in s.token_ids] for n in ("baseline", "speculative")]
                    total += len(lanes[1])
                    compared += result["verdicts"]["speculative"]["rows_compared"]
                    different_rows += result["verdicts"]["speculative"]["rows_different"]
                    different_tokens += sum(a != b for a, b in zip(*lanes, strict=False)) + abs(
                        len(lanes[0]) - len(lanes[1])
                    )
                    seed += 1
        about = {"bar": "exact", "target": Path(target).name, "dtype": dtype}
        counted = {"tokens": total, "rows_compared": compared}
        wrong = {"tokens_different": different_tokens, "rows_different": different_rows}
        rows.append({**about, "drafters": [d.partition(":")[0] for d in drafters], **counted, **wrong})
        print(rows[-1], flush=True)
    return rows


def speed(repeats: int) -> list[dict]:
    import torch
    from transformers import AutoModelForCausalLM

    from engine.metrics import lane_metrics, race_speedup, speedup
    from engine.models.default_model import converted
    from engine.models.loading import load
    from engine.spec import SamplingParams
    from engine.text import encode_prompt

    loaded = load()
    stock = AutoModelForCausalLM.from_pretrained(converted(), dtype=loaded.model.dtype).eval()
    stock.generation_config.eos_token_id = None
    greedy = SamplingParams(max_new_tokens=128)
    figures: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    for repeat in range(repeats + 1):
        for name, text in PROMPTS.items():
            params = greedy if name != "story" else replace(greedy, temperature=0.9, seed=repeat)
            race, events, result = run_race(loaded, text, "ngram", 7, params)
            assert result["verdicts"]["speculative"]["kind"] in ("identical_tokens", "identical_bits"), result
            spec = race.lanes["speculative"].steps
            metrics = {lane: lane_metrics(events, lane) for lane in race.lanes}
            if repeat == 0:
                continue
            note(f"{name}: ngram k=7 / plain", race_speedup(events))
            note(f"{name}: ngram k=7 / baseline", speedup(race.lanes["baseline"].steps, spec))
            note(f"{name}: plain tok/s", metrics["plain"].tokens_per_s)
            note(f"{name}: ngram tok/s", metrics["speculative"].tokens_per_s)
            note(f"{name}: mean acceptance length", metrics["speculative"].mean_acceptance_length)
            note("width 8 / plain step", race.widths.seconds[8] / race.widths.seconds[race.widths.plan.plain_width])
            if name in ("csv", "code"):
                ids = torch.tensor([encode_prompt(loaded.tokenizer, text).token_ids])
                with torch.inference_mode():
                    start = time.perf_counter()
                    stock.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False)
                    middle = time.perf_counter()
                    out = stock.generate(
                        ids, attention_mask=torch.ones_like(ids), max_new_tokens=65, min_new_tokens=65, do_sample=False
                    )
                    end = time.perf_counter()
                rate = (out.shape[1] - ids.shape[1] - 1) / ((end - middle) - (middle - start))
                note(
                    "plain lane / transformers generate (prefill taken off both)", metrics["plain"].tokens_per_s / rate
                )
            lane = next(iter([race.build(race.spec.lanes[0])]))
            start = time.perf_counter()
            steps = list(race.decode(lane))
            wall = time.perf_counter() - start
            note(
                "sum of step times and prefill / wall time, alone",
                (sum(s.seconds for s in steps[1:-1]) + steps[0].prefill_s) / wall,
            )
    rows = []
    for name, values in figures.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        rows.append(
            {
                "bar": name,
                "median": round(statistics.median(values), 3),
                "p25": round(quartiles[0], 3),
                "p75": round(quartiles[2], 3),
                "runs": len(values),
            }
        )
        print(rows[-1], flush=True)
    return rows


def four_lanes(repeats: int) -> list[dict]:
    from engine.models.loading import load
    from engine.session import TorchRace
    from engine.spec import RaceSpec, SamplingParams, lanes_of
    from engine.text import encode_prompt

    loaded, params = load(), SamplingParams(max_new_tokens=64)
    drafting = [("ngram", "ngram", 7), ("eagle3", "eagle3", 7), ("dflash", "dflash", 5), ("short", "eagle3", 3)]
    times: dict[tuple, dict[bool, list[float]]] = {}
    for repeat in range(repeats + 1):
        for name in ("csv", "story"):
            text = PROMPTS[name]
            for lanes in (drafting, *([lane] for lane in drafting)):
                race = TorchRace(loaded, RaceSpec(lanes_of(lanes), params), encode_prompt(loaded.tokenizer, text))
                for _ in race.events():
                    pass
                for lane, _, _ in lanes if repeat else []:
                    for step in race.lanes[lane].steps:
                        kind = lane, name, step.width, step.num_drafted
                        times.setdefault(kind, {}).setdefault(len(lanes) > 1, []).append(step.seconds)
    rows = []
    for lane, _, _ in drafting:
        ratios = [
            (statistics.median(of[True]) / statistics.median(of[False]), len(of[True]))
            for (whose, *_), of in times.items()
            if whose == lane and min(len(of.get(among, [])) for among in (True, False)) >= 5 * repeats
        ]
        mean = sum(ratio * num for ratio, num in ratios) / sum(num for _, num in ratios)
        spread = min(ratios)[0], max(ratios)[0]
        rows.append({"bar": f"{lane}: step among four lanes / alone", "mean": mean, "least, most": spread})
        print(rows[-1], flush=True)
    return rows


def start() -> list[dict]:
    rows = []

    def fresh(name: str, code: str, runs: int) -> None:
        seconds = []
        for _ in range(runs):
            begin = time.perf_counter()
            out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
            seconds.append(float(out.stdout.split()[-1]) - begin if out.stdout.strip() else time.perf_counter() - begin)
        rows.append({"bar": name, "median": round(statistics.median(seconds), 3), "runs": runs})
        print(rows[-1], flush=True)

    bare = "import time; print(time.perf_counter())"
    fresh("bare python, s", bare, 5)
    fresh(
        "import engine, s",
        "import engine, sys, time; assert not {'torch', 'gradio'} & set(sys.modules); print(time.perf_counter())",
        5,
    )
    first_step = """
import time
from engine.session import TorchRace
from engine.models.loading import load
from engine.spec import RaceSpec, standard_lanes
from engine.text import encode_prompt
from engine.events import Step
loaded = load()
prompt = encode_prompt(loaded.tokenizer, open("assets/prompts/csv_to_json.txt").read())
race = TorchRace(loaded, RaceSpec(standard_lanes("ngram", 7)), prompt)
next(e for e in race.events() if isinstance(e.event, Step))
print(time.perf_counter())
"""
    fresh("later start to the first step, s", first_step, 3)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", nargs="*", choices=["exact", "speed", "start", "lanes", []], default=["start", "speed", "exact"]
    )
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="of `exact`, the targets whose name:dtype has this in it")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    rows: list[dict] = []
    for what in a.what:
        parts = {"exact": lambda: exact(a.tokens, a.only), "speed": lambda: speed(a.repeats), "start": start}
        rows += {**parts, "lanes": lambda: four_lanes(a.repeats)}[what]()
    if a.json:
        import torch

        from engine.kernels.choose import choose
        from engine.measure import environment

        a.json.parent.mkdir(parents=True, exist_ok=True)
        device = choose(torch.device("cpu")).about_device()
        a.json.write_text(
            json.dumps(
                {
                    "device": device,
                    "versions": environment.versions(choose(torch.device("cpu")).describe()),
                    "commit": environment.commit(),
                    "rows": rows,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
