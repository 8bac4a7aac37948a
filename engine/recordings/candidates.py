"""What the target might have said at each row of a race's steps: likely tokens, chances, and the noise that chose.

    {"seeds": [own, other, ...], "pieces": {id: text}, "lanes": {lane: [a list of rows for each step]}}

A row is {"ids", "logits", "log_z", "noise"}. Row r of a step is the target's answer after the last committed token and
r drafted ones. Logits fall; they are what the lane's rule sees, after temperature, top-k and top-p (at temperature 0 as
the model gives them), and exp(logit - log_z) is a token's chance. `noise`, a list for each seed, is there in rows of
committed tokens where the rule chooses by it: the largest logit + noise of the whole vocabulary is chosen. Standard
library only.
"""
# Twin: app/race_view/check_beside.js.

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import UsageError
from ..events import Step
from ..strict_json import COUNT, NAMES, NUMBER, OBJECT, IfThere, fits, short

MAX_CANDIDATES = 16
"""Tokens that are kept of one row."""
MAX_SEEDS = 8
TOLERANCE = 0.01
"""Of logits and noise, which are rounded, and of what may sum to 1."""
SHAPE = {"seeds": [COUNT], "pieces": NAMES, "lanes": OBJECT}
_ROWS = [[{"ids": [COUNT], "logits": [NUMBER], "log_z": NUMBER, "noise": IfThere([[NUMBER]])}]]


def check_candidates(candidates: Mapping[str, Any], lanes: Mapping[str, Sequence[Step]]) -> None:
    """Raise UsageError unless they fit the steps of these lanes: a row for each row of a step, tokens by falling logit,
    chances that sum to at most 1, and under every noise the committed token the best of its row."""
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
            for r, row in enumerate(rows):
                _check_row(f"{which} at row {r} of step {step.index}", row, step.token_ids[r : r + 1], num_seeds)


def _check_row(which: str, row: Mapping[str, Any], committed: Sequence[int], num_seeds: int) -> None:
    ids, logits, noise = row["ids"], row["logits"], row.get("noise")
    if not 1 <= len(ids) <= MAX_CANDIDATES or len(set(ids)) != len(ids) or len(logits) != len(ids):
        raise UsageError(f"{which} are {len(ids)} ids and {len(logits)} logits; 1 to {MAX_CANDIDATES}, each once")
    if any(less > more for more, less in pairwise(logits)):
        raise UsageError(f"{which} do not stand by falling logit")
    if max(logits) - row["log_z"] > TOLERANCE or sum(math.exp(x - row["log_z"]) for x in logits) > 1 + TOLERANCE:
        raise UsageError(f"{which} have chances that sum to more than 1")
    if committed and committed[0] not in ids:
        raise UsageError(f"{which} lack the token that was committed there")
    if noise is None:
        return
    if len(noise) != num_seeds or not num_seeds or not committed or any(len(each) != len(ids) for each in noise):
        raise UsageError(f"{which} have noise that is not of its tokens and the {num_seeds} seeds")
    scores = [logit + gumbel for logit, gumbel in zip(logits, noise[0], strict=True)]
    if max(scores) - scores[ids.index(committed[0])] > TOLERANCE:
        raise UsageError(f"{which} say that another token would have been chosen than the one that was")
