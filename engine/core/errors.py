"""What can go wrong, as a visitor or an engineer should read it.

PhotofinishError                 every error this engine raises on purpose: its message is one clear sentence
+-- UsageError(ValueError)       unusable input: the value, the limit, the choices                      (exit 2)
|   +-- TemplateError            messages that the model's chat template cannot take
+-- RaceError                    a usable request that failed while running                             (exit 1)
    +-- DrafterError             a drafter raised, or proposed no valid draft
    +-- CaptureError             a fixed call that could not be captured as a graph
    +-- UnsupportedModel         a model whose arithmetic the fixed step does not reproduce
"""

from collections.abc import Iterator

# Found in the messages of torch, its CPU allocator and CUDA's libraries, not all of which have an error class for it.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
NO_MEMORY = "there is not enough memory for this; choose a smaller model, fewer new tokens or a smaller k"

NAN = "the model's logits are not numbers (NaN)"
NOT_NUMBERS = f"{NAN}; choose dtype float32"  # the message of a RaceError, wherever a token is chosen


class PhotofinishError(Exception):
    """Base of all deliberate errors; `str(error)` can be shown to a visitor."""


class UsageError(PhotofinishError, ValueError):
    """Unusable input. The message names the value, the limit and the choices."""


class TemplateError(UsageError):
    """The model's chat template fails for these messages, or leaves one out; it may work for others."""


class RaceError(PhotofinishError):
    """A usable request that failed while it ran."""


class DrafterError(RaceError):
    """A drafter broke its contract. Fails its lane only; tokens already committed stand."""


class CaptureError(RaceError):
    """A fixed call could not be captured as a graph. Run directly it may work: see `Kernels.lower`."""


class UnsupportedModel(RaceError):
    """The model needs something that the fixed step would ignore; it is refused instead."""


def in_a_line(error: BaseException) -> str:
    """Type and first line of a third-party error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def words(error: BaseException) -> str:
    """A deliberate error's own sentence; `in_a_line` of any other."""
    return str(error) if isinstance(error, PhotofinishError) else in_a_line(error)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, its cause or context, and so on."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory (Python's, the CPU's or the GPU's) ran out in this error or one of its causes."""
    return any(
        isinstance(cause, MemoryError)
        or (isinstance(cause, RuntimeError) and any(words in str(cause) for words in OUT_OF_MEMORY))
        for cause in causes(error)
    )


def choices(what: str, value: object, options) -> UsageError:
    """`unknown drafter 'x'; choose one of: none, ngram`, for any table of names."""
    return UsageError(f"unknown {what} {short(value)}; choose one of: {', '.join(sorted(map(str, options)))}")


def kind(value: object) -> str:
    """The value's JSON type, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def short(value: object) -> str:
    """A value for an error message: one line, at most 80 characters."""
    if isinstance(value, (dict, list)):
        return kind(value)
    return repr(value[:60] if isinstance(value, str) else value)[:80]


def sentence(text: str) -> str:
    """The same text with a capital letter first and a full stop last."""
    text = text.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")
