"""The tables of a recording, which may come from a stranger: they fit the race beside them, or are refused."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.events import steps, token_ids
from engine.recordings.recording import Recording, loads
from engine.what_if.read import MAX_WORK, what_if_of
from engine.what_if.tables import seconds_of
from tests.helpers.races import MOST, events_of, fixed_race, recordings, servers_races, with_tables

RACES = st.builds(with_tables, recordings(), st.randoms(use_true_random=False))


def read(race: dict[str, Any]) -> Any:
    return what_if_of(loads(json.dumps(race).encode()))


@given(RACES)
def test_what_was_written_is_what_is_read(race):
    """A race that was saved and opened would be told otherwise than the one that was held."""
    found = read(race)
    assert list(found.text.token_ids) == token_ids(events_of(race), "baseline")
    assert found.text.limit == race["spec"]["params"]["max_new_tokens"]
    wanted = {"table_margins": {}, **{key: race[key] for key in ("tables", "table_margins", "costs") if key in race}}
    assert json.loads(json.dumps(found.to_json())) == wanted
    assert found.offered() == {"ngram": list(range(1, MOST + 1))}


@given(servers_races(), st.sampled_from(["ngram", "x", "ngram@3", "ngram@auto", "x@07", "@", "@1", "x@99999"]))
def test_a_strangers_table_tells_a_race_or_is_refused(race, name):
    """A number of drafts, or a name, that nobody thought of would be a fault of the program."""
    race = copy.deepcopy(race)
    for member in (race["tables"], race["table_margins"], race["costs"]["draft_s"]):
        member[name] = member.pop("eagle3")
    try:
        found = read(race)
    except UsageError as error:
        assert str(error).count("\n") == 0 and "not of this race" in str(error)
        return
    num = len(found.text.token_ids)
    assert all(len(table.drafts) >= num for table in found.tables.values())
    seconds = found.seconds()
    assert {drafter: list(by_k) for drafter, by_k in seconds.items()} == found.offered()
    for drafter, ks in found.offered().items():
        for k in ks:
            told = found.steps(drafter, k)
            assert sum(len(step.token_ids) for step in told) == num
            assert max(step.num_drafted for step in told) <= k
            assert seconds[drafter][k] == pytest.approx(seconds_of(told))


@given(RACES, st.randoms(use_true_random=False))
def test_a_table_that_contradicts_a_step_is_refused(race, rng):
    """The page would tell another race, and call it exact."""
    drafted = [step for step in steps(events_of(race), "speculative") if step.drafted]
    assume(drafted)
    step = rng.choice(drafted)
    place = rng.randrange(step.num_drafted)
    race["tables"]["ngram"][step.position][place] += 1
    with pytest.raises(UsageError, match=rf"the table of 'ngram' is not of this race: step {step.index} of lane 'spec"):
        read(race)
    for change in ({"k": "auto"}, {"rule": "rejection"}, {"drafter": "eagle3"}):  # no lane that this table could tell
        other = copy.deepcopy(race)
        other["spec"]["lanes"][-1].update(change)
        assert read(other).tables["ngram"].drafts[step.position][place] == step.drafted[place] + 1


@given(RACES, st.integers(1, 40))
def test_a_short_table_is_refused(race, missing):
    """A step would look for a draft that is not there."""
    drafts = race["tables"]["ngram"]
    num = len(drafts)
    del drafts[max(0, num - missing) :]
    race.pop("table_margins", None)
    words = f"the table of 'ngram' has {len(drafts)} drafts, but the baseline committed {num} tokens"
    with pytest.raises(UsageError, match=words):
        read(race)


def test_a_lane_that_parted_contradicts_nothing_after_that():
    """After a near tie a lane writes another text: its drafts there are of that text, and no table's fault."""
    race = with_tables(fixed_race(), random.Random(1))
    race["verdicts"] = {}
    for event in race["events"]:
        if event["lane"] == "speculative" and event.get("index") == 1:
            event.update(token_ids=[77], checksums=[5])
        if event["lane"] == "speculative" and event.get("index") == 2:
            event.update(drafted=[55], drafted_pieces=["?"], num_accepted=0)
    assert read(race) is not None
    for event in race["events"]:
        if event["lane"] == "speculative" and event.get("index") == 1:
            event.update(drafted=[56], drafted_pieces=["?"], num_accepted=0)
    with pytest.raises(UsageError, match="drafted other tokens"):
        read(race)


def test_where_nothing_can_be_told():
    """A KeyError would reach the visitor, or tables be believed that stand beside no text."""
    race = with_tables(fixed_race(), random.Random(1))
    for missing in (["tables", "costs"], ["tables"], ["costs"]):
        less = {key: value for key, value in race.items() if key not in missing}
        if missing == ["tables"]:
            less["costs"] = {**race["costs"], "draft_s": {}}
        assert read(less) is None
    alone = copy.deepcopy(race)
    alone["spec"]["lanes"] = [alone["spec"]["lanes"][-1]]
    alone["events"] = [event for event in alone["events"] if event["lane"] == "speculative"]
    alone["verdicts"] = {}
    with pytest.raises(UsageError, match="no baseline"):
        read(alone)


def test_more_than_can_be_computed_is_refused():
    """A stranger's tables would keep a processor for as long as the stranger likes."""
    race = with_tables(fixed_race(), random.Random(1))
    (name,), num = race["tables"], len(token_ids(events_of(race), "baseline"))
    most = MAX_WORK // num // (MOST + 1)
    for num_tables in (most, most + 1):
        race["tables"] = {name: race["tables"][name], **{str(i): [[]] * num for i in range(num_tables - 1)}}
        race["costs"]["draft_s"] = dict.fromkeys(race["tables"], [0] * (MOST + 1))
        if num_tables == most:
            assert len(what_if_of(Recording.of(race)).tables) == most
        else:
            words = f"^{num_tables} tables, {num} tokens and {MOST + 1} lengths .* at most {MAX_WORK}$"
            with pytest.raises(UsageError, match=words):
                what_if_of(Recording.of(race))


def test_the_ks_that_are_offered():
    """A block drafter would be shown at a k that it was never asked at, or copies for auto as a drafter's race."""
    race = with_tables(fixed_race(), random.Random(1))
    drafts, costs = race["tables"].pop("ngram"), race["costs"]["draft_s"].pop("ngram")
    for name in ("a:b@2@12", "a:b@2@4", "n", "n@auto", "x@07", "y@100"):
        race["tables"][name], race["costs"]["draft_s"][name] = drafts, costs
    every = list(range(1, MOST + 1))
    found = read(race)
    assert found.offered() == {"a:b@2": [4, 12], "n": every, "x@07": every, "y@100": every}
    assert [step.drafted for step in found.steps("a:b@2", 4)] == [step.drafted for step in found.steps("n", 4)]
