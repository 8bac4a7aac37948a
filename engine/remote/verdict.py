"""Whether two servers wrote the same text. Servers are graded as servers: two texts are nobody's fault here."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any

import httpx

from .client import CONNECT_S, new_client
from .endpoint import Endpoint
from .lane import RemoteLane

NUM_CHARACTERS = 40
ASK_S = 10.0
NUM_LIKELIEST = 5
MAX_BYTES = 256 * 1024


def judge(a: RemoteLane, b: RemoteLane) -> dict[str, Any]:
    """The verdict on two lanes of one model, in the form of a recording's. Of two texts it says where they part and how
    each goes on; where both servers name their tokens and take them for a prompt, they are asked how likely either
    token was."""
    texts = ["".join(lane.written.pieces) for lane in (a, b)]
    names = [lane.endpoint.lane for lane in (a, b)]
    both = f"{names[0]} and {names[1]}"
    num_common = min(len(lane.written.token_ids) for lane in (a, b))
    over = all(lane.ended_s and not lane.failed for lane in (a, b))
    at = next((i for i, (x, y) in enumerate(zip(*texts, strict=False)) if x != y), min(map(len, texts)))
    known = a.written.has_ids and b.written.has_ids
    ids = [lane.written.token_ids for lane in (a, b)]
    place = next((i for i, (x, y) in enumerate(zip(*ids, strict=False)) if x != y), None) if known else None
    difference = None
    if at == max(map(len, texts)) or (at == min(map(len, texts)) and not over):
        so_far = "" if over else ", as far as both came"
        kind, sentence = "same_text", f"the same text: {both} wrote the same {at} characters{so_far}"
        if known:
            sentence += f", in {'other' if place is not None else 'the same'} tokens"
    else:
        kind = "other_text"
        ways = [f"{name} goes on {_shown(text[at:])}" for name, text in zip(names, texts, strict=True)]
        where = f"after {_shown(texts[0][max(0, at - NUM_CHARACTERS) : at])} (character {at})"
        sentence = f"two texts: {both} part {where}: {ways[0]}, {ways[1]}"
        if place is not None:
            tokens = [ids[0][place], ids[1][place]]
            pieces = [text[at : at + NUM_CHARACTERS] for text in texts]
            difference = {"position": place, "tokens": tokens, "pieces": pieces, "margin": None, "widths": [None, None]}
            likely = asyncio.run(_ask_both(a, b, place))
            difference["log_probabilities"] = likely
            sentence += f"; at token {place} " + "; ".join(map(_told, names, [tokens] * 2, likely))
        if a.params.temperature:
            sentence += f"; at temperature {a.params.temperature:g} each server draws by its own dice"
    return {
        "kind": kind,
        "rows_compared": num_common if place is None else place + 1,
        "rows_different": None,
        "first_difference": difference,
        "sentence": sentence,
    }


def _shown(text: str) -> str:
    if not text:
        return "nothing more"
    return json.dumps(text[:NUM_CHARACTERS] + ("…" if len(text) > NUM_CHARACTERS else ""), ensure_ascii=False)


def _told(name: str, tokens: list[int], likely: list[float] | None) -> str:
    if likely is None:
        return f"{name} does not say how likely they were"
    said = " and ".join(f"token {token} log-probability {each:.4g}" for token, each in zip(tokens, likely, strict=True))
    return f"{name} gives {said}"


async def _ask_both(a: RemoteLane, b: RemoteLane, place: int) -> list[list[float] | None]:
    tokens = [lane.written.token_ids[place] for lane in (a, b)]
    async with new_client(2) as client:
        asked = (_ask(client, lane, tokens, place) for lane in (a, b))
        return list(await asyncio.gather(*asked))


async def _ask(client: httpx.AsyncClient, lane: RemoteLane, tokens: list[int], place: int) -> list[float] | None:
    """A server's log-probabilities of two tokens after the first `place` ones of its answer; None where it says
    none."""
    if not lane.reply.prompt_ids:
        return None
    endpoint = lane.endpoint
    try:
        async with asyncio.timeout(ASK_S):
            return likely_of(await _post(client, endpoint, lane, tokens, place), tokens)
    except (TimeoutError, httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, ValueError, RecursionError):
        return None


async def _post(client: httpx.AsyncClient, endpoint: Endpoint, lane: RemoteLane, tokens: list[int], place: int) -> Any:
    body = {
        "model": endpoint.model,
        "prompt": [*lane.reply.prompt_ids, *lane.written.token_ids[:place]],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": NUM_LIKELIEST,
        "logprob_token_ids": tokens,
        "return_tokens_as_token_ids": True,
    }
    timeout = httpx.Timeout(ASK_S, connect=CONNECT_S)
    url, headers = endpoint.url + "/completions", endpoint.headers()
    async with client.stream("POST", url, json=body, headers=headers, timeout=timeout) as response:
        received = b""
        async for part in response.aiter_raw():
            received += part
            if len(received) > MAX_BYTES:
                return None
        return json.loads(received) if response.status_code == 200 else None


def likely_of(answer: Any, tokens: list[int]) -> list[float] | None:
    """The log-probabilities of these tokens at the first place of an answer of vLLM's; None where it lacks one."""
    try:
        told = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    except (TypeError, KeyError, IndexError):
        return None
    found: list[Any] = [told.get(f"token_id:{token}") for token in tokens] if isinstance(told, Mapping) else [None]
    return found if all(type(each) in (int, float) and math.isfinite(each) for each in found) else None
