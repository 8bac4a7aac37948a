"""Looks at a server: is it there, which one is it, can it race, does it speculate?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import httpx

from ..core.errors import sentence
from ..core.spec import SamplingParams
from .client import CONNECT_S, Patience, RemoteError, ask, body_of, named_errors, new_client, refused
from .counters import counters_in, read_metrics
from .endpoint import Endpoint, Question
from .reply import Reply, find

LOOK_S = 20.0
MAX_BYTES = 256 * 1024
MAX_NAMED, MAX_NAME = 6, 200
# What servers call the owner of a model, and which server that is.
OWNERS = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "library": "Ollama", "openai": "OpenAI"}
# It repeats itself, so that even a drafter that only copies has something to draft.
TEXT = "1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8 9 10 1 2 3 4 5"
CHAT = Question(messages=(("user", f"Repeat: {TEXT}"),))
TOKENS = SamplingParams(max_new_tokens=16)
NO_COUNT = "it sends with its chunks neither token ids nor a running count of tokens, so it cannot race"
DRAFTED = "speculation is on: it drafted {} tokens for a short answer and kept {}"
ON = "speculation is on, by its counters"
IDLE = "speculation seems to be on, but it drafted nothing for a short answer"
OFF = "speculation is off: its metrics count no drafts"
UNKNOWN = "whether it speculates is not known: it reports nothing about drafts"


@dataclass(frozen=True)
class Seen:
    """endpoint: with its model's name; None if it cannot race.
    sentence: what was seen, without secrets.
    chat: it answers messages only.
    kind: which server it is, a value of OWNERS; "" if unknown.
    root: where its model comes from, by the server's own list; "" if unknown.
    reply: its short answer; None if it gave none.
    metrics: all that it reports about itself, "" if nothing."""

    endpoint: Endpoint | None
    sentence: str
    chat: bool = False
    kind: str = ""
    root: str = ""
    reply: Reply | None = None
    metrics: str = ""


async def look(endpoint: Endpoint) -> Seen:
    """Ask the server for its models, if need be, and for a short answer. endpoint: its model may be ""."""
    try:
        async with asyncio.timeout(LOOK_S), new_client() as client:
            return await _look(client, endpoint)
    except TimeoutError:
        return Seen(None, f"It did not answer within {LOOK_S:g} s.")
    except RemoteError as error:
        words = str(error).replace(f" of lane {endpoint.lane}", "").removeprefix(f"lane {endpoint.lane}: ")
        return Seen(None, sentence(endpoint.redact(words)))


async def takes_chat(seen: Seen) -> bool:
    """Whether the server answers messages, with tokens that can be counted."""
    if seen.chat or seen.endpoint is None:
        return seen.chat
    try:
        async with asyncio.timeout(LOOK_S), new_client() as client:
            reply = await ask(client, seen.endpoint, CHAT, TOKENS, Patience(CONNECT_S, LOOK_S))
    except (TimeoutError, RemoteError):
        return False
    return bool(reply.chunks) and all(chunk.num_tokens is not None for chunk in reply.chunks)


async def _look(client: httpx.AsyncClient, endpoint: Endpoint) -> Seen:
    models, kind = await _models(client, endpoint)
    if not endpoint.model:
        if len(models) != 1:
            known = f"{', '.join([*models][:MAX_NAMED])}{', …' if len(models) > MAX_NAMED else ''}"
            why = f"It serves {len(models)} models: {known}. Name one." if models else "Name the model: it lists none."
            return Seen(None, why)
        endpoint = replace(endpoint, model=next(iter(models)))
    patience = Patience(CONNECT_S, LOOK_S)
    said = Question(TEXT)
    try:
        reply, chat = await ask(client, endpoint, said, TOKENS, patience), False
    except RemoteError as error:
        if error.status not in (400, 404, 405, 422, 501):
            raise
        said = CHAT
        reply, chat = await ask(client, endpoint, said, TOKENS, patience), True
    name = endpoint.redact(endpoint.model)[:MAX_NAME]
    what = f"{kind or 'A server'} with {name}{', which takes chat messages only' if chat else ''}"
    if not reply.chunks:
        return Seen(None, f"{what}: {reply.textless or 'its answer has no token'}.", reply=reply)
    if any(chunk.num_tokens is None for chunk in reply.chunks):
        return Seen(None, f"{what}: {NO_COUNT}; {endpoint.asked(said.path)}.", reply=reply)
    metrics, root = await read_metrics(endpoint), models.get(endpoint.model, "")
    says = "; ".join(filter(None, (what, _speculation(reply, metrics), reply.textless)))
    return Seen(endpoint, f"{says}.", chat, kind, root, reply, metrics)


async def _models(client: httpx.AsyncClient, endpoint: Endpoint) -> tuple[dict[str, str], str]:
    """The models that the server lists, by name, with where each comes from ("" if unknown), without secrets; and which
    server it is. ({}, "") if it lists none. Raises RemoteError if it cannot be reached."""
    request = client.stream("GET", f"{endpoint.url}/models", headers=endpoint.headers(), timeout=CONNECT_S)
    async with named_errors(endpoint, Patience(CONNECT_S)), request as response:
        if response.status_code in (401, 403) or response.is_redirect:
            raise await refused(endpoint, response)
        received, server = await body_of(response, MAX_BYTES), response.headers.get("Server", "")
    try:
        listed = find(list, json.loads(received), "data") or []
    except (ValueError, RecursionError):
        return {}, ""
    models = {name: model for model in listed if (name := find(str, model, "id")) and len(name) <= MAX_NAME}
    models = {name: model for name, model in models.items() if endpoint.redact(name) == name}
    owners = [find(str, model, "owned_by") or "" for model in models.values()]
    kind = next((OWNERS[owner] for owner in owners if owner in OWNERS), "")
    roots = {name: endpoint.redact(find(str, model, "root") or "")[:MAX_NAME] for name, model in models.items()}
    return roots, kind or ("llama.cpp" if "llama.cpp" in server else "")


async def kinds_of(endpoints: Sequence[Endpoint]) -> dict[str, str]:
    """Which server each lane is on, by its list of models: a value of OWNERS, or "" if that says nothing."""

    async def kind_of(endpoint: Endpoint) -> str:
        try:
            async with asyncio.timeout(CONNECT_S), new_client() as client:
                return (await _models(client, endpoint))[1]
        except (TimeoutError, RemoteError):
            return ""

    kinds = await asyncio.gather(*map(kind_of, endpoints))
    return {endpoint.lane: kind for endpoint, kind in zip(endpoints, kinds, strict=True)}


def servers_say(kinds: Mapping[str, str]) -> str:
    """`plain and fast say that they are vLLM, there does not say what it is`. kinds: by lane."""
    parts = []
    for kind in dict.fromkeys(kinds.values()):
        lanes = [lane for lane, lane_kind in kinds.items() if lane_kind == kind]
        says, it_is = ("say", "they are") if len(lanes) > 1 else ("says", "it is")
        what = f"{says} that {it_is} {kind}" if kind else f"do{'es' * (len(lanes) == 1)} not say what {it_is}"
        parts.append(f"{' and '.join(lanes)} {what}")
    return ", ".join(parts)


def _speculation(reply: Reply, metrics: str) -> str:
    """By its answer, else by its metrics: vLLM counts drafts only where it speculates."""
    if reply.drafted is not None:
        num_drafted, num_accepted = reply.drafted.num_drafted, reply.drafted.num_accepted
        return DRAFTED.format(num_drafted, num_accepted) if num_drafted else IDLE
    counters = counters_in(metrics)
    if counters is None:
        return OFF if "\nvllm:" in metrics else UNKNOWN
    return ON if counters.num_drafts else IDLE
