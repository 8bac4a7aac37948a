"""Does speculation pay on these servers: alone, and up to how many users?"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice

from ...analysis.verdict_words import PAYS, capital
from ...core.errors import RaceError
from ...core.spec import PLAIN, SERVER, SPECULATIVE
from ...remote.server_race import RemoteRace
from ...studies.load.data import WARM_UP
from ...studies.load.pays_under_load import ranks, recommends
from ...studies.load.study import Key, Plan, Row, run
from ...studies.load.users import Outcome
from ...studies.prompts.prompts import NO_KIND, FilePrompt
from ...studies.prompts.race_servers import rows_on_servers
from ..drafter_worth import LEAST_GAIN
from ..findings import Finding
from .pair import PATIENCE, Pair

LEVELS: tuple[int, ...] = (1, 2, 4, 8)  # numbers of users
NUM_REQUESTS, NUM_TOKENS = 8, 32  # requests of each level, and tokens of each answer
MAX_STUDIES = 3
NUM_RACED = 3
FEWER = "Draft fewer tokens (vLLM: num_speculative_tokens), take another drafter, or decode plainly"
AGAIN = "Check again while nothing else runs on the servers' machine"
NOT_FOR_MANY = "Turn speculation off, or draft fewer tokens, where {} or more users share the server"


def races(pair: Pair) -> list[Finding]:
    """Races a few prompts, one lane after the other. Blocks, with event loops of its own. Raises what ended a lane."""
    for i, question in enumerate(() if pair.is_alone else pair.prompts[:NUM_RACED]):
        lanes = zip(pair.servers, (PLAIN, SPECULATIVE), strict=True)
        endpoints = [replace(server.endpoint, lane=name) for server, name in lanes]
        race = RemoteRace(endpoints, question, pair.params, PATIENCE, same_device=True)
        prompt = FilePrompt(i + 1, NO_KIND, question.text, question.messages)
        try:
            rows = rows_on_servers(race, {SPECULATIVE: SERVER}, prompt, pair.progress)
        except RaceError as error:  # it does not say what kind of error ended a lane
            raise next((lane.error for lane in race.lanes.values() if lane.error), error) from error
        if (ended := race.lanes[SPECULATIVE].error) is not None:
            raise ended
        pair.races += rows
    return []


async def worth(pair: Pair) -> list[Finding]:
    """A short study of each server under load, and the verdict. Levels at which the speculative one is slower are
    repeated, and the best row of each lane counts: a single short level may be disturbed. Raises RemoteError, also
    where a server refuses to serve that many."""
    best: dict[Key, Row] = {}
    left, (first, *others) = LEVELS, [server.endpoint.lane for server in pair.servers]
    for _ in range(MAX_STUDIES):
        for row in await _study(pair, left) if left else ():
            key = (row["lane"], row["concurrency"])
            best[key] = max(best.get(key, row), row, key=_rate)
        left = tuple(num for num in LEVELS for second in others if _rate(best[second, num]) <= _rate(best[first, num]))
    return [_judged(pair, list(best.values()))]


async def _study(pair: Pair, levels: tuple[int, ...]) -> list[Row]:
    questions = tuple(islice(cycle(pair.prompts), len(levels) * NUM_REQUESTS + WARM_UP))
    params = replace(pair.params, max_new_tokens=min(NUM_TOKENS, pair.params.max_new_tokens))
    endpoints = tuple(server.endpoint for server in pair.servers)
    plan = Plan(endpoints, questions, levels, NUM_REQUESTS, params, PATIENCE.total_s)
    rows: list[Row] = []
    outcomes: list[Outcome] = []

    def over(row: Row, outcome: Outcome) -> None:
        rows.append(row)
        outcomes.append(outcome)

    await run(plan, pair.progress, over)
    for outcome in outcomes:
        for error in outcome.failures:
            if not outcome.answers or 0 < (error.status or 0) < 500:
                raise error
    return rows


def _rate(row: Row) -> float:
    return row["output_tokens_per_s"] or 0.0


def _judged(pair: Pair, rows: Sequence[Row]) -> Finding:
    """Whether it pays alone, by the races, and with how many users, by the study."""
    rates = {(row["lane"], row["concurrency"]): _rate(row) for row in rows}
    lanes = [server.endpoint.lane for server in pair.servers]
    levels = f"{', '.join(map(str, LEVELS[:-1]))} and {LEVELS[-1]} users"
    if pair.is_alone:
        says = ", ".join(f"{rates[lanes[0], num]:.0f}" for num in LEVELS)
        return Finding("ok", "speed", f"With {levels} it writes {says} tokens a second.")
    raced, doubt = [row.speedup for row in pair.races if row.speedup], partial(Finding, "doubt", "worth it")
    if not raced:
        return doubt("The answers were too short to be timed.", "Use prompts with longer answers")
    gain = statistics.median(raced)
    lengths = [row.mean_acceptance_length for row in pair.races if row.mean_acceptance_length]
    gains = ", ".join(f"{rates[lanes[1], num] / rates[lanes[0], num]:.2f}x" for num in LEVELS)
    says = (
        f"{gain:.2f}x as fast as plain decoding while it writes (median of {len(raced)} prompts, one at a time). In "
        f"output tokens a second, the wait for the first text included: {gains} with {levels}."
    )
    if lengths:
        length = statistics.mean(lengths)
        says += f" A step writes {length:.2f} tokens, and pays from {max(1, length / gain):.2f} on."
    if gain < LEAST_GAIN:
        return doubt(f"{capital(PAYS['not_worth_it'])}: {says}", FEWER)
    lost = [num for num, rank in ranks(rows, *lanes).items() if rank == -1]
    if LEVELS[0] in lost:
        return doubt(f"Not certain, the two measurements of one user contradict each other: {says}", AGAIN)
    if lost:
        return doubt(f"{capital(recommends(rows, lanes))}: {says}", NOT_FOR_MANY.format(lost[0]))
    return Finding("ok", "worth it", f"{capital(PAYS['worth_it'])}: {says}")
