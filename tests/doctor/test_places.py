"""Where findings show: on made races of two prompts."""

from __future__ import annotations

from engine.analysis.costs import Costs
from engine.core.interfaces import Draft
from engine.doctor.findings import Finding
from engine.doctor.places import NOWHERE, placed, slowest, struck, uncovered
from engine.what_if.judged import WhatIf
from engine.what_if.tables import Table, Text

COSTS = Costs((1.0,) * 5, {"d": (0.0,) * 5})


def raced(token_ids: tuple[int, ...], *drafts: tuple[int, ...]) -> WhatIf:
    text = Text((1,), token_ids, len(token_ids) + 9)
    return WhatIf(text, {"d": Table("d", "d", tuple(map(Draft, drafts)))}, COSTS)


RIGHT = raced((5, 6, 7, 8), (5, 6), (), (), (9,))  # two steps: the first keeps all of its guesses, the second one none
EMPTY = raced((5, 6), (), ())


def test_a_finding_shows_at_a_step_of_the_race_itself() -> None:
    """A link to a step that the race does not have: a wrong guess at a position at which no step began."""
    assert struck([EMPTY, RIGHT], "d") == (1, 3)
    assert struck([EMPTY], "d") == NOWHERE
    assert struck([raced((5, 6, 7), (5, 6), (9,), (9,))], "d") == NOWHERE


def test_the_first_token_that_cannot_be_drafted() -> None:
    """A link to a token that the head can draft."""
    assert uncovered([EMPTY, RIGHT], {5, 6, 8}) == (1, 2)
    assert uncovered([EMPTY], {5, 6}) == uncovered([EMPTY], None) == NOWHERE


def test_the_slowest_prompt_and_what_is_ok() -> None:
    """A link to a prompt that gains, or from a line without anything to see."""
    assert slowest([EMPTY, RIGHT], [2.0, 1.5], "d") == (1, None)
    assert slowest([EMPTY, RIGHT], [1.0, 4.0], "d") == (0, None)
    found = placed([Finding("ok", "a", ""), Finding("doubt", "b", "")], (1, None), [0, 2])
    assert [(each.prompt, each.position) for each in found] == [(None, None), (2, None)]
