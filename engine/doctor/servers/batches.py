"""Does a server write the same for many at once as for each alone? vLLM and SGLang test themselves in this way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice

from ...remote.request import Question
from ..findings import Finding
from .pair import NUM_AT_ONCE, Pair, Server
from .sampling import BATCHES
from .scored import Scored, agreed, ask_scored

NUM_TOKENS = 16


def _questions(prompts: Sequence[Question]) -> Iterator[Question]:
    """The prompts, then the same ones numbered, which are other prompts of other lengths."""
    yield from prompts
    for number, prompt in enumerate(cycle(prompts), 2):
        last = prompt.messages[-1:] or (("", prompt.text),)
        text = f"Number {number}. {last[0][1]}"
        yield (
            replace(prompt, messages=(*prompt.messages[:-1], (last[0][0], text))) if prompt.messages else Question(text)
        )


async def batches(pair: Pair) -> list[Finding]:
    """Asks NUM_AT_ONCE questions one by one, then all at once, at temperature 0. Raises RemoteError."""
    params = replace(pair.params, temperature=0.0, max_new_tokens=NUM_TOKENS, stop=())
    questions = list(islice(_questions(pair.prompts), NUM_AT_ONCE))
    num_done = 0

    async def twice(server: Server) -> list[tuple[Scored, Scored]]:
        nonlocal num_done
        alone: list[Scored] = []
        for question in questions:
            alone.append(await ask_scored(server, question, params))
            num_done += 1
            pair.progress(f"asking {NUM_AT_ONCE} questions one by one", num_done / len(pair.servers) / NUM_AT_ONCE)
        pair.progress(f"asking {NUM_AT_ONCE} questions at once", None)
        at_once = await asyncio.gather(*(ask_scored(server, question, params) for question in questions))
        return [*zip(alone, at_once, strict=True)]

    answers = await asyncio.gather(*map(twice, pair.servers))
    return [agreed("batches", pair, answers, "at once as one by one", BATCHES)]
