"""`python -m tools.visitors`: what a visitor would not put up with is counted."""

from __future__ import annotations

from tools.visitors import Race, inversions


def raced(queued: float, begun: float) -> Race:
    return Race(asked=queued - 0.1, queued=queued, begun=begun)


def test_a_race_that_goes_first_out_of_turn_is_counted() -> None:
    """A queue that lets the last one in would pass for a fair one."""
    fair = [raced(0, 1), raced(1, 12), raced(2, 14), raced(3, 16)]
    assert inversions(fair) == 0
    assert inversions([*fair, raced(2.5, 15), raced(9, 10)]) == 4
