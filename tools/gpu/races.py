"""Races through the engine as a library: tokens, bits, speed. Do they work at all, and does every drafter write the
baseline's tokens, bit by bit?"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import torch

from engine.analysis.verdict_words import VERDICTS
from engine.cli.main import main
from engine.core.events import Prompt, steps
from engine.core.spec import BASELINE, SPECULATIVE, LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.loading.loading import load
from engine.progress import collected, silent
from engine.session import TorchRace
from engine.session.run_prompts import Entry, Raced
from engine.text import encode_prompt
from tests.helpers import FIXTURES
from tools.gpu.part import Part

TRAINED = FIXTURES / "trained"
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
GOLDEN = FIXTURES / "golden.json"


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
    spec = RaceSpec(tuple(lanes), params, audit=audit, solo=solo)
    race = TorchRace(loaded, spec, prompt)
    return Raced(Entry("", "", prompt, spec), race, collected(race.events(), silent))


def decisions(done: Raced, lane: str) -> list[tuple[Any, ...]]:
    """What each step drafted, accepted and committed."""
    return [(step.drafted, step.num_accepted, step.token_ids) for step in steps(done.events, lane)]


def differ(done: Raced, lane: str) -> tuple[int, int, int]:
    """(tokens, those that differ from the baseline's, rows of logits that differ); rows only where audited."""

    def all_of(name: str, what: str) -> list[int]:
        return [item for step in steps(done.events, name) for item in getattr(step, what)]

    own, base = ([all_of(name, what) for what in ("token_ids", "checksums")] for name in (lane, BASELINE))
    num = max(len(own[0]), len(base[0]))
    tokens, rows = (num - sum(a == b for a, b in zip(*pair, strict=False)) for pair in zip(own, base, strict=True))
    return num, tokens, rows if any(own[1]) else 0


def judged(done: Raced, lane: str = SPECULATIVE) -> tuple[bool, str, dict[str, Any]]:
    """Whether that lane wrote the baseline's tokens, in words and in numbers. They may differ only at a near tie, and
    only if the race said that its widths are not exact."""
    if done.failed:
        return False, f"failed: {done.failed}", {}
    num, tokens, rows = differ(done, lane)
    verdict, plan = done.verdicts[lane], done.race.widths.plan
    ok = num > 0 and not VERDICTS[verdict["kind"]].no_result and not (tokens and plan.exact)
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
        part.row(model.prepared.kernels.runs(model.prepared.model))
    for kind in ("eagle3", "dflash", "dflash_causal_in_block"):
        part.attempt(f"golden drafts of {kind}", golden, part, loaded["float32"], kind)
    cases = list(itertools.product(("bfloat16", "float32"), TEXTS, (0.8, 0.0)))
    for dtype, text, temperature in part.in_time(cases[:1] if part.small else cases):
        prompt = encode_prompt(loaded[dtype].tokenizer, text, False)
        num_tokens = 10 if part.small else 96
        both = [raced(loaded[dtype], lanes, prompt, temperature, num_tokens, solo=solo) for solo in (False, True)]
        what = f"{dtype}, temperature {temperature}"
        for name in DRAFTERS:
            ok, says, numbers = judged(both[0], name)
            part.row(f"{what}, {name}: {says}", ok, **numbers)
        # Lanes share graph memory. One that reads another's numbers still writes the same tokens, in more steps.
        unlike = [name for name in DRAFTERS if decisions(both[0], name) != decisions(both[1], name)]
        ok = not unlike or not both[0].race.widths.plan.exact
        part.row(f"{what}: lanes that draft otherwise in turns than alone: {', '.join(unlike) or 'none'}", ok)


def golden(part: Part, loaded: Any, kind: str) -> None:
    """Whether a head of the fixture drafts in float32, step by step, what it drafted when it was trained."""
    known, num = json.loads(GOLDEN.read_text()), 16 if part.small else 60
    drafter = DRAFTERS[kind.partition("_")[0]][0] + ("#causal" if kind.endswith("block") else "")
    lanes, prompt = standard_lanes(drafter, known[kind]["k"]), Prompt("", tuple(known["prompt_token_ids"]))
    done = steps(raced(loaded, lanes, prompt, 0.0, num + 1).events, SPECULATIVE)
    tokens = [token for step in done for token in step.token_ids][:num]
    same = tokens == known["greedy_token_ids"][:num]
    accepted = [step.num_accepted for step in done][:-1]  # the last is cut
    wanted = [0, *known[kind]["per_step_accepted"]]
    as_before = bool(accepted) and accepted == wanted[: len(accepted)]
    says = f"the same tokens: {same}, accepted as recorded in {len(accepted)} steps: {as_before}"
    part.row(f"golden drafts of {kind}: {says}", same and as_before)
