"""Tables of drafters against real races of them, on the trained fixture and on the model that ships."""

import json

import pytest

from engine.analysis.metrics import seconds_of
from engine.core.errors import UsageError
from engine.core.events import LaneEvent
from engine.core.spec import lanes_of
from engine.drafters import GREEDY, RULES, label
from engine.recordings import recording as recordings
from engine.session import TorchRace
from engine.what_if.ask import members, what_if
from engine.what_if.judged import what_if_of
from tests.helpers import trained
from tests.helpers.native_kernels import needs_kernels
from tests.helpers.trained import PROMPTS, text_of

HYBRID = f"hybrid:ngram+{text_of('eagle3')}"
pytestmark = pytest.mark.usefixtures("quick_races")
TAKES_TREES = "bfloat16"  # the dtype in which the fixture does
FIELDS = ("index", "position", "drafted", "num_accepted", "token_ids", "kept")


def race_of(
    lanes: list[tuple[str, int | str]],
    text: str = PROMPTS[0],
    dtype: str = "float32",
    temperature: float = 0.0,
    num: int = 24,
    top_k: int = 0,
) -> tuple[TorchRace, list[LaneEvent]]:
    """A finished race, and its events."""
    params = {"temperature": temperature, "top_p": 0.95, "top_k": top_k, "seed": 5, "max_new_tokens": num}
    race = trained.race_of(lanes_of((f"{d}@{k}", d, k) for d, k in lanes), text, dtype, **params)
    return race, list(race.events())


def drafter_of(name: str) -> str:
    return {"ngram": "ngram", "hybrid": HYBRID}.get(name) or text_of(name)


def counts(steps):
    return [[getattr(step, field) for field in FIELDS] for step in steps]


def drafting(race: TorchRace):
    return [lane for lane in race.lanes.values() if lane.spec.role == "speculative"]


def assert_told(race: TorchRace) -> None:
    answer = what_if(race)
    for lane in drafting(race):
        assert lane.state == "finished", lane.spec
        steps = answer.steps(lane.spec.drafter, lane.spec.k)
        assert counts(steps) == counts(lane.steps), (lane.spec, race.spec.params)
        assert answer.oracle(lane.spec.drafter, lane.spec.k) <= seconds_of(steps) * (1 + 1e-9)


# Drafters with tables, each at one temperature: how tokens are picked knows nothing of what is drafted.
CHAINS = {"ngram": 0.0, "draft_model": 0.8, "eagle3": 0.0, "dflash": 0.8, "synthetic": 0.0, "hybrid": 0.8}


def cases(table: dict[str, float], *quick: str) -> list:
    """The drafters and temperatures of a table; those that are not quick are slow."""
    return [pytest.param(*case, marks=[pytest.mark.slow] * (case[0] not in quick)) for case in table.items()]


@pytest.mark.parametrize(("name", "temperature"), cases(CHAINS, "ngram", "eagle3", "dflash"))
def test_a_table_tells_every_real_race(name, temperature):
    """The page would show a race at another k that never would have been."""
    ks = [1, 4] if name == "dflash" else [1, 9]
    race, _ = race_of([(drafter_of(name), k) for k in ks], PROMPTS[temperature > 0], temperature=temperature)
    assert_told(race)


@needs_kernels
@pytest.mark.parametrize(("name", "temperature"), cases(CHAINS, "ngram", "hybrid"))
def test_one_table_gives_the_race_of_every_size_of_trees(name, temperature):
    """The first N of a table's trees would not be the best N: no size but the table's own could be computed."""
    drafter = drafter_of(name)
    lanes = [(drafter, f"tree:{n}") for n in (1, 2, 4, 9, 15)]
    race, _ = race_of(lanes, PROMPTS[temperature > 0], TAKES_TREES, temperature)
    assert any(step.parents for lane in drafting(race) for step in lane.steps)
    assert_told(race)
    answer = what_if(race)
    (table,) = answer.tables
    assert table == f"{drafter}@tree"
    assert answer.oracle(drafter, "auto") <= min(answer.seconds()[table].values()) * (1 + 1e-9)


@needs_kernels
def test_a_recording_of_trees_can_be_opened():
    """A race's own trees would be refused as another's."""
    lanes = [(HYBRID, "tree:2"), (HYBRID, "tree:6"), (HYBRID, "auto"), (text_of("eagle3"), "tree:9")]
    race, events = race_of(lanes, dtype=TAKES_TREES, num=40)
    recording = trained.recorded(race, events).adding(members(race))
    chains = {"ngram", text_of("eagle3"), HYBRID}
    assert set(recording["tables"]) == {f"{HYBRID}@tree", f"{text_of('eagle3')}@tree", *chains}, "what servers can run"
    answer = what_if_of(recordings.checked(recording.text.encode()))
    for lane in drafting(race):
        if lane.spec.k != "auto":
            assert counts(answer.steps(lane.spec.drafter, lane.spec.k)) == counts(lane.steps)


def test_a_race_that_samples_has_its_servers_drafts():
    """A server's drafts would be told by the race's own random numbers; or a file with its drafts could not be opened,
    or not be told from one of temperature 0. With top-k 1 there is only one choice: both tables must be one."""
    eagle3, model, block = map(text_of, ("eagle3", "draft_model", "dflash"))
    lanes = [(eagle3, 4), (model, "auto"), (block, 3), (HYBRID, 2)]
    race, events = race_of(lanes, temperature=0.8, top_k=1, num=12)
    recording = trained.recorded(race, events).adding(members(race))
    read = recordings.checked(recording.text.encode())
    reply, tables = what_if_of(read), read["tables"]
    own = {eagle3, f"{model}@tree", f"{block}@3", HYBRID}
    greedy = {f"{name}{GREEDY}" for name in (eagle3, model, HYBRID)} | {f"{block}{GREEDY}@3"}
    assert reply and set(tables) == own | greedy | {"ngram"}, "what a server can run is there once, as servers draft it"
    assert all(tables[name] == tables[name + GREEDY] for name in (eagle3, HYBRID))
    assert label(eagle3 + GREEDY) == label(eagle3) + RULES[GREEDY]
    assert set(reply.drawn) == {eagle3, model, block} and set(reply.drawn[block]) == {"3"}
    assert all(12 / (int(k) + 1) <= one["steps"] <= 12 for k, one in reply.drawn[eagle3].items())
    fields = json.loads(recording.text)
    fields["spec"]["params"]["temperature"] = 0.0
    with pytest.raises(UsageError, match="at temperature 0 all rules are one"):
        recordings.checked(json.dumps(fields).encode())


def test_giving_up_leaves_the_race_as_it_was():
    """A visitor who leaves would leave a lane's clock or tokens changed, or no table could be asked for again."""
    race, _ = race_of([(text_of("eagle3"), 3)])
    before = [list(lane.steps) for lane in race.lanes.values()]

    class Left(Exception):
        pass

    def leave(stage: str, share: float | None) -> None:
        if share is not None and share > 0.5:
            raise Left

    with pytest.raises(Left):
        what_if(race, progress=leave)
    assert [list(lane.steps) for lane in race.lanes.values()] == before
    assert_told(race)


def test_a_table_that_is_not_there_is_named():
    """A KeyError would reach the visitor."""
    race, _ = race_of([(text_of("dflash"), 2)], num=4)
    answer = what_if(race)
    dflash = text_of("dflash")
    for ask in (
        lambda: answer.steps("ngram", 3),
        lambda: answer.steps(dflash, "tree:3"),
        lambda: answer.oracle("ngram", "auto"),
    ):
        with pytest.raises(UsageError, match=r"no table for '(ngram|dflash:.*)'.*; available: dflash:.*@2"):
            ask()
