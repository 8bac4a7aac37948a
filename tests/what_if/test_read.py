"""The tables of a recording, which may come from a stranger: they fit the race beside them, or are refused."""

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.analysis.metrics import seconds_of
from engine.core.errors import UsageError
from engine.core.events import steps, token_ids
from engine.recordings.recording import Recording, checked
from engine.what_if.judged import MAX_WORK, what_if_of
from tests.helpers.races import MOST, events_of, fixed_race, recordings, servers_races, with_tables

RACES = st.builds(with_tables, recordings(), st.randoms(use_true_random=False))
TREES = st.builds(with_tables, recordings(), st.randoms(use_true_random=False), st.just("ngram"), st.just("ngram@tree"))


def read(race: dict[str, Any]) -> Any:
    return what_if_of(checked(json.dumps(race).encode()))


@given(RACES | TREES)
def test_what_was_written_is_what_is_read(race):
    """A race that was saved and opened would be told otherwise than the one that was held."""
    answer = read(race)
    assert list(answer.text.token_ids) == token_ids(events_of(race), "baseline")
    assert answer.text.limit == race["spec"]["params"]["max_new_tokens"]
    wanted = ("tables", "table_parents", "costs")
    assert json.loads(json.dumps(answer.to_json())) == {key: race[key] for key in wanted if key in race}
    assert answer.offered() == {name: list(range(1, MOST + 1)) for name in race["tables"]}


@given(
    servers_races(), st.sampled_from(["ngram", "x", "ngram@3", "ngram@auto", "x@tree", "x@07", "@", "@1", "x@99999"])
)
def test_a_strangers_table_tells_a_race_or_is_refused(race, name):
    """A number of drafts, or a name, that nobody thought of would be a fault of the program."""
    race = copy.deepcopy(race)
    for member in (race["tables"], race["costs"]["draft_s"]):
        member[name] = member.pop("eagle3")
    try:
        answer = read(race)
    except UsageError as error:
        assert str(error).count("\n") == 0 and "not of this race" in str(error)
        return
    num = len(answer.text.token_ids)
    assert all(len(table.drafts) >= num for table in answer.tables.values())
    seconds = answer.seconds()
    assert {drafter: list(by_k) for drafter, by_k in seconds.items()} == answer.offered()
    for drafter, ks in answer.offered().items():
        for k in ks:
            lane_steps = answer.steps(drafter, k)
            assert sum(len(step.token_ids) for step in lane_steps) == num
            assert max(step.num_drafted for step in lane_steps) <= k
            assert seconds[drafter][k] == pytest.approx(seconds_of(lane_steps))


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
        assert read(other).tables["ngram"].drafts[step.position].token_ids[place] == step.drafted[place] + 1


@pytest.mark.parametrize(
    ("parents", "tokens", "words"),
    [
        ([0, 1, 1, 0], [10, 11, 9, 8], ""),
        ([], [10, 11, 9, 8], "is not of this race: step 0 of lane 'speculative' drafted other tokens"),
        ([0, 1, 0, 0], [10, 11, 9, 8], "is not of this race: step 0"),
        ([0, 1, 1, 0], [10, 11, 8, 9], "is not of this race: step 0"),
        ([0, 1, 1, 4], [10, 11, 9, 8], "table_parents of 'ngram@tree' are no trees of its drafts"),
        ([0, 1, 1, 1], [10, 11, 9, 9], "table_parents of 'ngram@tree' are no trees of its drafts"),
        ([0, 1, 1], [10, 11, 9, 8], "table_parents of 'ngram@tree' are not one for each token"),
    ],
)
def test_a_lane_of_trees_drafts_the_first_of_its_table(parents, tokens, words):
    """The page would say of trees that raced that they were others, or walk where no row is."""
    race = with_tables(fixed_race(), random.Random(1), "ngram", "ngram@tree")
    race["spec"]["lanes"][-1]["k"] = "tree:3"
    next(event for event in race["events"] if event.get("drafted")).update(parents=[0, 1, 1])
    race["tables"]["ngram@tree"][0], race["table_parents"]["ngram@tree"][0] = tokens, parents
    if words:
        with pytest.raises(UsageError, match=words):
            read(race)
    else:
        assert read(race).steps("ngram", "tree:3")[0].kept == (0, 1)


def test_a_lane_that_parted_contradicts_nothing_after_that():
    """After a near tie a lane writes another text: its drafts there are of that text, and no table's fault."""
    race = with_tables(fixed_race(), random.Random(1))
    race["verdicts"] = {}
    _, second, third = (e for e in race["events"] if e["lane"] == "speculative" and e["type"] == "step")
    second.update(token_ids=[77], checksums=[5])
    third.update(drafted=[55], drafted_pieces=["?"], num_accepted=0)
    assert read(race) is not None
    second.update(drafted=[56], drafted_pieces=["?"], num_accepted=0)
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
    """A block drafter would be shown at a k never asked for, or an older table for auto pass for a drafter's race."""
    race = with_tables(fixed_race(), random.Random(1))
    drafts, costs = race["tables"].pop("ngram"), race["costs"]["draft_s"].pop("ngram")
    for name in ("a:b@2@12", "a:b@2@4", "n", "n@auto", "n@tree", "x@07", "y@100"):
        race["tables"][name], race["costs"]["draft_s"][name] = drafts, costs
    every = list(range(1, MOST + 1))
    answer = read(race)
    assert answer.offered() == {"a:b@2": [4, 12], "n": every, "n@tree": every, "x@07": every, "y@100": every}
    assert [step.drafted for step in answer.steps("a:b@2", 4)] == [step.drafted for step in answer.steps("n", 4)]
