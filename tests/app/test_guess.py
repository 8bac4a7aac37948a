"""Be the drafter, without a page: what is typed against the recorded text, and the drafters' tallies beside it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.recordings.recording import Recording, read
from engine.what_if.judged import what_if_of
from tests.helpers import CHAINS

MODULES = ("tabs/guess.js", "tabs/whatif.js")
Call = Callable[..., Any]
PLAY = """(pieces, from, typed, costs) => {
    const round = new Round(pieces, from, costs ?? undefined);
    const steps = typed.flatMap(text => (round.over ? [] : [round.guess(text)]));
    return { steps, over: round.over, at: round.at, tally: tallyOf(steps),
        speed: speedOf(JSON.parse(JSON.stringify(added(NO_STEPS, tallyOf(steps)))), 0.5) };
}"""
DRAFTERS = """(recording, from, to) => {
    const race = new Race(recording.events), first = firstByRole(recording.spec.lanes);
    const whatIf = new WhatIf(recording, race, first, "speculative");
    return Object.fromEntries([...bestLengths(whatIf)].map(([drafter, k]) =>
        [drafter, [k, tallyOf(whatIf.steps(drafter, k, from, to))]]));
}"""
PIECES = st.lists(st.sampled_from(["a", " a", " bc", "bc", "\n", " ", "  ", "\u00e9", "x y"]), min_size=1)


@given(PIECES, st.data())
def test_a_round_is_verification_of_what_was_typed(pure: Call, pieces: list[str], data: st.DataObject) -> None:
    """A right guess struck out, also for spaces or line breaks that nobody sees; a wrong one kept, letters that vanish,
    or text that is not the recorded one; more guesses than a step has, or than its price is known for; a speed without
    a price, or one that guessing everything wins."""
    start = data.draw(st.integers(0, len(pieces) - 1))
    right = st.integers(0, len(pieces)).map(lambda n: "".join(pieces[start : start + n]))
    typed = data.draw(st.lists(right | st.text("a bc\nx", max_size=6) | PIECES.map("".join), max_size=12))
    costs = data.draw(st.none() | st.lists(st.integers(1, 9), min_size=2, max_size=12))
    most = min(8, len(costs) - 1) if costs else 8
    played = pure(PLAY, pieces, start, typed, costs)
    at = start
    for step, given_ in zip(played["steps"], typed, strict=False):
        drafted, kept, rest = step["drafted"], step["num_accepted"], pieces[at:]
        assert "".join(given_.split()).startswith("".join("".join(drafted + step["beyond"]).split()))
        assert len(drafted) == most or (not step["beyond"] and len(drafted) < most)
        assert drafted[:kept] == rest[:kept] and (kept == len(drafted) or drafted[kept] != rest[kept])
        assert step["pieces"] == rest[: kept + 1] and step["position"] == at
        at += len(step["pieces"])
    assert played["at"] == at and len(played["steps"]) <= 10
    assert played["over"] == (len(played["steps"]) == 10 or at == len(pieces))
    rest = pieces[start:][: data.draw(st.integers(1, 9))]
    (bare,) = pure(PLAY, pieces, start, ["".join(piece.strip() for piece in rest) or "\n"])["steps"]
    assert bare["num_accepted"] >= min(len(rest), 8) or not any(piece.strip() for piece in rest[bare["num_accepted"] :])
    sizes = [len(step["drafted"]) for step in played["steps"]]
    kept = sum(step["num_accepted"] for step in played["steps"])
    seconds = sum(costs[size] for size in sizes) if costs or not sizes else None
    tally = {"kept": kept, "guessed": sum(sizes), "tokens": at - start, "steps": len(sizes), "seconds": seconds}
    assert played["tally"] == tally
    assert played["speed"] == (pytest.approx((at - start) / seconds / 0.5) if seconds else None)


def drafter_over(recording: Recording, drafter: str, start: int, end: int) -> tuple[int, int, int, int, int]:
    """k, kept, guessed, tokens, steps of a drafter over a stretch, at its fastest k of the race, by its table alone."""
    what_if = what_if_of(recording)
    assert what_if is not None
    ids = what_if.text.token_ids
    k = min(what_if.offered()[drafter], key=lambda k: sum(step.seconds for step in what_if.steps(drafter, k)))
    kept = guessed = steps = 0
    at = start
    while at < end:
        draft = recording["tables"][drafter][at][: min(k, end - at - 1)]
        right = next((i for i, token in enumerate(draft) if token != ids[at + i]), len(draft))
        kept, guessed, steps = kept + right, guessed + len(draft), steps + 1
        at += right + 1
    return k, kept, guessed, end - start, steps


@pytest.mark.parametrize("name", ["csv_to_json", "story"])
@pytest.mark.parametrize("stretch", [(0, 12), (7, 40), (31, 32)])
def test_the_drafters_play_the_same_stretch(pure: Call, name: str, stretch: tuple[int, int]) -> None:
    """A drafter's figure that is not of the text that the player wrote, or of another length than its best."""
    recording = read(CHAINS / f"{name}.json")
    tallies = pure(DRAFTERS, recording.fields, *stretch)
    assert tallies
    for drafter, (k, tally) in tallies.items():
        shown = k, *(tally[field] for field in ("kept", "guessed", "tokens", "steps"))
        assert shown == drafter_over(recording, drafter, *stretch)
