"""Races whose steps are judged on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.session import TorchRace
from engine.session import set_up as backend
from engine.spec import LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.target.target import StaticTarget
from engine.text import encode_prompt
from tests.helpers.trained import PROMPTS, text_of, trained

# Races


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_race_of_whole_steps_is_the_same_race(monkeypatch, temperature):
    """Warming, calibrating, the draft heads' hidden states or the verdict would not go with whole steps."""
    loaded = trained()
    made = []

    def raced(whole: bool) -> dict[str, Any]:
        monkeypatch.setattr(
            backend,
            "StaticTarget",
            lambda *args, **more: made.append(StaticTarget(*args, **more, whole_steps=whole)) or made[-1],
        )
        lanes = [
            *standard_lanes("ngram", 3),
            LaneSpec("eagle3", text_of("eagle3"), k=3),
            LaneSpec("auto", "ngram", k="auto"),
        ]
        lanes = [lane if lane.name == "plain" else replace(lane, width=16) for lane in lanes]  # whatever is measured
        params = SamplingParams(temperature=temperature, seed=1, max_new_tokens=20)
        race = TorchRace(
            loaded, RaceSpec(tuple(lanes), params, audit=True), encode_prompt(loaded.tokenizer, PROMPTS[0], False)
        )
        list(race.events())
        assert all(lane.finished for lane in race.lanes.values()) and all(
            bool(lane.target._whole) == whole for lane in race.lanes.values()
        )
        assert len({id(target._pool) for target in made[-len(lanes) :]}) == 1
        verdicts = race.result()["verdicts"]
        assert {verdicts[lane.name]["kind"] for lane in lanes if lane.role == "speculative"} == {"identical_bits"}
        texts = {
            name: "".join("".join(step.pieces) for step in lane.steps)
            for name, lane in race.lanes.items()
            if name != "plain"
        }
        return {
            "texts": texts,
            **{
                name: [(s.drafted, s.num_accepted, s.token_ids, s.checksums) for s in race.lanes[name].steps]
                for name in ("baseline", "speculative", "eagle3")
            },
        }

    assert raced(True) == raced(False)
