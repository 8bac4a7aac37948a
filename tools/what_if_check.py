"""Measures the bars of the what-if race: python tools/what_if_check.py races|times|tables|auto [--groups N]
[--json FILE]

races    how many real races are told exactly: drafts, accepted counts and tokens of every step; n-gram, EAGLE-3, DFlash
         (each k its own table) on the default model, these and a draft model on the trained fixture; temperatures 0 and
         0.8, k 1 to 15. Counts do not depend on time, so a busy machine will do. A group is one prompt at one
         temperature: 14 races on the default model, 14 on the fixture
times    computed against measured tokens/s of the same k, in one race on the fair clock: costs come from plain,
         baseline and a survey lane of each drafter alone, never from the lane that is predicted. Needs a quiet machine
tables   seconds that the tables of n-gram and EAGLE-3 take for a race of 400 tokens, after it
auto     what part of the oracle's speed `auto` k reaches, simulated over tables at three fixed sets of costs (COSTS),
         by drafter and kind of text; and its speed over that of the best fixed k (the least, then quartiles). On the
         half of the held-out prompts that no prior of the rule was measured on, at temperature 0 and twice at 0.8. A
         busy machine will do. A group is a prompt; there are 12

After every group each part replaces its own entry of the JSON file, with what it was measured on and the machine's
load.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

FIXTURES = ROOT / "tests" / "fixtures" / "trained"
KS = (1, 2, 3, 5, 7, 11, 15)
ON_THE_FIXTURE = {f"draft_model:{FIXTURES / 'draft'}": KS, f"eagle3:{FIXTURES / 'eagle3'}": KS}
NUM_TOKENS, LONG = 80, 400
COSTS = {
    "this machine": ([1.0] * 2 + [1.036] * 2 + [1.062] * 2 + [1.098] * 2 + [1.264] * 4, 0.044, 0.0062),
    "flat": ([1 + m / 150 for m in range(16)], 0.035, 0.035),
    "steep": ([1.0, 1.05, 1.15, 1.19, *[1.27] * 2, *[1.47] * 2, *[1.70] * 4, *[1.92] * 4], 0.0815, 0.0444),
}
"""In steps without a draft: (steps that verify 0, 1, ... drafts, the head's first token, each other one). This
machine's are the means of the races that ship; flat is what a GPU is hoped to be; steep is a CPU with torch's own
kernels."""
LOOKUP = 0.0008
"""Of a copy, in the same measure."""


def held(
    loaded: Any, text: str, lanes: list[Any], tokens: int, temperature: float, seed: int, wrap: bool = False
) -> Any:
    """A finished race."""
    from engine.session import TorchRace
    from engine.spec import LaneSpec, RaceSpec, SamplingParams
    from engine.text import encode_prompt
    from engine.what_if.survey import SurveyDrafter

    plain = [LaneSpec("plain", width="fastest"), LaneSpec("baseline")]
    params = SamplingParams(temperature=temperature, top_p=0.95 if seed % 3 == 0 and temperature else 1.0, seed=seed,
                            max_new_tokens=tokens)  # fmt: skip
    spec = RaceSpec((*plain, *(LaneSpec(f"{d}@{k}"[-40:], d, k) for d, k in lanes)), params)
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, text))
    if wrap:
        for lane in race.lanes.values():
            if lane.spec.k == max(KS):
                lane.drafter = SurveyDrafter(lane.drafter)
    for _ in race.events():
        pass
    return race


def prompts() -> Iterator[dict[str, str]]:
    items = json.loads((ROOT / "assets/prompts/held_out.json").read_text())
    by_kind = {
        kind: [item for item in items if item["kind"] == kind] for kind in dict.fromkeys(i["kind"] for i in items)
    }
    for i in range(max(map(len, by_kind.values()))):
        yield from (items[i] for items in by_kind.values() if i < len(items))


def told_of(race: Any) -> Iterator[tuple[Any, list[Any]]]:
    """(a lane, the steps that its table tells)."""
    from engine.what_if.ask import what_if

    found = what_if(race)
    for lane in race.lanes.values():
        if lane.spec.role == "speculative":
            yield lane, found.steps(lane.spec.drafter, lane.spec.k)


def counts(steps: list[Any]) -> list[Any]:
    return [(step.position, step.drafted, step.num_accepted, step.token_ids) for step in steps]


def races(groups: int) -> Iterator[dict[str, Any]]:
    from engine.models.loading import load

    shipped, tiny = load(), {dtype: load(str(FIXTURES / "target"), dtype=dtype) for dtype in ("float32", "bfloat16")}
    num: dict[str, list[int]] = {}
    differ: list[str] = []
    for index, item in zip(range(groups), cycle(prompts()), strict=False):
        temperature, block = (0.0, 0.8)[(index // 4 + index // 24) % 2], [("dflash", 1 + index % 5)]
        ngram, eagle3 = ([(name, k) for k in KS] for name in ("ngram", "eagle3"))
        dtype = ("float32", "bfloat16")[index % 2]
        own = [(name, k) for name, ks in ON_THE_FIXTURE.items() for k in ks]
        for loaded, lanes, tokens in (
            (shipped, [*ngram[:-1], *eagle3, *block], NUM_TOKENS),
            (tiny[dtype], own, 3 * NUM_TOKENS),
        ):
            for lane, told in told_of(held(loaded, item["prompt"], lanes, tokens, temperature, index)):
                kind = f"{lane.spec.drafter.partition(':')[0]}, {loaded.info.dtype}, T = {temperature}"
                same = lane.finished and counts(told) == counts(lane.steps)
                of = num.setdefault(kind, [0, 0])
                of[0] += same
                of[1] += 1
                if not same:
                    differ.append(f"{item['id']}, {lane.spec.name}, {kind}")
        print(index, item["id"], num, differ[-3:], flush=True)
        total = [sum(each[i] for each in num.values()) for i in range(2)]
        yield {"num_equal": total[0], "num_races": total[1], "by_kind": num, "different": differ, "ks": KS}


def times(groups: int) -> Iterator[dict[str, Any]]:
    from engine.models.loading import load
    from engine.what_if.ask import what_if
    from engine.what_if.tables import seconds_of

    loaded = load()
    errors: dict[str, list[float]] = {}
    for index, item in zip(range(groups), prompts(), strict=False):
        lanes = [(name, k) for name in ("ngram", "eagle3") for k in (1, 2, 3, 5, 7, 11, 15)]
        race = held(loaded, item["prompt"], lanes, 2 * NUM_TOKENS, (0.0, 0.8)[index // 4 % 2], index, wrap=True)
        real = [race.lanes.pop(f"{name}@{k}") for name, k in lanes if k != max(KS)]
        found = what_if(race, lanes)
        for lane in real:
            told = seconds_of(found.steps(lane.spec.drafter, lane.spec.k))
            errors.setdefault(lane.spec.name, []).append(seconds_of(lane.steps) / told - 1)
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
    from engine.models.loading import load
    from engine.what_if.ask import what_if

    loaded, seconds = load(), []
    for _, item in zip(range(groups), (item for item in prompts() if item["kind"] != "sql"), strict=False):
        race = held(loaded, item["prompt"], [("ngram", 15), ("eagle3", 15)], LONG, 0.8, 7)
        began = time.perf_counter()
        num = len(what_if(race).text.token_ids)
        if num == LONG:
            seconds.append(time.perf_counter() - began)
            yield {"num_tokens": LONG, "longest_draft": 15, "seconds": seconds, "median_s": statistics.median(seconds)}


def auto(groups: int) -> Iterator[dict[str, Any]]:
    from engine.models.loading import load
    from engine.what_if.ask import what_if
    from engine.what_if.auto import auto_steps
    from engine.what_if.costs import Costs
    from engine.what_if.judged import WhatIf
    from engine.what_if.tables import seconds_of

    loaded = load()
    shares: dict[str, list[float]] = {}
    over_fixed: dict[str, list[float]] = {}
    untuned = [item for index, item in enumerate(prompts()) if index // 4 % 2]
    for item in untuned[:groups]:
        kind = "prose" if item["kind"] == "prose" else "structured"
        for temperature, seed in ((0.0, 0), (0.8, 1001), (0.8, 1002)):
            race = held(loaded, item["prompt"], [("ngram", 15)], 2 * NUM_TOKENS, temperature, seed)
            asked = what_if(race, [("ngram", 15), ("eagle3", 15)])
            if len(asked.text.token_ids) < NUM_TOKENS / 2:
                continue
            for name, (verify, first, another) in COSTS.items():
                drafts = [0.0, *(first + another * i for i in range(len(verify) - 1))]
                draft_s = {
                    each: drafts if each == "eagle3" else [0.0, *[LOOKUP] * (len(verify) - 1)] for each in asked.tables
                }
                found = WhatIf(
                    asked.text, asked.tables, Costs(tuple(verify), {k: tuple(v) for k, v in draft_s.items()})
                )
                for drafter in ("ngram", "eagle3", "hybrid:ngram+eagle3"):
                    taken, row = seconds_of(auto_steps(found, drafter)), f"{name}, {drafter}, {kind}"
                    shares.setdefault(row, []).append(found.oracle(drafter).seconds / taken)
                    if drafter in found.tables:
                        fixed = min(seconds_of(found.steps(drafter, k)) for k in range(1, len(verify)))
                        over_fixed.setdefault(row, []).append(fixed / taken)
        print(item["id"], flush=True)
        yield {
            "share_of_the_oracle": {row: quartiles(of) for row, of in shares.items()},
            "speed_over_best_fixed_k": {row: [min(of), *quartiles(of)] for row, of in over_fixed.items()},
            "num_races": {row: len(of) for row, of in shares.items()},
        }


def quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["races", "times", "tables", "auto"])
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    import torch

    from engine.kernels.choose import choose
    from engine.measure import environment

    if options.threads:
        torch.set_num_threads(options.threads)
    before = os.getloadavg()
    kernels = choose(torch.device("cpu"))
    about = {
        "device": kernels.about_device(),
        "model": "gemma-3-270m, bfloat16; the trained fixture of the tests",
        "threads": torch.get_num_threads(),
        "versions": environment.versions(kernels.describe()),
        "commit": environment.commit(),
    }
    for found in {"races": races, "times": times, "tables": tables, "auto": auto}[options.part](options.groups):
        found = {**about, "load_average": {"before": before, "after": os.getloadavg()}, **found}
        if options.json:
            known = json.loads(options.json.read_text()) if options.json.exists() else {}
            options.json.write_text(json.dumps({**known, options.part: found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
