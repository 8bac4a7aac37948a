"""Races simulated on a fake clock, at the costs of this project's machine."""

import json
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from engine.core.spec import MAX_AUTO_K
from engine.drafters.auto import AutoDrafter
from tests.helpers import ROOT
from tests.helpers.fakes import FakeClock

RACES = sorted((ROOT / "assets" / "races").glob("*.json"))
STEP_S = {1: 0.025, 2: 0.02625, 4: 0.0275, 8: 0.03125, 16: 0.03625}  # seconds of a step by its width, on two cores
COSTS = [next(s for w, s in STEP_S.items() if w > m) for m in range(MAX_AUTO_K + 1)]
NUM_TOKENS = 256


def decode_s(drafter: Any, clock: FakeClock, prompt: Sequence[int], truth: Sequence[int], k: int) -> float:
    """Seconds that writing `truth` takes."""
    if isinstance(drafter, AutoDrafter):
        drafter.calibrate(prompt, None)
    drafter.prefill(prompt, None)
    started, verify_s, done = clock(), 0.0, 0
    while done < len(truth):
        draft = drafter.propose((*prompt, *truth[:done]), None, min(k, len(truth) - done - 1))
        row: int | None = 0
        while row is not None:
            row = draft.after(row, truth[done]) if done + 1 < len(truth) else None
            done += 1
        verify_s += COSTS[len(draft)]
    return clock() - started + verify_s


def recorded() -> list[tuple[list[int], list[int]]]:
    """(prompt, completion) of the races that ship."""
    out = []
    for path in RACES:
        race = json.loads(path.read_text(encoding="utf-8"))
        steps = [e for e in race["events"] if e["lane"] == "baseline" and e["type"] == "step"]
        out.append((race["prompt"]["token_ids"], [t for step in steps for t in step["token_ids"]]))
    return out


def text(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000) for _ in range(NUM_TOKENS)]


# Small alphabets, so that there are many matches, of every length, and more candidates than are looked at.
TEXTS = st.integers(1, 6).flatmap(lambda size: st.lists(st.integers(0, size), min_size=1, max_size=400))
