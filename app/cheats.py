"""How demos cheat, on the race that is on the screen: what the page's switches show. The numbers are the engine's; the
page only looks them up. Standard library only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from itertools import compress, product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from engine.cheats import CHUNK_S, SWITCHES, all_kept, inflated, stretches
from engine.why import Compared

RESULT = Path(__file__).parents[1] / "assets" / "results" / "cpu_zen5_2core_bench.json"
FAST, EAGER = "plain", "hf_eager"


class Eager(NamedTuple):
    """How many times slower transformers' eager loop was than the plain lane of this engine: the median over kinds of
    text, and where it was measured."""

    slower: float
    device: str
    model: str
    num_kinds: int


@cache
def eager() -> Eager:
    """As `bench` measured it, from the committed result."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    speeds = {(row["name"], row["kind"]): row["tokens_per_s"] for row in result["rows"]}
    ratios = [speed / speeds[EAGER, kind] for (name, kind), speed in speeds.items() if name == FAST]
    return Eager(median(ratios), result["device"]["name"], result["model"]["name"], len(ratios))


def cheats(race: Compared | None) -> dict[str, Any]:
    """For the page: `names` of the switches; `ratios`, at place i the one with the switches on whose bits are set in i;
    `exposed`, the sentence that exposes each. Nothing without a ratio."""
    if race is None:
        return {}
    choices = [tuple(compress(SWITCHES, reversed(bits))) for bits in product((0, 1), repeat=len(SWITCHES))]
    ratios = [inflated(race, eager().slower, on) for on in choices]
    exposed = _exposed(race)
    return {"names": SWITCHES, "ratios": ratios, "exposed": [exposed[name] for name in SWITCHES]}


def _exposed(race: Compared) -> Mapping[str, str]:
    slow, num = eager(), sum(len(step.token_ids) for step in race.plain)
    num_chunks = math.ceil(num * min(1.0, race.plain_s / CHUNK_S))
    fifths = sorted(stretches(race))
    most, _ = all_kept(race)
    both, alone_s = race.growth()[-1].with_prefill, race.prefill_s[0]
    return {
        "eager": f"Ask: as fast as which plain? The eager loop of transformers is {slow.slower:.1f} times slower than "
        f"this engine's plain lane. That ratio is another machine's, not this race's: bench on {slow.device}, with "
        f"{slow.model}, the median of {slow.num_kinds} kinds of text.",
        "prefill": "Nobody measured here how long the prompt was read, so this changes nothing."
        if alone_s is None or both is None
        else f"Ask: when do both clocks begin? Here plain alone pays for reading the prompt, {1000 * alone_s:.0f} ms. "
        f"If both pay, it is {both:.2f} times as fast.",
        "chunks": f"Ask: what was counted? A stream that sends every {1000 * CHUNK_S:.0f} ms brings plain's {num} "
        f"tokens in about {num_chunks} chunks; each is counted as one token, while the other lane is counted in tokens."
        if num_chunks < num
        else f"Ask: what was counted? Here this changes nothing: plain's steps take longer than the "
        f"{1000 * CHUNK_S:.0f} ms of a chunk.",
        "best": "Ask for all five. The fifths of this text reach "
        f"{', '.join(f'{each:.2f}' for each in fifths)}; only the whole race counts."
        if fifths
        else "The text is too short to be cut into five, so this changes nothing.",
        "loop": f"Ask to read the text. In one that repeats itself every guess is right: {most} tokens a step, where "
        f"this race brings {race.tokens_per_step:.2f}.",
    }
