"""What the page's figures and its second run make of a race with a lane on a server."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from app.again import told_again
from app.catalogue import load
from app.charts import NOT_ASKED, charts
from app.machine import Machine
from app.request import read_again
from app.view import MIXED_TEXT, Prepared, RaceView, fold
from app.why import NO_RATIO, compared_of, why
from engine.recordings.recording import events_of, loads
from engine.spec import RaceSpec
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import beside_a_server

ALONE = race_over(words_of(TEXT))
BOTH = loads(json.dumps(beside_a_server(ALONE)).encode())


def shown(lane: str) -> dict[str, Any]:
    """The recording as the page asks for figures of this lane: it stands before the others that draft."""
    recording = copy.deepcopy(BOTH)
    recording["spec"]["lanes"].sort(key=lambda each: each["name"] not in ("plain", "baseline", lane))
    return recording


def test_a_lane_here_has_the_figures_that_it_has_without_a_server():
    """A server in the race would change, or take away, what is said of the lanes here."""
    one, both = events_of(ALONE), events_of(BOTH)
    assert [each.sentence for each in charts(both, shown("speculative"))] == [
        each.sentence for each in charts(one, ALONE)
    ]
    assert [each.sentence for each in why(both, shown("speculative"))] == [each.sentence for each in why(one, ALONE)]


def test_nothing_is_worked_out_between_two_devices():
    """A figure that divides a server's seconds by this machine's, as if a drafter had made the difference."""
    recording = shown("there")
    events = events_of(recording)
    assert compared_of(events, recording) is None
    assert [each.sentence for each in why(events, recording)] == [NO_RATIO] * 6
    times, acceptance, _, over_k = charts(events, recording)
    assert "times a plain one" not in times.sentence and times.figure is not None
    assert acceptance.figure is not None and over_k.sentence == NOT_ASKED
    assert fold(RaceView("r"), Prepared(BOTH)).text == MIXED_TEXT


def test_such_a_race_is_run_again_without_its_server():
    """A visitor who runs a stranger's race again would be refused, or would have a server asked in his name."""
    catalogue = load(Machine(), pairs="all")
    recording = {**BOTH, "model": {**BOTH["model"], "name": catalogue.default.target}}
    asked = read_again(catalogue, recording)
    assert [lane.name for lane in asked.spec.lanes] == ["plain", "baseline", "speculative"]
    assert isinstance(asked.spec, RaceSpec)
    assert "wrote the same" in told_again(BOTH, ALONE) and "bit for bit" in told_again(BOTH, ALONE)


@pytest.mark.parametrize("lane", ["there", "baseline"])
def test_rows_of_logits_are_asked_of_lanes_here_alone(lane):
    """An audited race would be refused because a server gives no logits, or opened though the lanes here lack them."""
    broken = copy.deepcopy(BOTH)
    step = next(e for e in broken["events"] if e["lane"] == lane and e["type"] == "step")
    step["checksums"] = [] if step["checksums"] else [1] * len(step["token_ids"])
    with pytest.raises(Exception, match="checksums"):
        loads(json.dumps(broken).encode())
