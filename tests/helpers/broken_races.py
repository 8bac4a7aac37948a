"""Recordings that are broken in one place, and races with more lanes."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.helpers.forged import in_turns
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import candidates_of, on_servers

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
    verdicts = [{**verdict, "sentence": f"identical tokens: baseline and {name}"} for name in names]
    recorded["verdicts"].update(zip(names, verdicts, strict=True))
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


CANDIDATES = candidates_of(SHORT, random.Random(3))


def call_two_texts_one(recorded: dict[str, Any]) -> None:
    recorded.update(on_servers(recorded))
    next(e for e in recorded["events"] if e["type"] == "step" and e["lane"] == "speculative")["pieces"][0] += "!"


# Changes that no table of tests/recordings or tests/engine/test_events.py makes.
CHANGES: list[Callable[[dict[str, Any]], object]] = [
    call_two_texts_one,
    change("model", []), change("model/name", "n" * 10_001), change("spec/lanes/2/k", -1), change("spec/audit", 1),
    change("spec/lanes/2", {**SHORT["spec"]["lanes"][2], "k": "auto", "width": 5}),
    change("events", {}), change("events/0", "x"), change("events/0/type", "__proto__"), change("events/3", {}),
    change("events/4/pieces", "abc"), change("events/4/pieces", [1]), change("events/4/pieces", change),
    change("events/4/verify_s", -1), change("events/4/verify_s", 1e9), change("events/0/prefill_s", "0.1"),
    change("widths/exact", "yes"), change("widths", None), change("prompt/token_ids", ["1"]),
    change("versions", {"a": 1}), change("synthetic", "x"), change("verdicts/plain/rows_compared", None),
    change("verdicts/speculative/sentence", {}), change("verdicts/plain/first_difference", {}),
    *(change("candidates", {**CANDIDATES, **broken}) for broken in ({"seeds": [-1]}, {"pieces": [1]}, {"lanes": []})),
    *(change("candidates", {**CANDIDATES, "lanes": {"baseline": [[{**CANDIDATES["lanes"]["baseline"][0][0],
      "logits": [number]}]]}}) for number in (None, 1e300)),
    change("table_parents", []), change("table_parents", {"toString@tree": []}), change("table_parents", {"ngram": []}),
]  # fmt: skip


def broken() -> Iterator[dict[str, Any]]:
    """SHORT with each of the changes."""
    for apply in CHANGES:
        recorded = copy.deepcopy(SHORT)
        apply(recorded)
        yield recorded
