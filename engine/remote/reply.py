"""A streamed answer: the contents of each event, checked, and when it was read. Pure."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ..core.errors import RaceError
from .dialects import Drafted, drafted_in
from .fields import count, counts, find, parsed, text, words_in
from .odds import Token, tokens_in

DONE = "[DONE]"
LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)  # the last CR that was read may be the first half of an end
DATA = re.compile(rb"(?:data|error): ?|(?=\{)")  # how lines with data begin
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_TOKENS_OVER = 1000  # a server that sends this many tokens too many is cut off
# Fields of a chat's thinking: of vLLM since January 2026 (vllm#33402), Ollama and OpenRouter; of older vLLM, SGLang and
# llama.cpp; and of others. mlx-vlm sends the same text in two of them.
THINKING = ("reasoning", "reasoning_content", "thinking")
DETAILS = "reasoning_details"  # MiniMax's and OpenRouter's: a list of parts
ANSWER = ("content", "text", "refusal")
FIELDS = ("text", "content", *THINKING, DETAILS, "refusal")  # where the text of an answer is looked for
# Reasons for an answer's end, of servers and of those whose answers a gateway passes on, in small letters -> ours. With
# any other one, such as abort, it is not a whole answer.
ENDS: dict[str, str] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "complete", "repetition"), "stop"),  # the last is vLLM's
    **dict.fromkeys(("tool_calls", "tool_use", "function_call"), "stop"),
    **dict.fromkeys(("stop_sequence", "stop_string"), "stop_string"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
}
USAGE = ("completion_tokens", "output_tokens"), ("prompt_tokens", "input_tokens")  # the second ones are mlx-vlm's
MIN_PIECES = 4  # of an answer; with fewer, that all were read at one moment says nothing of a proxy
# Characters of a last piece that is taken for the whole text again; a shorter one may be a step of a text that loops.
MIN_AGAIN = 40
RESTATED = "each piece of the server's answer repeats the whole text before it, where only new text belongs"
UNCOUNTED = "it counts its tokens only at an answer's end"
# Two pieces came at one moment if the time between them is this short, in seconds, and this share of the mean; all did
# if the mean is as short and all together take this share of the wait.
AT_ONCE_S, OF_MEAN, OF_WAIT = 0.0008, 0.1, 0.1
# Hidden thinking delays the first text by at least this share of the time that it takes at the answer's speed.
OF_THINKING = 1 / 3
CLUMPED = "the first {} pieces came at one moment, so the very first may have waited: a proxy may collect them"
BUFFERED = (
    "all pieces came at one moment, so their times say nothing: the server, or a proxy in front of it, collects them "
    "(nginx: proxy_buffering off, gzip off), or is faster than can be timed"
)


class Events:
    """Server-sent events from the bytes of a stream, cut anywhere: `feed` takes bytes and returns the data of every
    complete event. Reads what OpenAI's servers use of https://html.spec.whatwg.org/multipage/server-sent-events.html:
    `data`, and lines that end in LF, CR LF or CR; comments, other fields and events without data are skipped. What no
    server may send, some send all the same: no blank line between events of one line of JSON (GLM on Baseten,
    opencode#27365), comments as data (llm-gateway#2053), `[done]`, and, when they fail, a field `error` (llama.cpp
    until 2025) or bare JSON (Lemonade), which count as data. Raises RaceError for an event of more than MAX_EVENT_BYTES
    and for one that is not UTF-8."""

    def __init__(self) -> None:
        self._rest, self._data, self._num_bytes, self._mark = b"", list[bytes](), 0, BOM_UTF8

    def feed(self, received: bytes) -> list[str]:
        events = []
        *lines, self._rest = LINE_END.split(self._rest + received)
        for line in lines:
            line, self._mark = line.removeprefix(self._mark), b""
            events += self._line(line)
        if lines and self._rest in (b"", b"\r") and DATA.match(line) and self._is_whole:
            events += self._event()
        if self._num_bytes + len(self._rest) > MAX_EVENT_BYTES:
            raise RaceError(f"the server sent an event of more than {MAX_EVENT_BYTES // 1024**2} MB")
        return events

    def end(self) -> list[str]:
        """The last event, if it is whole but for the blank line after it, which proxies lose."""
        with suppress(RaceError):
            return [data for data in self.feed(b"\n\n") if data.upper() == DONE or parsed(data) is not None]
        return []

    @property
    def _is_whole(self) -> bool:
        """Whether the data so far is an event, although no blank line has come."""
        return len(self._data) == 1 and (self._data[0].upper() == DONE.encode() or parsed(self._data[0]) is not None)

    def _line(self, line: bytes) -> list[str]:
        """The event that ends with this line, or did before it."""
        if (begins := DATA.match(line)) is None:
            return [] if line else self._event()
        events = self._event() if self._is_whole else []
        self._data.append(line[begins.end() :])
        self._num_bytes += len(line)
        return events

    def _event(self) -> list[str]:
        """What the data so far says, if anything."""
        data, self._data, self._num_bytes = b"\n".join(self._data), [], 0
        try:
            said = data.decode("utf-8").strip()
            return [said] if said and not said.startswith(":") else []
        except UnicodeDecodeError as error:
            raise RaceError(f"the server sent an event that is not UTF-8 text (byte {error.start})") from error


@dataclass(frozen=True)
class Chunk:
    """One event with new text or tokens.

    at_s: when it was read, seconds since the request was sent.
    thinking, answer: its text; what a tool is called with belongs to the answer.
    num_tokens: of the answer so far, by the server's running count or its token ids; None if it sends neither.
    tokens: its own, if it came with their log-probabilities."""

    at_s: float
    thinking: str
    answer: str
    token_ids: tuple[int, ...]
    num_tokens: int | None
    tokens: Sequence[Token] = ()

    @property
    def text(self) -> str:
        return self.thinking + self.answer


@dataclass
class Reply:
    """An answer.

    num_tokens, num_prompt_tokens: by the server's usage; None before its last event, and if it sends none.
    ended_s: when the stream ended.
    finish_reason: a value of ENDS; None if it ended without one.
    prompt_ids: the prompt's tokens, if the server sends them.
    num_cached: tokens of the prompt that came from a cache, by its usage; None if unknown.
    num_hidden: tokens of thinking before its first text that it counts and does not show.
    """

    chunks: list[Chunk] = field(default_factory=list)
    num_prompt_tokens: int | None = None
    num_tokens: int | None = None
    finish_reason: str | None = None
    prompt_ids: tuple[int, ...] = ()
    drafted: Drafted | None = None
    ended_s: float | None = None
    num_cached: int | None = None
    num_hidden: int = 0

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """All tokens, if the server sent every one of them."""
        ids = tuple(token for chunk in self.chunks for token in chunk.token_ids)
        return ids if ids and len(ids) == (self.num_tokens or len(ids)) else None

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def thinking(self) -> str:
        return "".join(chunk.thinking for chunk in self.chunks)

    @property
    def tokens(self) -> list[Token]:
        """With log-probabilities, where they were asked for; a piece that came without any counts as one token."""
        return [token for chunk in self.chunks for token in chunk.tokens or [Token(chunk.text)]]

    @property
    def answer(self) -> str:
        """Its text without its thinking."""
        return "".join(chunk.answer for chunk in self.chunks)

    @property
    def sizes(self) -> list[int]:
        """The tokens of each piece; [] if the server does not count them."""
        counted = [chunk.num_tokens for chunk in self.chunks]
        return [] if None in counted else [b - a for a, b in pairwise([0, *counted]) if b > a]  # type: ignore[operator]

    @property
    def num_together(self) -> int:
        """How many pieces came at one moment, the first; 1 for fewer than MIN_PIECES, which say nothing of a proxy."""
        times = [chunk.at_s for chunk in self.chunks]
        if len(times) < MIN_PIECES:
            return 1
        gaps = [b - a for a, b in pairwise(times)]
        mean = sum(gaps) / len(gaps)
        is_all = mean <= AT_ONCE_S and sum(gaps) <= OF_WAIT * times[-1]
        most = min(AT_ONCE_S, OF_MEAN * mean)
        num = len(times) if is_all else next(i for i, gap in enumerate(gaps, 1) if gap > most)
        return num if num >= MIN_PIECES else 1

    @property
    def is_buffered(self) -> bool:
        """Whether all of several pieces came at one moment, so that their times say nothing."""
        return 1 < self.num_together == len(self.chunks)

    @property
    def clumped(self) -> str:
        """A clause on pieces that came together, of some or all; "" if they came one by one."""
        return BUFFERED if self.is_buffered else CLUMPED.format(num) if (num := self.num_together) > 1 else ""

    @property
    def hides_thinking(self) -> bool:
        """Whether usage counts thinking that was never sent: no text shows it, and the first text came late."""
        if not self.num_hidden or not self.chunks or self.thinking or "</think>" in self.text:
            return False
        first, last, num_shown = self.chunks[0], self.chunks[-1], (self.num_tokens or 0) - self.num_hidden
        takes_s = self.num_hidden * (last.at_s - first.at_s) / max(1, num_shown)
        return num_shown >= len(self.chunks) and first.at_s >= OF_THINKING * takes_s

    @property
    def textless(self) -> str:
        """A clause on an answer whose tokens are counted although no text came; "" for any other."""
        if not self.num_tokens or self.text:
            return ""
        tokens = f"{self.num_tokens} token{'s' * (self.num_tokens != 1)}"
        return f"it counts {tokens}, but no text came (it was looked for in {', '.join(FIELDS)})"


class Reader:
    """Builds a Reply from the data of a stream's events. max_tokens: the request's limit. A field of a wrong type
    counts as missing. Raises RaceError, saying what is wrong, for anything that is not an answer."""

    def __init__(self, max_tokens: int) -> None:
        self.reply, self.done, self._said, self._is_counted, self._is_over = Reply(), False, "", False, False
        self._max_tokens, self._num_ids, self._num_running = max_tokens, 0, 0
        self._steps = list[tuple[int, int, int]]()  # the first token, accepted and drafted ones of each verification

    @property
    def is_whole(self) -> bool:
        """Whether the answer has ended, and its tokens were counted then, though its stream may go on."""
        return self.done or (self._is_over and bool(self.reply.num_tokens))

    def take(self, data: str, at_s: float) -> Chunk | None:
        """The new text of an event, or None."""
        if data.upper() == DONE:
            self.done = True
            return None
        event = parsed(data)
        if not isinstance(event, dict):
            raise RaceError(f"the server sent an event that is no JSON object: {words_in(data)}")
        if event.get("error") or event.get("object") == "error":
            raise RaceError(f"the server ended the stream with an error: {words_in(event) or 'it does not say which'}")
        running, choice, reply = self._usage(event), find(dict, event, "choices", 0), self.reply
        before, reply.drafted = reply.drafted, drafted_in(event) or reply.drafted
        self._is_counted = choice is None and running is not None and bool(reply.chunks)
        reason = text(choice, "finish_reason")
        self._is_over |= bool(running and (reason or reply.finish_reason))
        if choice is None:
            self._said = words_in(event) or self._said
            return None
        for holder in (choice, event):
            reply.prompt_ids = reply.prompt_ids or counts(holder, "prompt_token_ids") or ()
        if reason:
            if (known := ENDS.get(reason.lower().replace("-", "_"))) is None:
                reasons = filter(None, (words_in(reason), words_in(choice)))  # the second is OpenRouter's
                raise RaceError(f"the server ended its answer for a reason of its own: {': '.join(reasons)}")
            reply.finish_reason = known
        ids = counts(choice, "token_ids") or ()
        tokens = tokens_in(choice)
        delta = find(dict, choice, "delta")
        thinking, answer = texts_in(choice if delta is None else delta)
        if reason and len(answer) >= MIN_AGAIN and len(reply.chunks) >= MIN_PIECES and answer == reply.answer:
            answer = ""  # the last piece of some is the whole answer once more
        self._num_ids += len(ids)
        counted = running is not None or ids or self._num_running
        num_tokens = max(self._num_running, self._num_ids) if running is None and counted else running
        if reply.chunks and reply.chunks[0].num_tokens is None:
            num_tokens = None  # a count that comes only at the end is not that of a piece
        is_opening = not reply.chunks and bool(text(delta, "role"))
        if not (thinking or answer or ids or tokens) and (is_opening or (num_tokens or 0) <= self._num_running):
            return None
        if (now := reply.drafted) and running and now.num_drafted and now.num_accepted is not None:
            old = (before.num_accepted or 0, before.num_drafted or 0) if before else (0, 0)
            if now.num_drafted > old[1]:  # llama.cpp's sums grow with the first token of a verification
                self._steps.append((self._num_running, now.num_accepted - old[0], now.num_drafted - old[1]))
        self._num_running = num_tokens or self._num_running
        if (num_tokens or len(reply.chunks)) > self._max_tokens + MAX_TOKENS_OVER:
            raise RaceError(f"the server sent over {MAX_TOKENS_OVER} tokens more than the {self._max_tokens} requested")
        chunk = Chunk(at_s, thinking, answer, ids, num_tokens, tokens)
        reply.chunks.append(chunk)
        return chunk

    def end(self, at_s: float) -> Reply:
        """The whole answer, once the stream has ended. Raises RaceError if it broke off, has no token, or contradicts
        itself."""
        reply = self.reply
        reply.ended_s = at_s
        if reply.finish_reason is None and (self._said or not (self.done or self._is_counted)):
            said = f": {self._said}" if self._said else ""
            raise RaceError(f"the server broke off after {len(reply.chunks)} events, without an end{said}")
        for pieces in ([chunk.thinking for chunk in reply.chunks], [chunk.answer for chunk in reply.chunks]):
            texts = list(filter(None, pieces))
            if len(texts) >= MIN_PIECES and all(a != b and b.startswith(a) for a, b in pairwise(texts)):
                raise RaceError(RESTATED)
        if reply.num_tokens is None and self._num_ids:
            reply.num_tokens = self._num_ids
        if reply.num_tokens is None:
            raise RaceError("the server says neither usage nor token ids, so its tokens cannot be counted")
        if reply.num_tokens > self._max_tokens:
            raise RaceError(f"the server sent {reply.num_tokens} tokens, not the requested {self._max_tokens}")
        if self._num_ids > reply.num_tokens:
            raise RaceError(f"the server sent {self._num_ids} token ids and counts {reply.num_tokens} tokens in usage")
        if not reply.num_tokens:
            raise RaceError("the server's answer has no token" + ", by its usage, but text" * bool(reply.text))
        reply.num_hidden *= reply.hides_thinking
        reply.drafted = (drafted := reply.drafted) and drafted.of(reply.num_tokens)
        if drafted and not drafted.accepted and len(self._steps) > 1:
            starts, accepted, proposed = zip(*self._steps, strict=True)
            if (sum(accepted), sum(proposed)) == (drafted.num_accepted, drafted.num_drafted) and min(accepted) >= 0:
                reply.drafted = Drafted(sum(accepted), sum(proposed), len(starts), accepted, proposed, starts)
        return reply

    def _usage(self, event: dict[str, Any]) -> int | None:
        """The running count of tokens, if the event has one; the last one is the answer's. A count of 0 says nothing:
        some send it until, or after, they count."""
        places = ("usage",), ("choices", 0, "usage"), ("x_groq", "usage")  # the second is Moonshot's
        usage = next(filter(None, (find(dict, event, *place) for place in places)), None)
        num, num_prompt = (
            next((num for name in names if (num := count(usage, name)) is not None), None) for names in USAGE
        )
        if num is not None and (num or not self.reply.num_tokens):
            self.reply.num_tokens, self.reply.num_prompt_tokens = num, num_prompt
            self.reply.num_cached = count(usage, "prompt_tokens_details", "cached_tokens")
            details = find(dict, usage, "completion_tokens_details") or usage  # SGLang has no details
            self.reply.num_hidden = count(details, "reasoning_tokens") or 0
        return num or count(event, "timings", "predicted_n")


def texts_in(holder: dict[str, Any]) -> tuple[str, str]:
    """The thinking and the answer of a delta, of a message, or of a completion's choice."""
    thinking = next((said for name in THINKING if (said := text(holder, name))), "")
    thinking = thinking or "".join(text(part, "text") for part in find(list, holder, DETAILS) or ())
    parts = find(list, holder, "content")
    if parts is None:
        return thinking, "".join(text(holder, name) for name in ANSWER) + "".join(_calls(holder))
    for part in parts:  # Mistral's
        inner = find(list, part, "thinking")
        thinking += text(part, "thinking") + "".join(text(piece, "text") for piece in inner or ())
    return thinking, "".join(text(part, "text") for part in parts) + "".join(_calls(holder))


def _calls(holder: dict[str, Any]) -> Iterator[str]:
    old = find(dict, holder, "function_call")
    for call in [*(find(list, holder, "tool_calls") or ()), {"function": old}]:
        yield text(call, "function", "name") + text(call, "function", "arguments")
