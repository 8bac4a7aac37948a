"""Log-probabilities of an answer's tokens, as their server reports them. Read are vLLM's and SGLang's older form of
/completions and OpenAI's form of /chat/completions, which llama.cpp uses for both. Pure."""

from dataclasses import dataclass
from typing import Any

from .fields import find, number, text

ABOVE = 1e-3  # of a log-probability above 0, by rounding
PART = "\ufffd"  # what part of a character is called, whichever part it is


@dataclass(frozen=True)
class Token:
    """A token of an answer.

    logprob: None if unknown: llama.cpp reports 0 for what it drafted, without the likeliest ones.
    likeliest: the names of the likeliest tokens at its place, with their log-probabilities, in order; () if unknown, or
        if names are ambiguous there."""

    name: str
    logprob: float | None = None
    likeliest: tuple[tuple[str, float], ...] = ()


def tokens_in(choice: Any) -> list[Token]:
    """The tokens of a choice with log-probabilities; [] without."""
    if (odds := find(dict, choice, "logprobs")) is None:  # as in every event of a race, which is being timed
        return []
    entries = find(list, odds, "content")
    if entries is None:
        names, logprobs, tops = (find(list, odds, key) or [] for key in ("tokens", "token_logprobs", "top_logprobs"))
        listed = (
            [{"token": name, "logprob": top[name]} for name in top] if isinstance(top, dict) else [] for top in tops
        )
        columns = zip(names, logprobs, listed, strict=False)
        entries = [dict(zip(("token", "logprob", "top_logprobs"), row, strict=True)) for row in columns]
    return [_token(entry) for entry in entries]


def _token(entry: Any) -> Token:
    named = ((_odds(top), text(top, "token")) for top in find(list, entry, "top_logprobs") or ())
    known = sorted(((odds, name) for odds, name in named if odds is not None), reverse=True)
    name, logprob = text(entry, "token"), _odds(entry)
    if len({top for _, top in known if PART not in top}) < len(known) or not known:
        return Token(name, logprob if known else None)
    return Token(name, logprob, tuple((top, odds) for odds, top in known))


def _odds(entry: Any) -> float | None:
    """Its log-probability; None if it has none, or one that cannot be: above 0 by more than rounding."""
    odds = number(entry, "logprob")
    return odds if odds is not None and odds <= ABOVE else None
