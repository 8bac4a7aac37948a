"""What both the engine and the page compute: the numbers of a race, what must be said with them, and the race at
another length. Each is compared with the engine's, without a browser."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.analysis.breakdown import compared
from engine.analysis.metrics import ratio_noise
from engine.cli.terminal import marked
from engine.core.events import Step, steps
from engine.recordings.recording import Recording
from engine.what_if.judged import what_if_of
from tests.helpers.race_pages import SHORT, TEXT, numbers_at, race_over, rounded, words_of
from tests.helpers.races import MOST, events_of, known_in_part, on_servers, recordings, servers_races, with_tables

MODULES = ("base/model.js", "yours/prompt_results.js", "tabs/whatif.js")
Call = Callable[..., Any]
TREES = f"tree:{MOST}"
NUMBERS = """(recording, times) => {
    const race = new Race(recording.events), first = firstByRole(recording.spec.lanes);
    return times.map(t => ({
        metrics: Object.fromEntries([...race.lanes.values()].map(lane =>
            [lane.name, metricsOf(lane, lane.countAt(t))])),
        speedup: raceSpeedup(race, first, race.lane("speculative"), lane => lane.countAt(t)),
    }));
}"""
CAVEATS = "(plain, other) => ratioNoise(plain, other)"


@settings(max_examples=25)
@given(recorded=recordings() | servers_races(recordings()) | recordings(k=TREES))
@example(recorded=SHORT)
@example(recorded=known_in_part(SHORT, random.Random(2)))
@example(recorded=on_servers(SHORT))
def test_the_numbers_of_a_replay_are_those_of_the_engine(pure: Call, recorded: dict[str, Any]) -> None:
    """In replay no server counts; the page's own formulas must be engine.analysis.metrics, not something like them."""
    clocks = sorted({event["clock_s"] for event in recorded["events"] if event["type"] == "step"})
    times = [0.0, *clocks[:: len(clocks) // 6 + 1], max(clocks, default=0.0)]
    assert rounded(pure(NUMBERS, recorded, times)) == rounded([numbers_at(recorded, t) for t in times])


REASONS = """recording => {
    const race = new Race(recording.events), first = firstByRole(recording.spec.lanes);
    return reasonsOf(race, first, race.lane("speculative"));
}"""


@settings(max_examples=25)
@given(recorded=recordings() | recordings(k=TREES))
@example(recorded=SHORT)
def test_the_answer_of_why_is_the_engines(pure: Call, recorded: dict[str, Any]) -> None:
    """The sentence above the figures would contradict them."""
    race, reasons = compared(events_of(recorded)), pure(REASONS, recorded)
    if race is not None:
        shares = race.tokens_per_step, race.tokens_per_step / race.speedup, race.speedup
        assert (reasons["perStep"], reasons["cost"], reasons["speedup"]) == pytest.approx(shares, rel=1e-9)
        assert reasons["drafting"] == pytest.approx(race.costs().drafting_s / sum(race.costs()), rel=1e-9)


STEP = """events => events.map(step => [keptOf(step), rowsOf(step), followsOf(step), depthsOf(step), depthOf(step),
    isRefuted(step), tokensOf(step).filter(({ aside }) => !aside).map(({ kind, text }) => [text, kind]),
    tokensOf(step).filter(({ aside }) => aside).length, stepWords(step)])"""


@settings(max_examples=25)
@given(recorded=recordings(), trees=recordings(k=TREES), seed=st.integers(0, 99))
@example(recorded=SHORT, trees=SHORT, seed=1)
def test_a_step_of_the_page_is_the_engines(
    pure: Call, recorded: dict[str, Any], trees: dict[str, Any], seed: int
) -> None:
    """A tree read along another path: tokens marked that were not kept, or a struck one; words for unknown guesses."""
    for race in (recorded, trees, known_in_part(recorded, random.Random(seed))):
        raw = [event for event in race["events"] if event["type"] == "step"]
        done = [event.event for event in events_of(race) if isinstance(event.event, Step)]
        for step, event, view in zip(done, raw, pure(STEP, raw), strict=True):
            *rows, tokens, aside, said = view
            num = step.num_drafted
            assert (f"{step.num_accepted} of {num} guesses kept" if num else "no guess") in said
            assert (f"of a tree {step.depth} deep" in said) == bool(step.parents)
            assert ("not known" in said) == (not step.drafted and num > step.num_accepted)
            if num and not step.drafted:
                continue
            depths = [len(path) for path in step.paths]
            assert rows == [[*step.kept], [*step.rows], [*step.follows], depths, step.depth, step.is_refuted]
            assert len(tokens) + aside == len(step.drafted) + len(step.token_ids) - step.num_accepted
            if len(step.token_ids) > step.num_accepted:
                marks = [mark for _, mark in marked(step) if mark != "more"]
                assert [{"plain": "own"}.get(kind, kind) for _, kind in tokens] == marks
                assert ("more" in dict(map(reversed, marked(step)))) == (aside > 0)
            assert [text for text, kind in tokens if kind != "rejected"] == event["pieces"]


def test_caveats_are_those_of_the_engine(pure: Call) -> None:
    """The noise of a ratio is judged in the browser; it must be what the terminal says."""
    for recorded in (race_over(words_of(TEXT)[:20] * 5, seed=3), SHORT, known_in_part(SHORT, random.Random(2))):
        events = events_of(recorded)
        plain, done = (steps(events, name) for name in ("baseline", "speculative"))
        raw = [event for event in recorded["events"] if event["type"] == "step"]
        raw = [[event for event in raw if event["lane"] == name] for name in ("baseline", "speculative")]
        assert pure(CAVEATS, *raw) == pytest.approx(ratio_noise(plain, done), rel=1e-9)


STEPS = """recording => {
    const race = new Race(recording.events), first = firstByRole(recording.spec.lanes);
    const found = new WhatIf(recording, race, first, "speculative");
    return [...found.offered].map(([drafter, ks]) => [drafter, ks.map(k =>
        [k, found.steps(drafter, k).map(step =>
            [step.position, step.drafted, step.parents ?? [], step.num_accepted, step.pieces, step.drafted_pieces])])]);
}"""


@pytest.mark.parametrize(
    "name", ["ngram", "eagle3~greedy", "x~greedy@5", "ngram@5", "ngram@tree", "x@07", "__proto__", "__proto__@tree"]
)
def test_a_race_at_every_size_is_the_engines(pure: Call, name: str) -> None:
    """A slider that shows another race than the chart, misses a draft, or writes a kept token over a dropped one."""
    words = words_of("one two three four five six seven eight nine ten " * 3)
    race = race_over(words, k=5)
    race = with_tables(race, random.Random(3), name)
    what_if = what_if_of(Recording.of(race))
    assert what_if is not None
    pieces = [piece for step in steps(events_of(race), "baseline") for piece in step.pieces]

    def written(step: Step) -> list[Any]:
        drafted = [f"#{token} " for token in step.drafted]
        for place, i in enumerate(step.kept):
            drafted[i] = pieces[step.position + place]
        own = pieces[step.position : step.position + len(step.token_ids)]
        return [step.position, [*step.drafted], [*step.parents], step.num_accepted, own, drafted]

    steps_at = {of: {k: what_if.steps(of, k) for k in ks} for of, ks in what_if.offered().items()}
    expected = [[of, [[k, [*map(written, done)]] for k, done in by_k.items()]] for of, by_k in steps_at.items()]
    assert pure(STEPS, race) == expected


def test_what_is_cut_ends_at_a_character(pure: Call) -> None:
    """Half of an emoji is a mark for a broken character; a part of a family is another family."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for before in range(28, 40):
        assert re.fullmatch(f"\u201ca+({family})*\u2026\u201d", pure("startOf", "a" * before + family * 4))


OFFERED = """(recording, lanes) => {
    const race = new Race(recording.events), first = firstByRole(recording.spec.lanes);
    const { offered } = new WhatIf(recording, race, first, "speculative");
    return lanes.map(lane => { const name = offeredTo(lane, offered); return name && laneOf(name, 7); });
}"""


def test_a_lane_finds_its_own_table(pure: Call) -> None:
    """A lane of trees would be compared with chains, or the reverse; or a table that is not known be offered."""
    race = with_tables(race_over(words_of("one two three " * 3), k=5), random.Random(3), "ngram", "ngram@tree")
    for of in (race["tables"], race["costs"]["draft_s"]):
        of["ngram@auto"] = of["ngram"]
    lanes = [{"drafter": "ngram", "k": k} for k in (7, "auto", "tree:3")] + [{"drafter": "eagle3", "k": 7}]
    chain, tree = {"drafter": "ngram", "k": 7}, {"drafter": "ngram", "k": "tree:7"}
    assert pure(OFFERED, race, lanes) == [chain, tree, tree, None]
    for of in (race["tables"], race["costs"]["draft_s"]):
        del of["ngram@tree"]
    assert pure(OFFERED, race, lanes) == [chain, chain, {"drafter": "ngram", "k": 7}, None]
