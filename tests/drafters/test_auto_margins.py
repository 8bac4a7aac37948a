"""`auto` k with a drafter that says how sure it is of each token: stopped where the next one would not pay, and never
where that would bias."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

from engine.drafters.auto import AutoDrafter
from engine.interfaces import Draft, MarginDrafter
from engine.session import TorchRace
from engine.spec import MAX_AUTO_K, RaceSpec, SamplingParams, standard_lanes
from engine.text import encode_prompt
from tests.helpers.auto_races import COSTS, decode_s, text
from tests.helpers.fakes import FakeClock
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, trained


class Sure(MarginDrafter):
    """Guesses the truth with these chances in turn, and says how sure it is; `told` False: always the same."""

    def __init__(self, truth: Sequence[int], clock: FakeClock, token_s: float, seed: int, told: bool) -> None:
        self.truth, self.clock, self.token_s, self.rng, self.told = truth, clock, token_s, random.Random(seed), told

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self.num_prompt = len(prompt_ids)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        return self.propose_while(token_ids, hidden, k, lambda *_: True) if k else Draft()

    def propose_while(
        self, token_ids: Sequence[int], hidden: Any, k: int, go_on: Callable[[int, float], bool]
    ) -> Draft:
        done, ids = len(token_ids) - self.num_prompt, []
        for true in self.truth[done : done + k]:
            sure = self.rng.random() < 0.5
            self.clock.spend(self.token_s)
            ids.append(true if self.rng.random() < (0.95 if sure else 0.2) else true + 1)
            if not go_on(ids[-1], (6.0 if sure else 0.2) if self.told else 1.0):
                break
        return Draft(tuple(ids))


def test_a_drafter_is_stopped_where_it_is_not_sure():
    """The margins would be asked for and not used: a draft would go on behind a token that is likely wrong, or end
    behind one that is surely right."""
    gains = []
    for seed in range(6):
        truth = text(seed)
        seconds = []
        for told in (True, False):
            clock = FakeClock()
            seconds.append(
                decode_s(
                    AutoDrafter(Sure(truth, clock, 0.003, seed, told), COSTS, clock), clock, [1], truth, MAX_AUTO_K
                )[0]
            )
        gains.append(seconds[1] / seconds[0])
    assert geometric_mean(gains) >= 1.05


def test_margins_are_not_asked_for_where_they_would_bias():
    """Under rejection a length that depends on what was drafted would change the odds of what is written."""
    truth, asked = text(0), []
    drafter = Sure(truth, FakeClock(), 0.0, 0, True)
    drafter.propose = lambda token_ids, hidden, k: Draft(tuple(truth[len(token_ids) - 1 :][:k]))
    drafter.propose_while = lambda *arguments: asked.append(arguments) or Draft()
    _, drafted = decode_s(
        AutoDrafter(drafter, COSTS, FakeClock(), by_margin=False), FakeClock(), [1], truth, MAX_AUTO_K
    )
    assert any(drafted) and not asked
    loaded = trained()
    for rule, by_margin in (("rejection", False), ("coupled", True)):
        lanes = [
            replace(lane, rule=rule) if lane.name == "speculative" else lane
            for lane in standard_lanes(f"eagle3:{TRAINED.parent / 'eagle3'}", "auto")
        ]
        race = TorchRace(
            loaded,
            RaceSpec(tuple(lanes), SamplingParams(0.8, seed=3, max_new_tokens=24)),
            encode_prompt(loaded.tokenizer, PROMPTS[0], False),
        )
        assert race.lanes["speculative"].drafter.by_margin == by_margin
