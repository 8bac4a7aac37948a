"""Text into tokens and back: prompts, pieces that handle split characters, and where a completion ends. No torch."""

import codecs
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .core.errors import TemplateError, UsageError
from .core.events import Prompt
from .core.spec import SamplingParams

MAX_PROMPT_CHARS = 200_000
STDIN = "-"
PENALTIES = ("repetition_penalty", "no_repeat_ngram_size", "suppress_tokens", "bad_words_ids")
CONTEXT_TOKENS = 4  # tokens of the prompt that can affect the first piece: a character has at most four bytes
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_REPLACEMENT = "\ufffd"
_PRINTED = "photofinishprinted"  # found where a template prints a list of parts instead of reading it
# A template's name for whether to think: Qwen's and most others'; DeepSeek's, Granite's and Kimi's.
THINKING = ("enable_thinking", "thinking")
ANSWERS = ("assistant", "gpt", "model")  # roles of the model


def check_prompt_text(text: str) -> None:
    """Raises UsageError for a prompt that is not text, is empty or too long, or holds a NUL character or lone
    surrogate."""
    if not isinstance(text, str):
        raise UsageError(f"the prompt must be text, not {type(text).__name__}")
    if not text:
        raise UsageError("the prompt is empty; type something first")
    if len(text) > MAX_PROMPT_CHARS:
        raise UsageError(f"the prompt has {len(text)} characters; at most {MAX_PROMPT_CHARS} are allowed")
    if (place := text.find("\0")) >= 0:
        raise UsageError(f"the prompt has a NUL character at position {place}; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the prompt has a lone surrogate, U+{ord(text[error.start]):04X}, at position {error.start}, which is "
            "no character"
        ) from error


def read_bytes(path: str, max_bytes: int, name: str = "it") -> bytes:
    """The content of a file; "-" is stdin. name: what an error calls it. Raises UsageError."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(max_bytes + 1)
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > max_bytes:
        raise UsageError(f"{name} is larger than {max_bytes // 1024**2} MB")
    return data


def encode_prompt(tokenizer: Any, text: str, chat: bool = False, thinking: bool | None = None) -> Prompt:
    """The prompt as the target sees it.

    tokenizer: the target's.
    text: passed to the tokenizer unchanged, never stripped; special tokens are added as the tokenizer does.
    chat: put the text into the model's chat template as one user message; the template brings the special tokens.
    thinking: with `chat`, see `encode_messages`.

    Raises UsageError for unusable text, and with `chat` if the model has no template; TemplateError if the template
    fails, or leaves the text out."""
    check_prompt_text(text)
    if chat:
        return encode_messages(tokenizer, [{"role": "user", "content": text}], thinking)
    return _prompt(text, tokenizer(text, verbose=False)["input_ids"], False)


def encode_messages(tokenizer: Any, messages: Sequence[dict[str, str]], thinking: bool | None = None) -> Prompt:
    """A conversation, each message with `role` and `content`, in the model's chat template; the prompt's text is the
    last message's. thinking: the value of the template's THINKING, None for its default. Raises UsageError like
    `encode_prompt`, and for a template that has no such switch."""
    if thinking is not None and not thinks_by_choice(tokenizer):
        raise UsageError(f"this model's chat template has no switch for thinking ({' or '.join(THINKING)})")
    ids = tokenizer(_in_template(tokenizer, messages, thinking), add_special_tokens=False, verbose=False)["input_ids"]
    return _prompt(messages[-1]["content"], ids, True)


def thinks_by_choice(tokenizer: Any) -> bool:
    """Whether the model's chat template writes other prompts with thinking than without. Raises as `encode_prompt`."""
    on, off = (_in_template(tokenizer, [{"role": "user", "content": "a"}], thinking) for thinking in (True, False))
    return on != off


def _prompt(text: str, token_ids: Sequence[int], chat: bool) -> Prompt:
    if not token_ids:
        raise UsageError(f"the prompt {text[:40]!r} gives no token in this model's vocabulary")
    return Prompt(text, tuple(token_ids), chat)


def doubled_bos(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """A note on a prompt that begins with two BOS tokens, such as a text copied from a server's log; "" for others."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None or list(token_ids[:2]) != [bos, bos]:
        return ""
    return f"the prompt begins with {tokenizer.bos_token} twice: the tokenizer adds it, so leave it out of the text"


def _in_template(tokenizer: Any, messages: Sequence[Mapping[str, str]], thinking: bool | None) -> str:
    """The messages as the template writes them. Templates of models that also see pictures may read lists of parts
    alone, and lose a text without a word; like servers, this tries both."""
    if not (template := getattr(tokenizer, "chat_template", None)):
        raise UsageError(
            "this model has no chat template; send the prompt without one, or choose a model tuned to chat"
        )
    options = {} if thinking is None else dict.fromkeys(THINKING, thinking)

    def written(contents: Sequence[Any]) -> str:
        chat = [{**message, "content": content} for message, content in zip(messages, contents, strict=True)]
        return tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **options)

    # Words before and after each text: a template may strip, escape or capitalise, but these words survive it.
    marks = [(f"photofinish{i}begins", f"photofinish{i}ends") for i in range(len(messages))]
    texts = [message["content"] for message in messages]
    faults: list[tuple[str, Exception | None]] = []
    for form in (lambda text, **_: text, lambda text, **more: [{"type": "text", "text": text, **more}]):
        try:
            marked = zip(texts, marks, strict=True)
            probe = written([form(f"{a} {text} {b}", more=_PRINTED) for text, (a, b) in marked]).casefold()
            whole = written([form(text) for text in texts])
        except Exception as error:  # a template is a program by the model's author: it can fail in any way
            faults.append((f"does not work for these messages: {error}", error))
            continue
        roles = (m["role"] for m, ends in zip(messages, marks, strict=True) if not all(end in probe for end in ends))
        # a template may shorten the model's own earlier answers, for instance by what it thought
        lost = next((role for role in roles if role not in ANSWERS), None)
        if lost is None and _PRINTED not in probe:
            return whole
        faults.append((f"leaves out what the message of role {lost!r} says", None))
    name = " 'default'" if isinstance(template, dict) else ""
    raise TemplateError(f"this model's chat template{name} {faults[0][0]}") from faults[0][1]


def end_token_ids(model_config: Any, generation_config: Any, tokenizer: Any) -> frozenset[int]:
    """Every end-of-sequence token id of the model, its generation settings or its tokenizer."""
    end_ids: set[int] = set()
    for source in (model_config, getattr(model_config, "text_config", None), generation_config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        end_ids.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(int(i) for i in end_ids)


def unapplied(generation_config: Any) -> str:
    """The penalties of a model's generation_config.json, which no lane applies, in a clause; "" without any."""
    given = {name: getattr(generation_config, name, None) for name in PENALTIES}
    named = [f"{name} {value}" if isinstance(value, int | float) else name for name, value in given.items()
             if value and value != 1]  # fmt: skip
    return (
        f"penalties of the model's generation_config.json ({', '.join(named)}) are not applied here: a server may "
        "apply them by default, and then accept other guesses"
    ) * bool(named)


class Pieces:
    """Token ids into pieces of text, one per token, in constant work per token.

    Each token stands for some bytes, whatever its neighbours are, and bytes go through an incremental UTF-8 decoder: a
    token whose bytes leave a character incomplete gives "", and the token that completes it gives the character. All
    pieces and `flush()` joined are the completion's text: `tokenizer.decode(prompt + completion)` without its prefix
    `decode(prompt)`. One difference, with byte tokens like <0xE2> only: a complete character stays, where `decode`
    takes back a run of them if any byte of the run is invalid.

    hidden_ids: tokens that give "" (end tokens)."""

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int], hidden_ids: frozenset[int] = frozenset()) -> None:
        self._vocabulary = _TokenBytes(tokenizer)
        self._hidden = hidden_ids
        self._utf8 = codecs.getincrementaldecoder("utf-8")(self._vocabulary.invalid)
        self.push(prompt_ids[-CONTEXT_TOKENS:])

    def push(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        """One piece for each of these newly committed tokens."""
        return tuple("" if t in self._hidden else self._utf8.decode(self._vocabulary[t]) for t in token_ids)

    def peek(self, token_ids: Sequence[int], follows: Sequence[int] = ()) -> tuple[str, ...]:
        """The pieces that `push` would return for these tokens, without committing them. follows: the row that each one
        follows (see `core/spec.py`), if they are a tree; a piece then depends on the tokens of its own path."""
        pieces: list[str] = []
        states = [self._utf8.getstate()]
        for row, token in zip(follows or range(len(token_ids)), token_ids, strict=True):
            self._utf8.setstate(states[row])
            pieces += self.push((token,))
            states.append(self._utf8.getstate())
        self._utf8.setstate(states[0])
        return tuple(pieces)

    def flush(self) -> str:
        """The end of the text: incomplete bytes as U+FFFD, or ""."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


class _TokenBytes(dict[int, bytes]):
    """token id -> the bytes it stands for inside a text. Byte-level vocabularies spell bytes as GPT-2's table does;
    sentencepiece has tokens <0x00> to <0xFF>; other tokens stand for the text by which they lengthen another's (decoded
    alone, some would lose their leading space). `invalid` names the decoder's error handler for invalid bytes."""

    def __init__(self, tokenizer: Any) -> None:
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        super().__init__()
        self._tokenizer = tokenizer
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        parts = b"" if decoder is None else decoder.__getstate__()  # JSON, as in the tokenizer's file
        spelling = {character: byte for byte, character in bytes_to_unicode().items()}
        self._spelling = spelling if b'"ByteLevel"' in parts else None
        self._byte_tokens = b'"ByteFallback"' in parts or decoder is None
        self.invalid = "replace" if self._spelling else EACH_BYTE
        self._anchor = tokenizer("a", add_special_tokens=False, verbose=False)["input_ids"][-1:]
        self._anchor_text = self._decode(self._anchor)

    def __missing__(self, token_id: int) -> bytes:
        value = self[token_id] = self._work_out(token_id)
        return value

    def _work_out(self, token_id: int) -> bytes:
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:  # a padded vocabulary: the model has more rows than its tokenizer has words
            return b""
        if self._spelling:
            try:
                return bytes(self._spelling[character] for character in token)
            except KeyError:
                return token.encode()
        if self._byte_tokens and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes.fromhex(match[1])
        text = self._decode([*self._anchor, token_id])
        return (
            text.removeprefix(self._anchor_text) if text.startswith(self._anchor_text) else self._decode([token_id])
        ).encode()

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _REPLACEMENT * (error.end - error.start), error.end


# Error handler: every invalid byte is one U+FFFD, as for ByteFallback ("replace": one per broken character).
EACH_BYTE = "photofinish.each_byte"
codecs.register_error(EACH_BYTE, _each_byte)


class StopAt:
    """Ends a completion at an end token (kept), at the token that completes a stop string (kept) or at the length
    limit, whichever comes first. State is kept per token, so a completion ends at the same one however steps are cut.

    pieces: only needed for stop strings; used by no one else."""

    def __init__(self, params: SamplingParams, end_ids: frozenset[int], pieces: Pieces | None) -> None:
        if params.stop and pieces is None:
            raise ValueError("stop strings need pieces to be looked for in")
        self._params, self._end_ids, self._pieces = params, end_ids, pieces
        self._tail = ""
        self._num_tokens = 0
        self.reason: str | None = None  # why the completion ended, or None

    def cut(self, token_ids: Sequence[int]) -> tuple[int, str | None]:
        """How many of these newly committed tokens count, and "stop", "stop_string" or "length" if the completion ends
        with the last of them. After the end none counts."""
        if self.reason is not None:
            return 0, self.reason
        for count, token in enumerate(token_ids, 1):
            self._num_tokens += 1
            if token in self._end_ids:
                self.reason = "stop"
            elif self._completes_a_stop(token):
                self.reason = "stop_string"
            elif self._num_tokens >= self._params.max_new_tokens:
                self.reason = "length"
            if self.reason is not None:
                return count, self.reason
        return len(token_ids), None

    def _completes_a_stop(self, token: int) -> bool:
        if not self._params.stop or self._pieces is None:
            return False
        (piece,) = self._pieces.push((token,))
        text = self._tail + piece
        self._tail = text[max(0, len(text) - max(map(len, self._params.stop)) + 1) :]
        return any(s in text for s in self._params.stop)
