"""The first question: does a race work at all? As a user runs it, then ten times in one process."""

from __future__ import annotations

import itertools
import json

from engine.cli.main import main
from engine.loading.loading import load
from engine.spec import standard_lanes
from engine.text import encode_prompt
from tools.gpu.part import Part
from tools.gpu.races import DRAFTERS, TARGET, TEXTS, allocated, judged, raced


def smoke(part: Part) -> None:
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
