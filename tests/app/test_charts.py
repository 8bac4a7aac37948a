"""The chart of first guesses: every value is the engine's, and what cannot be drawn is said in a sentence."""

import copy
import json
from functools import cache
from typing import Any

import pytest

from app.figures.charts import NO_TABLES, charts, first_guess
from engine.core.spec import AUTO, RaceSpec, SamplingParams, lanes_of
from engine.recordings.recording import Recording, build
from engine.session import TorchRace
from engine.text import encode_prompt
from engine.what_if.ask import members
from engine.what_if.read import what_if_of
from tests.helpers.trained import PROMPTS, text_of, trained

EAGLE3, DFLASH = text_of("eagle3"), text_of("dflash")
pytestmark = pytest.mark.usefixtures("quick_races")
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


def test_first_guesses_are_those_of_the_steps() -> None:
    """The chart would blame the drafter for what the choice of places does; or count steps that drafted nothing."""
    race, what_if = Recording.of(recording()), what_if_of(Recording.of(recording()))
    drawn = first_guess(race)
    for trace, drafter in zip(drawn.figure.data, ("ngram", EAGLE3, f"hybrid:ngram+{EAGLE3}"), strict=True):
        for k, y in zip(trace.x[1:], trace.y[1:], strict=True):
            drafted = [step for step in what_if.steps(drafter, k) if step.drafted]
            assert y == pytest.approx(100 * sum(step.num_accepted > 0 for step in drafted) / len(drafted))
        places = [draft.token_ids[0] == token for draft, token in
                  zip(what_if.tables[drafter].drafts, what_if.text.token_ids, strict=False) if len(draft)]  # fmt: skip
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
        drawn = charts(Recording.of(race))[3]
        assert drawn.figure is None and words.lower() in drawn.sentence.lower()
    assert charts(None)[3].figure is None
