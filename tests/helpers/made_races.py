"""Races whose every time and count a test chooses: for tests of what is said of a race."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.core.events import Started, Step
from engine.core.race import race
from engine.core.spec import RaceSpec, SamplingParams, standard_lanes
from tests.helpers.races import finished, recording


def a_race(
    steps: Sequence[tuple[int, int]],
    plain_s: float = 0.01,
    step_s: float = 0.012,
    draft_s: float = 0.001,
    prefill_s: tuple[float, float] = (0.1, 0.1),
    drafter: str = "ngram",
    token_ids: Sequence[int] | None = None,
) -> dict[str, Any]:
    """A recording: `steps` are (drafted, accepted) of the speculative lane, each of `step_s` seconds, `draft_s` of them
    for a draft; a step commits what it accepts and one token more. Plain and baseline take `plain_s` a token.
    prefill_s: of the plain lanes and of the speculative one."""
    num = sum(accepted + 1 for _, accepted in steps)
    ids = tuple(range(100, 100 + num) if token_ids is None else token_ids)
    alone = [Step(i, i, (), 0, (token,), 0.0, plain_s, 2, ("x",)) for i, token in enumerate(ids)]
    done: list[Step] = []
    position = 0
    for drafted, accepted in steps:
        draft = (*ids[position : position + accepted], *[99] * (drafted - accepted))
        committed, spent = ids[position : position + accepted + 1], draft_s if drafted else 0.0
        step = Step(len(done), position, draft, accepted, committed, spent, step_s - spent, max(2, drafted + 1))
        done.append(replace(step, pieces=("x",) * len(committed), drafted_pieces=("x",) * drafted))
        position += len(committed)
    k = max(1, *(drafted for drafted, _ in steps))
    spec = RaceSpec(standard_lanes(drafter, k), SamplingParams(max_new_tokens=num))
    plain = [Started(3, prefill_s[0]), *finished("length", alone)]
    played = {"plain": plain, "baseline": plain, "speculative": [Started(3, prefill_s[1]), *finished("length", done)]}
    events = list(race({name: iter(lane_events) for name, lane_events in played.items()}))
    return recording(spec, [1, 2, 3], events)
