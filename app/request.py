"""What a visitor asks for, checked: the values of the page (or of the API, where they can be anything) become one
frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import UsageError
from engine.recordings.recording import spec_of
from engine.spec import SPECULATIVE, RaceSpec, SamplingParams, lanes_of
from engine.text import check_prompt_text

from .catalogue import Catalogue, Pair
from .limits import MAX_MORE_LANES, MAX_NEW_TOKENS, MAX_PROMPT_CHARS

YOURS = "Your prompt"
MAX_NAME = 100


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
    length = _whole(_given(values, "max_new_tokens"))
    _check_length(length)
    params = SamplingParams(
        temperature=_number(_given(values, "temperature")),  # type: ignore[arg-type]
        top_p=_number(_given(values, "top_p")),  # type: ignore[arg-type]
        seed=_whole(_given(values, "seed")),  # type: ignore[arg-type]
        max_new_tokens=length,  # type: ignore[arg-type]
    )
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
    """The race of a recording, to be held once more. Raises UsageError where this page does not offer its target or a
    drafter of it, or where it is longer than a race of this page may be."""
    target, prompt, spec = recorded["model"]["name"], recorded["prompt"], spec_of(recorded)
    pair = next((each for each in catalogue.runnable if each.target == target), None)
    if pair is None:
        raise UsageError(
            f"this race was run with the model {target[:MAX_NAME]!r}; this page can run: "
            + ", ".join(dict.fromkeys(each.target for each in catalogue.runnable))
        )
    for lane in spec.lanes:
        catalogue.drafter(pair, lane.drafter)
    _check_prompt(prompt["text"])
    _check_length(spec.params.max_new_tokens)
    preset = catalogue.preset_of(prompt["text"])
    return RaceRequest(
        preset.name if preset else YOURS, prompt["text"], prompt.get("chat", False), pair, spec, recorded
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
