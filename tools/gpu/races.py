"""Races through the engine as a library: tokens, bits, speed. Do they work at all, and does every drafter write the
baseline's tokens, bit by bit?"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.cli.main import main
from engine.core.decode import decode
from engine.core.events import Failed, Prompt, Step
from engine.core.sampling.accept import Coupled
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SPECULATIVE, LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.drafters import DrafterContext, make
from engine.loading.loading import load
from engine.progress import collected, silent
from engine.runner.target import StaticTarget
from engine.session import TorchRace
from engine.text import StopAt, encode_prompt
from tools.gpu.part import ROOT, Part

TRAINED = ROOT / "tests" / "fixtures" / "trained"
TARGET = str(TRAINED / "target")
DRAFTERS = {
    "ngram": ("ngram", 7),
    "eagle3": (f"eagle3:{TRAINED / 'eagle3'}", 5),
    "dflash": (f"dflash:{TRAINED / 'dflash'}", 7),
    "draft_model": (f"draft_model:{TRAINED / 'draft'}", 5),
    "synthetic": ("synthetic:0.7", 7),
}  # the trained fixture's drafters and their k
TEXTS = (
    "class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def ",
    "import os\nimport sys\n\n\ndef main(argv):\n",
    "    for line in lines:\n",
)
GIB = 1024**3
GOLDEN = ROOT / "tests" / "fixtures" / "golden.json"


@dataclass(frozen=True)
class Raced:
    """A finished race: steps by lane, and error messages by failed lane."""

    race: TorchRace
    steps: dict[str, list[Step]]
    failed: dict[str, str]

    def decisions(self, lane: str) -> list[tuple[Any, ...]]:
        """What each step drafted, accepted and committed."""
        return [(step.drafted, step.num_accepted, step.token_ids) for step in self.steps[lane]]

    def differ(self, lane: str) -> tuple[int, int, int]:
        """(tokens, those that differ from the baseline's, rows of logits that differ); rows only where audited."""
        own, base = (
            [[item for step in self.steps[name] for item in getattr(step, what)] for what in ("token_ids", "checksums")]
            for name in (lane, "baseline")
        )
        num = max(len(own[0]), len(base[0]))
        tokens, rows = (num - sum(a == b for a, b in zip(*pair, strict=False)) for pair in zip(own, base, strict=True))
        return num, tokens, rows if any(own[1]) else 0

    def speed(self, lane: str) -> dict[str, float]:
        steps = self.steps[lane]
        num = sum(len(step.token_ids) for step in steps)
        return {
            "tokens_per_s": num / sum(step.seconds for step in steps),
            "tokens_a_step": num / len(steps),
            "step_ms": 1e3 * statistics.median(step.seconds for step in steps),
            "draft_ms": 1e3 * statistics.median(step.draft_s for step in steps),
        }


def raced(
    loaded: Any,
    lanes: Sequence[LaneSpec],
    prompt: Prompt,
    temperature: float,
    num_tokens: int,
    audit: bool = True,
    solo: bool = False,
) -> Raced:
    """Set a race up and run it to its end."""
    params = SamplingParams(temperature=temperature, seed=3, max_new_tokens=num_tokens)
    race = TorchRace(loaded, RaceSpec(tuple(lanes), params, audit=audit, solo=solo), prompt)
    events = collected(race.events(), silent)
    failed = {event.lane: event.event.message for event in events if isinstance(event.event, Failed)}
    steps = {name: lane.steps for name, lane in race.lanes.items()}
    return Raced(race, steps, failed)


def judged(done: Raced, lane: str = SPECULATIVE) -> tuple[bool, str, dict[str, Any]]:
    """Whether that lane wrote the baseline's tokens, in words and in numbers. They may differ only at a near tie, and
    only if the race said that its widths are not exact."""
    if done.failed:
        return False, f"failed: {done.failed}", {}
    num, tokens, rows = done.differ(lane)
    verdict, plan = done.race.result()["verdicts"][lane], done.race.widths.plan
    ok = num > 0 and verdict["kind"] != "different" and not (tokens and plan.exact)
    numbers = {"tokens": num, "tokens_differ": tokens, "rows_differ": rows, "exact": plan.exact, "width": plan.width}
    says = f"{verdict['kind']}, {tokens} of {num} tokens and {rows} rows differ{'' if plan.exact else ', not exact'}"
    return ok, says, {**numbers, "verdict": verdict["kind"], "plan": plan.note}


def allocated() -> float:
    """GiB of device memory in tensors now."""
    return torch.cuda.memory_allocated() / GIB


def smoke(part: Part) -> None:
    """As a user runs a race, then ten times in one process."""
    drafter, k = DRAFTERS["eagle3"]
    num_tokens = 8 if part.small else 64
    file = part.scratch / "race.json"
    options = {"target": TARGET, "drafter": drafter, "k": k, "temperature": 0.8, "save": file}
    options |= {"max-new-tokens": num_tokens, "prompt": TEXTS[0]}
    command = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    status = main(["race", *command, "--audit", "--json"])
    recording = json.loads(file.read_text()) if file.exists() else {}
    verdict = recording.get("verdicts", {}).get("speculative", {}).get("kind")
    runs = recording.get("runs", {}).get("sentence", "nothing ran")
    about = {key: recording.get(key) for key in ("device", "versions", "commit", "runs", "widths")}
    on_gpu = (about["device"] or {}).get("type") == "cuda"
    says = f"engine race: exit status {status}, {verdict}; {runs}{'' if on_gpu else '; NOT ON A GPU'}"
    part.row(says, status == 0 and on_gpu, **about)

    loaded = load(TARGET, "bfloat16", "cuda")
    prompt = encode_prompt(loaded.tokenizer, TEXTS[0], False)
    cases = list(itertools.product(DRAFTERS, (0.0, 0.8)))
    for number, (name, temperature) in enumerate(cases[:8:3] if part.small else cases, 1):
        done = raced(loaded, standard_lanes(*DRAFTERS[name]), prompt, temperature, num_tokens)
        ok, says, numbers = judged(done)
        part.row(f"race {number}, {name} at {temperature}: {says}", ok, **numbers, allocated_gib=allocated())


def correctness(part: Part) -> None:
    """Races of all drafters at once, in turns and lane after lane; and the recorded drafts of the fixture's heads."""
    lanes = (
        LaneSpec("plain", width="fastest"),
        LaneSpec("baseline"),
        *(LaneSpec(name, drafter=drafter, k=k) for name, (drafter, k) in DRAFTERS.items()),
    )
    loaded = {dtype: load(TARGET, dtype, "cuda") for dtype in ("bfloat16", "float32")}
    for model in loaded.values():
        part.row(model.prepared.kernels.runs(model.prepared.model)["sentence"])
    for kind in ("eagle3", "dflash", "dflash_causal_in_block"):
        part.attempt(f"golden drafts of {kind}", golden, part, loaded["float32"], kind)
    cases = list(itertools.product(("bfloat16", "float32"), TEXTS, (0.8, 0.0)))
    for dtype, text, temperature in part.each(cases[:1] if part.small else cases):
        prompt = encode_prompt(loaded[dtype].tokenizer, text, False)
        num_tokens = 10 if part.small else 96
        both = [raced(loaded[dtype], lanes, prompt, temperature, num_tokens, solo=solo) for solo in (False, True)]
        what = f"{dtype}, temperature {temperature}"
        for name in DRAFTERS:
            ok, says, numbers = judged(both[0], name)
            part.row(f"{what}, {name}: {says}", ok, **numbers)
        # Lanes share graph memory. One that reads another's numbers still writes the same tokens, in more steps.
        unlike = [name for name in DRAFTERS if both[0].decisions(name) != both[1].decisions(name)]
        ok = not unlike or not both[0].race.widths.plan.exact
        part.row(f"{what}: lanes that draft otherwise in turns than alone: {', '.join(unlike) or 'none'}", ok)


def golden(part: Part, loaded: Any, kind: str) -> None:
    """Whether a head of the fixture drafts in float32, step by step, what it drafted when it was trained."""
    known, num = json.loads(GOLDEN.read_text()), 16 if part.small else 60
    params, k, ids = SamplingParams(max_new_tokens=num + 1), known[kind]["k"], tuple(known["prompt_token_ids"])
    drafter_name = DRAFTERS[kind.partition("_")[0]][0] + ("#causal" if kind.endswith("block") else "")
    sampler = Sampler(params, loaded.prepared.vocab_size, loaded.prepared.kernels)
    drafter = make(drafter_name, DrafterContext(loaded, params, k, 256, sampler, Prompt("", ids), None, silent))
    target = StaticTarget(loaded.prepared, 256, (k + 1,), drafter.hidden_layers)
    rule = Coupled(sampler)
    events = list(decode(target, drafter, rule, ids, StopAt(params, (), None), num + 1, k))
    steps = [event for event in events if isinstance(event, Step)]
    tokens = [token for step in steps for token in step.token_ids][:num]
    same = tokens == known["greedy_token_ids"][:num]
    accepted = [step.num_accepted for step in steps][:-1]  # the last is cut
    wanted = [0, *known[kind]["per_step_accepted"]]
    as_before = bool(accepted) and accepted == wanted[: len(accepted)]
    says = (
        f"golden drafts of {kind}: the same tokens: {same}, accepted as recorded in {len(accepted)} steps: {as_before}"
    )
    part.row(says, same and as_before)
