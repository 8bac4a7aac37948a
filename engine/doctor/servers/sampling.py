"""Are temperature, top_p and seed honoured, with speculation as without? Two sets of sampled answers are compared by an
exact test, for any sizes: do they come from the same distribution?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from math import comb
from typing import Any

from ...analysis.same import are_alike
from ...analysis.verdict_words import capital
from ...remote.request import Question
from ..findings import Finding, Level
from .pair import Pair, Server, a_few_at_once, symbols, written

DIGITS = "7 1 9 3 0 8 2 5 4 6 1 7 3 9 0 2 8 4 6 5"
UNCERTAIN = Question(f"Random digits from 0 to 9: {DIGITS}")
# What comes next is uncertain, in every one of the next tokens.
UNCERTAIN_CHAT = Question(messages=(("user", f"Go on with random digits, nothing else: {DIGITS}"),))
NUM_TOKENS = 6  # tokens of a sampled answer. Speculation acts from the second one on.
NUM_SEEDS = 8  # each is asked twice
NUM_SAMPLES = 128  # answers of each server to be compared, with each of SETTINGS
# (what the answers test, temperature, top_p).
SETTINGS = (("temperature", 1.0, 1.0), ("temperature", 0.5, 1.0), ("top_p", 1.0, 0.5))
# Chance that two servers of the same distribution are called different, over all cells of all settings.
FALSE_ALARM = 1e-4
FIRST_OTHER_SEED = 1_000_000
REPORT = "Report it to the server's developers; until then use {0} without speculation"
BATCHES = "Expect it where other requests share a batch; vLLM's VLLM_BATCH_INVARIANT=1 avoids it on some GPUs"
UNSTABLE = "Do not rely on seeds with speculation, or decode plainly"
IGNORED = {
    "temperature": "Speculation changes what is sampled. " + REPORT.format("temperatures above 0"),
    "top_p": "Speculation changes what is sampled. " + REPORT.format("top_p below 1"),
}
MIN_COUNT = 8  # a symbol seen less often in both sets together is counted with the other rare ones
ALIKE = "All sampled answers are the same, or have no text: nothing could be compared."
RARE, END = "one of the rare ones", "the end"


async def repeats(pair: Pair) -> list[Finding]:
    """Whether the same question at temperature 0 gets the same answer twice."""
    findings = []
    for server in pair.servers:
        twice = [pair for pair in zip(*server.answers, strict=True) if are_alike(*map(written, pair)) is not None]
        num_same = sum(a == b for a, b in zip(*symbols([*zip(*twice, strict=True)]), strict=True)) if twice else 0
        says = f"{num_same} of {len(twice)} questions have the same answer twice at temperature 0"
        if silent := next((reply.textless for reply in server.answers[0] if reply.textless), ""):
            says += f"; of an answer without text {silent}"
        level: Level = "untested" if not twice else "ok" if num_same == len(twice) else "doubt"
        change = BATCHES if level == "doubt" else ""
        findings.append(Finding(level, "repeats", f"{capital(server.lane)}: {says}.", change))
    return findings


async def seeds(pair: Pair) -> list[Finding]:
    """Whether the same seed gives the same answer, and different seeds different ones. Raises RemoteError."""
    pair.progress("trying seeds", None)
    said = await asyncio.gather(*(_by_seed(pair, server) for server in pair.servers))
    same = [[are_alike(a, b) for a, b in zip(*rounds[:2], strict=True)].count(True) for rounds in said]
    if not all(any(answer for answers in rounds for answer in answers) for rounds in said):
        return [Finding("untested", "seed", "A lane's answers have no text, so nothing could be compared.")]
    num_others = [len(set(rounds[0])) for rounds in said]
    says = "; ".join(
        f"{server.lane}: {same[i]} of {NUM_SEEDS} seeds give the same answer twice, and {num_others[i]} "
        f"different answer{'s' if num_others[i] > 1 else ''} in all"
        for i, server in enumerate(pair.servers)
    )
    says = f"{capital(says)}."
    if num_others[0] <= 2:
        return [Finding("untested", "seed", f"{says} The answer is too certain for seeds to show.")]
    if num_others[-1] == 1 and said[-1][0][0] == said[-1][2][0]:
        return [Finding("doubt", "seed", f"{says} It is that of temperature 0.", "See what is said of the temperature")]
    if num_others[-1] == 1:
        return [Finding("fault", "seed", says, f"Speculation ignores the seed. {REPORT.format('seeds')}")]
    if same[0] == NUM_SEEDS and same[-1] < NUM_SEEDS:
        return [Finding("doubt", "seed", says, UNSTABLE)]
    return [Finding("doubt", "seed", says, BATCHES) if same[0] < NUM_SEEDS else Finding("ok", "seed", says)]


async def _by_seed(pair: Pair, server: Server) -> list[list[tuple[int | str, ...]]]:
    """The answers of the seeds, again, and one at temperature 0."""
    params = replace(pair.params, temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=NUM_TOKENS, stop=())
    question = UNCERTAIN_CHAT if pair.chat else UNCERTAIN
    twice = [[await server.ask(question, replace(params, seed=seed)) for seed in range(NUM_SEEDS)] for _ in range(2)]
    return symbols([*twice, [await server.ask(question, replace(params, temperature=0.0))]])


async def frequencies(pair: Pair) -> list[Finding]:
    """Whether both servers sample the same tokens equally often. Raises RemoteError."""
    if pair.is_alone:
        return []
    question = UNCERTAIN_CHAT if pair.chat else UNCERTAIN
    differences: list[tuple[int, Cell]] = []
    for number, (_, temperature, top_p) in enumerate(SETTINGS):
        pair.progress(f"sampling {NUM_SAMPLES} answers of both", number / len(SETTINGS))
        params = replace(pair.params, temperature=temperature, top_p=top_p, top_k=0, max_new_tokens=NUM_TOKENS, stop=())
        jobs = (
            [partial(server.ask, question, replace(params, seed=first + i)) for i in range(NUM_SAMPLES)]
            for server, first in zip(pair.servers, (0, FIRST_OTHER_SEED), strict=True)
        )
        replies = await asyncio.gather(*map(a_few_at_once, jobs))
        differences += [(number, cell) for cell in cells(*symbols(replies))]
    if not differences:
        return [Finding("untested", "sampling", ALIKE)]
    return _judged(pair, differences)


def _judged(pair: Pair, differences: Sequence[tuple[int, Cell]]) -> list[Finding]:
    limit = FALSE_ALARM / len(differences)
    unit = "token" if any(isinstance(cell.symbol, int) for _, cell in differences) else "character"
    for number, (setting, temperature, top_p) in enumerate(SETTINGS):
        worst = min((cell for at, cell in differences if at == number), key=lambda cell: cell.chance, default=None)
        if worst is None or worst.chance > limit:
            continue
        a, b = worst.counts
        says = (
            f"At temperature {temperature:g} and top_p {top_p:g}, {unit} {worst.position + 1} is "
            f"{_shown(worst.symbol)} in {a} of {NUM_SAMPLES} answers of {pair.plain.lane}, and in {b} of "
            f"{NUM_SAMPLES} of {pair.drafting.lane}: by chance that happens less than once in "
            f"{min(1e6, 1 / max(worst.chance, 1e-99)):,.0f} such comparisons."
        )
        return [Finding("fault", setting, says, IGNORED[setting])]
    least = min(cell.chance for _, cell in differences)
    says = (
        f"{len(SETTINGS) * NUM_SAMPLES} sampled answers of each have the same tokens equally often, at temperature 1 "
        f"and 0.5, and at top_p 0.5: the largest of {len(differences)} differences has a chance of {least:.2g}, and "
        f"{limit:.1g} would be too small."
    )
    return [Finding("ok", "sampling", says)]


def _shown(symbol: int | str) -> str:
    return f"token {symbol}" if isinstance(symbol, int) else repr(symbol) if len(symbol) == 1 else symbol


@dataclass(frozen=True)
class Cell:
    """How many answers of each set have `symbol` at `position` (from 0). chance: the two-sided chance of a difference
    this large between two sets of the same distribution, by Fisher's exact test."""

    position: int
    symbol: Any
    counts: tuple[int, int]
    chance: float


def cells(one: Sequence[Sequence[Any]], another: Sequence[Sequence[Any]]) -> Iterator[Cell]:
    """A cell for each frequent symbol at each position, and one for all rare ones. Which symbols are frequent depends
    on both sets together, so the chance of each cell stays exact."""
    for position, column in enumerate(zip_longest(*one, *another, fillvalue=END)):
        first, second = Counter(column[: len(one)]), Counter(column[len(one) :])
        both = first + second
        rare = [symbol for symbol, num in both.items() if num < MIN_COUNT]
        groups = [(symbol, [symbol]) for symbol in both if symbol not in rare] + ([(RARE, rare)] if rare else [])
        if len(groups) < 2:
            continue
        for symbol, group in groups:
            counts = sum(first[member] for member in group), sum(second[member] for member in group)
            yield Cell(position, symbol, counts, fisher(*counts, len(one), len(another)))


def fisher(a: int, b: int, num_one: int, num_other: int) -> float:
    """The two-sided chance that a of num_one and b of num_other differ this much: twice the smaller tail of the
    hypergeometric distribution."""
    num, total = a + b, comb(num_one + num_other, a + b)
    low = sum(comb(num_one, i) * comb(num_other, num - i) for i in range(max(0, num - num_other), a + 1)) / total
    high = sum(comb(num_one, i) * comb(num_other, num - i) for i in range(a, min(num, num_one) + 1)) / total
    return min(1.0, 2 * min(low, high))
