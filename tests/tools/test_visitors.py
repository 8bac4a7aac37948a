"""`python -m tools.visitors`: what a visitor would not put up with is counted."""

from __future__ import annotations

from tools.visitors import Race, inversions


def raced(queued: float, begun: float) -> Race:
    return Race(asked=queued - 0.1, queued=queued, begun=begun)


def test_a_race_is_over_when_nothing_more_of_it_comes() -> None:
    """A stream that broke off before the extras, or a race that failed, would pass for a finished race."""
    race, frame = Race(), {"race": "a", "header": None, "status": {"text": "Finished.", "left_s": None}}
    race.see({**frame, "state": "finished", "complete": False})
    assert (race.state, race.outcome) == ("finished", "")
    race.see({**frame, "state": "finished", "complete": True})
    assert race.outcome == "finished"
    failed = Race()
    failed.see({**frame, "state": "failed", "complete": True})
    assert failed.outcome == "lost" and failed.begun is None


def test_a_race_that_goes_first_out_of_turn_is_counted() -> None:
    """A queue that lets the last one in would pass for a fair one."""
    fair = [raced(0, 1), raced(1, 12), raced(2, 14), raced(3, 16)]
    assert inversions(fair) == 0
    assert inversions([*fair, raced(2.5, 15), raced(9, 10)]) == 4
