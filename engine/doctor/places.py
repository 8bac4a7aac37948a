"""Where in a trial's text a finding shows, so that its reader can look at that step. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ..what_if.judged import WhatIf
from ..what_if.tables import seconds_of
from .defaults import K
from .findings import Finding

Place = tuple[int | None, int | None]  # indexes of a race and of a token in its text; None: see `Finding`
NOWHERE: Place = (None, None)


def placed(findings: Iterable[Finding], place: Place, raced: Sequence[int]) -> Iterator[Finding]:
    """The findings; those that are not ok show at this place. raced: the prompts of the races."""
    prompt = None if place[0] is None else raced[place[0]]
    for finding in findings:
        yield finding if finding.level == "ok" else replace(finding, prompt=prompt, position=place[1])


def struck(races: Sequence[WhatIf], drafter: str) -> Place:
    """The first step of the races that kept none of its guesses."""
    steps = ((i, step) for i, race in enumerate(races) for step in race.steps(drafter, K))
    return next(((i, step.position) for i, step in steps if step.num_drafted and not step.num_accepted), NOWHERE)


def uncovered(races: Sequence[WhatIf], words: Collection[int] | None) -> Place:
    """The first token of the texts that is not among these."""
    tokens = ((i, at, token) for i, race in enumerate(races) for at, token in enumerate(race.text.token_ids))
    return next(((i, at) for i, at, token in tokens if words is not None and token not in words), NOWHERE)


def slowest(races: Sequence[WhatIf], plain_s: Sequence[float], drafter: str) -> Place:
    """The prompt on which the drafter costs most time, or gains least.

    plain_s: seconds of each race's plain lane."""
    pairs = zip(races, plain_s, strict=True)
    lost_s = [seconds_of(race.steps(drafter, K)) - plain for race, plain in pairs]
    return lost_s.index(max(lost_s)), None
