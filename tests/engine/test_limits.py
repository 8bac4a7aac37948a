"""Limits of a drafter never end another lane: the nearest k takes the place of one that it cannot draft, and is what
the recording says; where there is none, that lane alone ends, with its sentence."""

from collections.abc import Sequence

import pytest

from engine.core.errors import UsageError
from engine.core.events import Failed, LaneEvent, steps
from engine.core.spec import lanes_of, standard_lanes, tree_size
from engine.drafters import most_drafts
from engine.progress import silent
from engine.recordings import recording as recordings
from engine.session import TorchRace
from tests.helpers.trained import ARGUMENTS, race_of, recorded, text_of, trained

HEADS = text_of("dflash"), text_of("eagle3")
DRAFTERS = [text_of(name) for name in ARGUMENTS if name != "none"]
DRAFTERS += [f"{what}+{head}" for what in ("hybrid:ngram", "synthetic:0.7") for head in HEADS]
NUM_NEW = 12
pytestmark = pytest.mark.usefixtures("quick_races")
# Drafters that nothing can be made of here, and what their lanes say.
BROKEN = {"eagle3:./nowhere": "no model at", "draft_model:owner/none": "cannot fetch", "eagle3": "needs a head"}


def raced(lanes) -> tuple[TorchRace, recordings.Recording, Sequence[LaneEvent]]:
    race = race_of(lanes, max_new_tokens=NUM_NEW)
    recording = recordings.checked(recorded(race).text.encode())
    return race, recording, recording.events


@pytest.mark.parametrize("k", [1, 63, "tree:63", "auto"])
def test_every_drafter_races_at_every_k(k) -> None:
    """One lane's limit would end the race of all the others, or a recording say a k that nobody raced."""
    asked = {f"lane {i}": (drafter, k) for i, drafter in enumerate(DRAFTERS)}
    broken = {f"broken {i}": (drafter, k) for i, drafter in enumerate(BROKEN)}
    race, recording, events = raced(lanes_of((name, *drafting) for name, drafting in {**asked, **broken}.items()))
    failed = {event.lane: event.event.message for event in events if isinstance(event.event, Failed)}
    assert set(failed) == set(broken)
    assert all(words in failed[name] for name, words in zip(broken, BROKEN.values(), strict=True))
    note = recording["widths"]["note"]
    for lane in recording.spec.lanes[2:]:
        if lane.name in broken:
            continue
        drafter, most = asked[lane.name][0], most_drafts(lane.drafter, trained(), silent)
        rates = isinstance(k, str) and not drafter.startswith("synthetic:0.7+")
        wanted = k if rates else min(4 if k == "auto" else tree_size(k) or k, most)
        assert lane.k == wanted and (lane.k != k) == (f"lane {lane.name}: k = {lane.k} instead of {k}: its" in note)
        verdict = recording["verdicts"][lane.name]
        assert verdict["kind"] == "identical_tokens" and verdict["rows_compared"] == NUM_NEW
        assert max(len(step.drafted) for step in steps(events, lane.name)) <= lane.max_drafts
    assert race.spec == recording.spec


def test_a_clamped_lane_is_the_lane_of_that_length() -> None:
    """What was asked for would leave its widths behind, and the race be another than it says."""
    most = most_drafts(HEADS[0], trained(), silent)
    (long, said, _), (short, same, _) = (raced(standard_lanes(HEADS[0], k)) for k in (63, most))
    assert long.spec == short.spec and max(long.widths.plan.step_widths) == max(short.widths.plan.step_widths)
    assert "instead of 63" in said["widths"]["note"] and "instead of" not in same["widths"]["note"]


@pytest.mark.parametrize(("drafter", "words"), BROKEN.items())
def test_a_drafter_with_nothing_beside_it_is_refused(drafter: str, words: str) -> None:
    """A race of plain decoding alone, instead of the sentence."""
    with pytest.raises(UsageError, match=words):
        raced(standard_lanes(drafter, 3))
