"""What the target could have chosen at each row of a race's steps: likely tokens, their probabilities, and the noise
that decided. Standard library only.

    {"seeds": [own, other, ...], "pieces": {id: text}, "lanes": {lane: [a list of rows for each step]}}

A row is {"ids", "logits", "log_z", "noise"}; `core/spec.py` says which row comes after which drafted tokens. Logits
descend; they are what the lane's rule sees, after temperature, top-k and top-p (raw at temperature 0), and
exp(logit - log_z) is a token's probability. `noise`, one list per seed, is present in rows of committed tokens if the
rule chooses by it: the token with the largest logit + noise in the whole vocabulary wins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..core.errors import UsageError, short
from ..core.events import Step
from ..strict_json import COUNT, NAMES, NUMBER, OBJECT, IfThere, fits

MAX_CANDIDATES = 16  # tokens kept per row, one drafted token among them; where several follow a row, that many more
MAX_SEEDS = 8
TOLERANCE = 0.01  # for logits and noise, which are rounded, and for sums of probabilities
SHAPE = {"seeds": [COUNT], "pieces": NAMES, "lanes": OBJECT}
_ROWS = [[{"ids": [COUNT], "logits": [NUMBER], "log_z": NUMBER, "noise": IfThere([[NUMBER]])}]]


def check_candidates(candidates: Mapping[str, Any], lanes: Mapping[str, Sequence[Step]]) -> None:
    """Raise UsageError unless the candidates fit the steps of these lanes: one row for each row of a step, by falling
    logit, probabilities that sum to at most 1, and the committed token best under the race's own noise."""
    num_seeds = len(candidates["seeds"])
    if num_seeds > MAX_SEEDS:
        raise UsageError(f"the candidates are of {num_seeds} seeds; at most {MAX_SEEDS} can be shown")
    for name, steps in candidates["lanes"].items():
        if name not in lanes:
            raise UsageError(f"there are candidates of lane {short(name)}, which the spec does not have")
        which = f"the candidates of lane {short(name)}"
        fits(steps, _ROWS, which)
        wanted = [step.num_drafted + 1 for step in lanes[name]]
        if [len(rows) for rows in steps] != wanted:
            raise UsageError(f"{which} do not have a row for each row of each step")
        for step, rows in zip(lanes[name], steps, strict=True):
            committed, followers = dict(zip(step.rows, step.token_ids, strict=False)), Counter(step.follows)
            for r, row in enumerate(rows):
                most = MAX_CANDIDATES + max(0, followers[r] - 1)
                if fault := _fault(row, committed.get(r), most, num_seeds):
                    raise UsageError(f"{which} at row {r} of step {step.index} {fault}")


def _fault(row: Mapping[str, Any], committed: int | None, most: int, num_seeds: int) -> str:
    """What is wrong with a row, to follow "the candidates"; "" if nothing is. committed: the token that it decided."""
    ids, logits, noise = row["ids"], row["logits"], row.get("noise")
    if not 1 <= len(ids) <= most or len(set(ids)) != len(ids) or len(logits) != len(ids):
        return f"have {len(ids)} ids and {len(logits)} logits; need 1 to {most} distinct ids, a logit each"
    if any(less > more for more, less in pairwise(logits)):
        return "are not sorted by falling logit"
    if max(logits) - row["log_z"] > TOLERANCE or sum(math.exp(x - row["log_z"]) for x in logits) > 1 + TOLERANCE:
        return "have probabilities that sum to more than 1"
    if committed is not None and committed not in ids:
        return "lack the committed token"
    if noise is None:
        return ""
    if len(noise) != num_seeds or not num_seeds or committed is None or any(len(drawn) != len(ids) for drawn in noise):
        return f"have noise that does not match its tokens and the {num_seeds} seeds"
    scores = [logit + gumbel for logit, gumbel in zip(logits, noise[0], strict=True)]
    if max(scores) - scores[ids.index(committed)] > TOLERANCE:
        return "imply a different token than the committed one"
    return ""
