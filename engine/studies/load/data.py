"""The prompts of a study: a file, as study-prompts reads it, or synthetic ones of a given length."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from ...core.errors import UsageError, short
from ...core.spec import MAX_NEW_TOKENS
from ...remote.request import Question
from ..prompts.prompts import FilePrompt
from ..prompts.race_servers import question_of

WARM_UP = 2  # the last prompts, which warm each server up and are not counted
SYNTHETIC = "synthetic:"
MAX_WORDS = 100_000
WORDS = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were all her she there would their we him been has when who will no more if out so up said what its about "
    "than into them can only other time new some could these two may first then do any like my now over such our man"
)  # for synthetic prompts: one token each in the vocabularies of today's models


def questions_of(prompts: Sequence[FilePrompt], chat: bool) -> list[Question]:
    """Every distinct prompt. chat: texts become user messages; conversations stay conversations either way."""
    plain = (replace(prompt, messages=()) if prompt.is_turn else prompt for prompt in prompts)
    return list(dict.fromkeys(question_of(prompt, chat) for prompt in plain))


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


def synthetic(data: str, chat: bool, num: int, seed: int) -> tuple[list[Question], int]:
    """Prompts of that many words, drawn by the seed, with answers of full length whatever the model would do."""
    match = re.fullmatch(r"([0-9]{1,6}),([0-9]{1,6})", data.removeprefix(SYNTHETIC))
    num_words, num_tokens = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (1 <= num_words <= MAX_WORDS and 1 <= num_tokens <= MAX_NEW_TOKENS):
        raise UsageError(
            f"{short(data)} must be {SYNTHETIC}INPUT,OUTPUT, 1 to {MAX_WORDS} words and 1 to {MAX_NEW_TOKENS} tokens"
        )
    draw, words = random.Random(seed), WORDS.split()
    texts = dict.fromkeys(" ".join(draw.choices(words, k=num_words)) for _ in range(num))
    if len(texts) < num:
        raise UsageError(f"{num} prompts of {num_words} random words are not all different: give them more words")
    asked = (question_of(FilePrompt(0, "", text), chat) for text in texts)
    return [replace(question, to_the_end=True) for question in asked], num_tokens
