"""Do both servers, or neither, keep the beginnings of prompts in a cache? Otherwise a race of them is not fair."""

from __future__ import annotations

import asyncio

from ...remote.client import RemoteError, post
from ...remote.fields import count, parsed
from ...remote.metrics import CACHE_HITS
from ..findings import Finding
from .pair import Pair, Server

# More than three blocks of 128 tokens, the largest usual size: for EAGLE heads vLLM gives up the last matching block.
LONG = "".join(f"The museum has {i} rooms on floor {i % 7}. " for i in range(40))
TIMEOUT_S = 30.0
SAME = "Turn it on or off on both (vLLM: --enable-prefix-caching, --no-enable-prefix-caching)"


async def prefix_cache(pair: Pair) -> list[Finding]:
    """Sends the same long prompt twice to each server. Raises RemoteError, unless it is a refusal of such a prompt."""
    pair.progress("sending a prompt twice", None)
    hits = await asyncio.gather(*(_hits(pair, server) for server in pair.servers))
    known = [num for num in hits if num is not None]
    if len(known) < len(hits):
        says = "Not every server says how much of a prompt it found in its cache."
        return [Finding("untested", "prefix cache", says)]
    says = "; ".join(
        f"lane {server.endpoint.lane} found {num:g} tokens" for server, num in zip(pair.servers, known, strict=True)
    )
    says = f"Of a prompt sent again, {says}."
    if all(known) or not any(known):
        return [Finding("ok", "prefix cache", says)]
    return [Finding("doubt", "prefix cache", f"{says} Not a fair comparison.", SAME)]


async def _hits(pair: Pair, server: Server) -> float | None:
    """Tokens of the second prompt that came from the cache, by its usage, else by vLLM's metrics; None if unknown."""
    body = {"model": server.endpoint.model, "max_tokens": 1, "temperature": 0}
    if pair.chat:
        path, body = "/chat/completions", {**body, "messages": [{"role": "user", "content": LONG}]}
    else:
        path, body = "/completions", {**body, "prompt": LONG}
    try:
        await post(server.client, server.endpoint, path, body, TIMEOUT_S)
        before = await server.counters()
        received = await post(server.client, server.endpoint, path, body, TIMEOUT_S)
    except RemoteError as error:
        if error.status in (400, 422):  # longer than the model takes
            return None
        raise
    own = count(parsed(received), "usage", "prompt_tokens_details", "cached_tokens")
    return (await server.counters()).since(before, CACHE_HITS) if own is None else own
