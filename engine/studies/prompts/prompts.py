"""A file of prompts: JSON lines, or one prompt a line. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import UsageError
from ...events import Prompt
from ...strict_json import parse as parse_json
from ...strict_json import short
from ...text import MAX_PROMPT_CHARS, check_prompt_text, encode_messages, encode_prompt

MAX_PROMPTS = 200
JSON_LINES = (".jsonl", ".ndjson", ".json")
KIND_KEYS = ("category", "kind", "task")
NO_KIND = "prompts"
MAX_LINE_BYTES = 16 * MAX_PROMPT_CHARS
LABEL_CHARS = 80


@dataclass(frozen=True)
class FilePrompt:
    """One prompt of a file.

    line: its number, from 1.
    text: of a conversation the last message.
    messages: (role, content) of a conversation.
    is_turn: the first turn of a list; without a chat template, it is raced as plain text.
    """

    line: int
    kind: str
    text: str
    messages: tuple[tuple[str, str], ...] = ()
    is_turn: bool = False

    @property
    def label(self) -> str:
        """The text on one line, shortened."""
        words = " ".join(self.text.split())
        return words if len(words) <= LABEL_CHARS else words[: LABEL_CHARS - 1] + "…"

    def encode(self, tokenizer: Any) -> Prompt:
        """As the target sees it. Raises UsageError naming the line."""
        try:
            if not self.messages or (self.is_turn and not getattr(tokenizer, "chat_template", None)):
                return encode_prompt(tokenizer, self.text)
            return encode_messages(tokenizer, [{"role": role, "content": text} for role, text in self.messages])
        except UsageError as error:
            raise _in_line(self.line, error) from error


def read_prompts(text: str, name: str, flatten: bool = False, whole: bool = False) -> list[FilePrompt]:
    """Every prompt of a file's text, without blank lines. Read as JSON lines if the file's name says so or its first
    line begins with "{", else one prompt a line. Raises UsageError, naming the line, also for a file without a
    prompt.

    flatten: make plain text of conversations, see `flat`.
    whole: all of the text is one prompt, unless it is JSON lines."""
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line.strip()]
    if not lines:
        raise UsageError(f"{short(name)} holds no prompt; give JSON lines, or one prompt a line")
    in_json = name.lower().endswith(JSON_LINES) or lines[0][1].lstrip().startswith("{")
    if whole and not in_json:
        lines = [(1, text)]
    found = []
    for number, line in lines:
        try:
            prompt = _of_json(number, line) if in_json else FilePrompt(number, NO_KIND, line)
            if flatten and prompt.messages and not prompt.is_turn:
                prompt = FilePrompt(number, prompt.kind, flat(prompt.messages))
            for content in [prompt.text, *(content for _, content in prompt.messages)]:
                check_prompt_text(content)
        except UsageError as error:
            raise _in_line(number, error) from error
        found.append(prompt)
    return found


def choose(prompts: Sequence[FilePrompt], limit: int | None) -> list[FilePrompt]:
    """At most `limit` prompts in the file's order, evenly over kinds as far as possible, and at even distances within a
    kind. Without a limit, raises UsageError for more than MAX_PROMPTS."""
    if limit is None and len(prompts) > MAX_PROMPTS:
        raise UsageError(
            f"the file has {len(prompts)} prompts; a study takes at most {MAX_PROMPTS}. --limit {MAX_PROMPTS} takes so "
            "many of them, spread over the kinds"
        )
    by_kind: dict[str, list[FilePrompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    shares, left = dict.fromkeys(by_kind, 0), min(len(prompts), limit or MAX_PROMPTS)
    while left:
        for kind, group in by_kind.items():
            if left and shares[kind] < len(group):
                shares[kind], left = shares[kind] + 1, left - 1
    taken = {group[i * len(group) // shares[kind]].line for kind, group in by_kind.items() for i in range(shares[kind])}
    return [prompt for prompt in prompts if prompt.line in taken]


def flat(messages: Sequence[tuple[str, str]]) -> str:
    """A conversation as plain text: each message after its role and a colon, a blank line between them, and at the end
    the role that answers."""
    for _, content in messages:
        check_prompt_text(content)
    return "".join(f"{role}: {content}\n\n" for role, content in messages) + "assistant:"


def digest(prompts: Sequence[FilePrompt]) -> str:
    """sha256 of everything that a study uses of its prompts."""
    return hashlib.sha256(json.dumps([asdict(prompt) for prompt in prompts]).encode()).hexdigest()


def _of_json(number: int, line: str) -> FilePrompt:
    given = parse_json(line.encode(), MAX_LINE_BYTES)
    if not isinstance(given, dict):
        raise UsageError(f"it is not an object with prompt, messages or turns, but {short(given)}")
    kind = next((given[key] for key in KIND_KEYS if isinstance(given.get(key), str) and given[key]), NO_KIND)
    if "prompt" in given:
        return FilePrompt(number, kind, given["prompt"])
    if "messages" in given:
        messages = _messages(given["messages"])
        return FilePrompt(number, kind, messages[-1][1], messages)
    if "turns" not in given:
        raise UsageError(f"it has neither prompt, messages nor turns, but: {', '.join(map(short, given)) or 'nothing'}")
    turns = given["turns"]
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise UsageError(f"turns must be a list of strings that is not empty, not {short(turns)}")
    return FilePrompt(number, kind, turns[0], (("user", turns[0]),), is_turn=True)


def _messages(given: Any) -> tuple[tuple[str, str], ...]:
    each = given if isinstance(given, list) else []
    if not each or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in each):
        raise UsageError(f"messages must be a list, not empty, of objects with role and content, not {short(given)}")
    return tuple((m["role"], m.get("content")) for m in each)


def _in_line(number: int, error: UsageError) -> UsageError:
    return UsageError(f"line {number}: {error}")
