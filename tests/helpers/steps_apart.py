"""Races with what the target might have said at each row: for tests of what the page makes of it."""

import copy
import math
import random
from typing import Any

from engine.core.events import Step, steps
from engine.recordings.event_json import from_json
from engine.recordings.recording import read
from tests.helpers import CHAINS
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import add_copies, as_trees, events_of


def taken_apart(recorded: dict[str, Any]) -> dict[str, Any]:
    """The race with copies and candidates that fit its events: the committed token has the largest score under
    the race's own seed, a dropped one has not; both lanes have the same numbers at the same place."""
    out, rng = copy.deepcopy(recorded), random.Random(1)
    params, rule = out["spec"]["params"], out["spec"]["lanes"][-1]["rule"]
    seeds = [params["seed"]] if params["temperature"] and rule == "coupled" else []
    known = {
        token: piece
        for e in out["events"]
        if e["type"] == "step"
        for token, piece in [
            *zip(e["token_ids"], e["pieces"], strict=True),
            *zip(e["drafted"], e["drafted_pieces"], strict=True),
        ]
    }
    others, rows_at, lanes = list(known), {}, {}
    for lane in out["spec"]["lanes"]:
        if lane["role"] == "plain":
            continue
        lanes[lane["name"]] = []
        for step in steps(events_of(out), lane["name"]):
            rows, decided = [], dict(zip(step.rows, step.token_ids, strict=True))
            for r, path in enumerate(step.paths):
                guesses = [token for token, row in zip(step.drafted, step.follows, strict=True) if row == r]
                if r not in decided:
                    rows.append(_row(rng, rng.sample(others, 6) + guesses, None, 0))
                    continue
                place = (step.position + len(path), decided[r])
                if place not in rows_at:
                    rows_at[place] = _row(rng, [decided[r], *rng.sample(others, 6)], decided[r], len(seeds))
                rows.append(_with_guesses(rows_at[place], guesses, rng))
            lanes[lane["name"]].append(rows)
    pieces = {str(t): known[t] for steps in lanes.values() for rows in steps for row in rows for t in row["ids"]}
    out["candidates"] = {"seeds": seeds, "pieces": pieces, "lanes": lanes}
    add_copies(out)
    return out


def _row(rng: random.Random, ids: list[int], chosen: int | None, num_seeds: int) -> dict[str, Any]:
    ids = list(dict.fromkeys(ids))
    logits = sorted((round(rng.uniform(8, 14), 4) for _ in ids), reverse=True)
    noise = [[round(-math.log(-math.log(rng.uniform(0.01, 0.99))), 4) for _ in ids] for _ in range(num_seeds)]
    if chosen is not None:
        ids.remove(chosen)
        place = rng.randrange(3) if noise else 0
        ids.insert(place, chosen)
        for own in noise[:1]:
            own[place] = round(max(a + b for a, b in zip(logits, own, strict=True)) - logits[place] + 0.5, 4)
    row = {"ids": ids, "logits": logits, "log_z": round(math.log(sum(map(math.exp, logits)) + math.exp(9)), 4)}
    return {**row, "noise": noise} if noise else row


def _with_guesses(row: dict[str, Any], guesses: list[int], rng: random.Random) -> dict[str, Any]:
    """The row of the same place where tokens were drafted too that have little to say there."""
    for guess in guesses:
        if guess not in row["ids"]:
            row = {**row, "ids": [*row["ids"], guess], "logits": [*row["logits"], row["logits"][-1] - 2]}
            if "noise" in row:
                row["noise"] = [[*noise, round(rng.uniform(-1, 0), 4)] for noise in row["noise"]]
    return row


def steps_of(recording: dict[str, Any], lane: str = "speculative") -> list[dict[str, Any]]:
    return [e for e in recording["events"] if e["type"] == "step" and e["lane"] == lane]


def chance_words(chance: float) -> str:
    """A chance as the page writes it."""
    if chance == 0:
        return "0 %"
    return "< 0.1 %" if chance < 0.0005 else "> 99.9 %" if 0.9995 < chance < 1 else f"{100 * chance:.1f} %"


def verdicts_of(step: dict[str, Any]) -> list[str]:
    """What became of each guess of a step, and of the place after: right, the model's own token, or neither."""
    of = from_json(step).event
    assert isinstance(of, Step)
    verdicts = ["ok" if i in of.kept else "no" if row in of.rows else "unused" for i, row in enumerate(of.follows)]
    if of.is_refuted or len(of.token_ids) == of.num_accepted:
        return [*verdicts, "unused"]
    return [*verdicts, "extra" if verdicts else "own"]


GREEDY, SAMPLED = (taken_apart(read(CHAINS / f"{name}.json").fields) for name in ("csv_to_json", "story"))
TREES = taken_apart(
    as_trees(race_over(words_of(TEXT)[:90], seed=5, k=4, hit=0.6, drafter="hybrid:ngram+eagle3"), random.Random(4))
)
