"""A recorded race that a visitor runs again: what the page refuses to run, and what it says afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from app.catalogue.catalogue import load
from app.catalogue.limits import MAX_NEW_TOKENS, MAX_PROMPT_CHARS
from app.catalogue.request import read_again
from app.jobs.recorded import RACES
from app.jobs.worker import told_again
from engine.errors import UsageError
from engine.recordings.recording import Recording, read
from tests.helpers.machines import SMALL
from tests.helpers.races import fixed_race

SHIPPED = sorted(RACES.glob("*.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_ships_can_be_run_again(path) -> None:
    """A race other than the recorded one would run, and its tokens be compared with the recording."""
    recorded = read(path)
    asked = read_again(load(SMALL), recorded)
    assert asked.spec == recorded.spec and asked.recorded == recorded
    assert (asked.prompt, asked.chat) == (recorded["prompt"]["text"], recorded["prompt"].get("chat", False))
    assert asked.pair.target == recorded["model"]["name"]


def _target(race: dict[str, Any]) -> None:
    race["model"]["name"] = "../weights"


def _drafter(race: dict[str, Any]) -> None:
    race["spec"]["lanes"][-1]["drafter"] = "eagle3:/srv/weights"


def _long(race: dict[str, Any]) -> None:
    race["spec"]["params"]["max_new_tokens"] = MAX_NEW_TOKENS + 1


def _prompt(race: dict[str, Any]) -> None:
    race["prompt"]["text"] = "a" * (MAX_PROMPT_CHARS + 1)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (_target, "'../weights', which this page cannot run. It can run: gemma-3-270m"),
        (_drafter, "eagle3:/srv/weights"),
        (_long, f"1 to {MAX_NEW_TOKENS} on this page, not {MAX_NEW_TOKENS + 1}"),
        (_prompt, f"at most {MAX_PROMPT_CHARS} are allowed"),
    ],
    ids=["target", "drafter", "length", "prompt"],
)
def test_a_file_orders_no_more_than_the_page_does(change: Callable[[dict[str, Any]], None], names: str) -> None:
    """A file from anywhere would load weights from a folder of this machine, or hold it for an hour."""
    recorded = read(SHIPPED[0]).fields
    change(recorded)
    with pytest.raises(UsageError, match=names.replace("(", r"\(")):
        read_again(load(SMALL), Recording.of(recorded))


def test_what_is_said_afterwards() -> None:
    """ "The same" of other tokens, of other bits or other weights; a pace of another lane."""
    recorded = Recording.of(fixed_race())
    assert told_again(recorded, recorded) == (
        "This machine wrote the same 5 tokens, bit for bit, 1.00× as fast as the recording."
    )
    rounded, faster, parted, weights = (copy.deepcopy(recorded.fields) for _ in range(4))
    for event in (event for event in rounded["events"] if event["type"] == "step"):
        event["checksums"] = [1 for _ in event["checksums"]]
    assert "bit for bit" not in told_again(recorded, Recording.of(rounded)) and "the same 5 tokens" in told_again(
        recorded, Recording.of(rounded)
    )
    for event in (event for event in faster["events"] if event["type"] == "step" and event["lane"] == "speculative"):
        event.update(draft_s=event["draft_s"] / 2, verify_s=event["verify_s"] / 2)
    assert told_again(recorded, Recording.of(faster)).endswith("2.00× as fast as the recording.")
    step = next(event for event in parted["events"] if event["type"] == "step" and event["lane"] == "speculative")
    step["token_ids"] = [*step["token_ids"][:-1], 99]
    assert "different" in told_again(recorded, Recording.of(parted)) and "the same" not in told_again(
        recorded, Recording.of(parted)
    )
    weights["model"]["digest"] = "another"
    assert "the weights are not the recorded ones" in told_again(recorded, Recording.of(weights))
