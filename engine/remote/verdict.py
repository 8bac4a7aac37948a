"""Whether two lanes, at least one of them on a server, wrote the same text. Graded leniently: different texts are
nobody's fault here."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from .client import CONNECT_S, body_of, new_client
from .lane import RemoteLane

NUM_CHARACTERS = 40
ASK_S = 10.0
NUM_LIKELIEST = 5
MAX_BYTES = 256 * 1024


@dataclass(frozen=True)
class Answer:
    """What a lane wrote. has_ids: whether its token ids are known. is_over: whether it finished. server: the lane
    itself, if it is on one."""

    lane: str
    text: str
    token_ids: Sequence[int]
    has_ids: bool = True
    is_over: bool = True
    server: RemoteLane | None = None


def answer_of(lane: RemoteLane) -> Answer:
    """What a server's lane has written so far."""
    written, is_over = lane.written, bool(lane.ended_s and not lane.failed)
    return Answer(lane.endpoint.lane, "".join(written.pieces), written.token_ids, written.has_ids, is_over, lane)


def judge(a: Answer, b: Answer, why: str = "") -> dict[str, Any]:
    """The verdict on two lanes of one model, in a recording's form. If the texts differ it says where, how each
    continues, and `why`; if both token ids are known, servers that accept tokens as a prompt report the probability of
    either token."""
    texts, names = [a.text, b.text], [a.lane, b.lane]
    both = f"{names[0]} and {names[1]}"
    ids = [a.token_ids, b.token_ids]
    num_common = min(map(len, ids))
    over = a.is_over and b.is_over
    at = next((i for i, (x, y) in enumerate(zip(*texts, strict=False)) if x != y), min(map(len, texts)))
    known = a.has_ids and b.has_ids
    place = next((i for i, (x, y) in enumerate(zip(*ids, strict=False)) if x != y), None) if known else None
    difference = None
    if at == max(map(len, texts)) or (at == min(map(len, texts)) and not over):
        so_far = "" if over else ", up to the length of the shorter one"
        kind, sentence = "same_text", f"the same text: {both} wrote the same {at} characters{so_far}"
        if known:
            sentence += f", in {'other' if place is not None else 'the same'} tokens"
    else:
        kind = "other_text"
        ways = [f"{name} continues {_shown(text[at:])}" for name, text in zip(names, texts, strict=True)]
        before = f"after {_shown(texts[0][max(0, at - NUM_CHARACTERS) : at])} (character {at})"
        where = before if at else "at the first character"
        sentence = f"different texts: {both} diverge {where}: {ways[0]}, {ways[1]}"
        if place is not None:
            tokens = [ids[0][place], ids[1][place]]
            pieces = [text[at : at + NUM_CHARACTERS] for text in texts]
            difference = {"position": place, "tokens": tokens, "pieces": pieces, "margin": None, "widths": [None, None]}
            likely = asyncio.run(_ask_both(a, b, place))
            difference["log_probabilities"] = likely
            answers = [(each.lane, odds) for each, odds in zip((a, b), likely, strict=True) if each.server]
            sentence += f"; at token {place} " + "; ".join(_told(name, tokens, odds) for name, odds in answers)
        sentence += why
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


async def _ask_both(a: Answer, b: Answer, place: int) -> list[list[float] | None]:
    tokens = [each.token_ids[place] for each in (a, b)]
    async with new_client(2) as client:
        answers = (_ask(client, each.server, tokens, place) for each in (a, b))
        return list(await asyncio.gather(*answers))


async def _ask(client: httpx.AsyncClient, lane: RemoteLane | None, tokens: list[int], place: int) -> list[float] | None:
    """A server's log-probabilities of two tokens after the first `place` tokens of its answer; None if it gives
    none."""
    if lane is None or not lane.reply.prompt_ids:
        return None
    endpoint = lane.endpoint
    body = {
        "model": endpoint.model,
        "prompt": [*lane.reply.prompt_ids, *lane.written.token_ids[:place]],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": NUM_LIKELIEST,
        "logprob_token_ids": tokens,
        "return_tokens_as_token_ids": True,
    }
    url, timeout = endpoint.url + "/completions", httpx.Timeout(ASK_S, connect=CONNECT_S)
    try:
        async with asyncio.timeout(ASK_S):
            async with client.stream("POST", url, json=body, headers=endpoint.headers(), timeout=timeout) as response:
                received = await body_of(response, MAX_BYTES)
                return likely_of(json.loads(received), tokens) if response.status_code == 200 else None
    except (TimeoutError, httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, ValueError, RecursionError):
        return None


def likely_of(answer: Any, tokens: list[int]) -> list[float] | None:
    """The log-probabilities of these tokens at the first place of vLLM's answer; None if one is missing."""
    try:
        likely = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    except (TypeError, KeyError, IndexError):
        return None
    found: list[Any] = [likely.get(f"token_id:{token}") for token in tokens] if isinstance(likely, Mapping) else [None]
    return found if all(type(each) in (int, float) and math.isfinite(each) for each in found) else None
