"""Is each token sampled as often as its server's own log-probabilities say? One sample against its own distribution, so
it needs no second server and sees a small bias: 0.63 in the place of 0.60 in four of five check-ups."""

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle, islice

from ...analysis.verdict_words import capital
from ...remote.odds import Token
from ...remote.request import PLAINLY, Question
from ..findings import Finding
from .pair import Pair, Server, a_few_at_once
from .sampling import FALSE_ALARM, IGNORED, UNCERTAIN, UNCERTAIN_CHAT
from .scored import NUM_RANKS, scored

NUM_ANSWERS, NUM_TOKENS = 640, 16  # speculation acts from the second token on: 9,600 of them
MOST_OF = 0.9  # of the tokens must have log-probabilities
CHECK = "sampled as reported"
DEFAULTS = "Look for defaults of the server that sampling follows and log-probabilities do not, as a penalty or min_p"


@dataclass(frozen=True)
class Rate:
    """How often the token of a rank was sampled, of `num`, and how often it should have been. rank: from 0; NUM_RANKS
    for all others together. chance: at most that of a difference this large."""

    rank: int
    num: int
    seen: int
    expected: float
    chance: float


def rates(tokens: Iterable[Token]) -> list[Rate]:
    """A rate for each rank, of sampled tokens with the log-probabilities of the likeliest ones."""
    known = [(token.name, token.likeliest[:NUM_RANKS]) for token in tokens if token.likeliest]
    places = [next((i for i, (top, _) in enumerate(tops) if top == name), NUM_RANKS) for name, tops in known]
    results = []
    for rank in range(NUM_RANKS + 1):
        chances = [_chance_of([odds for _, odds in tops], rank) for _, tops in known]
        seen = places.count(rank)
        expected, variance = math.fsum(chances), math.fsum(p * (1 - p) for p in chances)
        results.append(Rate(rank, len(known), seen, expected, freedman(abs(seen - expected), variance)))
    return results


def _chance_of(likeliest: Sequence[float], rank: int) -> float:
    if rank < len(likeliest):
        return min(1.0, math.exp(likeliest[rank]))
    return max(0.0, 1 - math.fsum(map(math.exp, likeliest))) if rank == NUM_RANKS else 0.0


def freedman(distance: float, variance: float) -> float:
    """At most the two-sided chance that a sum of steps between -1 and 1, each of mean 0 given those before it, ends
    this far from 0: Freedman's inequality (Annals of Probability 3, 1975). Tokens depend on those before them, so a
    test for independent ones would not be exact. variance: the sum of the steps' variances."""
    return min(1.0, 2 * math.exp(-(distance**2) / (2 * (variance + distance / 3)))) if distance else 1.0


async def as_reported(pair: Pair) -> list[Finding]:
    """Samples NUM_ANSWERS answers of each server at temperature 1, if wanted. Raises RemoteError."""
    if not pair.thorough:
        return []
    sampled = await asyncio.gather(*(_sampled(pair, server) for server in pair.servers))
    results = [rates(tokens) for tokens in sampled]
    for server, tokens, lane_rates in zip(pair.servers, sampled, results, strict=True):
        if (num := lane_rates[0].num) < MOST_OF * len(tokens) or not tokens:
            says = f"{capital(server.lane)} gives log-probabilities for {num:,} of {len(tokens):,} tokens only."
            return [Finding("untested", CHECK, says)]  # the others are those that it drafted (llama.cpp)
    limit = FALSE_ALARM / (len(results) * (NUM_RANKS + 1))
    worst = [min(lane_rates, key=lambda rate: rate.chance) for lane_rates in results]
    says = "; ".join(f"{server.lane}: {_words(rate)}" for server, rate in zip(pair.servers, worst, strict=True))
    says = f"{capital(says)}. A chance below {limit:.1g} would be too small."
    odd = [rate.chance <= limit for rate in worst]
    if odd[0]:
        return [Finding("doubt", CHECK, says if pair.is_alone else f"{says} The plain server does so too.", DEFAULTS)]
    return [Finding("fault", CHECK, says, IGNORED["temperature"]) if odd[-1] else Finding("ok", CHECK, says)]


async def _sampled(pair: Pair, server: Server) -> list[Token]:
    """The tokens of all answers but the first of each, which nobody drafts."""
    questions = islice(cycle([*pair.questions, UNCERTAIN_CHAT if pair.chat else UNCERTAIN]), NUM_ANSWERS)
    params = replace(pair.params, temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=NUM_TOKENS, stop=())
    num_done = count(1)

    async def one(question: Question, seed: int) -> Sequence[Token]:
        answer = await server.ask(scored(question, **PLAINLY), replace(params, seed=seed))
        pair.progress(f"sampling {NUM_ANSWERS} answers of {server.lane}", next(num_done) / NUM_ANSWERS)
        return answer.tokens[1:]

    answers = await a_few_at_once([partial(one, question, seed) for seed, question in enumerate(questions)])
    return [token for tokens in answers for token in tokens]


def _words(rate: Rate) -> str:
    which = "a token below rank 5" if rate.rank == NUM_RANKS else f"the token of rank {rate.rank + 1}"
    return (
        f"{which} was sampled {rate.seen / rate.num:.4f} of {rate.num:,} times and should be "
        f"{rate.expected / rate.num:.4f} (chance {rate.chance:.2g})"
    )
