"""For gpu_session.py: whether every drafter writes the baseline's tokens on this device, bit by bit, whether lanes in
turns disturb each other, and the golden lists."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from gpu_part import FIXTURES, Part

TRAINED = FIXTURES / "trained"
EAGLE3, DFLASH, DRAFT = (
    f"eagle3:{TRAINED / 'eagle3'}",
    f"dflash:{TRAINED / 'dflash'}",
    f"draft_model:{TRAINED / 'draft'}",
)
TEXTS = (
    "class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def ",
    "import os\nimport sys\n\n\ndef main(argv):\n",
    "    for line in lines:\n",
)
LANES = {
    "ngram": ("ngram", 7),
    "draft_model": (DRAFT, 7),
    "eagle3": (EAGLE3, 5),
    "dflash": (DFLASH, 7),
    "synthetic": ("synthetic:0.7", 7),
}
TURNS: dict[str, tuple[tuple[str, str, int | str], ...]] = {
    "eagle3": (("eagle3", EAGLE3, 3),),
    "dflash": (("dflash", DFLASH, 7),),
    "draft_model": (("draft_model", DRAFT, 5),),
    "two heads": (("eagle3", EAGLE3, 5), ("dflash", DFLASH, 7)),
    "two heads, auto": (("eagle3", EAGLE3, "auto"), ("dflash", DFLASH, "auto")),
}
"""Races that are held twice: their lanes as name, drafter and k."""


def correctness(part: Part) -> None:
    """Tokens and rows that differ, by dtype, drafter and temperature; steps of lanes in turns against the same lanes
    one after the other; golden lists in float32.

    Ends with status 1 where tokens, steps or lists differ, or a lane failed."""
    from engine.models.loading import load

    total = {"num_tokens": 0, "num_tokens_different": 0, "num_rows_different": 0, "num_failed": 0}
    loaded = {dtype: load(str(TRAINED / "target"), dtype, part.device) for dtype in ("bfloat16", "float32")}
    turns(part, loaded["bfloat16"])
    found = golden(loaded["float32"], 16 if part.small else 60)
    runs = {dtype: each.prepared.kernels.runs(each.prepared.model) for dtype, each in loaded.items()}
    part.put(golden=found, model="tests/fixtures/trained", runs=runs)
    cases = list(
        itertools.product(
            ("bfloat16",) if part.small else ("bfloat16", "float32"),
            TEXTS[: 1 if part.small else 3],
            (0.8,) if part.small else (0.0, 0.8),
        )
    )
    for dtype, text, temperature in part.each(cases):
        for row in _compared(part, loaded[dtype], text, temperature):
            part.row("rows", dtype=dtype, temperature=temperature, **row)
            total["num_failed"] += "failed" in row
            for key in ("num_tokens", "num_tokens_different", "num_rows_different"):
                total[key] += row.get(key, 0)
        part.put(total=total)
    wrong = (
        total["num_tokens_different"]
        or total["num_failed"]
        or not all(found.values())
        or not all(row["equal"] for row in part.found.get("turns", ()))
    )
    if wrong:
        raise SystemExit("not everything is equal: see rows, turns and golden")


def _race(
    part: Part, loaded: Any, text: str, lanes: tuple[Any, ...], temperature: float, solo: bool = False
) -> tuple[Any, dict[str, list[Any]], dict[str, str]]:
    """A race that was held: itself, the steps of its lanes, and what failed."""
    from engine.events import Failed, Step
    from engine.session import TorchRace
    from engine.spec import RaceSpec, SamplingParams
    from engine.text import encode_prompt

    params = SamplingParams(temperature=temperature, seed=3, max_new_tokens=10 if part.small else 96)
    race = TorchRace(
        loaded, RaceSpec(lanes, params, audit=True, solo=solo), encode_prompt(loaded.tokenizer, text, False)
    )
    steps: dict[str, list[Any]] = {lane.name: [] for lane in lanes}
    failed = {}
    for event in race.events():
        if isinstance(event.event, Step):
            steps[event.lane].append(event.event)
        elif isinstance(event.event, Failed):
            failed[event.lane] = event.event.message
    return race, steps, failed


def _compared(part: Part, loaded: Any, text: str, temperature: float) -> Iterator[dict[str, Any]]:
    """Every lane that drafts against the baseline."""
    from engine.spec import LaneSpec

    lanes = (
        LaneSpec("plain", width="fastest"),
        LaneSpec("baseline"),
        *(LaneSpec(name, drafter=drafter, k=k) for name, (drafter, k) in LANES.items()),
    )
    race, steps, failed = _race(part, loaded, text, lanes, temperature)
    written = {name: [t for s in lane for t in s.token_ids] for name, lane in steps.items()}
    sums = {name: [c for s in lane for c in s.checksums] for name, lane in steps.items()}
    for name in LANES:
        if name in failed:
            yield {"lane": name, "failed": failed[name]}
            continue
        num = max(len(written[name]), len(written["baseline"]))
        yield {
            "lane": name,
            "num_tokens": len(written[name]),
            "num_tokens_different": num - sum(a == b for a, b in zip(written[name], written["baseline"], strict=False)),
            "num_rows_different": num - sum(a == b for a, b in zip(sums[name], sums["baseline"], strict=False)),
            "tokens_a_step": len(written[name]) / max(1, len(steps[name])),
            "exact": race.widths.plan.exact,
        }
    yield {
        "lane": "all",
        "classes": race.widths.classes.classes,
        "unstable": race.widths.classes.unstable,
        "plan": race.widths.plan.note,
        "seconds": race.widths.seconds,
    }


def turns(part: Part, loaded: Any) -> None:
    """Lanes share graph memory and take turns on the device. Each must draft, accept and write in every step what it
    does when it runs alone to its end: a drafter that reads another lane's numbers writes the same tokens, in more
    steps."""
    from engine.spec import LaneSpec

    for what, drafting in part.each(list(TURNS.items())[-1 if part.small else 0 :]):
        lanes = (
            LaneSpec("plain", width="fastest"),
            LaneSpec("baseline"),
            *(LaneSpec(name, drafter=drafter, k=k) for name, drafter, k in drafting),
        )
        with same_decisions():
            held = [_race(part, loaded, TEXTS[0], lanes, 0.8, solo) for solo in (False, True)]
        (_, in_turns, failed), (_, alone, failed_alone) = held
        for name in in_turns:
            first, second = (
                [(s.drafted, s.num_accepted, s.token_ids) for s in steps[name]] for steps in (in_turns, alone)
            )
            part.row(
                "turns",
                lane=f"{what}: {name}",
                equal=first == second and name not in failed and name not in failed_alone and bool(first),
                tokens_a_step=[
                    sum(len(tokens) for _, _, tokens in steps) / max(1, len(steps)) for steps in (first, second)
                ],
                failed=[failed.get(name), failed_alone.get(name)],
            )


@contextmanager
def same_decisions() -> Iterator[None]:
    """While entered, what depends on time depends on pretended times: widths, and how much `auto` drafts."""
    from engine.drafters.auto import AutoDrafter
    from engine.session import set_up as backend

    class Ticking(AutoDrafter):
        def __init__(self, drafter: Any, step_s: Any, by_margin: bool = True) -> None:
            ticks = itertools.count()
            super().__init__(drafter, step_s, clock=lambda: 1e-4 * next(ticks), by_margin=by_margin)

    with ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(
                backend, "time_widths", lambda order, target: {width: 0.01 + 1e-4 * width for width in target.widths}
            )
        )
        stack.enter_context(mock.patch.object(backend, "AutoDrafter", Ticking))
        yield


def golden(loaded: Any, num: int) -> dict[str, bool]:
    """Whether the first `num` tokens of each list of golden.json are reproduced on this device in float32, and how many
    of each draft were accepted."""
    from engine.choice.accept import coupled
    from engine.choice.sampler import Sampler
    from engine.decode import decode
    from engine.drafters import DrafterContext, make
    from engine.events import Prompt, Step
    from engine.progress import silent
    from engine.spec import SamplingParams
    from engine.target.target import StaticTarget
    from engine.text import StopAt

    known = json.loads((FIXTURES / "golden.json").read_text())
    found = {}
    for key, drafter_name in (("eagle3", EAGLE3), ("dflash", DFLASH), ("dflash_causal_in_block", f"{DFLASH}#causal")):
        params, k = SamplingParams(max_new_tokens=num + 1), known[key]["k"]
        sampler = Sampler(params, loaded.prepared.vocab_size, loaded.prepared.kernels)
        ids = tuple(known["prompt_token_ids"])
        drafter = make(drafter_name, DrafterContext(loaded, params, k, 256, sampler, Prompt("", ids), None, silent))
        target = StaticTarget(loaded.prepared, 256, (k + 1,), drafter.hidden_layers)
        steps = [
            e
            for e in decode(target, drafter, coupled(params, sampler), ids, StopAt(params, (), None), num + 1, k)
            if isinstance(e, Step)
        ]
        accepted, wanted = [s.num_accepted for s in steps], [0, *known[key]["per_step_accepted"]]
        both = min(len(wanted), len(steps) - 1)  # the last step may have been cut short
        found[key] = (
            accepted[:both] == wanted[:both]
            and [t for s in steps for t in s.token_ids][:num] == known["greedy_token_ids"][:num]
        )
    return found
