"""What a visitor asks for, checked: the values of the page (or of the API, where they can be anything) become one
frozen value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import UsageError
from engine.recordings.recording import spec_of
from engine.spec import SPECULATIVE, RaceSpec, SamplingParams, lanes_of
from engine.text import check_prompt_text
from engine.traffic.prompts import MAX_PROMPTS, FilePrompt, choose, digest, read_prompts
from engine.traffic.rows import Row, row_of

from .catalogue import Catalogue, Pair
from .limits import MAX_MORE_LANES, MAX_NEW_TOKENS, MAX_PROMPT_CHARS, MAX_STUDY_CHARS

YOURS = "Your prompt"
MAX_NAME = 100
NGRAM, NONE = "ngram", "none"


@dataclass(frozen=True)
class RaceRequest:
    """A race that can be held: what its prompt is called, the prompt's text, whether it goes through the model's chat
    template, the pair, and the race's own settings."""

    name: str
    prompt: str
    chat: bool
    pair: Pair
    spec: RaceSpec
    recorded: Mapping[str, Any] | None = None
    """The recording of a race that is to be run again."""


def read_request(catalogue: Catalogue, values: Mapping[str, object]) -> RaceRequest:
    """Check every value, whatever its type. `values`: one by the name of each of `controls.controls`. Raises
    UsageError, a sentence that names the value and the limits or choices."""
    pair = catalogue.pair(values["pair"])
    drafter = catalogue.drafter(pair, values["drafter"])
    _check_prompt(values["prompt"])
    params = _params(values)
    k: Any = _decimal(values["k"])
    more = _more(catalogue, pair, drafter, values["more"])
    lanes = lanes_of(
        [(SPECULATIVE, drafter, k), *((each, each, k) for each in more)],
        _decimal(values["width"]),  # type: ignore[arg-type]
        values["rule"],  # type: ignore[arg-type]
    )
    spec = RaceSpec(lanes, params, audit=_flag("audit", values["audit"]))
    prompt = str(values["prompt"])
    chat = _flag("chat", values["chat"])
    if chat and pair.chat is False:
        raise UsageError(f"{pair.target} is a base model without a chat template; untick it, or choose another model")
    preset = catalogue.preset_of(prompt)
    return RaceRequest(preset.name if preset else YOURS, prompt, chat, pair, spec)


def read_again(catalogue: Catalogue, recorded: Mapping[str, Any]) -> RaceRequest:
    """The race of a recording, to be held once more without its lanes on servers. Raises UsageError where this page
    does not offer its target or a drafter of it, or where it is longer than a race of this page may be."""
    target, prompt = recorded["model"]["name"], recorded["prompt"]
    pair = next((each for each in catalogue.runnable if each.target == target), None)
    if pair is None:
        raise UsageError(
            f"this race was run with the model {target[:MAX_NAME]!r}; this page can run: "
            + ", ".join(dict.fromkeys(each.target for each in catalogue.runnable))
        )
    spec = spec_of(recorded).without_servers()
    for lane in spec.lanes:
        catalogue.drafter(pair, lane.drafter)
    _check_prompt(prompt["text"])
    _check_length(spec.params.max_new_tokens)
    preset = catalogue.preset_of(prompt["text"])
    return RaceRequest(
        preset.name if preset else YOURS, prompt["text"], prompt.get("chat", False), pair, spec, recorded
    )


@dataclass(frozen=True)
class StudyRequest:
    """A study that can be held. key: of everything that its rows depend on but the weights and the machine. kept: rows
    of an earlier run with that key, and what it ran on; see `engine.traffic.saved`."""

    prompts: tuple[FilePrompt, ...]
    pair: Pair
    drafters: tuple[str, ...]
    params: SamplingParams
    key: str
    kept: tuple[Row, ...] = ()
    kept_on: Mapping[str, object] | None = None


def read_study(catalogue: Catalogue, values: Mapping[str, object], asked: object) -> StudyRequest:
    """Check a study that a browser asks for. values: of the page's controls by name. asked: of the file its `name` and
    `text`; `limit`, how many of its prompts; `max_new_tokens` of each; `kept`, what the browser has of an earlier run
    with the same file, or null. Raises UsageError."""
    asked = asked if isinstance(asked, dict) else {}
    pair, text = catalogue.pair(values["pair"]), asked.get("text")
    if not isinstance(text, str) or len(text) > MAX_STUDY_CHARS:
        raise UsageError(f"the file of prompts must be a text of at most {MAX_STUDY_CHARS} characters")
    limit = _whole(asked.get("limit"))
    if type(limit) is not int or not 1 <= limit <= MAX_PROMPTS:
        raise UsageError(f"a study takes from 1 to {MAX_PROMPTS} prompts, not {str(limit)[:40]}")
    params = _params({**values, "max_new_tokens": asked.get("max_new_tokens")})
    prompts = choose(read_prompts(text, str(asked.get("name"))[:MAX_NAME]), limit)
    for prompt in prompts:
        if (num := len(prompt.text) + sum(len(content) for _, content in prompt.messages)) > MAX_PROMPT_CHARS:
            raise UsageError(f"line {prompt.line} has {num} characters; at most {MAX_PROMPT_CHARS} are allowed here")
    first = catalogue.drafter(pair, values["drafter"])
    named = [NGRAM, first, *_more(catalogue, pair, first, values["more"])]
    drafters = [each for each in dict.fromkeys(named) if each != NONE]
    of = [pair.target, drafters, asdict(params), digest(prompts)]
    key = hashlib.sha256(json.dumps(of).encode()).hexdigest()
    kept, kept_on = _kept(asked.get("kept"), key, {prompt.line for prompt in prompts}, drafters)
    return StudyRequest(tuple(prompts), pair, tuple(drafters), params, key, kept, kept_on)


def _kept(
    given: object, key: str, lines: Container[int], drafters: Sequence[str]
) -> tuple[tuple[Row, ...], Mapping[str, object] | None]:
    """What a browser has of an earlier run, where it was of the same study: the rows of finished prompts."""
    if not isinstance(given, dict) or given.get("key") != key or not isinstance(given.get("ran_on"), dict):
        return (), None
    rows = [row_of(each) for each in given["rows"]] if isinstance(given.get("rows"), list) else []
    found = {(row.line, row.drafter): row for row in rows if row.line in lines}
    whole = [line for line in dict.fromkeys(row.line for row in rows) if all((line, d) in found for d in drafters)]
    return tuple(found[line, drafter] for line in whole for drafter in drafters), given["ran_on"]


def _params(values: Mapping[str, object]) -> SamplingParams:
    length = _whole(_given(values, "max_new_tokens"))
    _check_length(length)
    return SamplingParams(
        temperature=_number(_given(values, "temperature")),  # type: ignore[arg-type]
        top_p=_number(_given(values, "top_p")),  # type: ignore[arg-type]
        seed=_whole(_given(values, "seed")),  # type: ignore[arg-type]
        max_new_tokens=length,  # type: ignore[arg-type]
    )


def _more(catalogue: Catalogue, pair: Pair, drafter: str, more: object) -> list[str]:
    """The drafters of the lanes beside the first."""
    if not isinstance(more, list) or len(more) > MAX_MORE_LANES:
        raise UsageError(f"more must be a list of at most {MAX_MORE_LANES} drafters, not {str(more)[:60]!r}")
    return [each for each in dict.fromkeys(catalogue.drafter(pair, each) for each in more) if each != drafter]


def _check_length(length: object) -> None:
    if isinstance(length, int) and not isinstance(length, bool) and length > MAX_NEW_TOKENS:
        raise UsageError(f"max_new_tokens must be an integer from 1 to {MAX_NEW_TOKENS} on this page, not {length}")


def _check_prompt(prompt: object) -> None:
    check_prompt_text(prompt)  # type: ignore[arg-type]
    if isinstance(prompt, str) and len(prompt) > MAX_PROMPT_CHARS:
        raise UsageError(
            f"the prompt has {len(prompt)} characters; at most {MAX_PROMPT_CHARS} are allowed on this page"
        )


def _whole(value: object) -> object:
    """A whole number that arrives as 7.0, as sliders and JSON may send it, is 7; anything else is left for the spec to
    judge."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _given(values: Mapping[str, object], name: str) -> object:
    """A number that a visitor may have wiped out."""
    if values[name] is None:
        raise UsageError(f"{name} is empty; give it a number")
    return values[name]


def _number(value: object) -> object:
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _decimal(value: object) -> object:
    """A choice of a list arrives as text."""
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 3
        else _whole(value)
    )


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, not {str(value)[:40]!r}")
    return value
