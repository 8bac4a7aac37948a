"""`python -m tools.visitors`: what a visitor would not put up with is counted."""

from __future__ import annotations

import pytest

from tools.visitors import Race, inversions, waits


def raced(queued: float, begun: float, *said: tuple[float, int, float | None]) -> Race:
    return Race(asked=queued - 0.1, queued=queued, begun=begun, said=list(said))


def test_a_race_that_goes_first_out_of_turn_is_counted() -> None:
    """A queue that lets the last one in would pass for a fair one."""
    fair = [raced(0, 1), raced(1, 12), raced(2, 14), raced(3, 16)]
    assert inversions(fair) == 0
    assert inversions([*fair, raced(2.5, 15), raced(9, 10)]) == 4


@pytest.mark.parametrize(("said", "share"), [(10.0, 1.0), (21.0, 0.0), (4.0, 0.0)])
def test_an_announcement_that_is_not_true_is_counted(said: float, share: float) -> None:
    """Ten seconds announced as 21 or 4, four races as one, a place that rises: all would pass for the truth."""
    found = waits([raced(0, 10, (0.0, 4, said), (9.0, 1, 2.0))], [-1.0, 2.0, 5.0, 8.0])
    assert found["announced / real seconds, first of each race"]["within a factor of 2"] == share
    assert found["announced / real seconds, all"]["num"] == 1, "an announcement of 2 s that was 1 s counts"
    assert found["first place / races that really came first"]["within a factor of 2"] == 1
    found = waits([raced(0, 10, (0.0, 1, None), (5.0, 2, None))], [2.0, 4.0, 6.0, 8.0])
    assert found["first place / races that really came first"]["within a factor of 2"] == 0
    assert found["places that rose"] == 1
