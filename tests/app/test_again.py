"""A recorded race that a visitor runs again: what the page refuses to run, and says afterwards."""

import copy
from typing import Any

import pytest

from app.catalogue.catalogue import load
from app.catalogue.limits import MAX_NEW_TOKENS, MAX_PROMPT_CHARS
from app.catalogue.request import read_again
from app.jobs.recorded import RACES
from app.jobs.worker import said_again
from engine.core.errors import UsageError
from engine.recordings.recording import Recording, read
from tests.helpers.broken_races import change
from tests.helpers.machines import SMALL
from tests.helpers.races import fixed_race
from tests.helpers.steps_apart import steps_of

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


def test_what_is_said_afterwards() -> None:
    """ "The same" of other tokens, of other bits or other weights."""
    recorded = Recording.of(fixed_race())
    assert said_again(recorded, recorded) == (
        "This machine wrote the same 5 tokens, bit for bit; recorded 1.11x, here 1.11x (plain 5.0 and 5.0 tokens/s, "
        "its prefill 0.50 and 0.50 s); times are not proven."
    )
    rounded, parted, weights = (copy.deepcopy(recorded.fields) for _ in range(3))
    for step in (event for event in rounded["events"] if event["type"] == "step"):
        step["checksums"] = [1 for _ in step["checksums"]]
    steps_of(parted)[0]["token_ids"][-1] = 99
    weights["model"]["digest"] = "another"
    for race, said, unsaid in (
        (rounded, "wrote the same 5 tokens; recorded", "bit for bit"),
        (parted, "different", "wrote the same"),
        (weights, "the weights are not the recorded ones", "wrote the same"),
    ):
        words = said_again(recorded, Recording.of(race))
        assert said in words and unsaid not in words
