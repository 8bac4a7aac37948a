"""A streamed answer: the contents of each event, checked, and when it was read. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..core.errors import RaceError

T = TypeVar("T")
DONE = "[DONE]"
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_TOKENS_OVER = 1000  # a server that sends this many tokens too many is cut off
MAX_ID = 2**31 - 1
PROMPT_IDS = "prompt_token_ids"
# Fields of a chat's thinking: of vLLM since January 2026 (vllm#33402), Ollama and OpenRouter; and of older vLLM, SGLang
# and llama.cpp. mlx-vlm sends the same text in both.
THINKING = ("reasoning", "reasoning_content")
FIELDS = ("text", "content", *THINKING)  # where the text of an answer is looked for


def find(kind: type[T], value: Any, *path: str | int) -> T | None:
    """What a server's JSON has at this path; None unless it is there and of this type."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value if type(value) is kind else None


class Events:
    """Server-sent events from the bytes of a stream, cut anywhere: `feed` takes bytes and returns the data of every
    complete event. Reads what OpenAI's servers use of https://html.spec.whatwg.org/multipage/server-sent-events.html:
    `data`, and lines that end in LF or CR LF; comments and other fields are skipped. Raises RaceError for an event of
    more than MAX_EVENT_BYTES and for one that is not UTF-8."""

    def __init__(self) -> None:
        self._rest, self._data, self._num_bytes = b"", list[bytes](), 0

    def feed(self, received: bytes) -> list[str]:
        events = []
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            if (data := self._line(line.removesuffix(b"\r"))) is not None:
                events.append(data)
        if self._num_bytes + len(self._rest) > MAX_EVENT_BYTES:
            raise RaceError(f"the server sent an event of more than {MAX_EVENT_BYTES // 1024**2} MB")
        return events

    def _line(self, line: bytes) -> str | None:
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            self._data.append(value)
            self._num_bytes += len(value)
            return None
        if line or not self._data:
            return None
        data, self._data, self._num_bytes = b"\n".join(self._data), [], 0
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RaceError(f"the server sent an event that is not UTF-8 text (byte {error.start})") from error


@dataclass(frozen=True)
class Chunk:
    """One event with new text or tokens. at_s: when it was read, seconds since the request was sent. num_tokens: of the
    answer so far, by the server's running count or its token ids; None if it sends neither."""

    at_s: float
    text: str
    token_ids: tuple[int, ...]
    num_tokens: int | None


@dataclass(frozen=True)
class Drafted:
    """A server's report on its speculative decoding for one answer. accepted, drafted: by verification step, if
    available; sums always."""

    num_accepted: int
    num_drafted: int
    num_steps: int | None = None
    accepted: tuple[int, ...] = ()
    drafted: tuple[int, ...] = ()


@dataclass
class Reply:
    """An answer.

    num_tokens, num_prompt_tokens: by the server's usage; None before its last event, and if it sends none.
    ended_s: when the stream ended.
    finish_reason: the server's.
    prompt_ids: the prompt's tokens, if the server sends them.
    """

    chunks: list[Chunk] = field(default_factory=list)
    num_prompt_tokens: int | None = None
    num_tokens: int | None = None
    finish_reason: str | None = None
    prompt_ids: tuple[int, ...] = ()
    drafted: Drafted | None = None
    ended_s: float | None = None

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """All tokens, if the server sent every one of them."""
        ids = tuple(token for chunk in self.chunks for token in chunk.token_ids)
        return ids if ids and len(ids) == (self.num_tokens or len(ids)) else None

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def textless(self) -> str:
        """A clause on an answer whose tokens are counted although no text came; "" for any other."""
        if not self.num_tokens or self.text:
            return ""
        tokens = f"{self.num_tokens} token{'s' * (self.num_tokens != 1)}"
        return f"it counts {tokens}, but no text came (it was looked for in {', '.join(FIELDS)})"


class Reader:
    """Builds a Reply from the data of a stream's events. max_tokens: the request's limit. Raises RaceError, saying what
    is wrong, for anything that is not an answer."""

    def __init__(self, max_tokens: int) -> None:
        self.reply = Reply()
        self._max_tokens, self._num_ids, self.done = max_tokens, 0, False

    def take(self, data: str, at_s: float) -> Chunk | None:
        """The new text of an event, or None."""
        if data.strip() == DONE:
            self.done = True
            return None
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RaceError(f"the server sent an event of {len(data)} characters that is not JSON") from error
        if not isinstance(event, dict):
            raise RaceError(f"the server sent an event of {len(data)} characters that is no JSON object")
        if event.get("error"):
            raise RaceError(f"the server ended the stream with an error: {said_in(event) or 'it does not say which'}")
        choice = _first(event.get("choices"))
        running = self._usage(event)
        self._drafted(event)
        if choice is None:
            return None
        self.reply.prompt_ids = self.reply.prompt_ids or _ids(choice, PROMPT_IDS) or _ids(event, PROMPT_IDS)
        if isinstance(reason := choice.get("finish_reason"), str):
            self.reply.finish_reason = reason
        delta, ids = find(dict, choice, "delta"), _ids(choice)
        text = text_in(choice if delta is None else delta)
        self._num_ids += len(ids)
        if not text and not ids:
            return None
        num_tokens = self._num_ids if ids else running
        if (num_tokens or len(self.reply.chunks)) > self._max_tokens + MAX_TOKENS_OVER:
            raise RaceError(f"the server sent over {MAX_TOKENS_OVER} tokens more than the {self._max_tokens} requested")
        chunk = Chunk(at_s, text, ids, num_tokens)
        self.reply.chunks.append(chunk)
        return chunk

    def end(self, at_s: float) -> Reply:
        """The whole answer, once the stream has ended. Raises RaceError if it broke off, or contradicts itself."""
        reply = self.reply
        reply.ended_s = at_s
        if reply.finish_reason is None and not self.done:
            raise RaceError(f"the server broke off after {len(reply.chunks)} events, without an end")
        if reply.num_tokens is None and self._num_ids:
            reply.num_tokens = self._num_ids
        if reply.num_tokens is None:
            raise RaceError("the server says neither usage nor token ids, so its tokens cannot be counted")
        if reply.num_tokens > self._max_tokens:
            raise RaceError(f"the server sent {reply.num_tokens} tokens, not the requested {self._max_tokens}")
        if self._num_ids and self._num_ids != reply.num_tokens:
            raise RaceError(f"the server sent {self._num_ids} token ids and counts {reply.num_tokens} tokens in usage")
        return reply

    def _usage(self, event: dict[str, Any]) -> int | None:
        """The running count of tokens, if the event has one; the last one is the answer's."""
        if (usage := find(dict, event, "usage")) is not None:
            self.reply.num_prompt_tokens = _count(usage, "prompt_tokens")
            self.reply.num_tokens = _count(usage, "completion_tokens")
            return self.reply.num_tokens
        if (timings := find(dict, event, "timings")) and "predicted_n" in timings:
            return _count(timings, "predicted_n")
        return None

    def _drafted(self, event: dict[str, Any]) -> None:
        timings, counts = find(dict, event, "timings"), find(dict, event, "metrics", "speculative_decoding")
        if find(list, counts, "per_step_accepted") is not None and counts is not None:
            by_step = _counts(counts, "per_step_accepted"), _counts(counts, "per_step_drafted")
            if len(by_step[0]) != len(by_step[1]) or any(a > d for a, d in zip(*by_step, strict=False)):
                raise RaceError("the server's lists of accepted and drafted tokens contradict each other")
            self.reply.drafted = Drafted(sum(by_step[0]), sum(by_step[1]), len(by_step[0]), *by_step)
        elif counts is not None:
            accepted, drafted = _count(counts, "num_accepted_draft_tokens"), _count(counts, "num_draft_tokens")
            self.reply.drafted = Drafted(accepted, drafted, _count(counts, "num_spec_steps"))
        elif timings and "draft_n" in timings:
            self.reply.drafted = Drafted(_count(timings, "draft_n_accepted"), _count(timings, "draft_n"))


def said_in(event: Any) -> str:
    """A server's error message, in a line; "" if it has none. It may contain secrets: hide them before shortening
    it."""
    error = event.get("error", event) if isinstance(event, dict) else event
    words = error.get("message") if isinstance(error, dict) else error
    return " ".join(words.split()) if isinstance(words, str) else ""


def _first(choices: Any) -> dict[str, Any] | None:
    if choices is None or choices == []:
        return None
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise RaceError("the server's choices are not a list of objects")
    return choices[0]


def text_in(holder: dict[str, Any]) -> str:
    """The text of a delta, of a message, or of a completion's choice: its thinking, then its answer. Raises
    RaceError."""
    parts = [holder.get(name) for name in (*THINKING, "text" if "text" in holder else "content")]
    if any(part is not None and not isinstance(part, str) for part in parts):
        raise RaceError("the server sent a text that is not a string")
    text = (parts[0] or parts[1] or "") + (parts[2] or "")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise RaceError("the server sent half a character (a lone surrogate)")
    return text


def _ids(choice: dict[str, Any], name: str = "token_ids") -> tuple[int, ...]:
    ids = choice.get(name)
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token <= MAX_ID for token in ids):
        raise RaceError(f"the server's {name} are not a list of integers from 0 on")
    return tuple(ids)


def _count(holder: dict[str, Any], name: str) -> int:
    value = holder.get(name)
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise RaceError(f"the server's {name} is no count from 0 to {MAX_ID}")
    return value


def _counts(holder: dict[str, Any], name: str) -> tuple[int, ...]:
    value = holder.get(name)
    if not isinstance(value, list) or not all(type(count) is int and 0 <= count <= MAX_ID for count in value):
        raise RaceError(f"the server's {name} is not a list of counts")
    return tuple(value)
