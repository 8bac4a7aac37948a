"""Does every drafter write the baseline's tokens on this device, bit by bit?"""

from __future__ import annotations

import itertools
import json
from typing import Any

from engine.decode import decode
from engine.drafters import DrafterContext, make
from engine.events import Prompt, Step
from engine.loading.loading import load
from engine.progress import silent
from engine.runner.target import StaticTarget
from engine.sampling.accept import coupled
from engine.sampling.sampler import Sampler
from engine.spec import LaneSpec, SamplingParams
from engine.text import StopAt, encode_prompt
from tools.gpu.part import ROOT, Part
from tools.gpu.races import DRAFTERS, TARGET, TEXTS, judged, raced

GOLDEN = ROOT / "tests" / "fixtures" / "golden.json"


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
    rule = coupled(params, sampler)
    events = list(decode(target, drafter, rule, ids, StopAt(params, (), None), num + 1, k))
    steps = [event for event in events if isinstance(event, Step)]
    tokens = [token for step in steps for token in step.token_ids][:num]
    same = tokens == known["greedy_token_ids"][:num]
    accepted, wanted = (
        [step.num_accepted for step in steps][:-1],
        [0, *known[kind]["per_step_accepted"]],
    )  # the last is cut
    as_before = bool(accepted) and accepted == wanted[: len(accepted)]
    says = (
        f"golden drafts of {kind}: the same tokens: {same}, accepted as recorded in {len(accepted)} steps: {as_before}"
    )
    part.row(says, same and as_before)
