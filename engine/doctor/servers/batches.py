"""Does a server write the same for many at once as for each alone, and from the cache of prompts' beginnings as without
it? vLLM and SGLang test themselves in the first way. A fair race needs such a cache on both servers, or on none."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, cycle, islice

from ...core.spec import SamplingParams
from ...remote.client import RemoteError
from ...remote.metrics import CACHE_HITS
from ...remote.reply import Reply
from ...remote.request import Question
from ..findings import Finding
from .pair import NUM_AT_ONCE, Pair, Server
from .scored import agreed, scored

NUM_TOKENS = 16
# More than three blocks of 128 tokens, the largest usual size: for EAGLE heads vLLM gives up the last matching block.
LONG = "".join(f"The museum has {i} rooms on floor {i % 7}. " for i in range(40))
NUM_PROMPTS = 3
SAME = "Turn it on or off on both (vLLM: --enable-prefix-caching, --no-enable-prefix-caching)"
Answers = list[tuple[Reply, Reply]]


def _questions(prompts: Sequence[Question]) -> Iterator[Question]:
    """The prompts, then the same ones numbered, which are other prompts of other lengths."""
    yield from prompts
    for number, prompt in enumerate(cycle(prompts), 2):
        if prompt.messages:
            *before, (role, text) = prompt.messages
            yield replace(prompt, messages=(*before, (role, f"Number {number}. {text}")))
        else:
            yield Question(f"Number {number}. {prompt.text}")


async def batches(pair: Pair) -> list[Finding]:
    """Asks NUM_AT_ONCE questions one by one, then all at once, at temperature 0. Raises RemoteError."""
    params = replace(pair.params, temperature=0.0, max_new_tokens=NUM_TOKENS, stop=())
    questions = [scored(question) for question in islice(_questions(pair.prompts), NUM_AT_ONCE)]
    done = count(1)

    async def twice(server: Server) -> Answers:
        alone: list[Reply] = []
        for question in questions:
            alone.append(await server.ask(question, params))
            pair.progress(f"asking {NUM_AT_ONCE} questions one by one", next(done) / len(pair.servers) / NUM_AT_ONCE)
        pair.progress(f"asking {NUM_AT_ONCE} questions at once", None)
        at_once = await asyncio.gather(*(server.ask(question, params) for question in questions))
        return [*zip(alone, at_once, strict=True)]

    answers = await asyncio.gather(*map(twice, pair.servers))
    return [agreed("batches", pair, answers, "at once as one by one")]


async def prefix_cache(pair: Pair) -> list[Finding]:
    """Sends a few long prompts twice to each server. Raises RemoteError, unless it is a refusal of such prompts."""
    pair.progress("sending prompts twice", None)
    visit = random.randrange(10**9)  # no earlier check-up has left these prompts in a cache
    texts = [f"Visit {visit + i}. {LONG}" for i in range(NUM_PROMPTS)]
    questions = [scored(Question(messages=(("user", text),)) if pair.chat else Question(text)) for text in texts]
    params = replace(pair.params, temperature=0.0, max_new_tokens=NUM_TOKENS, stop=())
    seen = await asyncio.gather(*(_sent_twice(server, questions, params) for server in pair.servers))
    same = agreed("cold and warm", pair, [answers for answers, _ in seen], "from the cache as without it")
    known = [num for _, num in seen if num is not None]
    if len(known) < len(seen):
        says = "Not every server says how much of a prompt it found in its cache."
        return [Finding("untested", "prefix cache", says), same]
    says = "; ".join(f"{server.lane} found {num:g} tokens" for server, num in zip(pair.servers, known, strict=True))
    says = f"Of {NUM_PROMPTS} prompts sent again, {says}."
    if not any(known):
        same = Finding("untested", "cold and warm", "No prompt was found in a cache, so nothing could be compared.")
    if all(known) or not any(known):
        return [Finding("ok", "prefix cache", says), same]
    return [Finding("doubt", "prefix cache", f"{says} Not a fair comparison.", SAME), same]


async def _sent_twice(
    server: Server, questions: list[Question], params: SamplingParams
) -> tuple[Answers, float | None]:
    """The answers to these questions, cold and warm, and how many tokens of the second prompts came from the cache, by
    their usage, else by vLLM's metrics; None if unknown."""
    try:
        cold = [await server.ask(question, params) for question in questions]
        before = await server.counters()
        warm = [await server.ask(question, params) for question in questions]
    except RemoteError as error:
        if error.status in (400, 422):  # longer than the model takes
            return [], None
        raise
    own = [answer.num_cached for answer in warm]
    hits = (await server.counters()).since(before, CACHE_HITS) if None in own else float(sum(map(int, own)))  # type: ignore[arg-type]
    return [*zip(cold, warm, strict=True)], hits
