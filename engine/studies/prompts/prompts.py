"""The prompts of a file, as it is published; see data_files.py for its forms, and docs/yours.md for the fields that are
read. Standard library only."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...analysis.metrics import grouped
from ...core.errors import UsageError
from ...core.events import Prompt
from ...strict_json import short
from ...text import ANSWERS, check_prompt_text, encode_messages, encode_prompt
from .data_files import DETAIL_KEYS, FIELDS, KIND_KEYS, OPEN, entries_of, is_chat

MAX_PROMPTS = 200
ODD = 10  # of so many entries one may be odd: it is left out, and counted
NO_KIND = "prompts"
INNER = ("body", "row")
LISTS = ("turns", *OPEN)
PERSON = ("user", "human")
WORDS = ("text", "input_text", "output_text")  # types of a message's parts
# SPEED-Bench, as downloaded, has this in the place of prompts whose licence does not allow redistribution.
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
LABEL_CHARS = 80


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
        """The prompt as the target sees it. Raises what `encode_messages` raises, with the line, and the way out."""
        try:
            if not self.messages or (self.is_turn and not getattr(tokenizer, "chat_template", None)):
                return encode_prompt(tokenizer, self.text)
            return encode_messages(tokenizer, [{"role": role, "content": text} for role, text in self.messages])
        except UsageError as error:
            way_out = "; as plain text (--flatten) it can be raced" if _is_chat(self) else ""
            raise type(error)(f"line {self.line}: {error}{way_out}") from error


@dataclass(frozen=True)
class PromptFile:
    """What was understood of a file.

    says: how many prompts, and what they were read as.
    left_out: how many entries were not read, and why the first was not; "" if all were.
    form: see `Entries`."""

    prompts: list[FilePrompt]
    says: str
    left_out: str
    form: str


def read_prompts(text: str, name: str, flatten: bool = False, whole: bool = False) -> PromptFile:
    """Every prompt of a file's text; see `entries_of` for name and whole. Entries that cannot be read are left out, and
    so are conversations without a word of a person (ShareGPT has some). Raises UsageError, naming the first, for more
    unreadable ones than 1 in ODD, and for a file without a prompt.

    flatten: make plain text of conversations, see `flat`."""
    entries = entries_of(text, name, whole)
    prompts: list[FilePrompt] = []
    odd, left = list[str](), list[str]()
    for number, value in entries.all:
        try:
            prompt = _prompt(number, value)
            if prompt and flatten and _is_chat(prompt):
                prompt = FilePrompt(number, prompt.kind, flat(prompt.messages))
            for content in [prompt.text, *(content for _, content in prompt.messages)] if prompt else []:
                check_prompt_text(content)
        except UsageError as error:
            odd.append(f"{entries.place} {number}: {error}")
            left += odd[-1:]
        else:
            prompts += [prompt] if prompt else []
            left += [] if prompt else [f"{entries.place} {number}: nobody says anything in it but the assistant"]
    num_all = f"{len(entries.all):,} entries"
    if len(odd) * ODD > len(entries.all) or (odd and not prompts):
        raise UsageError(odd[0] + (f"; {len(odd):,} of {num_all} cannot be read" if len(odd) > 1 else ""))
    if not prompts:
        raise UsageError("; ".join(["it holds no prompt", *left[:1]]))
    num, chats, num_lines = len(prompts), sum(map(_is_chat, prompts)), text.rstrip().count("\n") + 1
    if entries.form:
        how = f" ({entries.form}{f', {chats} with messages' if chats else ''})"
    elif whole:
        how = f" of {num_lines} lines" if num_lines > 1 else ""
    else:
        how = ", one a line" if num > 1 else ""
    left_out = f"{len(left):,} of {num_all} {'was' if len(left) == 1 else 'were'} left out: {left[0]}" if left else ""
    return PromptFile(prompts, f"{num} prompt{'s'[: num > 1]}{how}", left_out, entries.form)


def json_lines(prompts: Sequence[FilePrompt]) -> str:
    """A text that is read as the same prompts: each in its own line, with blank lines between."""
    lines = [""] * prompts[-1].line
    for prompt in prompts:
        entry: dict[str, Any] = {"prompt": prompt.text}
        if prompt.messages:
            messages = [{"role": role, "content": content} for role, content in prompt.messages]
            entry = {"turns": [prompt.text]} if prompt.is_turn else {"messages": messages}
        kind = {} if prompt.kind == NO_KIND else {KIND_KEYS[0]: prompt.kind}
        lines[prompt.line - 1] = json.dumps({**entry, **kind}, ensure_ascii=False)
    return "\n".join(lines)


def choose(prompts: Sequence[FilePrompt], limit: int | None) -> list[FilePrompt]:
    """At most `limit` prompts in the file's order, evenly over kinds as far as possible, and at even distances within a
    kind. Without a limit, raises UsageError for more than MAX_PROMPTS."""
    if limit is None and len(prompts) > MAX_PROMPTS:
        raise UsageError(
            f"the file has {len(prompts)} prompts; a study takes at most {MAX_PROMPTS}. --limit {MAX_PROMPTS} takes so "
            "many of them, spread over the kinds"
        )
    groups = list(grouped((prompt.kind, prompt) for prompt in prompts).values())
    turns = sorted((turn, i) for i, group in enumerate(groups) for turn in range(len(group)))  # kinds take turns
    shares = Counter(i for _, i in turns[: limit or MAX_PROMPTS])
    taken = {group[n * len(group) // shares[i]].line for i, group in enumerate(groups) for n in range(shares[i])}
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


def _is_chat(prompt: FilePrompt) -> bool:
    return bool(prompt.messages) and not prompt.is_turn


def _prompt(number: int, given: Any) -> FilePrompt | None:
    """The prompt of an entry; None for a conversation without a word of a person."""
    if isinstance(given, UsageError):
        raise given
    if isinstance(given, str):
        return FilePrompt(number, NO_KIND, given)
    given = {"messages": given} if is_chat(given) else given
    if not isinstance(given, dict):
        raise UsageError(f"it is not an object, a text or a list of messages, but {short(given)}")
    if given.keys().isdisjoint(FIELDS):
        inner: dict[str, Any] = next((given[name] for name in INNER if isinstance(given.get(name), dict)), {})
        given = {**{name.lower(): value for name, value in given.items()}, **inner}
    kind = next((given[key] for key in KIND_KEYS if isinstance(given.get(key), str) and given[key]), NO_KIND)
    names = [key for key in FIELDS if key in given]
    key = next((key for key in names if given[key] is not None), names[0] if names else None)
    if key is None:
        raise UsageError(f"it has none of {', '.join(FIELDS)}, but: {', '.join(map(short, given)) or 'nothing'}")
    if key == "messages" or (key not in LISTS and is_chat(given[key])):
        messages = _messages(given[key], key)
        if len(messages) == 1 or any(role not in PERSON for role, _ in messages):
            return FilePrompt(number, kind, messages[-1][1], messages)
    elif key not in LISTS and not isinstance(given[key], list):
        return FilePrompt(number, kind, _with_detail(given) if key == "instruction" else given[key])
    turn = _first_turn(given[key], key)
    if isinstance(turn, str) and turn.startswith(PLACEHOLDER):
        raise UsageError("it is a placeholder of SPEED-Bench, whose prepare_data.py fetches the prompt itself")
    if key in OPEN and (turn is None or turn == ""):
        return None
    return FilePrompt(number, kind, turn, (("user", turn),), is_turn=True)


def _with_detail(given: dict[str, Any]) -> Any:
    """An instruction, and below it what it is about."""
    text = given["instruction"]
    detail = next((given[key] for key in DETAIL_KEYS if isinstance(given.get(key), str) and given[key]), "")
    return f"{text}\n\n{detail}" if detail and isinstance(text, str) else text


def _first_turn(turns: Any, key: str) -> Any:
    """What a person says first in a list of texts, or of objects with `role` and `content`, or with ShareGPT's `from`
    and `value`, or AIPerf's `text`; None if nobody does."""
    if not isinstance(turns, list) or not all(isinstance(turn, (str, dict)) for turn in turns):
        raise UsageError(f"{key} must be a list of texts or of objects with role and content, not {short(turns)}")
    said = (
        turn if isinstance(turn, str) else _content(turn)
        for turn in turns
        if isinstance(turn, str) or turn.get("role", turn.get("from", PERSON[0])) in PERSON
    )
    first = next(said, None)
    if first is None and key not in OPEN:
        raise UsageError(f"{key} has no turn of a user: {short(turns)}")
    return first


def _messages(given: Any, key: str) -> tuple[tuple[str, str], ...]:
    """Role and content of each message, without the answers at the end."""
    messages = list(given) if isinstance(given, list) else []
    if not messages or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise UsageError(f"{key} must be a list, not empty, of objects with role and content, not {short(given)}")
    while messages and messages[-1]["role"] in ANSWERS:
        messages.pop()
    if not messages:
        raise UsageError(f"{key} has nothing but answers")
    return tuple((m["role"], _content(m)) for m in messages)


def _content(message: dict[str, Any]) -> Any:
    """The text of a message; of several parts, each from a new line on."""
    content = next((message[key] for key in ("content", "value", "text") if key in message), None)
    if not content and message.get("tool_calls"):
        raise UsageError("a message before the last calls tools and has no text, so it cannot be sent again")
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in WORDS or not isinstance(part.get("text"), str):
            what = part.get("type") if isinstance(part, dict) else part
            raise UsageError(f"a message has a part that is no text, but {short(what)}")
    return "\n".join(part["text"] for part in content)
