"""Measure how well computed races match real ones, and how near `auto` k comes to the best.

    python -m tools.what_if_check races|times|tables|auto [--groups N] [--json FILE]

races    real races of trees and chains at many sizes: how many are, step for step, what tables computed. 14 a group

times    computed over measured tokens/s at the same k, in one race on the fair clock. Costs come from plain, baseline
         and a survey lane of each drafter, never from the lane that is predicted. Needs a quiet machine
tables   seconds to compute the tables of trees of n-gram and EAGLE-3 after a race of 400 tokens
auto     share of the oracle's speed that `auto` k reaches with trees, its speed over the best fixed size of trees, and
         over the best fixed k of chains (least, then quartiles). Simulated over tables (`what_if/auto.py`, not the
         rule itself) at three fixed sets of costs (COSTS), by drafter and kind of text, on the half of the
         held-out prompts that no constant of the rule was fitted to, at temperature 0 and twice at 0.8. A busy machine
         will do. A group is a prompt; there are 12

After every group a part replaces its own entry of the JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import Any

import torch

from engine.events import Step
from engine.hardware import environment
from engine.kernels.choose import choose
from engine.loading.loading import load
from engine.session import TorchRace
from engine.spec import AUTO, LaneSpec, RaceSpec, SamplingParams, paths
from engine.text import encode_prompt
from engine.what_if.ask import what_if
from engine.what_if.auto import auto_steps
from engine.what_if.costs import Costs
from engine.what_if.judged import WhatIf
from engine.what_if.survey import SurveyDrafter
from engine.what_if.tables import TREES, Table, seconds_of, table_name

HELD_OUT = Path(__file__).resolve().parents[1] / "assets" / "prompts" / "held_out.json"
DRAFTERS = ("ngram", "eagle3", "hybrid:ngram+eagle3")
KS = (1, 2, 3, 5, 7, 11, 15)
NUM_TOKENS, LONG = 80, 400
COSTS = {
    "this machine": ([1.0] * 2 + [1.036] * 2 + [1.062] * 2 + [1.098] * 2 + [1.264] * 4, 0.044, 0.0062),
    "flat": ([1 + m / 150 for m in range(16)], 0.035, 0.035),
    "steep": ([1.0, 1.05, 1.15, 1.19, *[1.27] * 2, *[1.47] * 2, *[1.70] * 4, *[1.92] * 4], 0.0815, 0.0444),
}
"""In units of a step without a draft: (steps that verify 0, 1, ... drafts, a head's first token, each further one).
"this machine" is the mean of the races that ship; "flat" is what a GPU may be like; "steep" is a CPU with torch's own
kernels."""
LOOKUP = 0.0008
"""Cost of a copy, in the same unit."""


def finished_race(
    loaded: Any, text: str, lanes: Iterable[Any], tokens: int, temperature: float, seed: int, wrap: bool = False
) -> TorchRace:
    """wrap: lanes of the largest k survey all draft lengths."""
    plain = [LaneSpec("plain", width="fastest"), LaneSpec("baseline")]
    top_p = 0.95 if seed % 3 == 0 and temperature else 1.0
    params = SamplingParams(temperature=temperature, top_p=top_p, seed=seed, max_new_tokens=tokens)
    spec = RaceSpec((*plain, *(LaneSpec(f"{drafter}@{k}", drafter, k) for drafter, k in lanes)), params)
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, text))
    if wrap:
        for lane in race.lanes.values():
            if lane.spec.k == max(KS):
                lane.drafter = SurveyDrafter(lane.drafter)
    for _ in race.events():
        pass
    return race


def prompts() -> Iterator[dict[str, str]]:
    """The held-out prompts, alternating between kinds."""
    by_kind: dict[str, list[dict[str, str]]] = {}
    for item in json.loads(HELD_OUT.read_text()):
        by_kind.setdefault(item["kind"], []).append(item)
    for i in range(max(map(len, by_kind.values()))):
        yield from (items[i] for items in by_kind.values() if i < len(items))


def races(groups: int) -> Iterator[dict[str, Any]]:
    loaded, compared, equal = load(), 0, 0
    for index, item in enumerate(islice(cycle(prompts()), groups)):
        sizes = islice(cycle(range(1, 16)), 7 * index, None)
        lanes: list[Any] = [(drafter, f"tree:{next(sizes)}") for drafter in (*DRAFTERS, "dflash") for _ in range(3)]
        lanes += [[("ngram", 7), ("dflash", 5)], [("eagle3", 4), ("hybrid:ngram+eagle3", 6)]][index // 2 % 2]
        race = finished_race(loaded, item["prompt"], lanes, NUM_TOKENS, (0.0, 0.8)[index % 2], index)
        found = what_if(race)
        for drafter, k in lanes:
            real, computed = race.lanes[f"{drafter}@{k}"].steps, found.steps(drafter, k)
            compared, equal = compared + 1, equal + ([*map(counts, real)] == [*map(counts, computed)])
        print(index, item["id"], f"{equal} of {compared}", flush=True)
        yield {"what": "real races that tables computed step for step", "compared": compared, "equal": equal}


def counts(step: Step) -> tuple[Any, ...]:
    """What a step did. A chain may be written with parents or without."""
    parents = step.parents or tuple(range(step.num_drafted))
    return step.index, step.position, step.drafted, parents, step.num_accepted, step.token_ids, step.kept


def times(groups: int) -> Iterator[dict[str, Any]]:
    loaded = load()
    errors: dict[str, list[float]] = {}
    for index, item in enumerate(islice(prompts(), groups)):
        lanes = [(name, k) for name in ("ngram", "eagle3") for k in KS]
        race = finished_race(
            loaded, item["prompt"], lanes, 2 * NUM_TOKENS, (0.0, 0.8)[index // 4 % 2], index, wrap=True
        )
        real = [race.lanes.pop(f"{name}@{k}") for name, k in lanes if k != max(KS)]
        found = what_if(race, lanes)
        for lane in real:
            computed = seconds_of(found.steps(lane.spec.drafter, lane.spec.k))
            errors.setdefault(lane.spec.name, []).append(seconds_of(lane.steps) / computed - 1)
        print(index, item["id"], {name: round(100 * of[-1], 1) for name, of in errors.items()}, flush=True)
        together = [value for of in errors.values() for value in of]
        yield {
            "what": "computed tokens/s over measured, less 1",
            "median_of_absolute": statistics.median(map(abs, together)),
            "quartiles": quartiles(together),
            "by_lane": {name: quartiles(of) for name, of in errors.items()},
            "num_races": len(together),
        }


def tables(groups: int) -> Iterator[dict[str, Any]]:
    loaded, seconds = load(), []
    for item in islice((item for item in prompts() if item["kind"] != "sql"), groups):
        race = finished_race(loaded, item["prompt"], [("ngram", AUTO), ("eagle3", AUTO)], LONG, 0.8, 7)
        began = time.perf_counter()
        if len(what_if(race).text.token_ids) == LONG:
            seconds.append(time.perf_counter() - began)
            yield {"num_tokens": LONG, "longest_draft": 15, "seconds": seconds, "median_s": statistics.median(seconds)}


def auto(groups: int) -> Iterator[dict[str, Any]]:
    loaded = load()
    shares: dict[str, list[float]] = {}
    over: dict[str, dict[str, list[float]]] = {"trees": {}, "chains": {}}
    unseen = [item for index, item in enumerate(prompts()) if index // 4 % 2]
    for item in unseen[:groups]:
        kind = "prose" if item["kind"] == "prose" else "structured"
        for temperature, seed in ((0.0, 0), (0.8, 1001), (0.8, 1002)):
            race = finished_race(loaded, item["prompt"], [("ngram", 15)], 2 * NUM_TOKENS, temperature, seed)
            tabled = what_if(race, [(drafter, k) for drafter in DRAFTERS for k in (15, AUTO)])
            if len(tabled.text.token_ids) < NUM_TOKENS / 2:
                continue
            for name, (verify, first, another) in COSTS.items():
                draft_s = {of.name: costs(of, len(verify), first, another) for of in tabled.tables.values()}
                found = WhatIf(tabled.text, tabled.tables, Costs(tuple(verify), draft_s))
                for drafter in DRAFTERS:
                    taken, row = seconds_of(auto_steps(found, drafter)), f"{name}, {drafter}, {kind}"
                    shares.setdefault(row, []).append(found.oracle(drafter, AUTO) / taken)
                    for what, of in (("trees", table_name(drafter, TREES)), ("chains", drafter)):
                        over[what].setdefault(row, []).append(min(found.seconds()[of].values()) / taken)
        print(item["id"], flush=True)
        yield {
            "share_of_the_oracle": {row: quartiles(of) for row, of in shares.items()},
            **{
                f"speed_over_best_{what}": {row: [min(of), *quartiles(of)] for row, of in rows.items()}
                for what, rows in over.items()
            },
            "num_races": {row: len(of) for row, of in shares.items()},
        }


def costs(table: Table, num: int, first: float, another: float) -> tuple[float, ...]:
    """The cost of drafts of 0, 1, ... tokens: as many passes as they are deep, on average; copies take none."""
    if table.drafter == "ngram":
        return 0.0, *[LOOKUP] * (num - 1)
    trees = [replace(draft, parents=draft.parents or tuple(range(len(draft)))) for draft in table.drafts]
    means = [statistics.fmean(max(map(len, paths(draft.parents[:n]))) for draft in trees) for n in range(num)]
    return 0.0, *accumulate((first + another * max(0.0, mean - 1) for mean in means[1:]), max)


def quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"races": races, "times": times, "tables": tables, "auto": auto}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    before, kernels = os.getloadavg(), choose(torch.device("cpu"))
    about = {
        "device": kernels.about_device(),
        "model": "gemma-3-270m, bfloat16",
        "threads": torch.get_num_threads(),
        "versions": environment.versions(kernels.describe()),
        "commit": environment.commit(),
    }
    for found in parts[options.part](options.groups):
        found = {**about, "load_average": {"before": before, "after": os.getloadavg()}, **found}
        if options.json:
            known = json.loads(options.json.read_text()) if options.json.exists() else {}
            options.json.write_text(json.dumps({**known, options.part: found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
