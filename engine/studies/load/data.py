"""The prompts of a study: a file, as study-prompts reads it, or synthetic ones of a given length."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from ...core.errors import UsageError
from ...core.spec import MAX_NEW_TOKENS
from ...remote.request import Question
from ...text import read_text
from ..prompts.prompts import MAX_FILE_BYTES, read_prompts

WARM_UP = 2  # the last prompts, which warm each server up and are not counted
SYNTHETIC = "synthetic:"
MAX_WORDS = 100_000
WORDS = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were all her she there would their we him been has when who will no more if out so up said what its about "
    "than into them can only other time new some could these two may first then do any like my now over such our man"
)  # for synthetic prompts: one token each in the vocabularies of today's models


def read_data(data: str, chat: bool, num: int, seed: int) -> tuple[list[Question], int | None]:
    """The prompts of --data, each once, and the length of their answers, if it is given. num: how many synthetic ones.
    chat: texts become a user's message. Raises UsageError."""
    if data.startswith(SYNTHETIC):
        return _synthetic(data, chat, num, seed)
    return read_questions(read_text(data, MAX_FILE_BYTES), data, chat), None


def read_questions(text: str, name: str, chat: bool) -> list[Question]:
    """Every distinct prompt of a file's text. chat: texts become user messages; conversations stay conversations either
    way. Raises UsageError saying what is wrong and where."""
    pairs = [(prompt.text, () if prompt.is_turn else prompt.messages) for prompt in read_prompts(text, name)]
    if chat:
        pairs = [(text, messages or (("user", text),)) for text, messages in pairs]
    return list(dict.fromkeys(Question("" if messages else text, messages) for text, messages in pairs))


def dealt(questions: Sequence[Question], num: int) -> tuple[Question, ...]:
    """A question for each of `num` requests, and WARM_UP more: all different if there are enough, else over and over in
    the same order."""
    if len(questions) >= num + WARM_UP:
        return (*questions[:num], *questions[-WARM_UP:])
    return tuple(islice(cycle(questions), num + WARM_UP))


def name_of(data: str) -> str:
    """What --data is called next to the results, without the folder of a file."""
    if data.startswith(SYNTHETIC):
        return f"{data.removeprefix(SYNTHETIC).partition(',')[0]} random words each"
    return "standard input" if data == "-" else Path(data).name


def _synthetic(data: str, chat: bool, num: int, seed: int) -> tuple[list[Question], int]:
    """Prompts of that many words, drawn by the seed, with answers of full length whatever the model would do."""
    match = re.fullmatch(r"([0-9]{1,6}),([0-9]{1,6})", data.removeprefix(SYNTHETIC))
    num_words, num_tokens = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (1 <= num_words <= MAX_WORDS and 1 <= num_tokens <= MAX_NEW_TOKENS):
        raise UsageError(
            f"it must be {SYNTHETIC}INPUT,OUTPUT with 1 to {MAX_WORDS} words and 1 to {MAX_NEW_TOKENS} tokens"
        )
    draw, words = random.Random(seed), WORDS.split()
    texts = dict.fromkeys(" ".join(draw.choices(words, k=num_words)) for _ in range(num))
    if len(texts) < num:
        raise UsageError(f"{num} prompts of {num_words} random words are not all different: give them more words")
    whole = (
        (Question(messages=(("user", text),), to_the_end=True) if chat else Question(text, (), True)) for text in texts
    )
    return list(whole), num_tokens
