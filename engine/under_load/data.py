"""The prompts of a study: JSON lines, one prompt a line, or ShareGPT's JSON. Standard library only."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from ..remote.endpoint import Question
from ..strict_json import parse, short
from ..text import check_prompt_text
from ..traffic.prompts import read_prompts

MAX_BYTES = 2 * 1024**3
WARM_UP = 2
"""Prompts, the last of the file, that warm each server up and are not counted."""


def read_questions(text: str, name: str, chat: bool) -> list[Question]:
    """Every prompt of a file, each once. chat: texts become the message of a user; a conversation is one in any case.
    Raises UsageError that says what is wrong and where."""
    pairs: list[tuple[str, tuple[tuple[str, str], ...]]]
    if text.lstrip("\ufeff \r\n\t").startswith("["):
        pairs = [(each, ()) for each in _sharegpt(parse(text.lstrip("\ufeff").encode(), MAX_BYTES))]
    else:
        pairs = [(each.text, () if each.is_turn else each.messages) for each in read_prompts(text, name)]
    if chat:
        pairs = [(each, messages or (("user", each),)) for each, messages in pairs]
    return list(dict.fromkeys(Question("" if messages else each, messages) for each, messages in pairs))


def check_enough(num: int, num_levels: int, num_requests: int) -> None:
    """Raises UsageError where a file of `num` prompts has too few for every request to have one of its own."""
    needed = num_levels * num_requests + WARM_UP
    if num < needed:
        raise UsageError(
            f"{num_levels} levels of {num_requests} requests and {WARM_UP} to warm up need {needed} different prompts; "
            f"there are {num}. Give more prompts, or a smaller --requests"
        )


def _sharegpt(given: Any) -> list[str]:
    """The first turn of a human in each conversation; conversations without one are left out, as is usual."""
    found = []
    for number, each in enumerate(given, 1):
        turns = each.get("conversations") if isinstance(each, dict) else None
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise UsageError(f"conversation {number}: it has no list `conversations` of objects, but is {short(each)}")
        said = next((turn.get("value") for turn in turns if turn.get("from") in ("human", "user")), None)
        if isinstance(said, str) and said.strip():
            try:
                check_prompt_text(said)
            except UsageError as error:
                raise UsageError(f"conversation {number}: {error}") from error
            found.append(said)
    if not found:
        raise UsageError("no conversation has a turn of a human")
    return found
