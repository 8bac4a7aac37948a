"""Race random combinations for as long as you like, and count what differs from the baseline.

    python -m tools.soak --minutes 75 [--first N] [--out assets/results/soak.json]
    python -m tools.soak --segment 17          # that segment again: its races, a JSON line for each drafting lane

A segment is a process of its own: a target (the default model in every third one, else a fixture), a dtype, with or
without compiled kernels, and random races. A race has a baseline and at least six drafting lanes with different
drafters, draft lengths and rules. Temperature, prompt, its length (inside the sliding window, across its end, beyond
it) and the number of threads differ from race to race. The segment's number decides all of it, and the commit, whose
texts are the prompts; but how much `auto` drafts, and which class of widths is raced, is measured.

Sampled tokens under rule rejection are not promised to be equal: `tokens_by_chance`. Their rows of logits are compared
up to the first other token. Where no width is exact nothing is promised: `tokens_without_promise`. A difference, a lane
that fails and a process that ends early stop nothing; they are recorded with the race and its segment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engine.analysis.same import part
from engine.cache import write_atomically
from engine.core.events import Prompt
from engine.core.spec import BASELINE, LaneSpec, RaceSpec, SamplingParams, tree_size
from engine.kernels.cpu.build import OFF
from engine.loading.loading import DEFAULT_TARGET, LoadedModel, load
from engine.session import TorchRace
from tools import about

ROOT = Path(__file__).resolve().parents[1]
TRAINED = ROOT / "tests" / "fixtures" / "trained"
# Tokens that a sliding layer of each target sees; 0: it has none.
WINDOWS = {DEFAULT_TARGET: 512, "fixture": 0, "sliding": 16}
HEADS = [f"{name}:{TRAINED / name}" for name in ("eagle3", "dflash")]
DRAFT = f"draft_model:{TRAINED / 'draft'}"
DRAFTERS = ["ngram", "synthetic:0.9", "synthetic:0.5"]
SMALL = [*DRAFTERS, *HEADS, DRAFT, *(f"hybrid:ngram:2+{name}" for name in (*HEADS, DRAFT))]
LARGE = [*DRAFTERS, "eagle3", "dflash", "hybrid:ngram+eagle3", "hybrid:ngram:2+dflash"]
CHAINS, TREES, MOST_OF_DFLASH = (1, 2, 3, 5, 7), ("tree:3", "tree:7", "tree:15", "auto", "auto"), 5
TEMPERATURES = (0.0, 0.0, 0.3, 0.7, 1.0, 1.2)
# Tokens of a race, prompt included: few lengths, because each is probed.
ROOMS = {DEFAULT_TARGET: (224, 736), "fixture": (480, 992), "sliding": (480, 992)}
SEGMENT_TOKENS, SEGMENT_S = 10_000, 1800.0  # the last race goes beyond, with fixtures by up to 8,000


@dataclass(frozen=True)
class Segment:
    """What one process races."""

    target: str
    dtype: str
    kernels: str

    @staticmethod
    def of(number: int) -> Segment:
        draw, target = random.Random(f"segment {number}"), tuple(ROOMS)[number % 3]
        dtype = draw.choices(("bfloat16", "int8", "float32"), (4, 4, 1 if target == DEFAULT_TARGET else 3))[0]
        without = dtype != "int8" and draw.random() < 0.25  # 8-bit weights need the compiled kernels
        return Segment(target, dtype, "torch" if without else "compiled")

    def load(self, scratch: Path) -> LoadedModel:
        """scratch: where the sliding fixture is made: the trained one with windows, and weights of another digest, by
        which the engine tells models apart."""
        place = DEFAULT_TARGET if self.target == DEFAULT_TARGET else str(TRAINED / "target")
        if self.target == "sliding":
            place = str(shutil.copytree(place, scratch / "sliding"))
            config = json.loads((scratch / "sliding/config.json").read_text())
            kinds = ["sliding_attention", "full_attention"] * 3
            changed = {"sliding_window": WINDOWS["sliding"], "use_sliding_window": True, "layer_types": kinds}
            (scratch / "sliding/config.json").write_text(json.dumps(config | changed))
            weights = str(scratch / "sliding/model.safetensors")
            save_file(load_file(weights), weights, {"format": "pt", "changed": "windows"})
        return load(place, self.dtype, "cpu")


def texts() -> list[str]:
    """Code, prose and data: this repository's own."""
    patterns = "assets/prompts/*", "docs/*.md", "engine/*/*.py", "app/web/board/*.js", "engine/kernels/cpu/*.c"
    return [path.read_text() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def random_race(draw: random.Random, segment: Segment, tokenizer: Any, all_texts: list[str]) -> tuple[RaceSpec, Prompt]:
    """The lanes, how tokens are chosen, and a prompt that leaves room for 100 tokens and more."""
    room, text = draw.choice(ROOMS[segment.target]), draw.choice(all_texts)
    num_prompt = draw.choice((draw.randint(1, 40), draw.randint(1, 40), room // 2, room - 110))
    start = draw.randrange(max(1, len(text) - 8 * num_prompt))
    ids = tokenizer(text[start : start + 8 * num_prompt], add_special_tokens=False)["input_ids"][:num_prompt]
    chosen = draw.choice(TEMPERATURES), draw.choice((0, 0, 20)), draw.choice((1.0, 1.0, 0.9)), draw.randrange(2**32)
    is_large = segment.target == DEFAULT_TARGET
    params = SamplingParams(*chosen, max_new_tokens=min(room - len(ids), 256 if is_large else 960))
    drafters, lanes = LARGE if is_large else SMALL, [LaneSpec(BASELINE)]
    for i, drafter in enumerate(draw.sample(drafters, draw.randint(6, len(drafters)))):
        k = draw.choice(CHAINS if draw.random() < 0.4 else TREES)
        k = min(k, MOST_OF_DFLASH) if isinstance(k, int) and "dflash" in drafter else k
        rule = "coupled" if tree_size(k) or draw.random() < 0.8 else "rejection"
        lanes.append(LaneSpec(f"{i}", drafter, k, rule=rule))
    return RaceSpec(tuple(lanes), params, audit=True), Prompt("", tuple(ids))


def counts(race: TorchRace, name: str) -> dict[str, int]:
    """What one lane wrote, next to the baseline. From the first token that differs on, all count as different."""
    lane, same = race.lanes[name], part(race.lanes[BASELINE].steps, race.lanes[name].steps)
    own, others = len(same.tokens_b), len(same.tokens_a)
    if not race.widths.plan.exact:
        return {"tokens_without_promise": own}
    rows = {"rows_compared": same.num_rows, "rows_different": same.rows_different or 0}
    if lane.accept.guarantee == "same distribution":
        return {"tokens_by_chance": own, **rows}
    num_same = min(own, others) if same.first is None else same.first
    trees = sum(bool(step.parents) for step in lane.steps)
    return {"tokens": own, "trees": trees, "tokens_different": max(own, others) - num_same, **rows}


def rows_of(segment: Segment, race: TorchRace) -> Iterator[dict[str, Any]]:
    """A row for each drafting lane: its combination, its counts and, if it is wrong, what it takes to run it again."""
    spec, num_prompt, window = race.spec, len(race.prompt.token_ids), WINDOWS[segment.target]
    inside = num_prompt + spec.params.max_new_tokens <= window
    place = "none" if not window else "beyond" if num_prompt >= window else "inside" if inside else "across its end"
    for lane in spec.lanes[1:]:
        numbers, done = counts(race, lane.name), race.lanes[lane.name]
        kinds = {
            **asdict(segment),
            "threads": torch.get_num_threads(),
            "window": place,
            "drafter": "+".join(name.partition(":")[0] for name in lane.drafter.split("+")),
            "draft": "tree" if tree_size(lane.k) else "auto" if lane.k == "auto" else "chain",
            "rule": lane.rule,
            "temperature": spec.params.temperature,
        }
        failed = done.failure or ("" if done.finished else "did not finish")
        problem = {"failed": failed, "lane": lane.name, "spec": spec.to_json(), "prompt": race.prompt.token_ids}
        wrong = failed or numbers.get("tokens_different") or numbers.get("rows_different")
        yield {"kinds": kinds, "counts": numbers, "problem": {**kinds, **numbers, **problem} if wrong else None}


def run_segment(number: int) -> None:
    """Prints a JSON line for every drafting lane, until the segment has its tokens or its time is over."""
    segment, all_texts, num, started = Segment.of(number), texts(), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        loaded, draw = segment.load(Path(scratch)), random.Random(f"race {number}")
        while num < SEGMENT_TOKENS and time.monotonic() - started < SEGMENT_S:
            torch.set_num_threads(2 if draw.random() < 0.15 else 1)
            race = TorchRace(loaded, *random_race(draw, segment, loaded.tokenizer, all_texts))
            for lane in race.lanes.values():
                lane.candidates = None  # checksums are enough, and looking at every row takes half of the time
            for _ in race.events():
                pass
            for row in rows_of(segment, race):
                num += row["counts"].get("tokens", 0)
                print(json.dumps(row), flush=True)


class Totals:
    """Sums over all segments, and under `by` those of each value of each choice."""

    def __init__(self) -> None:
        self.all, self.problems = Counter[str](), list[dict[str, Any]]()
        self.by: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def add(self, row: dict[str, Any], number: int) -> None:
        self.all.update(row["counts"])
        for kind, value in row["kinds"].items():
            self.by[kind][str(value)].update(row["counts"])
        if row["problem"]:
            self.problems.append({"segment": number, **row["problem"]})

    def to_json(self) -> dict[str, Any]:
        return {**self.all, "by": self.by, "problems": self.problems}


def soak(totals: Totals, first: int, minutes: float, out: Path) -> None:
    """Segment after segment. The file is written after each."""
    head, deadline = about(), time.monotonic() + 60 * minutes
    for number in count(first):
        if (left := deadline - time.monotonic()) <= 0:
            return
        env = os.environ | ({OFF: "0"} if Segment.of(number).kernels == "torch" else {})
        command = [sys.executable, "-m", "tools.soak", "--segment", str(number)]
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)
            (timer := Timer(left, child.kill)).start()
            for line in child.stdout or ():
                if line.endswith("\n"):  # the last one, where time is over, may not
                    totals.add(json.loads(line), number)
            status = child.wait()
            timer.cancel()
            if status and time.monotonic() < deadline:
                errors.seek(0)
                totals.problems.append({"segment": number, "failed": f"status {status}: {errors.read()[-2000:]}"})
        result = {**head, "next_segment": number + 1, **totals.to_json()}
        write_atomically(out, (json.dumps(result, indent=1) + "\n").encode())
        print(f"segment {number}:", dict(totals.all), len(totals.problems), "problems", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so long")
    parser.add_argument("--first", type=int, default=0, help="the segment to begin with, such as a file's next_segment")
    parser.add_argument("--out", type=Path, default=ROOT / "assets/results/soak.json")
    parser.add_argument("--segment", type=int, help="race one segment again and print its rows")
    options = parser.parse_args()
    if options.segment is not None:
        run_segment(options.segment)
    else:
        soak(Totals(), options.first, options.minutes, options.out)


if __name__ == "__main__":
    main()
