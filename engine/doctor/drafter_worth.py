"""Whether speculation pays with this drafter here, and if not, which of its three costs is to blame. Standard library
only."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..analysis.costs import Costs
from ..analysis.verdict_words import PAYS, capital
from ..what_if.judged import WhatIf
from ..what_if.tables import table_name
from .findings import Finding

LEAST_GAIN = 1.05  # below this a gain is within the noise of such a short race


def worth(races: Sequence[WhatIf], plain_s: Sequence[float], drafter: str) -> Iterator[Finding]:
    """One of four verdicts: it pays, or drafts cost too much, or wide steps do, or too few guesses are right.

    races: what each race computed.
    plain_s: seconds of its plain lane."""
    by_k = _seconds(races, drafter)
    if not by_k:
        return
    plain, k = sum(plain_s), min(by_k, key=by_k.__getitem__)
    gain = plain / by_k[k]
    free, flat, ideal = (
        plain / min(_seconds([replace(one, costs=change(one.costs)) for one in races], drafter).values())
        for change in (_free, _flat, lambda costs: _free(_flat(costs)))
    )
    table, costs = drafter if drafter in races[0].tables else table_name(drafter, k), races[0].costs
    plain_step, drafting, checking = costs.verify_s[0], costs.draft_s[table][k], costs.verify_s[k]
    says = (
        f"{gain:.2f}x as fast as plain decoding at its best length, {k}. A draft of {k} takes "
        f"{drafting / plain_step:.0%} of a plain step, and checking it {checking / plain_step:.2f} of one."
    )
    if gain >= LEAST_GAIN:
        yield Finding("ok", "worth it", f"{capital(PAYS['worth_it'])}: {says}")
    elif free >= max(LEAST_GAIN, flat):
        says = f"Drafts cost too much: {says} If they were free it would be {free:.2f}x."
        yield Finding("doubt", "worth it", says, "Choose a smaller drafter, or n-gram copies (ngram)")
    elif flat >= LEAST_GAIN:
        says = f"Checking several tokens costs too much: {says} At the cost of a plain step it would be {flat:.2f}x."
        change = f"Draft at most {k} tokens, and compare dtypes (--dtype)"
        yield Finding("doubt", "worth it", says, change)
    else:
        says = f"Too few guesses are right: {says} Even free drafts and steps as cheap as plain ones give {ideal:.2f}x."
        yield Finding("doubt", "worth it", says, "Use another drafter for such text, or decode it plainly")


def _seconds(races: Sequence[WhatIf], drafter: str) -> dict[int, float]:
    """Seconds of all races together, at every k that all of them can compute."""
    by_k = [one.seconds().get(drafter, {}) for one in races]
    return {k: sum(seconds[k] for seconds in by_k) for k in by_k[0] if all(k in seconds for seconds in by_k)}


def _free(costs: Costs) -> Costs:
    return replace(costs, draft_s={name: (0.0,) * len(seconds) for name, seconds in costs.draft_s.items()})


def _flat(costs: Costs) -> Costs:
    return replace(costs, verify_s=(costs.verify_s[0],) * len(costs.verify_s))
