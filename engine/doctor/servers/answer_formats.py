"""JSON schemas and tool calls: do answers fit with speculation as without?"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...analysis.verdict_words import capital
from ...core.spec import SamplingParams
from ...remote.client import RemoteError
from ...remote.fields import parsed
from ...remote.reply import Reply
from ...remote.request import Question
from ..findings import Finding
from .pair import Pair, Server

# A question is asked about each.
ANIMALS, CITIES = ("cat", "spider", "horse", "hen"), ("Paris", "Oslo", "Lima", "Cairo")
LEGS = (2, 4, 6, 8)


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these members."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


SCHEMA = _object(
    animal={"type": "string", "enum": list(ANIMALS)},
    legs={"type": "integer", "enum": list(LEGS)},
    is_pet={"type": "boolean"},
)
FORMAT = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
TOOL_NAME = "get_weather"
TOOL = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Get the weather forecast for a city.",
        "parameters": _object(city={"type": "string", "enum": list(CITIES)}, days={"type": "integer", "enum": [2]}),
    },
}
CHOICES = ("auto", "required")  # values of `tool_choice`; vLLM refuses the first without --enable-auto-tool-choice
MAX_TOKENS = 96
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
        outcomes = await _tried(pair, partial(_calls, choice=choice), CITIES)
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
    reply = await _ask(server, f"Describe a {animal} as JSON.", {"response_format": FORMAT})
    text = reply.answer.strip()
    if reply.finish_reason == "length" and text[:1] in ("", "{"):
        return None  # small models write blanks for ever, which JSON allows
    value = parsed(text)
    return (
        isinstance(value, dict)
        and value.keys() == SCHEMA["properties"].keys()
        and value["animal"] in ANIMALS
        and value["legs"] in LEGS
        and isinstance(value["is_pet"], bool)
    )


async def _calls(server: Server, city: str, choice: str) -> bool | None:
    """Servers lose parts of a streamed call where several tokens come at once."""
    words = f"Call {TOOL_NAME} for the next 2 days in {city}."
    reply = await _ask(server, words, {"tools": [TOOL], "tool_choice": choice})
    if reply.finish_reason == "length":
        return None
    _, name, arguments = reply.answer.rpartition(TOOL_NAME)
    return bool(name) and parsed(arguments) in [{"city": town, "days": 2} for town in CITIES]


async def _ask(server: Server, words: str, more: Mapping[str, Any]) -> Reply:
    question = Question(messages=(("user", words),), more=more)
    return await server.ask(question, SamplingParams(max_new_tokens=MAX_TOKENS))
