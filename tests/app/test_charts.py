"""The chart of speed over k: every value is the engine's, and what cannot be drawn is said in a sentence."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from typing import Any

import pytest

from app.figures.charts import NO_TABLES, charts, first_guess, speed_over_k
from engine.analysis.metrics import lane_metrics
from engine.core.events import LaneEvent, steps
from engine.core.spec import AUTO, RaceSpec, SamplingParams, lanes_of
from engine.drafters import label
from engine.recordings.recording import Recording, build
from engine.session import TorchRace
from engine.text import encode_prompt
from engine.what_if.ask import members
from engine.what_if.read import what_if_of
from engine.what_if.tables import seconds_of
from tests.helpers.races import events_of, spec_of
from tests.helpers.trained import PROMPTS, text_of, trained

EAGLE3, DFLASH = text_of("eagle3"), text_of("dflash")
LANES = [(f"ngram+{EAGLE3}", AUTO), ("ngram", 4), (EAGLE3, 2), (DFLASH, 3)]


@cache
def raced() -> str:
    """A real race of the fixture with lanes at fixed k and one at k auto, as text."""
    loaded = trained()
    lanes = [(f"lane {i}", f"hybrid:{d}" if "+" in d else d, k) for i, (d, k) in enumerate(LANES)]
    spec = RaceSpec(lanes_of(lanes), SamplingParams(max_new_tokens=24))
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, PROMPTS[0]))
    events = list(race.events())
    return json.dumps(build(race.header(), events, {**race.result(), **members(race)}).fields)


def recording() -> dict[str, Any]:
    return json.loads(raced())


def traces(race: dict[str, Any]) -> dict[str, Any]:
    return {trace.name: trace for trace in speed_over_k(Recording.of(race)).figure.data}


def test_every_point_is_the_engines() -> None:
    """A curve that contradicts the engine, or shows a raced lane at a speed other than the board's."""
    race = recording()
    events, found, drawn = events_of(race), what_if_of(Recording.of(race)), traces(race)
    rate = {lane.name: lane_metrics(events, lane.name).tokens_per_s for lane in spec_of(race).lanes}
    assert len(drawn) == 5 + 4
    for drafter, trace in zip(found.offered(), drawn.values(), strict=False):
        assert list(trace.x) == found.offered()[drafter]
        assert ("lines" in trace.mode) == (drafter != DFLASH)
        assert trace.name.endswith(", tree") == drafter.endswith("@tree")
        for k, y in zip(trace.x, trace.y, strict=True):
            told = [LaneEvent("x", 0.0, step) for step in found.steps(drafter, k)]
            assert y == pytest.approx(lane_metrics(told, "x").tokens_per_s)
    assert list(drawn["raced"].x) == [4, 2, 3]
    assert list(drawn["raced"].y) == [rate[f"lane {i}"] for i in (1, 2, 3)]
    assert set(drawn["plain"].y) == {max(rate["plain"], rate["baseline"])}
    automatic = next(trace for name, trace in drawn.items() if name.startswith("automatic"))
    assert set(automatic.y) == {rate["lane 0"]}
    (oracle,) = set(drawn["best possible (oracle)"].y)
    assert oracle == pytest.approx(24 / race["oracles"]["lane 0"]["seconds"])
    (own,) = (trace for name, trace in drawn.items() if name.startswith("n-gram, else") and name.endswith(", tree"))
    assert oracle >= max(own.y) * (1 - 1e-9)


def test_the_sentence_names_the_best_and_the_share() -> None:
    """The sentence would name a length other than the highest point's, or a share other than the recording's."""
    race = recording()
    found, words = what_if_of(Recording.of(race)), speed_over_k(Recording.of(race)).sentence
    seconds = {(of, k): seconds_of(found.steps(of, k)) for of, ks in found.offered().items() for k in ks}
    drafter, k = min(seconds, key=seconds.__getitem__)
    wanted = r"Fastest on this engine: (\S+) with (\S+).*, ([\d.]+)× as fast as Plain; automatic length reached (\d+) %"
    said = re.match(wanted, words)
    tree = "tree:" if drafter.endswith("@tree") else ""
    assert said and (said[1], said[2]) == (f"{tree}{k}", label(drafter.removesuffix("@tree")).split()[0])
    assert float(said[4]) == pytest.approx(100 * race["oracles"]["lane 0"]["share"], abs=0.51)
    plain = min(seconds_of(steps(events_of(race), name)) for name in ("plain", "baseline"))
    assert float(said[3]) == pytest.approx(plain / seconds[drafter, k], abs=0.006)
    assert words.endswith("Steps are exact; times are computed from this race's costs.")


def test_first_guesses_are_those_of_the_steps() -> None:
    """The chart would blame the drafter for what the choice of places does; or count steps that drafted nothing."""
    race, found = Recording.of(recording()), what_if_of(Recording.of(recording()))
    drawn = first_guess(race)
    for trace, drafter in zip(drawn.figure.data, ("ngram", EAGLE3, f"hybrid:ngram+{EAGLE3}"), strict=True):
        for k, y in zip(trace.x[1:], trace.y[1:], strict=True):
            drafted = [step for step in found.steps(drafter, k) if step.drafted]
            assert y == pytest.approx(100 * sum(step.num_accepted > 0 for step in drafted) / len(drafted))
        places = [draft.token_ids[0] == token for draft, token in
                  zip(found.tables[drafter].drafts, found.text.token_ids, strict=False) if len(draft)]  # fmt: skip
        assert trace.x[0] == 0 and trace.y[0] == pytest.approx(100 * sum(places) / len(places))


def test_what_cannot_be_drawn_is_said() -> None:
    """An empty figure would leave the visitor guessing, or a contradiction be drawn."""
    whole = recording()
    none = {key: value for key, value in whole.items() if key not in ("tables", "costs", "oracles")}
    unknown = json.loads(raced().replace('"ngram"', '"tarot"'))
    rejection = copy.deepcopy(none)
    for lane in rejection["spec"]["lanes"][2:]:
        lane["rule"] = "rejection"
    for race, words in (
        (none, NO_TABLES),
        (unknown, "drafter 'tarot'"),
        (rejection, "Rule 'rejection' of lane 'lane 0' has no table"),
    ):
        for drawn in charts(Recording.of(race))[3:]:
            assert drawn.figure is None and words.lower() in drawn.sentence.lower()
    assert charts(None)[3].figure is None


def test_without_a_table_of_the_lane_there_is_no_oracle() -> None:
    """An older recording, with tables of a hybrid's parts, is not drawn; or compared with the best of one part."""
    race = recording()
    hybrid = race["spec"]["lanes"][2]["drafter"]
    for of in (race["tables"], race["costs"]["draft_s"], race["table_parents"], race["table_chances"]):
        of.pop(hybrid, None)
        del of[f"{hybrid}@tree"]
    for of in (race["tables"], race["costs"]["draft_s"]):
        of["ngram@auto"] = of["ngram"]
    race["table_margins"] = {"ngram": []}
    drawn = speed_over_k(Recording.of(race))
    names = [trace.name for trace in drawn.figure.data]
    assert len(names) == 3 + 3 and "best possible (oracle)" not in names and "reached" not in drawn.sentence
