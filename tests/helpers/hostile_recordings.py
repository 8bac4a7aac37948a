"""Recordings made to keep the page busy: families that grow with a size, and what the page does with one of them."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from app.catalogue.limits import MAX_RECORDING_CHARS, check_file
from app.figures.charts import charts
from app.figures.cheats import cheats
from app.figures.plots import Chart
from app.figures.why import compared_of, why
from app.jobs.recorded import Shelf
from engine.core.errors import UsageError
from engine.recordings.recording import checked

LANES = ("plain", "baseline", "speculative")
STEP: dict[str, Any] = {
    "drafted": [], "num_accepted": 0, "draft_s": 0, "verify_s": 1, "width": None, "pieces": [], "drafted_pieces": [],
    "checksums": [],
}  # fmt: skip
WIDTHS = {
    "width": 8, "widths_class": [8], "plain_width": 1, "exact": True, "cache_length": 64, "note": "",
    "step_s": {str(width): 1 + width for width in range(1, 65)},
}  # fmt: skip
HEADER: dict[str, Any] = {
    "schema": 2, "format": "photofinish-race", "widths": WIDTHS, "verdicts": {}, "versions": {}, "commit": None,
    "model": {"name": "m", "revision": None, "digest": None, "dtype": "float32", "licence": None},
    "device": {"type": "cpu", "name": "d", "threads": 1}, "created": "now",
}  # fmt: skip
PARAMS = {"temperature": 0, "top_k": 0, "top_p": 1, "seed": 0, "max_new_tokens": 100_000, "stop": []}
FAILED = {"lane": "plain", "clock_s": 0, "type": "failed", "message": ""}
HYBRID = "hybrid:ngram+eagle3"
SERVERS = {"type": "server", "name": "servers", "threads": None}
ROW = {"ids": [7, 8], "logits": [0, 0], "log_z": 1}


class Taken(NamedTuple):
    """What became of a recording: its refusal, "" if it was drawn; the processor's seconds for the slowest request."""

    refused: str
    cpu_s: float


def take(text: str) -> Taken:
    """A browser's requests with a recording: to check and keep it, for the charts, the reasons and the switches."""
    shelf, times = Shelf({}), list[float]()

    def keep() -> None:
        check_file(text, "it", MAX_RECORDING_CHARS)
        shelf.put("key", checked(text.encode("utf-8", "surrogatepass")))

    def draw(figures: Callable[[Any], Iterable[Chart]] = charts) -> None:
        for chart in figures(shelf.get("key")):
            if chart.figure is not None:
                chart.figure.to_json()

    def explain() -> None:
        draw(why)
        json.dumps(cheats(compared_of(shelf.get("key"))), allow_nan=False)

    for request in (keep, draw, explain):
        began = time.thread_time()
        try:
            request()
        except UsageError as error:
            return Taken(str(error), max([*times, time.thread_time() - began]))
        times.append(time.thread_time() - began)
    return Taken("", max(times))


def at_once(token_ids: Sequence[int], **more: Any) -> list[dict[str, Any]]:
    """The steps of a lane that commits all of its tokens in one."""
    return [{"token_ids": token_ids, **more}]


def singly(token_ids: Iterable[int], **more: Any) -> list[dict[str, Any]]:
    """Those of one that commits them one by one."""
    return [{"token_ids": [token], **more} for token in token_ids]


def race(
    steps: Sequence[dict[str, Any]] | dict[str, Sequence[dict[str, Any]]],
    drafter: str = "ngram",
    k: int | str = 63,
    prompt: Sequence[int] = (1,),
    **more: Any,
) -> dict[str, Any]:
    """A good recording. steps: by lane, or those of every lane; what they lack is filled in. more: its members."""
    by_lane = steps if isinstance(steps, dict) else dict.fromkeys(LANES, steps)
    turns: list[tuple[float, dict[str, Any]]] = []
    for name, done in by_lane.items():
        position = clock_s = 0
        turns.append((-1, event(name, "started", 0, num_prompt_tokens=len(prompt), prefill_s=1)))
        for index, step in enumerate(done):
            before, clock_s = clock_s, clock_s + step.get("verify_s", 1)
            turns.append((before, {**event(name, "step", clock_s, index=index, position=position), **STEP, **step}))
            position += len(step["token_ids"])
        over = event(name, "finished", clock_s, reason="length", num_tokens=position, decode_s=clock_s)
        turns.append((clock_s, over))
    events = [record for _, record in sorted(turns, key=lambda turn: turn[0])]
    spec = {"lanes": [lane(name, drafter, k) for name in by_lane], "params": PARAMS, "audit": False, "solo": False}
    return {**HEADER, "spec": spec, "prompt": {"text": "p", "token_ids": list(prompt)}, "events": events, **more}


def event(name: str, kind: str, clock_s: float, **more: Any) -> dict[str, Any]:
    return {"lane": name, "clock_s": clock_s, "type": kind, **more}


def lane(name: str, drafter: str = "ngram", k: int | str = 63) -> dict[str, Any]:
    role = name if name in ("plain", "baseline") else "speculative"
    if role != "speculative" and drafter != "server":
        drafter, k = "none", 0
    return {"name": name, "width": "auto", "rule": "coupled", "drafter": drafter, "k": k, "role": role}


def small(**more: Any) -> dict[str, Any]:
    """A short race with these members."""
    return race(singly([7] * 9), **more)


def raw(value: str) -> str:
    """A short race with one more member, whose value is this JSON."""
    return f'{json.dumps(small())[:-1]}, "x": {value}}}'


def lanes(**drafting: Sequence[dict[str, Any]]) -> dict[str, Sequence[dict[str, Any]]]:
    """These lanes, and plain ones of as many tokens."""
    plain = singly([7] * max(map(len, drafting.values())))
    return {"plain": plain, "baseline": plain, **drafting}


def trees(size: int, parents: list[int]) -> dict[str, Any]:
    """A race with a table that has the same tree everywhere, the last token of which is right."""
    more = {"table_parents": {"ngram@tree": [parents] * size}}
    return tables(size, {"ngram@tree": [*range(100, 162), 7]}, k="auto") | more


def tables(size: int, drafts: dict[str, list[int]], **more: Any) -> dict[str, Any]:
    """A race of one step a lane, with tables that have the same draft everywhere. more: of the race."""
    costs = list(range(1, 65))
    by_drafter = {name: [draft] * size for name, draft in drafts.items()}
    costs_of = {"verify_s": costs, "draft_s": dict.fromkeys(by_drafter, costs)}
    return race(at_once([7] * size), tables=by_drafter, costs=costs_of, **more)


def candidates(size: int, num_drafted: int = 0, **more: Any) -> dict[str, Any]:
    """Of one lane's steps, each with so many drafts. more: members of every row."""
    rows = [[{**ROW, **more}] * (num_drafted + 1)] * size
    seeds = [0] * len(more.get("noise", ()))
    drafting = singly([7] * size, drafted=[8] * num_drafted)
    extra = {"seeds": seeds, "pieces": {}, "lanes": {"speculative": rows}}
    return race(lanes(speculative=drafting), candidates=extra)


def fibonacci(size: int) -> list[int]:
    """The text with the most copies within copies."""
    before, text = [1], [1, 2]
    while len(text) < size:
        before, text = text, text + before
    return text[:size]


def many(size: int, value: Any = 0) -> dict[str, Any]:
    return {str(i): value for i in range(size)}


def deep(size: int) -> str:
    return "[" * size + "]" * size


class Family(NamedTuple):
    """A recording of any size, as JSON or as its text; the size at which the test suite tries it; and what it is
    refused with at that size, "" where it is drawn."""

    make: Callable[[int], dict[str, Any] | str]
    size: int
    refused: str = ""

    def text(self, size: int) -> str:
        made = self.make(size)
        return made if isinstance(made, str) else json.dumps(made, separators=(",", ":"))


FAMILIES = {
    # texts that repeat themselves
    "one token": Family(lambda n: race(at_once([7] * n)), 2**13),
    "fibonacci": Family(lambda n: race(at_once(fibonacci(n))), 2**13),
    # steps
    "many steps": Family(lambda n: race(singly(range(n))), 2**9),
    "times of all digits": Family(
        lambda n: race(
            many(16, [{"token_ids": [7], "width": 1, "verify_s": (1 + i) / 2 ** (i % 999)} for i in range(n)])
        ),
        2**6,
    ),
    "steps of all sizes": Family(lambda n: race([{"token_ids": [7] * (i % 400 + 1)} for i in range(n)]), 2**7),
    "long drafts": Family(lambda n: race(lanes(s=singly([7] * n, drafted=[8] * 63))), 2**8),
    "copies of a long prompt": Family(
        lambda n: race(lanes(s=singly([7] * (n // 400), drafted=[7], copied=[0, 0], num_accepted=1)), prompt=[7] * n),
        2**17,
    ),
    "servers": Family(lambda n: race(singly([0] * n), "server", "auto", device=SERVERS), 2**8),
    # lanes
    "sixteen lanes": Family(lambda n: race({"plain": singly([7]), **many(15, singly([7] * n))}), 2**6),
    "too long a name of a lane": Family(lambda n: race(lanes(**{"s" * n: singly([7])})), 2**17, "at most 10000"),
    "a drafter of many parts": Family(lambda n: small(drafter="hybrid:ngram" + "+ngram" * n), 2**7),
    # texts
    "too long a prompt": Family(lambda n: small(prompt=[7] * n), 2**20, "1048576 entries; at most 1000000"),
    "a long text of a prompt": Family(lambda n: small() | {"prompt": {"text": "x" * n, "token_ids": [1]}}, 2**18),
    "too long a text": Family(lambda n: race(at_once([7], pieces=["x" * n])), 2**20, "at most 1000000 characters"),
    "a long piece, then many": Family(
        lambda n: race([*at_once([7], pieces=["x" * (n * 99)]), *singly([7] * n, pieces=["x"])]), 2**9
    ),
    "surrogates": Family(lambda n: raw('"' + "\\ud83d\\ude00" * n + '"'), 2**14),
    # tables
    "tables of a hybrid": Family(lambda n: tables(n, {f"{HYBRID}@tree": [7] * 63}, drafter=HYBRID, k="auto"), 2**10),
    "many tables": Family(lambda n: tables(9, many(n, [])), 2**11, "has 2048 tables; at most 64"),
    "a long name of a table": Family(lambda n: tables(9, {"ngram@1" * n: []}), 2**11, "a name of 14336 characters"),
    "trees of many branches": Family(lambda n: trees(n, [0] * 63), 2**9),
    "pieces of tables": Family(lambda n: small(table_pieces=many(n, "x")), 2**14),
    # candidates
    "candidates of long drafts": Family(lambda n: candidates(n, 63), 2**7),
    "candidates with noise": Family(lambda n: candidates(n, noise=[[0, 0]] * 8), 2**9),
    # JSON
    "a deep type": Family(
        lambda n: json.dumps(small()).replace('"started"', deep(min(n, 900))), 900, "event type a list"
    ),
    "a long field": Family(lambda n: small(events=[FAILED | {"x" * n: 0}]), 2**18, "no field 'x"),
    "a long fraction": Family(lambda n: raw("0." + "9" * n), 2**18),
    "a long exponent": Family(lambda n: raw("1e" + "9" * n), 2**18, "is out of range"),
    "many lists": Family(lambda n: raw("[" + "[]," * n + "1]"), 2**16),
    "many keys": Family(lambda n: raw(json.dumps(many(n))), 2**14),
    "many widths of the class": Family(
        lambda n: small(widths={**WIDTHS, "widths_class": [8] * n}), 2**14, "widths_class has 16384 entries; at most 64"
    ),
}
