"""A file of prompts, as it is published: JSON lines, one JSON array, or one prompt a line. Standard library only.

Fields that are read: `turns` (MT-Bench, Spec-Bench, SPEED-Bench), `conversations` (ShareGPT), `prompt` (HumanEval),
`messages` (logs of chats, SPEED-Bench as NeMo-Skills prepares it), and `text`, `question` or `instruction`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import UsageError
from ...core.events import Prompt
from ...strict_json import parse as parse_json
from ...strict_json import short
from ...text import MAX_PROMPT_CHARS, check_prompt_text, encode_messages, encode_prompt

MAX_PROMPTS = 200
JSON_LINES = (".jsonl", ".ndjson", ".json")
KIND_KEYS = ("category", "kind", "task")
NO_KIND = "prompts"
# The first of these that an entry has is its prompt.
FIELDS = ("prompt", "messages", "turns", "conversations", "text", "question", "instruction")
LISTS = ("turns", "conversations")
DETAIL_KEYS = ("input", "context")  # what an `instruction` is about (Alpaca, Dolly)
PERSON = ("user", "human")
# SPEED-Bench, as downloaded, has this in the place of prompts whose licence does not allow redistribution.
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
MAX_FILE_BYTES = 2 * 1024**3
MAX_LINE_BYTES = 16 * MAX_PROMPT_CHARS
LABEL_CHARS = 80
_ARRAY = re.compile(r"\s*\[\s*\{")


@dataclass(frozen=True)
class FilePrompt:
    """One prompt of a file.

    line: its number, from 1; in a JSON array, that of its entry.
    text: the last message, of a conversation.
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
        """The prompt as the target sees it. Raises UsageError naming the line."""
        try:
            if not self.messages or (self.is_turn and not getattr(tokenizer, "chat_template", None)):
                return encode_prompt(tokenizer, self.text)
            return encode_messages(tokenizer, [{"role": role, "content": text} for role, text in self.messages])
        except UsageError as error:
            raise UsageError(f"line {self.line}: {error}") from error


def read_prompts(text: str, name: str, flatten: bool = False, whole: bool = False) -> list[FilePrompt]:
    """Every prompt of a file's text. Read as one JSON array if it begins with "[{", as JSON lines if the file's name
    says so or its first line begins with "{", else as one prompt a line. Skips blank lines, and conversations without a
    word of a person (ShareGPT has some). Raises UsageError, naming the line or entry, also for a file without a prompt.

    flatten: make plain text of conversations, see `flat`.
    whole: all of the text is one prompt, unless it is JSON."""
    text = text.removeprefix("\ufeff")
    is_array = _ARRAY.match(text) is not None
    entries = list(enumerate(_parsed(text, MAX_FILE_BYTES), 1)) if is_array else _lines(text)
    in_json = is_array or name.lower().endswith(JSON_LINES) or (bool(entries) and entries[0][1].lstrip()[:1] == "{")
    if whole and entries and not in_json:
        entries = [(1, text)]
    prompts = []
    for number, entry in entries:
        try:
            if not in_json:
                prompt: FilePrompt | None = FilePrompt(number, NO_KIND, entry)
            else:
                prompt = _of_json(number, entry if is_array else _parsed(entry, MAX_LINE_BYTES))
            if prompt is None:
                continue
            if flatten and prompt.messages and not prompt.is_turn:
                prompt = FilePrompt(number, prompt.kind, flat(prompt.messages))
            for content in [prompt.text, *(content for _, content in prompt.messages)]:
                check_prompt_text(content)
        except UsageError as error:
            raise UsageError(f"{'entry' if is_array else 'line'} {number}: {error}") from error
        prompts.append(prompt)
    if not prompts:
        raise UsageError(f"{short(name)} holds no prompt; give JSON lines, a JSON array, or one prompt a line")
    return prompts


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


def _lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    lines = enumerate((line.rstrip("\r") for line in text.split("\n")), 1)
    return [(number, line) for number, line in lines if line.strip()]


def _parsed(text: str, max_bytes: int) -> Any:
    return parse_json(text.encode("utf-8", "surrogatepass"), max_bytes)


def _of_json(number: int, given: Any) -> FilePrompt | None:
    """The prompt of an entry; None for a conversation without a word of a person."""
    if not isinstance(given, dict):
        raise UsageError(f"it is not an object, but {short(given)}")
    kind = next((given[key] for key in KIND_KEYS if isinstance(given.get(key), str) and given[key]), NO_KIND)
    key = next((key for key in FIELDS if key in given), None)
    if key is None:
        raise UsageError(f"it has none of {', '.join(FIELDS)}, but: {', '.join(map(short, given)) or 'nothing'}")
    if key == "messages":
        messages = _messages(given[key])
        if len(messages) == 1 or any(role not in PERSON for role, _ in messages):
            return FilePrompt(number, kind, messages[-1][1], messages)
    elif key not in LISTS and not (key == "prompt" and isinstance(given[key], list)):
        return FilePrompt(number, kind, _with_detail(given) if key == "instruction" else given[key])
    turn = _first_turn(given[key], key)
    if isinstance(turn, str) and turn.startswith(PLACEHOLDER):
        raise UsageError("it is a placeholder of SPEED-Bench, whose prepare_data.py fetches the prompt itself")
    if key == "conversations" and (turn is None or turn == ""):
        return None
    return FilePrompt(number, kind, turn, (("user", turn),), is_turn=True)


def _with_detail(given: dict[str, Any]) -> Any:
    """An instruction, and below it what it is about."""
    text = given["instruction"]
    detail = next((given[key] for key in DETAIL_KEYS if isinstance(given.get(key), str) and given[key]), "")
    return f"{text}\n\n{detail}" if detail and isinstance(text, str) else text


def _first_turn(turns: Any, key: str) -> Any:
    """What a person says first in a list of texts, or of objects with `role` and `content`, or with ShareGPT's `from`
    and `value`; None if nobody does."""
    if not isinstance(turns, list) or not all(isinstance(turn, (str, dict)) for turn in turns):
        raise UsageError(f"{key} must be a list of texts or of objects with role and content, not {short(turns)}")
    said = (
        turn if isinstance(turn, str) else turn.get("content", turn.get("value"))
        for turn in turns
        if isinstance(turn, str) or turn.get("role", turn.get("from", PERSON[0])) in PERSON
    )
    first = next(said, None)
    if first is None and key != "conversations":
        raise UsageError(f"{key} has no turn of a user: {short(turns)}")
    return first


def _messages(given: Any) -> tuple[tuple[str, str], ...]:
    messages = given if isinstance(given, list) else []
    if not messages or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise UsageError(f"messages must be a list, not empty, of objects with role and content, not {short(given)}")
    return tuple((m["role"], m.get("content")) for m in messages)
