"""Data for the switches of "How demos cheat". The engine computes the numbers; the browser only looks them up. Standard
library only."""

import json
import math
from collections.abc import Mapping
from functools import cache
from itertools import compress, product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from engine.analysis.breakdown import Compared
from engine.analysis.inflate import CHUNK_S, SWITCHES, all_kept, inflated, stretches

from .plots import times

RESULT = Path(__file__).parents[2] / "assets" / "results" / "cpu_zen5_2core_bench.json"
FAST, EAGER = "plain", "hf_eager"


class Eager(NamedTuple):
    """How many times slower transformers' eager loop is than this engine's plain lane (median over kinds of text), and
    where that was measured."""

    slower: float
    device: str
    model: str
    num_kinds: int


@cache
def eager() -> Eager:
    """From the committed result, of `engine bench` of commit 13c800ba."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    speeds = {(row["name"], row["kind"]): row["tokens_per_s"] for row in result["rows"]}
    ratios = [speed / speeds[EAGER, kind] for (name, kind), speed in speeds.items() if name == FAST]
    return Eager(median(ratios), result["device"]["name"], result["model"]["name"], len(ratios))


def cheats(race: Compared | None) -> dict[str, Any]:
    """`names` of the switches; `ratios`, indexed by the bit mask of active switches; `exposed`, the sentence that
    exposes each. {} without a ratio."""
    if race is None:
        return {}
    choices = [tuple(compress(SWITCHES, reversed(bits))) for bits in product((0, 1), repeat=len(SWITCHES))]
    exposed = _exposed(race)
    ratios = inflated(race, eager().slower, choices)
    return {"names": SWITCHES, "ratios": ratios, "exposed": [exposed[name] for name in SWITCHES]}


def _exposed(race: Compared) -> Mapping[str, str]:
    slow, num = eager(), sum(len(step.token_ids) for step in race.plain)
    num_chunks = math.ceil(num * min(1.0, race.plain_s / CHUNK_S))
    fifths = sorted(stretches(race))
    most, _ = all_kept(race)
    both, alone_s = race.with_prefill, race.prefill_s[0]
    return {
        "eager": f"Ask: faster than which plain decoder? transformers' eager loop is {slow.slower:.1f} times slower "
        f"than this engine's plain lane (measured on {slow.device} with {slow.model}, median of "
        f"{slow.num_kinds} kinds of text; not in this race).",
        "prefill": "Reading the prompt was not measured in this race, so this changes nothing."
        if alone_s is None or both is None
        else "Ask: when does each clock start? Here only Plain is charged for reading the prompt, "
        f"{1000 * alone_s:.0f} ms. Charging both gives {times(both)}.",
        "chunks": f"Ask: what was counted? A stream that sends every {1000 * CHUNK_S:.0f} ms delivers Plain's "
        f"{num} tokens in about {num_chunks} chunks. Each chunk counts as one token, but the other lane's tokens are "
        "counted properly."
        if num_chunks < num
        else f"Ask: what was counted? Here this changes nothing: Plain's steps take longer than the "
        f"{1000 * CHUNK_S:.0f} ms of a chunk.",
        "best": "Ask to see all five. The fifths of this text reach "
        f"{', '.join(f'{fifth:.2f}' for fifth in fifths)}; only the whole race counts."
        if fifths
        else "The text is too short to be cut into five, so this changes nothing.",
        "loop": f"Ask to read the text. If it repeats itself, every guess is right: {most} tokens per step instead "
        f"of {race.tokens_per_step:.2f} here.",
    }
