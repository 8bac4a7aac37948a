"""The optional members of a recording: tables of drafts with their costs and oracles, candidates, promises of servers.
All must match this race's tokens, lanes and times.

Candidates are what the target could have chosen at each row of a race's steps: likely tokens, their probabilities, and
the noise that decided:

    {"seeds": [own], "pieces": {id: text}, "lanes": {lane: [a list of rows for each step]}}

A row is {"ids", "logits", "log_z", "noise"}; `core/spec.py` says which row comes after which drafted tokens. Logits
descend; they are what the lane's rule sees, after temperature, top-k and top-p (raw at temperature 0), and
exp(logit - log_z) is a token's probability. `noise`, one list per seed, is present in rows of committed tokens if the
rule chooses by it: the token with the largest logit + noise in the whole vocabulary wins. Older files have other seeds
too, after the own one.

Standard library only. Every error is a UsageError with one sentence.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..core.errors import UsageError, short
from ..core.events import Step
from ..core.spec import AUTO, BASELINE, MAX_K, MAX_NAME, MAX_WIDTH, RaceSpec, is_tree, tree_size
from ..core.values import Shape, integer, items
from ..strict_json import COUNT, NAMES, NUMBER, OBJECT, AtMost, IfThere, fits
from .event_json import SECONDS

MAX_TOKEN_ID = 2**31 - 1
CLOCK_TOLERANCE = 1e-6
MAX_TABLES = 64  # four per lane, which has at most two
MAX_CANDIDATES = 16  # tokens kept per row, one drafted token among them; where several follow a row, that many more
MAX_SEEDS = 8
TOLERANCE = 0.01  # for logits and noise, which are rounded, and for sums of probabilities
_ROWS = [[{"ids": [COUNT], "logits": [NUMBER], "log_z": NUMBER, "noise": IfThere([[NUMBER]])}]]
TOKEN = integer(0, MAX_TOKEN_ID, wanted=f"a token id from 0 to {MAX_TOKEN_ID}")
DRAFT = AtMost(MAX_K, TOKEN)
TREES = "@tree"  # ends the names of tables whose drafts may branch
GREEDY = re.compile(r"~greedy(@\d+)?$")  # ends the names of tables made at temperature 0
_TIMES = items(f"a list of 1 to {MAX_WIDTH} times in seconds that never fall", SECONDS, range(1, MAX_WIDTH + 1))
COSTS = Shape(_TIMES.wanted, lambda value: _TIMES.holds(value) and all(a <= b for a, b in pairwise(value)))
EXTRAS = {
    "tables": IfThere(OBJECT),
    "table_pieces": IfThere(NAMES),
    "table_parents": IfThere(OBJECT),
    "drawn": IfThere(OBJECT),
    "costs": IfThere({"verify_s": COSTS, "draft_s": OBJECT}),
    "oracles": IfThere(OBJECT),
    "candidates": IfThere({"seeds": [COUNT], "pieces": NAMES, "lanes": OBJECT}),
    "promises": IfThere(NAMES),
}


def check_extras(recording: Mapping[str, Any], spec: RaceSpec, lanes: Mapping[str, Sequence[Step]]) -> None:
    """Raise UsageError unless all extras fit the race.

    lanes: the steps of each lane of the spec, by name."""
    tables, trees = (recording.get(name, {}) for name in ("tables", "table_parents"))
    if tables:
        _check_tables(tables, spec, lanes)
    for name, rows in trees.items():
        _check_trees(f"table_parents of {short(name)}", rows, tables.get(name) if name.endswith(TREES) else None)
    _check_lanes(tables, trees, spec, lanes)
    _check_rules(tables, recording.get("drawn", {}), spec)
    if "costs" in recording:
        _check_costs(recording["costs"], tables)
    for member, what in (("oracles", "the oracle"), ("promises", "a promise")):
        if unknown := [name for name in recording.get(member, {}) if name not in lanes]:
            raise UsageError(f"it has {what} of lane {short(unknown[0])}, which the spec does not have")
    for name, oracle in recording.get("oracles", {}).items():
        which = f"the oracle of lane {short(name)}"
        fits(oracle, {"seconds": SECONDS, "share": NUMBER}, which)
        expected_s = oracle["share"] * sum(step.seconds for step in lanes[name])
        if not math.isclose(oracle["seconds"], expected_s, rel_tol=CLOCK_TOLERANCE, abs_tol=CLOCK_TOLERANCE):
            raise UsageError(f"{which} took {oracle['seconds']!r} seconds, which is not its share of the lane's own")
    if "candidates" in recording:
        check_candidates(recording["candidates"], lanes)


def _check_tables(tables: Mapping[str, Any], spec: RaceSpec, lanes: Mapping[str, Sequence[Step]]) -> None:
    if len(tables) > MAX_TABLES:
        raise UsageError(f"it has {len(tables)} tables; at most {MAX_TABLES} are allowed")
    text = [token for name in spec.named(BASELINE) for step in lanes[name] for token in step.token_ids]
    if not text:
        raise UsageError("it has tables of drafts, but no baseline that committed a token")
    longest = max(sum(len(step.token_ids) for step in steps) for steps in lanes.values())
    for name, drafts in tables.items():
        which = f"the table of {short(name)}"
        if len(name) > MAX_NAME:
            raise UsageError(f"{which}... has a name of {len(name)} characters; at most {MAX_NAME} are allowed")
        if isinstance(drafts, list) and not len(text) <= len(drafts) <= longest:
            raise UsageError(
                f"{which} has {len(drafts)} drafts, but the baseline committed {len(text)} tokens, and no lane more "
                f"than {longest}"
            )
        fits(drafts, [DRAFT], which)


def _check_trees(which: str, rows: Any, drafts: Sequence[Sequence[int]] | None) -> None:
    """For each draft of a table a parent for each of its tokens, or none for all of them."""
    fits(rows, [[COUNT]], which)
    pairs = list(zip(rows, drafts or (), strict=False))
    if drafts is None or len(rows) != len(drafts) or any(len(row) not in (0, len(draft)) for row, draft in pairs):
        raise UsageError(f"{which} are not one for each token of a table's trees")
    if not all(is_tree(row, draft) for row, draft in pairs if row):
        raise UsageError(f"{which} are no trees of its drafts")


def _check_lanes(
    tables: Mapping[str, Any], trees: Mapping[str, Any], spec: RaceSpec, lanes: Mapping[str, Sequence[Step]]
) -> None:
    """Lanes at a fixed size draft the first tokens of their table's drafts, while they still write the same text."""
    text = [token for name in spec.named(BASELINE) for step in lanes[name] for token in step.token_ids]
    for lane in spec.lanes:
        if lane.k == AUTO or lane.rule != "coupled":
            continue
        own = {lane.drafter + TREES} if tree_size(lane.k) else {lane.drafter, f"{lane.drafter}@{lane.k}"}
        for name in own & tables.keys():
            step = _other_draft(tables[name], trees.get(name), text, lanes[lane.name])
            if step is not None:
                raise UsageError(
                    f"the table of {short(name)} is not of this race: step {step.index} of lane {short(lane.name)} "
                    "drafted other tokens"
                )


def _other_draft(
    drafts: Sequence[Sequence[int]], trees: Sequence[Sequence[int]] | None, text: Sequence[int], steps: Sequence[Step]
) -> Step | None:
    """The first step with another draft than the table's, while the lane still writes `text`."""
    for step in steps:
        end, num = step.position + len(step.token_ids), len(step.drafted)
        if end > len(text):
            break
        parents, chain = trees[step.position][:num] if trees else (), [*range(num)]
        if [*step.drafted] != drafts[step.position][:num] or [*(step.parents or chain)] != [*(parents or chain)]:
            return step
        if [*step.token_ids] != text[step.position : end]:
            break
    return None


def _check_rules(tables: Mapping[str, Any], drawn: Mapping[str, Any], spec: RaceSpec) -> None:
    """What other rules keep: of drafts made at temperature 0, and of drafts that are drawn by probability."""
    greedy, longest = {*filter(GREEDY.search, tables)}, len(next(iter(tables.values()), ()))
    if (greedy or drawn) and not spec.params.temperature:
        raise UsageError("it has drafts of other rules, but at temperature 0 all rules are one")
    for name, by_k in drawn.items():
        which = f"the drawn drafts of {short(name)}"
        fits(by_k, OBJECT, which)
        for k, one in by_k.items():
            fits(one, {"steps": NUMBER, "seconds": SECONDS, "block_steps": NUMBER}, which)
            is_sound = re.fullmatch("[1-9][0-9]?", k) and one["seconds"] > 0
            is_sound = is_sound and all(1 <= one[name] <= longest for name in ("steps", "block_steps"))
            if not is_sound or greedy.isdisjoint((f"{name}~greedy", f"{name}~greedy@{k}")):
                raise UsageError(f"{which} at k={short(k)} are not of this race")


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
