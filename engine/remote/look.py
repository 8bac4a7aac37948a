"""Looks at a server: is it there, which one is it, can it race, does it speculate?"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx

from ..core.errors import sentence
from ..core.spec import SamplingParams
from .client import CONNECT_S, Patience, RemoteError, ask, body_of, named_errors, new_client, refusal_of
from .dialects import OTHER, Dialect, dialect_of
from .endpoint import Endpoint
from .fields import find, parsed
from .metrics import read_counters
from .reply import UNCOUNTED, Reply
from .request import Question, costs
from .speculation import speculation_of

LOOK_S = 120.0  # servers that load a model when it is asked for need a minute, and begin anew if nobody waits
MAX_BYTES = 4 * 1024**2
MAX_NAMED, MAX_NAME = 6, 200
# It repeats itself, so that even a drafter that only copies has something to draft.
TEXT = "1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8 9 10 1 2 3 4 5"
SAID, CHAT = Question(TEXT), Question(messages=(("user", f"Repeat: {TEXT}"),))
TOKENS = SamplingParams(max_new_tokens=16)
STATES = {True: "speculation is on", False: "speculation is off", None: "whether it speculates is not known"}


@dataclass(frozen=True)
class Seen:
    """endpoint: with its model's name; None if it cannot race.
    sentence: what was seen, without secrets.
    chat: it answers messages only.
    dialect: which server it is.
    root: where its model comes from, by the server's own list; "" if unknown.
    speculates: None if unknown.
    reply: its short answer; None if it gave none. chat_reply: that to a chat.
    error: why it gave none."""

    endpoint: Endpoint | None
    sentence: str
    chat: bool = False
    dialect: Dialect = OTHER
    root: str = ""
    speculates: bool | None = None
    reply: Reply | None = None
    chat_reply: Reply | None = None
    error: RemoteError | None = None


async def look(endpoint: Endpoint) -> Seen:
    """Ask the server for its models, if need be, and for a short answer. endpoint: its model may be ""."""
    try:
        async with asyncio.timeout(LOOK_S), new_client() as client:
            return await _look(client, endpoint)
    except TimeoutError:
        message = f"It did not answer within {LOOK_S:g} s."
        return Seen(None, message, error=RemoteError(message, "timeout"))
    except RemoteError as error:
        words = str(error).replace(f" of lane {endpoint.lane}", "").removeprefix(f"lane {endpoint.lane}: ")
        return Seen(None, sentence(endpoint.redact(words)), error=error)


async def _look(client: httpx.AsyncClient, endpoint: Endpoint) -> Seen:
    models, dialect = await _models(client, endpoint)
    if not endpoint.model:
        if len(models) != 1:
            known = f"{', '.join([*models][:MAX_NAMED])}{', …' if len(models) > MAX_NAMED else ''}"
            why = f"It serves {len(models)} models: {known}. Name one." if models else "Name the model: it lists none."
            return Seen(None, why)
        endpoint = replace(endpoint, model=next(iter(models)))
    patience, root = Patience(LOOK_S, LOOK_S), models.get(endpoint.model, "")
    said, before = SAID, await read_counters(endpoint, root)
    try:
        reply, chat = await ask(client, endpoint, said, TOKENS, patience), False
    except RemoteError as error:
        if error.status not in (200, 400, 404, 405, 422, 501):
            raise
        said = CHAT
        reply, chat = await ask(client, endpoint, said, TOKENS, patience), True
    name = endpoint.redact(endpoint.model)[:MAX_NAME]
    what = f"{dialect.name or 'A server'} with {name}{', which takes chat messages only' if chat else ''}"
    if not reply.chunks:
        return Seen(None, f"{what}: {reply.textless or 'its answer has no token'}.", dialect=dialect, reply=reply)
    after = await read_counters(endpoint, root) if before.dialect else before  # a page that hangs is waited for once
    chat_reply = reply if chat else None
    with suppress(RemoteError):
        chat_reply = chat_reply or await ask(client, endpoint, CHAT, TOKENS, Patience(CONNECT_S, LOOK_S))
    speculation = speculation_of([reply], before, after)
    uncounted = UNCOUNTED if any(chunk.num_tokens is None for chunk in reply.chunks) else ""
    notes = costs(endpoint, said.path), reply.textless, reply.clumped
    parts = (what, f"{STATES[speculation.is_on]}: {speculation.says}", uncounted, *notes)
    says = f"{'; '.join(filter(None, parts))}."
    return Seen(endpoint, says, chat, dialect, root, speculation.is_on, reply, chat_reply)


async def _models(client: httpx.AsyncClient, endpoint: Endpoint) -> tuple[dict[str, str], Dialect]:
    """The models that the server lists, by name, with where each comes from ("" if unknown), without secrets; and which
    server it is. None and OTHER if it lists none. Raises RemoteError if it cannot be reached."""
    listed, headers = list[Any](), httpx.Headers()
    for base in endpoint.bases:
        request = client.stream("GET", f"{base}/models", headers=endpoint.headers(), timeout=CONNECT_S)
        async with named_errors(endpoint, Patience(CONNECT_S)), request as response:
            if not endpoint.model and (response.status_code in (401, 403) or response.is_redirect):
                raise await refusal_of(endpoint, response)  # a key may be for answers only
            said, headers = parsed(await body_of(response.aiter_bytes(), MAX_BYTES)), response.headers
            listed = find(list, said, "data") or find(list, said) or []  # Together's is bare
        if listed:
            break
    models = {name: model for model in listed if (name := find(str, model, "id")) and len(name) <= MAX_NAME}
    models = {name: model for name, model in models.items() if endpoint.redact(name) == name}
    roots = {name: endpoint.redact(find(str, model, "root") or "")[:MAX_NAME] for name, model in models.items()}
    return roots, dialect_of(listed, headers)


async def kinds_of(endpoints: Sequence[Endpoint]) -> dict[str, str]:
    """Which server each lane is on, by its list of models; "" if that says nothing."""

    async def kind_of(endpoint: Endpoint) -> str:
        try:
            async with asyncio.timeout(CONNECT_S), new_client() as client:
                return (await _models(client, endpoint))[1].name
        except (TimeoutError, RemoteError):
            return ""

    kinds = await asyncio.gather(*map(kind_of, endpoints))
    return {endpoint.lane: kind for endpoint, kind in zip(endpoints, kinds, strict=True)}


def servers_say(kinds: Mapping[str, str]) -> str:
    """`plain says that it is vLLM, there does not say what it is`. kinds: by lane."""
    says = {lane: f"says that it is {kind}" if kind else "does not say what it is" for lane, kind in kinds.items()}
    return ", ".join(f"{lane} {what}" for lane, what in says.items())
