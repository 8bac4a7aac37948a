"""For gpu_session.py: whether every drafter writes the baseline's tokens on this device, bit by bit, and the golden lists."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
TEXTS = ("class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def ", "import os\nimport sys\n\n\ndef main(argv):\n", "    for line in lines:\n")


def correctness(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens and rows that differ, by dtype, drafter and temperature; and whether golden lists are reproduced in float32."""
    from engine.backends.torch import TorchRace
    from engine.loading import load
    from engine.spec import LaneSpec, RaceSpec, SamplingParams
    from engine.text import encode_prompt

    trained = FIXTURES / "trained"
    drafters = ["ngram", f"draft_model:{trained / 'draft'}", f"eagle3:{trained / 'eagle3'}", f"dflash:{trained / 'dflash'}", "synthetic:0.7"]
    rows = []
    for dtype in ("float32", "bfloat16"):
        loaded = load(str(trained / "target"), dtype, options.device)
        for text in TEXTS:
            for temperature in (0.0, 0.8):
                lanes = [LaneSpec("plain", width="fastest"), LaneSpec("baseline")]
                lanes += [LaneSpec(name.partition("/")[0].rstrip("."), drafter=name, k=5 if "eagle3" in name else 7) for name in drafters]
                params = SamplingParams(temperature=temperature, seed=3, max_new_tokens=32 if options.small else 96)
                race = TorchRace(loaded, RaceSpec(tuple(lanes), params, audit=True), encode_prompt(loaded.tokenizer, text, False))
                steps: dict[str, list[Any]] = {}
                for event in race.events():
                    if hasattr(event.event, "num_accepted"):
                        steps.setdefault(event.lane, []).append(event.event)
                    elif type(event.event).__name__ == "Failed":
                        rows.append({"dtype": dtype, "lane": event.lane, "failed": event.event.message})
                written = {name: [t for s in lane for t in s.token_ids] for name, lane in steps.items()}
                sums = {name: [c for s in lane for c in s.checksums] for name, lane in steps.items()}
                for name in steps:
                    if name in ("plain", "baseline"):
                        continue
                    same = len(written[name]) == len(written["baseline"])
                    rows.append(
                        {
                            "dtype": dtype,
                            "temperature": temperature,
                            "lane": name,
                            "exact": race.plan.exact,
                            "num_tokens": len(written[name]),
                            "num_tokens_different": sum(a != b for a, b in zip(written[name], written["baseline"], strict=False)) if same else -1,
                            "num_rows_different": sum(a != b for a, b in zip(sums[name], sums["baseline"], strict=False)) if same else -1,
                            "tokens_a_step": len(written[name]) / len(steps[name]),
                        }
                    )
                last = {"dtype": dtype, "classes": race.classes.classes, "unstable": race.classes.unstable, "plan": race.plan.note, "seconds": race.seconds}
        rows.append(last)
        print(dtype, last, flush=True)
    compared = [r for r in rows if "num_tokens" in r]
    total = {key: sum(r[key] for r in compared) for key in ("num_tokens", "num_tokens_different", "num_rows_different")}
    print("correctness:", total, flush=True)
    return {"total": total, "rows": rows, "golden": golden(options)}


def golden(options: argparse.Namespace) -> dict[str, Any]:
    """Whether each list of golden.json is reproduced on this device in float32."""
    from engine.accept import coupled
    from engine.decode import decode
    from engine.drafters import DrafterContext, make
    from engine.events import Prompt, Step
    from engine.loading import load
    from engine.progress import silent
    from engine.sampling import Sampler
    from engine.spec import SamplingParams
    from engine.target import StaticTarget
    from engine.text import StopAt

    known = json.loads((FIXTURES / "golden.json").read_text())
    trained = FIXTURES / "trained"
    loaded = load(str(trained / "target"), "float32", options.device)
    found = {}
    for key, text in (("eagle3", f"eagle3:{trained / 'eagle3'}"), ("dflash", f"dflash:{trained / 'dflash'}"), ("dflash_causal_in_block", f"dflash:{trained / 'dflash'}#causal")):
        params, k = SamplingParams(max_new_tokens=61), known[key]["k"]
        sampler = Sampler(params, loaded.prepared.vocab_size, loaded.prepared.device)
        ids = tuple(known["prompt_token_ids"])
        drafter = make(text, DrafterContext(loaded, params, k, 256, sampler, Prompt("", ids), None, silent))
        target = StaticTarget(loaded.prepared, 256, (k + 1,), drafter.hidden_layers)
        steps = [e for e in decode(target, drafter, coupled(params, sampler), ids, StopAt(params, (), None), 61, k) if isinstance(e, Step)]
        accepted, wanted = [s.num_accepted for s in steps], [0, *known[key]["per_step_accepted"]]
        found[key] = accepted[: len(wanted)] == wanted and [t for s in steps for t in s.token_ids][:60] == known["greedy_token_ids"]
    print("golden:", found, flush=True)
    return found
