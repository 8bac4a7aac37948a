"""Races through the engine as a library, and what they show: tokens, bits, speed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.events import Failed, Prompt, Step
from engine.session import TorchRace
from engine.spec import SPECULATIVE, LaneSpec, RaceSpec, SamplingParams
from tools.gpu.part import ROOT

TRAINED = ROOT / "tests" / "fixtures" / "trained"
TARGET = str(TRAINED / "target")
DRAFTERS = {
    "ngram": ("ngram", 7),
    "eagle3": (f"eagle3:{TRAINED / 'eagle3'}", 5),
    "dflash": (f"dflash:{TRAINED / 'dflash'}", 7),
    "draft_model": (f"draft_model:{TRAINED / 'draft'}", 5),
    "synthetic": ("synthetic:0.7", 7),
}
"""The trained fixture's drafters and their k."""
TEXTS = (
    "class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def ",
    "import os\nimport sys\n\n\ndef main(argv):\n",
    "    for line in lines:\n",
)
GIB = 1024**3


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
            [[each for step in self.steps[name] for each in getattr(step, what)] for what in ("token_ids", "checksums")]
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
    steps: dict[str, list[Step]] = {lane.name: [] for lane in lanes}
    failed = {}
    for event in race.events():
        if isinstance(event.event, Step):
            steps[event.lane].append(event.event)
        elif isinstance(event.event, Failed):
            failed[event.lane] = event.event.message
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
