"""Claims about speculative decoding from other sources, each tested on one race, which gives verdict and reason.
Standard library only."""

from __future__ import annotations

from typing import NamedTuple

from engine.analysis.breakdown import Compared
from engine.analysis.metrics import is_noise, ratio_noise

THREAD, TORTOISE = "Red Hat AI's thread", "a hare-and-tortoise guide"
SPECULATORS, POCKET = "Red Hat's introduction of Speculators", "a pocket guide for self-hosters"
ADDRESSES = {THREAD: "https://bittide.aicompass.dev/article/9fcfa483-a451-4a7c-8cee-88bac44e0f0b"}
"""Where a source can be read without an account; for the others no address is known."""
VERDICTS = DISAGREES, AGREES, UNTESTED = "✗ not in this race", "✓ also in this race", "– not tested by this race"
SUITED, SHIPPED = 1.5, 1.3
SMALL_BYTES = 14e9
"""Bytes read per step by a 7B target in 16 bits; a model that reads half as much, or twice, is another case."""
WASH = 0.1
TOKENS_TO_PAY = 50
MICROSECONDS_S = 1e-4
"""Less than a tenth of a millisecond."""
LENGTHS = 3, 5
PUBLISHED = 2.53, 4.91
PUBLISHED_MODEL = "gemma-4-31b"


class Claim(NamedTuple):
    """A claim, its source, the race's verdict, and why."""

    says: str
    source: str
    verdict: str
    because: str


def claims(
    race: Compared, step_bytes: float | None = None, best: tuple[str, int] | None = None, model: str = ""
) -> list[Claim]:
    """All claims, judged by this race; a claim about one size of model, or about one model, only by a race of such a
    one. step_bytes: read by a plain step. best: drafter and k of the fastest fixed length, if known from tables."""
    return [
        _below_40(race),
        _sweet_spot(race),
        *(_mark(race, mark, who) for mark, who in ((SUITED, TORTOISE), (SHIPPED, POCKET))),
        _wash(race, step_bytes),
        _fifty_tokens(race),
        _ceiling(race),
        _microseconds(race),
        _lengths(best),
        _published(race, model),
    ]


def _claim(says: str, source: str, tested: bool, holds: bool, because: str) -> Claim:
    return Claim(says, source, (AGREES if holds else DISAGREES) if tested else UNTESTED, because)


def _below_40(race: Compared) -> Claim:
    kept = _kept(race)
    clear = not is_noise(race.speedup, ratio_noise(race.plain, race.lane))
    return _claim(
        "Below 40 % of guesses kept, it is slower than plain.",
        POCKET,
        kept is not None and kept < 0.4 and clear,
        race.speedup < 1,
        f"{_guesses(race)}; {_price(race)}, so it is {race.speedup:.2f} times as fast as plain"
        + ("." if clear else ", which is within the noise."),
    )


def _sweet_spot(race: Compared) -> Claim:
    kept = _kept(race)
    sweet, poor = kept is not None and 0.6 <= kept <= 0.8, kept is not None and kept < 0.5
    return _claim(
        "60 to 80 % of guesses kept is the sweet spot, below 50 % is poor.",
        f"{THREAD}; {TORTOISE}; {POCKET}",
        sweet or poor,
        (race.speedup >= SUITED) == sweet,
        f"{_guesses(race)}, and it is {race.speedup:.2f} times as fast as plain; the guide calls {SUITED} suited.",
    )


def _mark(race: Compared, mark: float, source: str) -> Claim:
    says = "the model is not suited" if mark == SUITED else "do not ship it"
    saved = 1 - 1 / race.speedup
    return _claim(
        f"Below {mark} times as fast: {says}.",
        source,
        race.speedup < mark and not is_noise(race.speedup, ratio_noise(race.plain, race.lane)),
        race.speedup < 1,
        f"This race is {race.speedup:.2f} times as fast: {100 * abs(saved):.0f} % {'less' if saved >= 0 else 'more'} "
        "time per token.",
    )


def _wash(race: Compared, step_bytes: float | None) -> Claim:
    known = "What a step reads was not measured in this race"
    if step_bytes:
        known = f"A step of this model reads {step_bytes / 1e9:.3g} GB (7B: about {SMALL_BYTES / 1e9:.0f} GB)"
    return _claim(
        "With small models (7B) it makes no difference.",
        POCKET,
        step_bytes is not None and SMALL_BYTES / 2 <= step_bytes <= 2 * SMALL_BYTES,
        race.speedup <= 1 + WASH,
        f"{known}; {_price(race)}, so it is {race.speedup:.2f} times as fast as plain.",
    )


def _fifty_tokens(race: Compared) -> Claim:
    start, num = race.pays_from(), race.growth()[-1].num_tokens
    later = None if None in race.prefill_s else (race.prefill_s[1] or 0.0) - (race.prefill_s[0] or 0.0)
    paid = f"it pays from token {start} on" if start else f"it did not pay within {num} tokens"
    return _claim(
        f"It takes {TOKENS_TO_PAY} tokens of output to break even.",
        POCKET,
        later is not None and (start is not None or num >= 2 * TOKENS_TO_PAY),
        start is not None and TOKENS_TO_PAY / 2 <= start <= 2 * TOKENS_TO_PAY,
        f"Including the prompt, {paid}: reading it took {1000 * later:+.1f} ms with guesses, and a token "
        f"{1000 * (race.plain_s / race.speedup - race.plain_s):+.1f} ms."
        if later is not None
        else "Reading the prompt was not measured in this race.",
    )


def _ceiling(race: Compared) -> Claim:
    kept, drafted = _kept(race), _num_drafted(race)
    draft_s, most = sum(step.draft_s for step in race.lane), race.tokens_per_step
    told = kept * race.plain_s * drafted / draft_s if kept is not None and draft_s > 0 else None
    return _claim(
        "The ceiling is the share of guesses kept, times how much faster the drafter is than the target.",
        POCKET,
        told is not None,
        told is not None and race.speedup <= told <= 1.1 * most,
        f"That gives {told:.3g} here. A step produces {most:.2f} tokens, so with free guesses and checks it would be "
        f"{most:.2f} times as fast."
        if told is not None
        else "How long the guesses took is not known, or there were none.",
    )


def _microseconds(race: Compared) -> Claim:
    drafted, costs = _num_drafted(race), race.costs()
    each = (costs.drafting_s + costs.wider_s) / drafted if drafted else None
    dropped = drafted - sum(step.num_accepted for step in race.lane)
    return _claim(
        "Wrong guesses cost microseconds.",
        THREAD,
        each is not None and dropped > 0,
        each is not None and each < MICROSECONDS_S,
        f"Including its share of a wider step, a guess costs {1000 * each:.2f} ms; {dropped} were dropped, which "
        f"is {100 * each * dropped / sum(step.seconds for step in race.lane):.0f} % of the lane's time."
        if each is not None
        else "This race reports no guesses.",
    )


def _lengths(best: tuple[str, int] | None) -> Claim:
    return _claim(
        f"Guess {LENGTHS[0]} to {LENGTHS[1]} tokens at a time.",
        f"{THREAD}; {TORTOISE}",
        best is not None,
        best is not None and LENGTHS[0] <= best[1] <= LENGTHS[1],
        f"The best fixed draft length here is {best[1]}, with {best[0]}, according to this race's tables."
        if best
        else "This race has no tables, so its speed at other draft lengths is not known.",
    )


def _published(race: Compared, model: str) -> Claim:
    low, high = PUBLISHED
    return _claim(
        f"A step produces {low} tokens in summaries and {high} in code (Gemma 4 31B).",
        SPECULATORS,
        _num_drafted(race) > 0 and PUBLISHED_MODEL in model.lower(),
        low <= race.tokens_per_step <= high,
        f"A step of this race produces {race.tokens_per_step:.2f}; {_guesses(race)}.",
    )


def _num_drafted(race: Compared) -> int:
    return sum(step.num_drafted for step in race.lane)


def _kept(race: Compared) -> float | None:
    drafted = _num_drafted(race)
    return sum(step.num_accepted for step in race.lane) / drafted if drafted else None


def _guesses(race: Compared) -> str:
    kept = _kept(race)
    if kept is None and race.tokens_per_step > 1:
        return "how many guesses were kept is not known"
    return "no guesses were made" if kept is None else f"{100 * kept:.0f} % of the guesses were kept"


def _price(race: Compared) -> str:
    return (
        f"a step takes {race.break_even:.2f} times as long as a plain one and produces {race.tokens_per_step:.2f} "
        "tokens"
    )
