"""Limits of the page, stricter than the engine's: other visitors wait for the same device, and json.loads keeps the
interpreter lock."""

from __future__ import annotations

from engine.errors import UsageError

MAX_PROMPT_CHARS = 20_000
MAX_NEW_TOKENS = 1_000
MAX_MORE_LANES = 3
"""Lanes with guesses, besides the first one."""
MAX_FILE_CHARS, MAX_RECORDING_CHARS = 3_000_000, 5_000_000
"""Limits for a file of prompts and for a recording. The longest race of this page, audited and with all extras, has 4.5
million."""
MAX_FILE_BRACKETS, MAX_FILE_QUOTES = 150_000, 500_000
"""In such a file. That race has 119,000 and 337,000."""
MAX_FILE_LINES = 20_000
"""Limit for a file of prompts."""
MAX_BODY_BYTES = 10_000_000
"""Limit for a request with such a file."""
MAX_CALL_BYTES = 300_000
"""Limit for a request without one: the longest prompt, with every character escaped."""


def check_file(text: object, what: str, max_chars: int = MAX_FILE_CHARS) -> str:
    """The text of a file from a browser, if it is quick to parse; `what` names it in errors. Raises UsageError."""
    if not isinstance(text, str) or len(text) > max_chars:
        raise UsageError(f"{what} must be a text of at most {max_chars} characters")
    brackets, quotes = text.count("[") + text.count("{"), text.count('"')
    if brackets > MAX_FILE_BRACKETS or quotes > MAX_FILE_QUOTES:
        raise UsageError(
            f"{what} has {brackets} brackets and {quotes} quotes; at most {MAX_FILE_BRACKETS} and {MAX_FILE_QUOTES} "
            "can be read here"
        )
    return text
