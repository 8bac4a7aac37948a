"""Does speculation pay on these servers: alone, and with how many users no longer?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from ...errors import sentence
from ...recordings.recording import OUTPUT_SCHEMA
from ...remote.race import RemoteRace
from ...spec import PLAIN, SERVER, SPECULATIVE
from ...studies.load.data import WARM_UP
from ...studies.load.metrics import report
from ...studies.load.study import Key, Listener, Plan, Row, run
from ...studies.load.users import Outcome
from ...studies.prompts.prompts import NO_KIND, FilePrompt
from ...studies.prompts.rows import Row as Raced
from ...studies.prompts.servers import rows_on_servers
from ..findings import Finding
from ..worth import PAYS
from .pair import PATIENCE, Pair

LEVELS = (1, 2, 4, 8)
"""Numbers of users."""
NUM_REQUESTS, NUM_TOKENS = 8, 32
"""Of each level, and of each answer."""
NUM_RACED = 3
FEWER = "Draft fewer tokens (vLLM: num_speculative_tokens), take another drafter, or decode plainly"
FIX = "Look into the server's log: it failed under this load"
NOT_FOR_MANY = "Turn speculation off, or draft fewer tokens, where {} or more users share the server"


def raced(pair: Pair) -> list[Raced]:
    """Races of a few prompts, one lane after the other. Blocks, with event loops of its own. Raises RaceError."""
    found: list[Raced] = []
    for i, question in enumerate(pair.prompts[:NUM_RACED]):
        lanes = zip(pair.servers, (PLAIN, SPECULATIVE), strict=True)
        endpoints = [replace(server.endpoint, lane=name) for server, name in lanes]
        race = RemoteRace(endpoints, question, pair.params, PATIENCE, same_device=True)
        prompt = FilePrompt(i + 1, NO_KIND, question.text, question.messages)
        found += rows_on_servers(race, {SPECULATIVE: SERVER}, prompt, pair.progress)
    return found


async def loaded(pair: Pair) -> list[Row]:
    """Rows of a short study of each server under load."""
    questions = tuple(islice(cycle(pair.prompts), len(LEVELS) * NUM_REQUESTS + WARM_UP))
    params = replace(pair.params, max_new_tokens=min(NUM_TOKENS, pair.params.max_new_tokens))
    endpoints = tuple(server.endpoint for server in pair.servers)
    plan = Plan(endpoints, questions, LEVELS, NUM_REQUESTS, params, PATIENCE.total_s)
    rows: list[Row] = []

    def asked(key: Key, outcome: Outcome) -> None:
        done = len(rows) / len(plan.keys)
        pair.progress(f"{key[0]} with {key[1]} user{'s' if key[1] > 1 else ''}", done)

    await run(plan, (), (), Listener(lambda lane: None, lambda key: None, asked, rows.append))
    return rows


def judged(pair: Pair, races: Sequence[Raced], rows: Sequence[Row]) -> Finding:
    """Whether it pays alone, by the races, and up to how many users, by the study."""
    if faults := [row.fault for row in races if row.fault]:
        return Finding("fault", "worth it", sentence(faults[0]), FIX)
    rates = {(row["lane"], row["concurrency"]): row["output_tokens_per_s"] for row in rows}
    lanes = [server.endpoint.lane for server in pair.servers]
    if missing := [f"{lane} with {num} users" for (lane, num), rate in rates.items() if not rate]:
        return Finding("doubt", "worth it", f"No answer from lane {missing[0]}.", FIX)
    if pair.is_alone:
        says = ", ".join(f"{rates[lanes[0], num]:.0f}" for num in LEVELS)
        return Finding("ok", "speed", f"With {_levels()} users it writes {says} tokens a second.")
    gain = statistics.median(row.speedup for row in races if row.speedup)
    lengths = [row.mean_acceptance_length for row in races if row.mean_acceptance_length]
    gains = ", ".join(f"{rates[lanes[1], num] / rates[lanes[0], num]:.2f}x" for num in LEVELS)
    says = f"{gain:.2f}x as fast as plain decoding alone, over {len(races)} prompts; {gains} with {_levels()} users."
    if lengths:
        length = statistics.mean(lengths)
        says += f" A step writes {length:.2f} tokens, and pays from {length / gain:.2f} on."
    if gain < PAYS:
        return Finding("doubt", "worth it", f"It does not pay: {says}", FEWER)
    between = report(list(rows), lanes, OUTPUT_SCHEMA)["crossing"]
    if between is not None:
        return Finding(
            "doubt", "worth it", f"It pays up to {between[0]} users: {says}", NOT_FOR_MANY.format(between[1])
        )
    return Finding("ok", "worth it", f"It pays: {says}")


def _levels() -> str:
    return f"{', '.join(map(str, LEVELS[:-1]))} and {LEVELS[-1]}"
