"""A recorded race that a visitor runs again: what the page refuses to run."""

from __future__ import annotations

from typing import Any

import pytest

from app.catalogue.catalogue import load
from app.catalogue.limits import MAX_NEW_TOKENS, MAX_PROMPT_CHARS
from app.catalogue.request import read_again
from app.jobs.recorded import RACES
from engine.core.errors import UsageError
from engine.recordings.recording import Recording, read
from tests.helpers.broken_races import change
from tests.helpers.machines import SMALL

SHIPPED = sorted(RACES.glob("*.json"))


@pytest.mark.parametrize(
    ("place", "value", "names"),
    [
        ("model/name", "../weights", "'../weights', which this page cannot run. It can run: gemma-3-270m"),
        ("spec/lanes/-1/drafter", "eagle3:/srv/weights", "eagle3:/srv/weights"),
        ("spec/params/max_new_tokens", MAX_NEW_TOKENS + 1, f"1 to {MAX_NEW_TOKENS} on this page"),
        ("prompt/text", "a" * (MAX_PROMPT_CHARS + 1), f"at most {MAX_PROMPT_CHARS} are allowed"),
    ],
    ids=["target", "drafter", "length", "prompt"],
)
def test_a_file_orders_no_more_than_the_page_does(place: str, value: Any, names: str) -> None:
    """A file from anywhere would load weights from a folder of this machine, or hold it for an hour."""
    recorded = read(SHIPPED[0]).fields
    change(place, value)(recorded)
    with pytest.raises(UsageError, match=names):
        read_again(load(SMALL), Recording.of(recorded))
