"""The cache of prompts' beginnings: do both servers have one, which a fair race needs, and do they write the same from
it?"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from ...core.spec import SamplingParams
from ...remote.client import RemoteError
from ...remote.metrics import CACHE_HITS
from ...remote.request import Question
from ..findings import Finding
from .batches import NUM_TOKENS
from .pair import Pair, Server
from .sampling import BATCHES
from .scored import Scored, agreed, ask_scored

# More than three blocks of 128 tokens, the largest usual size: for EAGLE heads vLLM gives up the last matching block.
LONG = "".join(f"The museum has {i} rooms on floor {i % 7}. " for i in range(40))
NUM_PROMPTS = 3
SAME = "Turn it on or off on both (vLLM: --enable-prefix-caching, --no-enable-prefix-caching)"
Answers = list[tuple[Scored, Scored]]


async def prefix_cache(pair: Pair) -> list[Finding]:
    """Sends a few long prompts twice to each server. Raises RemoteError, unless it is a refusal of such prompts."""
    pair.progress("sending prompts twice", None)
    visit = random.randrange(10**9)  # no earlier check-up has left these prompts in a cache
    texts = [f"Visit {visit + i}. {LONG}" for i in range(NUM_PROMPTS)]
    questions = [Question(messages=(("user", text),)) if pair.chat else Question(text) for text in texts]
    params = replace(pair.params, temperature=0.0, max_new_tokens=NUM_TOKENS, stop=())
    seen = await asyncio.gather(*(_twice(server, questions, params) for server in pair.servers))
    same = agreed("cold and warm", pair, [answers for answers, _ in seen], "from the cache as without it", BATCHES)
    known = [num for _, num in seen if num is not None]
    if len(known) < len(seen):
        says = "Not every server says how much of a prompt it found in its cache."
        return [Finding("untested", "prefix cache", says), same]
    says = "; ".join(
        f"lane {server.endpoint.lane} found {num:g} tokens" for server, num in zip(pair.servers, known, strict=True)
    )
    says = f"Of {NUM_PROMPTS} prompts sent again, {says}."
    if not any(known):
        same = Finding("untested", "cold and warm", "No prompt was found in a cache, so nothing could be compared.")
    if all(known) or not any(known):
        return [Finding("ok", "prefix cache", says), same]
    return [Finding("doubt", "prefix cache", f"{says} Not a fair comparison.", SAME), same]


async def _twice(server: Server, questions: list[Question], params: SamplingParams) -> tuple[Answers, float | None]:
    """The answers to these questions, cold and warm, and how many tokens of the second prompts came from the cache, by
    their usage, else by vLLM's metrics; None if unknown."""
    try:
        cold = [await ask_scored(server, question, params) for question in questions]
        before = await server.counters()
        warm = [await ask_scored(server, question, params) for question in questions]
    except RemoteError as error:
        if error.status in (400, 422):  # longer than the model takes
            return [], None
        raise
    own = [answer.num_cached for answer in warm]
    hits = (await server.counters()).since(before, CACHE_HITS) if None in own else float(sum(map(int, own)))  # type: ignore[arg-type]
    return [*zip(cold, warm, strict=True)], hits
