"""Judges drafters on held-out prompts: python tools/heads.py --lanes ngram@7 eagle3@4 dflash@7 hybrid:ngram+eagle3@auto
[--repeats 3]

Every race has the lanes plain, baseline and one for each DRAFTER@K, interleaved step by step in one process. Reported
per kind of prompt: tokens a step, acceptance, and seconds per token of the plain lane over this lane's, medians of the
repeats (each another seed); of a lane at k auto, what part of its oracle's speed it reached. Prints a table and writes
JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PROMPTS = ROOT / "assets" / "prompts" / "held_out.json"
UNDRAFTED = ("plain", "baseline")
POOLED = {"structured": ("code", "json", "sql"), "all": ("code", "json", "sql", "prose")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", nargs="+", default=["ngram@7", "eagle3@4", "dflash@7", "hybrid:ngram+eagle3@auto"])
    parser.add_argument("--kinds", nargs="+", default=["code", "json", "sql", "prose"])
    parser.add_argument("--per-kind", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--target")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    from engine.events import Finished, Step
    from engine.measure import environment
    from engine.models.loading import DEFAULT_TARGET, load
    from engine.session import TorchRace
    from engine.spec import LaneSpec, RaceSpec, SamplingParams
    from engine.text import encode_prompt
    from engine.what_if.ask import auto_shares

    loaded = load(options.target or DEFAULT_TARGET)
    lanes = [LaneSpec("plain", width="fastest"), LaneSpec("baseline")]
    for text in options.lanes:
        drafter, _, k = text.rpartition("@")
        lanes.append(LaneSpec(text, drafter=drafter, k=k if k == "auto" else int(k)))
    rows: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    num_different = num_tokens = 0
    for item in json.loads(PROMPTS.read_text()):
        if (
            item["kind"] not in options.kinds
            or len(rows.get((item["kind"], "plain"), ())) >= options.per_kind * options.repeats
        ):
            continue
        for repeat in range(options.repeats):
            params = SamplingParams(
                temperature=options.temperature, seed=1000 + repeat, max_new_tokens=options.max_new_tokens
            )
            race = TorchRace(
                loaded, RaceSpec(tuple(lanes), params), encode_prompt(loaded.tokenizer, item["prompt"], False)
            )
            seconds: dict[str, float] = {}
            steps: dict[str, list[Step]] = defaultdict(list)
            for event in race.events():
                if isinstance(event.event, Step):
                    steps[event.lane].append(event.event)
                elif isinstance(event.event, Finished):
                    seconds[event.lane] = event.event.decode_s / event.event.num_tokens
            shares = auto_shares(race)
            written = {name: [t for s in lane for t in s.token_ids] for name, lane in steps.items()}
            for name, lane in steps.items():
                if name not in UNDRAFTED:
                    num_tokens += len(written[name])
                    num_different += sum(a != b for a, b in zip(written[name], written["baseline"], strict=True))
                drafted = sum(len(s.drafted) for s in lane)
                rows[item["kind"], name].append(
                    {
                        "tokens_a_step": len(written[name]) / len(lane),
                        "acceptance": sum(s.num_accepted for s in lane) / drafted if drafted else 0.0,
                        "speedup": (seconds["plain"] if name in UNDRAFTED else min(seconds[lane] for lane in UNDRAFTED))
                        / seconds[name],
                        "draft_ms": 1e3 * statistics.median(s.draft_s for s in lane),
                        "verify_ms": 1e3 * statistics.median(s.verify_s for s in lane),
                        **({"oracle_share": shares[name]} if name in shares else {}),
                    }
                )
            print(
                item["id"],
                repeat,
                {name: round(rows[item["kind"], name][-1]["tokens_a_step"], 2) for name in written if name != "plain"},
                flush=True,
            )
    races = [{"kind": kind, "lane": name, **value} for (kind, name), values in rows.items() for value in values]
    for pooled, kinds in POOLED.items():
        for name in dict.fromkeys(name for _, name in rows):
            if values := [value for kind in kinds for value in rows.get((kind, name), ())]:
                rows[pooled, name] = values
    table = []
    for (kind, name), values in rows.items():
        table.append(
            {
                "kind": kind,
                "lane": name,
                "num_races": len(values),
                **{key: statistics.median(v[key] for v in values) for key in values[0]},
                "mean_tokens_a_step": statistics.fmean(v["tokens_a_step"] for v in values),
                "speedup_quartiles": statistics.quantiles((v["speedup"] for v in values), n=4)[::2]
                if len(values) > 1
                else None,
            }
        )
    print(f"\n{num_tokens} tokens of drafting lanes, {num_different} differ from the baseline's\n")
    print(
        f"{'kind':11}{'lane':34}{'races':>6}{'tokens/step':>12}{'mean':>7}"
        f"{'accepted':>10}{'speed-up':>10}{'draft ms':>10}{'verify ms':>10}{'of oracle':>11}"
    )
    for row in table:
        print(
            f"{row['kind']:11}{row['lane']:34}{row['num_races']:6}"
            f"{row['tokens_a_step']:12.2f}{row['mean_tokens_a_step']:7.2f}"
            f"{row['acceptance']:10.2f}{row['speedup']:10.2f}{row['draft_ms']:10.1f}{row['verify_ms']:10.1f}"
            + (f"{100 * row['oracle_share']:9.0f} %" if "oracle_share" in row else "")
        )
    if options.out:
        about = {
            "versions": environment.versions(loaded.prepared.kernels.describe()),
            "device": loaded.prepared.kernels.about_device(),
            "commit": environment.commit(),
            "threads": torch.get_num_threads(),
            "model": asdict(loaded.info),
        }
        options.out.write_text(
            json.dumps(
                {
                    **about,
                    "temperature": options.temperature,
                    "num_tokens": num_tokens,
                    "num_different": num_different,
                    "rows": table,
                    "races": races,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
