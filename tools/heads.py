"""Compare drafters on held-out prompts.

    python -m tools.heads --lanes ngram@7 eagle3@4 dflash@3 hybrid:ngram+eagle3@auto [--repeats 3] [--out FILE]
    python -m tools.heads --prompts FILE     # a JSON list of {"id", "kind", "prompt"} that nothing was fitted to

Every race has the lanes plain, baseline and one for each DRAFTER@K, interleaved step by step in one process; each
repeat has another seed. Reported per kind of prompt, over all races: tokens per step, acceptance rate, speed-up over
the fastest plain decoding, and for lanes at k auto the share of the oracle's speed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.analysis.metrics import lane_metrics, race_speedups
from engine.hardware import environment
from engine.loading.loading import DEFAULT_TARGET, load
from engine.session import TorchRace
from engine.spec import SPECULATIVE, LaneSpec, RaceSpec, SamplingParams
from engine.text import encode_prompt
from engine.what_if.ask import auto_shares

PROMPTS = Path(__file__).resolve().parents[1] / "assets" / "prompts" / "held_out.json"
KINDS = ("code", "json", "sql", "prose")
POOLED = {"structured": KINDS[:3], "all": KINDS}
COLUMNS = {"mean_acceptance_length": "tokens/step", "acceptance_rate": "accepted", "speedup": "speed-up",
           "oracle_share": "of oracle"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", nargs="+", default=["ngram@7", "eagle3@4", "dflash@3", "hybrid:ngram+eagle3@auto"])
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--per-kind", type=int, default=6, help="prompts of each kind")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    loaded = load(options.target)
    lanes = [LaneSpec("plain", width="fastest"), LaneSpec("baseline")]
    for name in options.lanes:
        drafter, _, k = name.rpartition("@")
        lanes.append(LaneSpec(name, drafter=drafter, k=k if k == "auto" else int(k)))
    held_out = json.loads(options.prompts.read_text())
    rows: list[dict[str, Any]] = []
    for kind in options.kinds:
        for item in [each for each in held_out if each["kind"] == kind][: options.per_kind]:
            for seed in range(1000, 1000 + options.repeats):
                params = SamplingParams(options.temperature, seed=seed, max_new_tokens=options.max_new_tokens)
                rows += [
                    {"kind": kind, "id": item["id"], **row} for row in raced(loaded, lanes, params, item["prompt"])
                ]
    table = [
        found for kind, kinds in {**{k: (k,) for k in KINDS}, **POOLED}.items() for found in medians(rows, kind, kinds)
    ]
    print(f"{'kind':11}{'lane':28}{'races':>6}" + "".join(f"{title:>13}" for title in COLUMNS.values()))
    for row in table:
        values = "".join(f"{row[key]:13.2f}" if row[key] is not None else " " * 13 for key in COLUMNS)
        print(f"{row['kind']:11}{row['lane']:28}{row['num_races']:6}{values}")
    if options.out:
        about = {**environment.circumstances(loaded.prepared), "model": loaded.info.about()}
        options.out.write_text(json.dumps({**about, "rows": table, "races": rows}, indent=1) + "\n")


def raced(loaded: Any, lanes: Sequence[LaneSpec], params: SamplingParams, text: str) -> list[dict[str, Any]]:
    """Figures of every drafting lane in one race. Raises AssertionError if a lane wrote other tokens than baseline."""
    race = TorchRace(loaded, RaceSpec(tuple(lanes), params), encode_prompt(loaded.tokenizer, text, False))
    events = list(race.events())
    verdicts, speedups, shares = race.result()["verdicts"], race_speedups(events, lanes), auto_shares(race)
    rows = []
    for lane in lanes:
        if lane.role == SPECULATIVE:
            assert verdicts[lane.name]["kind"].startswith("identical"), (lane.name, verdicts[lane.name])
            metrics = lane_metrics(events, lane.name)
            rows.append({
                "lane": lane.name,
                "num_tokens": metrics.num_tokens,
                "mean_acceptance_length": metrics.mean_acceptance_length,
                "acceptance_rate": metrics.acceptance_rate,
                "speedup": speedups[lane.name],
                "oracle_share": shares.get(lane.name),
            })  # fmt: skip
    print({row["lane"]: round(row["mean_acceptance_length"] or 0, 2) for row in rows}, flush=True)
    return rows


def medians(rows: Sequence[dict[str, Any]], name: str, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """One row for every lane: mean tokens per step, medians of everything else, quartiles of the speed-up."""
    by_lane: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["kind"] in kinds:
            by_lane[row["lane"]].append(row)
    found = []
    for lane, its in by_lane.items():
        values = {key: [row[key] for row in its if row[key] is not None] for key in COLUMNS}
        middle = {key: statistics.median(each) if each else None for key, each in values.items()}
        middle["mean_acceptance_length"] = statistics.fmean(values["mean_acceptance_length"])
        speeds = values["speedup"]
        quartiles = statistics.quantiles(speeds, n=4)[::2] if len(speeds) > 1 else None
        found.append({"kind": name, "lane": lane, "num_races": len(its), **middle, "speedup_quartiles": quartiles})
    return found


if __name__ == "__main__":
    main()
