"""Limits of the page, stricter than the engine's: other visitors wait for the same device, and json.loads keeps the
interpreter lock. An operator's file can lower them further."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.core.errors import UsageError, choices
from engine.core.values import FLAG, Shape, integer, number
from engine.strict_json import check_quick, decoded

MAX_PROMPT_CHARS = 20_000
MAX_NEW_TOKENS = 1_000
MAX_MORE_LANES = 3  # lanes with guesses, besides the first one
PER_VISITOR = 3  # one race running and two waiting
# A client chooses its visitor name, but not its address. Room for four visitors, because people behind a router share
# one.
PER_ADDRESS = 12
# Limits for a file of prompts and for a recording. The longest race of this page, audited and with all extras, has 4.5
# million.
MAX_FILE_CHARS, MAX_RECORDING_CHARS = 3_000_000, 5_000_000
MAX_FILE_LINES = 20_000  # limit for a file of prompts
MAX_BODY_BYTES = 10_000_000  # limit for a request with such a file
MAX_CALL_BYTES = 300_000  # limit for a request without one: the longest prompt, with every character escaped

# What an operator may choose. More tokens would make files and requests that exceed the limits above; more races, the
# limit on open requests in app/page/gate.py.
CHOICES: Mapping[str, Shape] = {
    "pairs": Shape(
        'a text: "all", "loaded" or ids of pairs with commas', lambda value: isinstance(value, str) and value != ""
    ),
    "max_new_tokens": integer(16, MAX_NEW_TOKENS),
    "races_per_address": integer(1, 40),
    "race_s": number(1, 86_400),
    "studies": FLAG,
}


@dataclass(frozen=True)
class Limits:
    """What visitors may load and ask for, and what that may cost.

    pairs: see `catalogue.load`; "": all where the page is its owner's, else those of the loaded weights.
    max_new_tokens: of each lane, also in studies.
    races_per_address: running and waiting ones, studies included.
    race_s: seconds that a race, a check-up, or a prompt of a study may keep the device; then it is ended.
    studies: whether visitors may study and check up on their own prompts."""

    pairs: str = ""
    max_new_tokens: int = MAX_NEW_TOKENS
    races_per_address: int = PER_ADDRESS
    race_s: float = math.inf
    studies: bool = True

    @property
    def length(self) -> Shape:
        """What a visitor may choose as max_new_tokens."""
        most = self.max_new_tokens
        return integer(1, most, wanted=f"an integer from 1 to {most} on this page")


def read_limits(path: str) -> Limits:
    """The limits in a TOML file; keys that it leaves out keep their defaults. Raises UsageError with the key, the value
    and the choices."""
    try:
        given = tomllib.loads(decoded(Path(path).read_bytes()))
    except OSError as error:
        raise UsageError(f"cannot read the limits: {error.strerror}: {path}") from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise UsageError(f"{path} is not TOML: {error}") from error
    for name, value in given.items():
        if name not in CHOICES:
            raise choices("key", name, CHOICES)
        CHOICES[name].check(name, value)
    return Limits(**given)


def check_file(text: object, what: str, max_chars: int = MAX_FILE_CHARS) -> str:
    """The text of a file from a browser, if it is quick to parse; `what` names it in errors. Raises UsageError."""
    if not isinstance(text, str) or len(text) > max_chars:
        raise UsageError(f"{what} must be a text of at most {max_chars} characters")
    check_quick(text.encode("ascii", "replace"), max_chars, what)
    return text
