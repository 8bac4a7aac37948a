"""Recordings that are broken in one place: each of a list, or one drawn by chance. And races with more lanes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.helpers.forged import in_turns
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import BESIDE, OF_EVENTS, candidates_of, fixed_race, known_in_part, on_servers

SHORT = race_over(words_of(TEXT)[:60], seed=5)
TIMES = ("clock_s", "prefill_s", "draft_s", "verify_s", "decode_s")


def with_more_lanes(names: list[str], first: int = 0, of: dict[str, Any] = SHORT) -> dict[str, Any]:
    """A race with copies of its speculative lane, each slower than the last, from place `first` on."""
    recorded = copy.deepcopy(of)
    lanes, events, verdict = recorded["spec"]["lanes"], recorded["events"], recorded["verdicts"].pop("speculative")
    drafting = lanes.pop()
    lanes[first:first] = [{**drafting, "name": name} for name in names]
    mine = [e for e in events if e["lane"] == "speculative"]
    recorded["events"] = [e for e in events if e["lane"] != "speculative"]
    for times, name in enumerate(names, 1):
        timed = ({key: times * value for key, value in e.items() if key in TIMES} for e in mine)
        recorded["events"] += [{**e, "lane": name, **later} for e, later in zip(mine, timed, strict=True)]
    told = [{**verdict, "sentence": f"identical tokens: baseline and {name}"} for name in names]
    recorded["verdicts"].update(zip(names, told, strict=True))
    return in_turns(recorded)


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(recorded: dict[str, Any]) -> None:
        *way, last = [int(part) if part.lstrip("-").isdigit() else part for part in path.split("/")]
        for part in way:
            recorded = recorded[part]
        if value is change:
            del recorded[last]  # type: ignore[arg-type]
        else:
            recorded[last] = value  # type: ignore[index]

    return apply


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    change("format", "x"), change("schema", 3), change("schema", 0), change("schema", True), change("schema", [1]),
    change("model", []), change("model/name", "n" * 10_001), change("spec/lanes", []), change("spec/lanes/2/k", -1),
    change("spec/audit", 1),
    change("events", {}), change("events/0", "x"), change("events/0/type", "__proto__"),
    change("events/0/type", "constructor"), change("events/3/lane", "toString"), change("events/3/extra", 1),
    change("events/3", {}),
    change("events/4/token_ids/0", 1.5), change("events/4/token_ids/0", -1), change("events/4/token_ids/0", 2**31),
    change("events/4/pieces", "abc"), change("events/4/pieces", [1]), change("events/4/verify_s", -1),
    change("events/4/verify_s", 1e9), change("events/4/clock_s", 5.0), change("events/4/num_accepted", 2),
    change("events/4/index", 7), change("events/4/width", 0), change("events/4/checksums", []),
    change("events/4/pieces", change),
    change("events/-1", change), change("events/0/num_prompt_tokens", 9), change("events/0/prefill_s", "0.1"),
    change("spec/lanes/1/name", "plain"), change("spec/lanes/2/rule", 3),
    change("events/4/num_drafted", 1), change("events/4/num_drafted", 0), change("events/4/num_drafted", None),
    change("events/4/wall_s", -1), change("events/4/wall_s", None), change("events/4/wall_s", "1"),
    change("events/4/width", "8"), change("events/4/width", 65),
    change("widths/exact", "yes"), change("widths", None), change("prompt/token_ids", ["1"]),
    change("versions", {"a": 1}), change("synthetic", "x"),
]  # fmt: skip
CANDIDATES = candidates_of(SHORT, random.Random(3))


def row(**broken: Any) -> Callable[[dict[str, Any]], object]:
    """The candidates of the first row, with something broken."""
    first, *rest = CANDIDATES["lanes"]["baseline"]
    lanes = {**CANDIDATES["lanes"], "baseline": [[{**first[0], **broken}, *first[1:]], *rest]}
    return change("candidates", {**CANDIDATES, "lanes": lanes})


def call_two_texts_one(recorded: dict[str, Any]) -> None:
    recorded.update(on_servers(recorded))
    next(e for e in recorded["events"] if e["type"] == "step" and e["lane"] == "speculative")["pieces"][0] += "!"


def commit_two_at_once(recorded: dict[str, Any]) -> None:
    recorded.update(on_servers(recorded))
    next(e for e in recorded["events"] if e["type"] == "step" and len(e["token_ids"]) > 1)["width"] = 1


# Those of optional members and of roles that have words of their own are in tests/recordings/test_optional.py and
# test_recording.py.
CHANGES += [
    call_two_texts_one, commit_two_at_once,
    change("verdicts", None), change("verdicts/plain/rows_compared", None),
    change("verdicts/speculative/sentence", {}), change("verdicts/plain/first_difference", {}),
    change("verdicts/__proto__", {}), change("spec/lanes/2/role", "plain"),
    change("spec/lanes/1/role", "speculative"), change("spec/lanes/1/role", None),
    change("spec/lanes/2", {**SHORT["spec"]["lanes"][2], "k": "auto", "width": 5}),
    change("tables", {"ngram": [[-1]]}), change("tables", {"__proto__": [[]] * 61}),
    change("costs", None), *(change("costs", {"verify_s": [each], "draft_s": {}}) for each in (-1, "1", 1e8)),
    change("costs", {"verify_s": [1], "draft_s": {"toString": [1]}}),
    change("oracles", None), change("oracles", {"toString": {"seconds": 0, "share": 0}}),
    change("candidates", None), change("candidates", {**CANDIDATES, "seeds": [-1]}),
    change("candidates", {**CANDIDATES, "pieces": [1]}), change("candidates", {**CANDIDATES, "lanes": []}),
    change("candidates", {**CANDIDATES, "lanes": {"toString": []}}),
    *(row(**broken) for broken in ({"logits": [None]}, {"logits": [1e300]}, {"log_z": -99})),
    change("table_parents", []), change("table_parents", {"toString@tree": []}), change("table_parents", {"ngram": []}),
    change("table_chances", []), change("table_chances", {"toString@tree": []}),
    change("promises", []), change("promises", {"toString": "x"}), change("promises", {"plain": "x" * 10_001}),
    change("drafter_bytes", []), change("drafter_bytes", {"plain": None}),
]  # fmt: skip


def broken() -> Iterator[dict[str, Any]]:
    """SHORT with each of the changes."""
    for apply in CHANGES:
        recorded = copy.deepcopy(SHORT)
        apply(recorded)
        yield recorded


VALUES: list[Any] = [None, True, 0, 1, -1, 2.5, 2**31, 10**9, "", "auto", "plain", "baseline", "speculative", "x" * 50]
VALUES += [[], [1], {}, [[1, 2], []], {"plain": "x"}, {"plain": [[1]]}]
VALUES += [[{"lane": "plain", "position": 0, "ids": [1], "logits": [0.5], "noise": [2]}]]


def mutated(recorded: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The recording with one value somewhere replaced, removed or added."""
    at: Any = recorded
    if rng.random() < 0.25:
        key = rng.choice(OF_EVENTS + BESIDE)
        (recorded if key in BESIDE else rng.choice(recorded["events"]))[key] = rng.choice(VALUES)
        return recorded
    while True:
        key = rng.choice(sorted(at) if isinstance(at, dict) else range(len(at)))
        if not at[key] or not isinstance(at[key], (dict, list)) or rng.random() < 0.2:
            break
        at = at[key]
    if rng.random() < 0.7:
        at[key] = rng.choice(VALUES)
    else:
        del at[key]
    return recorded


def mutants(count: int) -> Iterator[str]:
    """Files with one value replaced, removed or added; some are still good."""
    rng = random.Random(2)
    wholes = [race_over(words_of(TEXT)[:12], seed=7), fixed_race()]
    wholes += [known_in_part(whole, random.Random(2)) for whole in wholes]
    wholes += [with_more_lanes(["a", "b"], of=wholes[0])]
    for i in range(count):
        yield json.dumps(mutated(copy.deepcopy(wholes[i % len(wholes)]), rng))
