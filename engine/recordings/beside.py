"""What may stand beside a race in its recording: tables of drafts with costs and oracles, candidates, promises, what
memory drafters take. They speak of tokens and lanes that are there, and of times that the events have.

Standard library only. Everything raises UsageError with one sentence.
"""
# Twin: app/race_view/check_beside.js.

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import UsageError
from ..events import MAX_SECONDS, Step
from ..spec import MAX_K, MAX_WIDTH
from ..strict_json import COUNT, NAMES, NUMBER, OBJECT, IfThere, Shape, fits, short
from .candidates import SHAPE, check_candidates

MAX_TOKEN_ID = 2**31 - 1
CLOCK_TOLERANCE = 1e-6


def are_tokens(value: Any) -> bool:
    """Whether it is a list of token ids."""
    return isinstance(value, list) and all(type(token) is int and 0 <= token <= MAX_TOKEN_ID for token in value)


def _are_costs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= MAX_WIDTH
        and all(SECONDS.holds(seconds) for seconds in value)
        and all(less <= more for less, more in pairwise(value))
    )


TOKENS = Shape(f"a list of token ids from 0 to {MAX_TOKEN_ID}", are_tokens)
DRAFT = Shape(
    f"a list of at most {MAX_K} token ids from 0 to {MAX_TOKEN_ID}",
    lambda value: are_tokens(value) and len(value) <= MAX_K,
)
SECONDS = Shape(
    f"a time from 0 to {MAX_SECONDS:.0f} seconds",
    lambda value: type(value) in (int, float) and 0 <= value <= MAX_SECONDS,
)
COSTS = Shape(f"a list of 1 to {MAX_WIDTH} times in seconds that never fall", _are_costs)
BESIDE = {
    "tables": IfThere(OBJECT),
    "table_pieces": IfThere(NAMES),
    "table_margins": IfThere(OBJECT),
    "costs": IfThere({"verify_s": COSTS, "draft_s": OBJECT}),
    "oracles": IfThere(OBJECT),
    "candidates": IfThere(SHAPE),
    "promises": IfThere(NAMES),
    "drafter_bytes": IfThere(OBJECT),
}


def check_beside(recording: Mapping[str, Any], lanes: Mapping[str, Sequence[Step]]) -> None:
    """Raise UsageError unless all of it fits the race. `lanes`: the steps of each."""
    longest = max(sum(len(step.token_ids) for step in steps) for steps in lanes.values())
    _check_tables(recording.get("tables", {}), longest)
    _check_margins(recording.get("table_margins", {}), recording.get("tables", {}))
    if "costs" in recording:
        _check_costs(recording["costs"], recording.get("tables", {}))
    for name, oracle in recording.get("oracles", {}).items():
        which = f"the oracle of lane {short(name)}"
        if name not in lanes:
            raise UsageError(f"{which} is of none that the spec has")
        fits(oracle, {"seconds": SECONDS, "share": NUMBER}, which)
        told = oracle["share"] * sum(step.seconds for step in lanes[name])
        if not math.isclose(oracle["seconds"], told, rel_tol=CLOCK_TOLERANCE, abs_tol=CLOCK_TOLERANCE):
            raise UsageError(f"{which} took {oracle['seconds']!r} seconds, which is not its share of the lane's own")
    if "candidates" in recording:
        check_candidates(recording["candidates"], lanes)
    for name, taken in recording.get("drafter_bytes", {}).items():
        if name not in lanes:
            raise UsageError(f"it has the bytes of lane {short(name)}, which the spec does not have")
        fits(taken, {"weights": COUNT, "cache_per_token": COUNT}, f"the bytes of lane {short(name)}")
    for name in recording.get("promises", {}):
        if name not in lanes:
            raise UsageError(f"it has a promise of lane {short(name)}, which the spec does not have")


def _check_tables(tables: Mapping[str, Any], longest: int) -> None:
    for name, drafts in tables.items():
        which = f"the table of {short(name)}"
        fits(drafts, [DRAFT], which)
        if len(drafts) > longest:
            raise UsageError(f"{which} has {len(drafts)} drafts, but no lane committed more than {longest} tokens")


def _check_margins(margins: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    for name, rows in margins.items():
        which = f"the margins of the table of {short(name)}"
        fits(rows, [[NUMBER]], which)
        if name not in tables or [len(row) for row in rows] != [len(draft) for draft in tables[name]]:
            raise UsageError(f"{which} are not one for each token of its drafts")


def _check_costs(costs: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    if odd := sorted(set(costs["draft_s"]) ^ set(tables)):
        raise UsageError(f"costs and tables must be of the same drafters; only one of them has {short(odd[0])}")
    for name, seconds in costs["draft_s"].items():
        fits(seconds, COSTS, f"the costs of {short(name)}")
        longest = max(map(len, tables[name]), default=0)
        if not longest < len(seconds) == len(costs["verify_s"]):
            raise UsageError(
                f"the costs of {short(name)} are {len(seconds)}, those of steps {len(costs['verify_s'])}; both must be "
                f"as many, and more than its longest draft has tokens, {longest}"
            )
