"""`python -m tools.visitors`: what a visitor would not put up with is counted."""

from __future__ import annotations

import httpx
import pytest

from tests.helpers.pageserver import Refused
from tools.visitors import PREDICT, Race, Seen, inversions


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


def test_what_the_page_refuses_is_told_from_an_error() -> None:
    """An error page would count as a limit, or a limit as an error."""
    answers = {PREDICT: (400, {"error": "no such race"}), "/tokens": (429, {"detail": "later"}), "/stream": (400, {})}
    seen = Seen()

    def note(path: str) -> None:
        status, said = answers[path]
        seen.note(httpx.Response(status, json=said, request=httpx.Request("POST", f"http://page{path}")))

    for path, words in ((PREDICT, "no such race"), ("/tokens", "later")):
        with pytest.raises(Refused, match=words):
            note(path)
    assert seen.problems == []
    note("/stream")
    assert len(seen.problems) == 1 and seen.statuses == {400: 2, 429: 1}


def test_a_race_that_goes_first_out_of_turn_is_counted() -> None:
    """A queue that lets the last one in would pass for a fair one."""
    fair = [raced(0, 1), raced(1, 12), raced(2, 14), raced(3, 16)]
    assert inversions(fair) == 0
    assert inversions([*fair, raced(2.5, 15), raced(9, 10)]) == 4
