"""Races through the engine as a library: tokens, bits, speed. Do they work at all, and does every drafter write the
baseline's tokens, bit by bit?"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import torch

from engine.analysis.metrics import lane_metrics
from engine.analysis.verdict_words import VERDICTS
from engine.cli.main import main
from engine.core.events import Prompt, steps
from engine.core.spec import BASELINE, SPECULATIVE, LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.loading.loading import load
from engine.progress import Progress, collected, silent
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


def raced(
    loaded: Any,
    lanes: Sequence[LaneSpec],
    prompt: Prompt,
    temperature: float,
    num_tokens: int,
    audit: bool = True,
    solo: bool = False,
    progress: Progress = silent,
) -> Raced:
    """Set a race up and run it to its end."""
    params = SamplingParams(temperature=temperature, seed=3, max_new_tokens=num_tokens)
    spec = RaceSpec(tuple(lanes), params, audit=audit, solo=solo)
    race = TorchRace(loaded, spec, prompt, progress)
    return Raced(Entry("", "", prompt, spec), race, collected(race.events(), progress))


def judged(done: Raced, lane: str = SPECULATIVE) -> tuple[bool, str, dict[str, Any]]:
    """Whether that lane wrote the baseline's tokens, in words and in numbers. They may differ only at a near tie, and
    only if the race said that its widths are not exact."""
    if done.failed:
        return False, f"failed: {done.failed}", {}
    own, base = ([token for step in steps(done.events, name) for token in step.token_ids] for name in (lane, BASELINE))
    differ = sum(a != b for a, b in itertools.zip_longest(own, base))
    verdict, plan = done.verdicts[lane]["kind"], done.race.widths.plan
    ok = bool(own) and not VERDICTS[verdict].no_result and not (differ and plan.exact)
    numbers = {"tokens": len(own), "tokens_differ": differ, "exact": plan.exact, "width": plan.width, "plan": plan.note}
    says = f"{verdict}, {differ} of {len(own)} tokens differ{'' if plan.exact else ', not exact'}"
    return ok, says, {**numbers, "verdict": verdict}


def one(part: Part) -> None:
    """As a user runs a race."""
    (drafter, k), file = DRAFTERS["eagle3"], part.scratch / "race.json"
    options = {"target": TARGET, "drafter": drafter, "k": k, "temperature": 0.8, "save": file, "prompt": TEXTS[0]}
    options["max-new-tokens"] = 8 if part.small else 64
    status = main(["race", *(f"--{name}={value}" for name, value in options.items()), "--audit", "--json"])
    recording = json.loads(file.read_text()) if file.exists() else {}
    about = {key: recording.get(key, {}) for key in ("device", "versions", "runs", "widths", "verdicts")}
    on_gpu = about["device"].get("type") == "cuda"
    says = f"{about['verdicts'].get('speculative', {}).get('kind')}; {about['runs'].get('sentence', 'nothing ran')}"
    part.row(f"exit status {status}, {says}{'' if on_gpu else '; NOT ON A GPU'}", status == 0 and on_gpu, **about)


def ten(part: Part) -> None:
    """Ten races in one process, which must not pile up memory."""
    loaded = load(TARGET, "bfloat16", "cuda")
    prompt = encode_prompt(loaded.tokenizer, TEXTS[0], False)
    cases, used = list(itertools.product(DRAFTERS, (0.0, 0.8))), []
    for number, (name, temperature) in enumerate(cases[:8:3] if part.small else cases, 1):
        done = raced(loaded, standard_lanes(*DRAFTERS[name]), prompt, temperature, 8 if part.small else 64)
        ok, says, numbers = judged(done)
        used.append(torch.cuda.memory_allocated() / 2**30)
        part.row(f"race {number}, {name} at {temperature}: {says}; {used[-1]:.2f} GiB in use after it", ok, **numbers)
    part.row(f"in use after race 2 {used[1]:.2f} GiB, after the last {used[-1]:.2f}", used[-1] < used[1] + 0.5)


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
    cases = list(itertools.product(("bfloat16", "float32"), TEXTS, (0.8, 0.0)))
    for dtype, text, temperature in part.in_time(cases[:1] if part.small else cases):
        prompt = encode_prompt(loaded[dtype].tokenizer, text, False)
        num_tokens = 10 if part.small else 96
        both = [raced(loaded[dtype], lanes, prompt, temperature, num_tokens, solo=solo) for solo in (False, True)]
        what = f"{dtype}, temperature {temperature}"
        for name in DRAFTERS:
            ok, says, numbers = judged(both[0], name)
            length = lane_metrics(both[0].events, name).mean_acceptance_length
            part.row(f"{what}, {name}: {says}, {length:.2f} tokens a step", ok, length=length, **numbers)
        # Lanes share graph memory. One that reads another's numbers still writes the same tokens, in more steps.
        steps_of = [[[(x.drafted, x.token_ids) for x in steps(y.events, name)] for name in DRAFTERS] for y in both]
        unlike = [name for name, *ways in zip(DRAFTERS, *steps_of, strict=True) if ways[0] != ways[1]]
        ok = not unlike or not both[0].race.widths.plan.exact
        part.row(f"{what}: lanes that draft otherwise in turns than alone: {', '.join(unlike) or 'none'}", ok)
