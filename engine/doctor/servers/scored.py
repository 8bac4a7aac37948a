"""Short answers with the log-probability of each token, as their server reports it, and whether two of them are the
same: bit for bit, but for rounding, or not.

Read are vLLM's and SGLang's older form of /completions and OpenAI's form of /chat/completions, which llama.cpp uses for
both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...analysis.same import are_alike
from ...analysis.verdict_words import capital
from ...core.spec import SamplingParams
from ...remote.client import RemoteError, post
from ...remote.fields import count, find, number, parsed, text
from ...remote.reply import texts_in
from ...remote.request import LIMIT, NEW_LIMIT, Question
from ..findings import Finding, Level
from .compare_texts import NEAR_TIE
from .pair import Pair, Server

NUM_RANKS = 5  # likeliest tokens of which servers are asked; OpenAI's own completions give no more
TIMEOUT_S = 40.0
# What makes tokens unambiguous (vLLM), and what a model's own defaults may set (vLLM takes them from
# generation_config.json, llama.cpp has its own). Left out one by one where a server refuses them, in this order.
NAMES = {"return_tokens_as_token_ids": True}
PLAINLY = {"repetition_penalty": 1, "min_p": 0, "top_k": -1, "top_p": 1}
ABOVE = 1e-3  # of a log-probability above 0, by rounding
PART = "\ufffd"  # what part of a character is called, whichever part it is
LEVELS: tuple[Level, ...] = ("fault", "doubt", "untested", "ok")  # the first that any server has counts
BROKEN = "Report it to the server's developers: rounding does not explain it"


@dataclass(frozen=True)
class Token:
    """A token of an answer.

    logprob: None if unknown: llama.cpp reports 0 for what it drafted, without the likeliest ones.
    likeliest: the highest log-probabilities at its place, in order; () if unknown, or if names of tokens are ambiguous
        there.
    rank: its own place among them, from 0; None if it is not among them."""

    name: str
    logprob: float | None = None
    likeliest: tuple[float, ...] = ()
    rank: int | None = None


@dataclass(frozen=True)
class Scored:
    """An answer. tokens: its characters if the server gives no log-probabilities. num_cached: tokens of its prompt that
    came from a cache, by its usage; None if unknown."""

    tokens: tuple[Token, ...]
    num_cached: int | None = None


async def ask_scored(server: Server, question: Question, params: SamplingParams) -> Scored:
    """The answer to a question, not streamed. Raises RemoteError."""
    path, endpoint = question.path, server.endpoint
    refused = endpoint.memory.refused
    limit = NEW_LIMIT if (path, LIMIT) in refused else LIMIT
    body: dict[str, Any] = {"model": endpoint.model, limit: params.max_new_tokens, "temperature": params.temperature}
    if question.messages:
        body["messages"] = [{"role": role, "content": content} for role, content in question.messages]
        odds: dict[str, Any] = {"top_logprobs": NUM_RANKS, "logprobs": True}
    else:
        body["prompt"], odds = question.text, {"logprobs": NUM_RANKS}
    sampled = {**PLAINLY, "seed": params.seed} if params.temperature else {}
    wanted = {name: value for name, value in (NAMES | sampled | odds).items() if (path, name) not in refused}
    fields = dict(wanted)
    while True:
        try:
            received = await post(server.client, endpoint, path, body | fields, TIMEOUT_S)
            break
        except RemoteError as error:
            if error.status not in (400, 422) or not fields:
                raise
            named = [name for name in fields if re.search(rf"\b{name}\b", str(error))]
            del fields[named[0] if len(named) == 1 else next(iter(fields))]
    refused.update((path, name) for name in wanted if name not in fields)
    answer = parsed(received)
    cached = count(answer, "usage", "prompt_tokens_details", "cached_tokens")
    return Scored(tuple(tokens_of(answer)) or tuple(map(Token, _text_of(answer))), cached)


def tokens_of(answer: Any) -> list[Token]:
    """The tokens of an answer with log-probabilities; [] without."""
    odds = find(dict, answer, "choices", 0, "logprobs")
    entries = find(list, odds, "content")
    if entries is None:
        names, logprobs, tops = (find(list, odds, key) or [] for key in ("tokens", "token_logprobs", "top_logprobs"))
        listed = (
            [{"token": name, "logprob": top[name]} for name in top] if isinstance(top, dict) else [] for top in tops
        )
        columns = zip(names, logprobs, listed, strict=False)
        entries = [dict(zip(("token", "logprob", "top_logprobs"), row, strict=True)) for row in columns]
    return [_token(entry) for entry in entries]


def _token(entry: Any) -> Token:
    named = ((_odds(top), text(top, "token")) for top in find(list, entry, "top_logprobs") or ())
    known = sorted(((odds, name) for odds, name in named if odds is not None), reverse=True)[:NUM_RANKS]
    name, logprob = text(entry, "token"), _odds(entry)
    if len({top for _, top in known if PART not in top}) < len(known) or not known:
        return Token(name, logprob if known else None)
    rank = next((i for i, (_, top) in enumerate(known) if top == name), None)
    return Token(name, logprob, tuple(odds for odds, _ in known), rank)


def _odds(entry: Any) -> float | None:
    """Its log-probability; None if it has none, or one that cannot be: above 0 by more than rounding."""
    odds = number(entry, "logprob")
    return odds if odds is not None and odds <= ABOVE else None


def _text_of(answer: Any) -> str:
    message = find(dict, answer, "choices", 0, "message")
    return text(answer, "choices", 0, "text") if message is None else "".join(texts_in(message))


def _apart(a: Sequence[Token], b: Sequence[Token]) -> float | None:
    """None if a log-probability is missing, or one answer ends where the other goes on."""
    worst = 0.0
    for x, y in zip(a, b, strict=False):
        if x.logprob is None or y.logprob is None:
            return None
        worst = max(worst, abs(x.logprob - y.logprob))
        if x.name != y.name:
            return worst
    return worst if len(a) == len(b) else None


def agreed(
    check: str, pair: Pair, answers: Sequence[Sequence[tuple[Scored, Scored]]], what: str, change: str
) -> Finding:
    """Whether each server's two answers to a question are the same. Named is the largest difference, in nats, of the
    log-probabilities of what was written, up to the first other token and including it: near a tie of two tokens that
    is rounding too.

    answers: for each server, pairs of answers; one without any token is not compared.
    what: what both answers are (`at once as one by one`).
    change: the advice where only rounding differs."""
    says, levels = list[str](), list[Level]()
    for server, pairs in zip(pair.servers, answers, strict=True):
        alike = [are_alike(*([token.name for token in answer.tokens] for answer in pair)) for pair in pairs]
        num, num_same = len(alike) - alike.count(None), alike.count(True)
        gaps = [_apart(a.tokens, b.tokens) for a, b in pairs]
        gap = None if None in gaps else max((gap for gap in gaps if gap), default=0.0)
        is_large = gap is not None and gap > NEAR_TIE
        odds = f"up to {gap:.2g} nats apart{'' if is_large else ', as rounding makes them'}" if gap else "bit for bit"
        odds = "no log-probabilities" if gap is None else f"log-probabilities {odds}"
        says.append(f"{server.lane}: {num_same} of {num} answers are the same {what}, {odds}")
        levels.append("untested" if not num else "fault" if is_large else "ok" if num_same == num else "doubt")
    level = next(level for level in LEVELS if level in levels)
    return Finding(level, check, f"{capital('; '.join(says))}.", {"fault": BROKEN, "doubt": change}.get(level, ""))
