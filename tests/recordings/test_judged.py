"""What may be said of a race: verdicts over failed, empty and cut lanes, and what belongs next to a ratio."""

import random
from itertools import permutations, zip_longest
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.jobs.recorded import RACES
from app.web.player.player import describe
from engine.analysis.same import KINDS, SAME, state_of
from engine.analysis.verdict_words import VERDICTS
from engine.cli.commands import check_outcome
from engine.core.errors import RaceError
from engine.core.events import Failed, Finished, LaneEvent, Started, Step
from engine.core.spec import RaceSpec, SamplingParams, standard_lanes
from engine.recordings.check import check
from engine.recordings.claims import judged
from engine.recordings.compare import compare
from engine.recordings.recording import Recording, read
from engine.remote.same_text import Answer, judge
from tests.helpers.races import recording


def a_lane(rng: random.Random, ids: list[int], audit: bool) -> list[Any]:
    """Events of a lane that ends somewhere, somehow: finished, failed, or cut by Stop."""
    num = rng.choice([0, 0, 0, 1, len(ids) // 2, len(ids)])
    sums = [rng.choice([7, 7, 7, 7, 8]) if rng.random() < 0.1 else 7 for _ in ids]
    done: list[Any] = [
        Step(i, i, (), 0, (ids[i],), 0.0, 0.1, 2, ("x",), (), (sums[i],) if audit else ()) for i in range(num)
    ]
    ends = [Failed("the device is lost")], [Finished("length", num, 0.1 * num)], []
    last: Any = rng.choice(ends)
    return [*([Started(3, 0.1)] if num or last == ends[1] or rng.random() < 0.5 else []), *done, *last]


def a_race(seed: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """A random race of three lanes, and each lane's events."""
    rng, audit = random.Random(seed), seed % 2 == 0
    ids = [rng.randrange(1000) for _ in range(rng.choice([1, 2, 9]))]
    other = [*ids[:-1], ids[-1] + 1] if rng.random() < 0.3 else ids
    lanes = {"plain": a_lane(rng, ids, audit), "baseline": a_lane(rng, ids, audit)}
    lanes["speculative"] = a_lane(rng, other, audit)
    spec = RaceSpec(standard_lanes("ngram", 3), SamplingParams(max_new_tokens=9), audit)
    events, clocks = list[LaneEvent](), dict.fromkeys(lanes, 0.0)
    for row in zip_longest(*lanes.values()):  # steps of one length, in turns
        for name, event in zip(lanes, row, strict=True):
            clocks[name] += event.seconds if isinstance(event, Step) else 0.0
            events += [LaneEvent(name, clocks[name], event)] if event else []
    return recording(spec, [1, 2, 3], events) | {"stopped": True}, lanes


def tokens(done: list[Any]) -> list[int]:
    return [event.token_ids[0] for event in done if isinstance(event, Step)]


@settings(max_examples=300)
@given(st.integers(0, 10**9))
def test_no_verdict_says_more_than_was_compared(seed: int) -> None:
    """Lanes that failed, wrote nothing or were cut would be called identical, as far as nobody looked."""
    race, lanes = a_race(seed)
    base, states = lanes["baseline"], {name: state_of(Recording.of(race).events, name) for name in lanes}
    ends = {name: type(done[-1]) if done else None for name, done in lanes.items()}
    texts = {name: "".join(chr(256 + token) for token in tokens(done)) for name, done in lanes.items()}
    answers = {name: Answer(name, texts[name], (), False, states[name], 0) for name in lanes}
    again = compare(Recording.of(race), Recording.of(race))
    assert again["same_tokens"] == any(texts.values()) and again["sentence"].startswith("same") == any(texts.values())
    for name in ("plain", "speculative"):
        verdict, pair = race["verdicts"][name], (base, lanes[name])
        served = judge(answers["baseline"], answers[name])
        orders = permutations(("baseline", name))
        goes_on = any(states[a] == "finished" and texts[b][len(texts[a]) :] for a, b in orders)
        assert again["lanes"][name]["same_tokens"] is (True if texts[name] else None)
        common = min(len(tokens(done)) for done in pair)
        same = tokens(base)[:common] == tokens(lanes[name])[:common]
        failed = Failed in (ends["baseline"], ends[name])
        for kind in {verdict["kind"], served["kind"]} & set(SAME):
            assert same and common and not failed and not goes_on, kind
        if verdict["kind"] in SAME:
            assert verdict["complete"] or ("shorter" in verdict["sentence"] and "so far" in verdict["short"])
        for kind in {verdict["kind"], served["kind"]} & {"not_compared"}:
            assert same and (failed or not common), kind
        assert verdict["complete"] == (ends["baseline"] is ends[name] is Finished)
        assert (VERDICTS[verdict["kind"]].is_same is None) == (verdict["kind"] == "not_compared")
    if all(end in (Failed, Finished) for end in ends.values()):  # else all were cut at one moment, which these were not
        check(race)
    spoken = Recording.of(race)
    if race["verdicts"]["speculative"]["kind"] == "not_compared":
        with pytest.raises(RaceError):
            check_outcome(spoken)
        assert "identical" not in "".join(describe(spoken))


@settings(max_examples=100)
@given(st.integers(0, 10**9), st.sampled_from(sorted(set(KINDS) - {"not_compared"})))
def test_a_file_cannot_claim_more_either(seed: int, kind: str) -> None:
    """An older version's file, or a forger's, calls lanes identical that failed, or judges lanes that wrote nothing."""
    race, lanes = a_race(seed)
    claimed = {**race["verdicts"]["speculative"], "kind": kind, "sentence": kind, "complete": True, "short": "all"}
    fields = {**race, "verdicts": {"speculative": claimed}}
    verdict = judged(fields, Recording.of(race).spec, Recording.of(race).events)["verdicts"]["speculative"]
    pair = lanes["baseline"], lanes["speculative"]
    wrote, failed = min(map(len, map(tokens, pair))), any(done and isinstance(done[-1], Failed) for done in pair)
    goes_on = any(isinstance(a[-1], Finished) and len(tokens(a)) < len(tokens(b)) for a, b in permutations(pair) if a)
    is_claim = kind in (*SAME, "same_distribution")
    assert (verdict["kind"] == "not_compared") == (failed or not wrote if is_claim else not (wrote or goes_on))
    assert verdict["short"] != "all" or kind == "other_text"


def test_a_fault_says_from_where_on_the_texts_differ() -> None:
    """Red "a fault" was followed by "15 of 15 tokens identical"."""
    shorts = [race["verdicts"]["speculative"] for race, _ in map(a_race, range(300))]
    faults = [verdict for verdict in shorts if verdict["kind"] == "different"]
    assert len(faults) > 10
    assert all("different" in v["short"] or "continues" in v["short"] or "differ" in v["short"] for v in faults)
    assert not any("last bits" in verdict["sentence"] for verdict in shorts), "nobody measured the difference"


def test_shipped_races_say_where_they_are_easy() -> None:
    """SQL (7.37x) and Summary (9.66x) stood white, although nearly all of their text lies in the prompt; or the first
    thing that a visitor sees is a loop, the easiest text there is."""
    for path in sorted(RACES.glob("*.json")):
        race = read(path)
        kinds = [caution["kind"] for caution in race["cautions"]]
        assert kinds == ["copies"] * (path.stem in ("sql", "summary")), path.stem
        for caution in race["cautions"]:
            assert "copies the prompt" in caution["short"] and caution["short"] in " ".join(describe(race))
