"""Whether two lanes on servers wrote the same text. Graded leniently: different texts are nobody's fault here."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from ..analysis.same import Kind, Side, State, differs_at, short_words, worth
from ..analysis.verdict_words import NOT_COMPARED, VERDICTS
from .client import RemoteError, new_client, post
from .endpoint import Endpoint
from .fields import find, number, parsed
from .lane import RemoteLane

NUM_CHARACTERS = 40
ASK_S = 40.0  # a vLLM that has just started takes 6 to 39 s for its first log-probabilities
NUM_LIKELIEST = 20  # the most that vLLM gives unless it is started with more
TOKEN_ID = "token_id:"  # prefix of a token's id, in the place of its text


@dataclass(frozen=True)
class Answer:
    """What a lane wrote. has_ids: whether its token ids are known. state: how it ended. server: the lane itself.
    num_thinking: characters of the text that come before its answer, if it thinks first."""

    lane: str
    text: str
    token_ids: Sequence[int]
    has_ids: bool
    state: State
    server: RemoteLane
    num_thinking: int


def answer_of(lane: RemoteLane) -> Answer:
    """What a server's lane has written so far."""
    written = lane.written
    state: State = "failed" if lane.failed else "finished" if lane.ended_s else "stopped"
    num_thinking = len("".join(written.pieces[: written.num_thinking])) if lane.reply.thinking else 0
    texts = lane.endpoint.lane, "".join(written.pieces), written.token_ids
    return Answer(*texts, written.has_ids, state, lane, num_thinking)


def parts_at(a: Answer, b: Answer) -> int | None:
    """The first character at which two texts differ: see `differs_at`. A server that sends more than it was asked for
    fails, and does not show that the other ended too early."""
    failed: State = "failed"
    states = (a.state, b.state)
    return differs_at(a.text, b.text, (failed, failed) if failed in states else states)


def judge(a: Answer, b: Answer, why: str = "") -> dict[str, Any]:
    """The verdict on two lanes of one model, in a recording's form. If the texts differ it says where, how each
    continues, and `why`; if both token ids are known, servers that accept tokens as a prompt report the probability of
    either token."""
    texts, names = [a.text, b.text], [a.lane, b.lane]
    both = f"{names[0]} and {names[1]}"
    ids = [a.token_ids, b.token_ids]
    num_common = min(map(len, ids))
    sides = [Side(answer.lane, len(answer.text), answer.state) for answer in (a, b)]
    at = parts_at(a, b)
    kind: Kind
    known = a.has_ids and b.has_ids
    place = next((i for i, (x, y) in enumerate(zip(*ids, strict=False)) if x != y), None) if known else None
    difference = None
    if at is None and (nothing := worth(sides, "character")):
        kind, sentence = "not_compared", f"{NOT_COMPARED}: {nothing}"
    elif at is None:
        num = min(map(len, texts))
        so_far = "" if a.state == b.state == "finished" else ", up to the length of the shorter one"
        kind = "same_text"
        sentence = f"{VERDICTS[kind].head}: {both} wrote the same {num} characters{so_far}"
        if known:
            sentence += f", in {'other' if place is not None else 'the same'} tokens"
    else:
        kind = "other_text"
        ways = [f"{name} continues {_shown(text[at:])}" for name, text in zip(names, texts, strict=True)]
        before = f"after {_shown(texts[0][max(0, at - NUM_CHARACTERS) : at])} (character {at})"
        where = before if at else "at the first character"
        sentence = f"{VERDICTS[kind].head}: {both} diverge {where}: {ways[0]}, {ways[1]}"
        if at < min(a.num_thinking, b.num_thinking):
            are_other = len({answer.text[answer.num_thinking :] for answer in (a, b)}) > 1
            sentence += f"; that is in the thinking, and the answers are {'other ones' if are_other else 'the same'}"
        if place is not None:
            tokens = [ids[0][place], ids[1][place]]
            pieces = [text[at : at + NUM_CHARACTERS] for text in texts]
            difference = {"position": place, "tokens": tokens, "pieces": pieces, "margin": None, "widths": [None, None]}
            likely = asyncio.run(_ask_both(a, b, place))
            difference["log_probabilities"] = likely
            answers = zip(names, likely, strict=True)
            sentence += f"; at token {place} " + "; ".join(_odds_words(name, tokens, odds) for name, odds in answers)
        sentence += why
    return {
        "kind": kind,
        "rows_compared": num_common if place is None else place + 1,
        "rows_different": None,
        "first_difference": difference,
        "sentence": sentence,
        "short": short_words(kind, sides, None, at, "character"),
    }


def _shown(text: str) -> str:
    if not text:
        return "nothing more"
    return json.dumps(text[:NUM_CHARACTERS] + ("…" if len(text) > NUM_CHARACTERS else ""), ensure_ascii=False)


def _odds_words(name: str, tokens: list[int], likely: list[float] | None) -> str:
    if likely is None:
        return f"{name} does not say how likely they were"
    said = " and ".join(f"token {token} log-probability {odds:.4g}" for token, odds in zip(tokens, likely, strict=True))
    return f"{name} gives {said}"


async def _ask_both(a: Answer, b: Answer, place: int) -> list[list[float] | None]:
    tokens = [answer.token_ids[place] for answer in (a, b)]
    async with new_client(2) as client:
        return list(await asyncio.gather(*(_ask(client, answer.server, tokens, place) for answer in (a, b))))


async def _ask(client: httpx.AsyncClient, lane: RemoteLane, tokens: list[int], place: int) -> list[float] | None:
    """A server's log-probabilities of two tokens after the first `place` of its answer; None if it gives none."""
    if not lane.reply.prompt_ids:
        return None
    likely = await ask_again(client, lane.endpoint, [*lane.reply.prompt_ids, *lane.written.token_ids[:place]], tokens)
    return None if likely is None else likely.of


@dataclass(frozen=True)
class Likely:
    """What a server says about the next token at a prefix.

    of: the log-probabilities of the tokens in question.
    prefers: the likeliest token."""

    of: list[float]
    prefers: int


async def ask_again(
    client: httpx.AsyncClient, endpoint: Endpoint, prefix: Sequence[int], tokens: Sequence[int]
) -> Likely | None:
    """Ask a server that accepts tokens as a prompt how likely these tokens are after the prefix; None if it does not
    say. A vLLM that speculates answers 500 if tokens are named, and is then asked for the likeliest ones."""
    body = {
        "model": endpoint.model,
        "prompt": list(prefix),
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": NUM_LIKELIEST,
        "return_tokens_as_token_ids": True,
    }
    for named in ({"logprob_token_ids": list(tokens)}, {}):
        try:
            return likely_of(parsed(await post(client, endpoint, "/completions", {**body, **named}, ASK_S)), tokens)
        except RemoteError as error:
            if error.status is None:
                return None
    return None


def likely_of(answer: Any, tokens: Sequence[int]) -> Likely | None:
    """From vLLM's answer; None if the log-probability of one of the tokens is missing."""
    places = find(dict, answer, "choices", 0, "logprobs", "top_logprobs", 0) or {}
    named = {name.removeprefix(TOKEN_ID): number(places, name) for name in places}
    likely = {int(name): odds for name, odds in named.items() if odds is not None and re.fullmatch("[0-9]{1,10}", name)}
    if not all(token in likely for token in tokens):
        return None
    return Likely([likely[token] for token in tokens], max(likely, key=lambda token: likely[token]))
