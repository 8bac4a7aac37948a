"""What can go wrong, as a visitor or an engineer should read it.

PhotofinishError                 every error this engine raises on purpose: its message is one clear sentence
+-- UsageError(ValueError)       what was asked for cannot be used: the value, the limit, the choices  (exit 2)
+-- RaceError                    it was usable and failed while running                                (exit 1)
    +-- DrafterError             a drafter raised or proposed something that is no token
    +-- UnsupportedModel         a model whose arithmetic the fixed step does not reproduce
"""


class PhotofinishError(Exception):
    """Base of all deliberate errors; `str(error)` is fit to be shown to a visitor."""


class UsageError(PhotofinishError, ValueError):
    """Unusable input. The message names the value, the limit and the choices."""


class RaceError(PhotofinishError):
    """A usable request that failed while it ran."""


class DrafterError(RaceError):
    """A drafter broke its contract. Fails its lane only; tokens already committed stand."""


class UnsupportedModel(RaceError):
    """The model needs something the fixed step would have to ignore; it is refused instead."""


def in_a_line(error: BaseException) -> str:
    """Of an error that is not ours its kind and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def choices(what: str, value: object, options) -> UsageError:
    """`unknown drafter 'x'; choose one of: none, ngram` for any table of names."""
    return UsageError(f"unknown {what} {value!r}; choose one of: {', '.join(sorted(map(str, options)))}")
