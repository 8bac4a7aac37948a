"""JSON schemas and tool calls: do answers fit with speculation as without?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...analysis.verdict_words import capital
from ...core.errors import RaceError
from ...remote.client import RemoteError, post
from ...remote.fields import find, parsed
from ...remote.reply import DONE, Events, texts_in
from ..findings import Finding
from .pair import Pair, Server

# A question is asked about each.
ANIMALS, CITIES = ("cat", "spider", "horse", "hen"), ("Paris", "Oslo", "Lima", "Cairo")
LEGS = (2, 4, 6, 8)
SCHEMA = {
    "type": "object",
    "properties": {
        "animal": {"type": "string", "enum": list(ANIMALS)},
        "legs": {"type": "integer", "enum": list(LEGS)},
        "is_pet": {"type": "boolean"},
    },
    "required": ["animal", "legs", "is_pet"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
TOOL_NAME = "get_weather"
TOOL = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Get the weather forecast for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": list(CITIES)}, "days": {"type": "integer", "enum": [2]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
CHOICES = ("auto", "required")  # values of `tool_choice`; vLLM refuses the first without --enable-auto-tool-choice
MAX_TOKENS, TIMEOUT_S = 96, 30.0
OFF = "Turn speculation off for such requests, and report it to the server's developers"
# (server, subject) -> whether the answer fits; None if it was too short to tell. Raises RemoteError.
Try = Callable[[Server, str], Awaitable[bool | None]]


async def schemas(pair: Pair) -> list[Finding]:
    """Whether answers fit a JSON schema. Raises RemoteError, unless it is a refusal."""
    pair.progress("asking for JSON by a schema", None)
    return [_judged("JSON schema", pair, await _tried(pair, _fits, ANIMALS))]


async def tools(pair: Pair) -> list[Finding]:
    """Whether tool calls can be read. Raises RemoteError, unless it is a refusal."""
    pair.progress("asking for tool calls", None)
    for choice in CHOICES:

        async def calls(server: Server, city: str, choice: str = choice) -> bool | None:
            return await _calls(server, city, choice)

        outcomes = await _tried(pair, calls, CITIES)
        if any(isinstance(outcome, list) for outcome in outcomes):
            break
    return [_judged("tool calls", pair, outcomes)]


async def _tried(pair: Pair, fits: Try, about: Sequence[str]) -> list[list[bool | None] | str]:
    """For each server, whether each answer fits, or the words with which it refused."""

    async def one(server: Server) -> list[bool | None] | str:
        try:
            return await asyncio.gather(*(fits(server, subject) for subject in about))
        except RemoteError as error:
            if error.status is None or error.status in (401, 403, 429):
                raise
            return str(error)

    return await asyncio.gather(*map(one, pair.servers))


def _judged(check: str, pair: Pair, outcomes: Sequence[list[bool | None] | str]) -> Finding:
    says = "; ".join(
        f"{outcome} "
        if isinstance(outcome, str)
        else f"{server.lane}: {outcome.count(True)} of {len(outcome)} answers fit"
        for server, outcome in zip(pair.servers, outcomes, strict=True)
    )
    says = f"{capital(says.rstrip())}."
    plain, drafting = outcomes[0], outcomes[-1]
    if isinstance(plain, str) and isinstance(drafting, str):
        return Finding("untested", check, f"Not supported here: {plain}.")
    if isinstance(plain, str) or not all(plain):
        return Finding("untested", check, f"{says} There is nothing to compare speculation with.")
    if isinstance(drafting, str) or False in drafting:
        return Finding("fault", check, says, OFF)
    if None in drafting:
        return Finding("doubt", check, f"{says} The others do not end within {MAX_TOKENS} tokens.", OFF)
    return Finding("ok", check, says)


async def _fits(server: Server, animal: str) -> bool | None:
    body = {**_body(server, f"Describe a {animal} as JSON."), "response_format": FORMAT}
    answer = parsed(await post(server.client, server.endpoint, "/chat/completions", body, TIMEOUT_S))
    text = texts_in(find(dict, answer, "choices", 0, "message") or {})[1].strip()
    if find(str, answer, "choices", 0, "finish_reason") == "length" and text[:1] in ("", "{"):
        return None  # small models write blanks for ever, which JSON allows
    value = parsed(text)
    return (
        isinstance(value, dict)
        and value.keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
        and value["animal"] in ANIMALS
        and value["legs"] in LEGS
        and isinstance(value["is_pet"], bool)
    )


async def _calls(server: Server, city: str, choice: str) -> bool | None:
    """Streamed: servers lose parts of a call where several tokens come at once."""
    body = _body(server, f"Call {TOOL_NAME} for the next 2 days in {city}.")
    body |= {"tools": [TOOL], "tool_choice": choice, "stream": True}
    received = await post(server.client, server.endpoint, "/chat/completions", body, TIMEOUT_S)
    try:
        name, arguments, is_cut = _call_in(Events().feed(received))
    except RaceError:
        return False
    if is_cut:
        return None
    return name == TOOL_NAME and parsed(arguments) in [{"city": town, "days": 2} for town in CITIES]


def _call_in(events: Sequence[str]) -> tuple[str, str, bool]:
    """The name and the arguments of the first tool call of a stream, and whether the length cut it off."""
    name, arguments, is_cut = "", "", False
    for data in events:
        if data == DONE:
            break
        for choice in find(list, parsed(data), "choices") or ():
            is_cut = is_cut or find(str, choice, "finish_reason") == "length"
            for call in find(list, choice, "delta", "tool_calls") or ():
                if not find(int, call, "index"):
                    name += find(str, call, "function", "name") or ""
                    arguments += find(str, call, "function", "arguments") or ""
    return name, arguments, is_cut


def _body(server: Server, words: str) -> dict[str, Any]:
    return {
        "model": server.endpoint.model,
        "messages": [{"role": "user", "content": words}],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
