"""Recordings of trees of drafts: readers follow the path that was kept; what no tree's step can have is refused."""

import copy
import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from engine.analysis.breakdown import Compared, compared, origins
from engine.analysis.inflate import all_kept
from engine.analysis.metrics import lane_metrics
from engine.cli.report import print_report
from engine.cli.terminal import marked
from engine.core.errors import UsageError
from engine.core.events import LaneEvent, Step, steps, text_of, token_ids
from engine.core.interfaces import Draft
from engine.core.spec import paths, standard_lanes
from engine.recordings.compare import compare
from engine.recordings.event_json import from_json, to_json
from engine.recordings.recording import Recording, checked, read, write
from engine.recordings.steps_csv import steps_csv
from engine.session import TorchRace
from engine.text import Pieces
from tests.helpers import races, trained
from tests.helpers.native_kernels import needs_kernels
from tests.helpers.races import events_of
from tests.helpers.trained import race_of
from tests.helpers.tree_drafts import TreeDrafter

LANE, K, NUM_TOKENS = "speculative", 7, 40
NUM_BYTES = 256  # wrong drafts are single bytes: many are parts of characters


class Copies(TreeDrafter):
    """Trees drawn by chance that say where their tokens are also found, and how likely they are."""

    hidden_layers = ()

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        draft = super().propose(token_ids, hidden, k)
        sources = []
        for token, path in zip(draft.token_ids, paths(draft.parents)[1:], strict=True):
            text = [*token_ids, *(draft.token_ids[i] for i in path[:-1])]
            places = [i for i, token_id in enumerate(text) if token_id == token]
            sources.append(self._random.choice([-1, *places, *places[-1:]]))
        chances = tuple(self._random.random() for _ in sources)
        return Draft(draft.token_ids, parents=draft.parents, sources=tuple(sources), chances=chances)


@cache
def recorded(seed: int, temperature: float = 0.0) -> tuple[TorchRace, Recording]:
    """An audited race whose drafts are trees."""
    params = {"temperature": temperature, "seed": 3, "max_new_tokens": NUM_TOKENS}
    text: list[int] = []
    for _ in range(2):  # the first race only finds out what the target writes
        race = race_of(standard_lanes("ngram", K), dtype="bfloat16", audit=True, **params)
        race.lanes[LANE].drafter = Copies(text, seed, NUM_BYTES)
        events = list(race.events())
        text = token_ids(events, "baseline")
    return race, trained.recorded(race, events)


@st.composite
def tree_steps(draw: st.DrawFn) -> Step:
    """A step with a random tree, which the target followed for a while; a stop may have cut off its own token."""
    drafted, parents = races.a_tree(draw(st.randoms(use_true_random=False)), draw(st.integers(1, K)), (0, 1, 2, 3), 4)
    path = paths(parents)[draw(st.integers(0, len(drafted)))]
    kept = tuple(drafted[i] for i in path)
    last = path[-1] + 1 if path else 0
    taken = {token for row, token in zip(parents, drafted, strict=True) if row == last}
    own = () if path and draw(st.booleans()) else (draw(st.sampled_from(sorted({*range(5)} - taken))),)
    return Step(0, 0, tuple(drafted), len(path), kept + own, 0.1, 0.1, 8, parents=tuple(parents))


@given(tree_steps())
def test_rows_of_any_tree(step: Step) -> None:
    """A row at the place of another would be shown with another token's chances."""
    assert from_json(to_json(LaneEvent(LANE, 0.2, step))).event == step
    assert tuple(step.drafted[i] for i in step.kept) == step.token_ids[: step.num_accepted]
    assert len(step.rows) == len(step.token_ids)
    for row, path in enumerate(step.paths[1:], 1):
        assert path[-1] == row - 1 and path[:-1] == step.paths[step.parents[row - 1]]
    assert step.paths[step.rows[step.num_accepted - 1] if step.num_accepted else 0] == step.kept[:-1]
    assert step.depth == max(map(len, step.paths)) >= step.num_accepted
    longer = [path for path in step.paths if path[:-1] == step.kept and path != step.kept]
    assert step.is_refuted == (bool(longer) and len(step.token_ids) > step.num_accepted)
    texts = [text for text, mark in marked(step) if mark in ("accepted", "correction", "bonus")]
    assert texts == [f"<{token}>" for token in step.token_ids]
    if len(step.token_ids) > step.num_accepted:
        struck = sum(mark == "rejected" for _, mark in marked(step))
        more = sum(int(text) for text, mark in marked(step) if mark == "more")
        assert struck + more == step.num_drafted - step.num_accepted


@given(races.recordings())
def test_a_chain_as_a_tree_says_the_same(recording: dict[str, Any]) -> None:
    """The same draft, written down in two ways, would get two sets of numbers."""
    events = events_of(recording)

    def as_tree(event: LaneEvent) -> LaneEvent:
        step = event.event
        if not isinstance(step, Step):
            return event
        return replace(event, event=replace(step, parents=step.follows, sources=step.places, copied=()))

    trees = [as_tree(event) for event in events]
    assert lane_metrics(trees, LANE) == lane_metrics(events, LANE)
    for one, other in zip(steps(events, LANE), steps(trees, LANE), strict=True):
        assert marked(one) == marked(other)
        for name in ("kept", "rows", "paths", "depth", "is_refuted", "places"):
            assert getattr(one, name) == getattr(other, name), name
    for drafter in ("ngram", "hybrid:ngram+eagle3"):
        copies = [step for step in steps(events, LANE) if step.copied]
        again = [step for step in steps(trees, LANE) if any(place >= 0 for place in step.sources)]
        assert origins(again, 3, drafter) == origins(copies, 3, drafter)
    first, second = compared(events), compared(trees)
    assert first is not None and second is not None and all_kept(first) == all_kept(second)


TREE = Step(
    *(0, 0, (5, 6, 7, 8, 9, 4), 1, (6, 1), 0.1, 0.1, 8),
    parents=(0, 0, 2, 2, 4, 1),
    sources=(0, 2, 12, -1, -1, -1),
    chances=(0.6, 0.3, 0.1, 0.2, 0.1, 0.5),
)  # 5 -> 4, and 6 -> 7 | (8 -> 9); the target kept 6


def test_what_readers_say_of_one_tree() -> None:
    """The branch that was never compared would be struck as if it had been; or depths counted as numbers of tokens."""
    kept, rejected = ("<6>", "accepted"), (("<8>", "rejected"), ("<9>", "rejected"))
    assert marked(TREE) == [kept, *rejected, ("+3", "more"), ("<1>", "correction")]
    leaf = replace(TREE, num_accepted=2, token_ids=(6, 7, 1))
    assert marked(leaf) == [("<6>", "accepted"), ("<7>", "accepted"), ("+4", "more"), ("<1>", "bonus")]
    numbers = lane_metrics([LaneEvent(LANE, 0.2, TREE), LaneEvent(LANE, 0.4, leaf)], LANE)
    assert numbers.acceptance_by_position == (1.0, 0.5, 0.0)
    assert numbers.conditional_acceptance_by_position == (1.0, 0.5, None), "nothing followed 7"
    assert numbers.acceptance_rate == 3 / 12
    assert origins([leaf], 10, "hybrid:ngram+eagle3") == (1, 1, 0, 1)
    assert origins([leaf], 13, "hybrid:ngram+eagle3") == (2, 0, 0, 1)
    assert origins([replace(leaf, sources=())], 10, "ngram") is None
    assert all_kept(Compared((), [TREE], 1.0, (None, None))) == (4, pytest.approx(0.05)), "it can keep 6, 8 and 9"
    with pytest.raises(UsageError, match="contradicts itself"):  # 6 was drafted there, so it was kept
        from_json(to_json(LaneEvent(LANE, 0.2, replace(TREE, num_accepted=0, token_ids=(6,)))))


@needs_kernels
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_race_of_trees_survives_every_reader(temperature: float, tmp_path: Path) -> None:
    """A race that cannot be read again, replayed, run again or shown."""
    _, recording = recorded(1, temperature)
    done = steps(recording.events, LANE)
    assert any(step.kept != tuple(range(step.num_accepted)) for step in done), "all of its trees kept their first nodes"
    assert {verdict["kind"] for verdict in recording["verdicts"].values()} == {"identical_bits"}
    write(tmp_path / "race.json", recording)
    again = read(tmp_path / "race.json")
    assert again.fields == recording.fields and again.events == recording.events
    _, other = recorded(2, temperature)
    assert steps(other.events, LANE) != done and compare(recording, other)["same_tokens"]
    rows = [
        row
        for row in csv.DictReader(io.StringIO(steps_csv(recording).removeprefix("\ufeff"), newline=""))
        if row["lane"] == LANE
    ]
    for step, row in zip(done, rows, strict=True):
        numbers = {name: tuple(map(int, row[name].split())) for name in ("drafted", "parents", "kept", "token_ids")}
        assert numbers == {name: getattr(step, name) for name in numbers}
    marks = [piece for step in done for piece in marked(step)]
    shown = "".join(text for text, mark in marks if mark not in ("rejected", "more"))
    assert shown == text_of(recording.events, LANE) == text_of(recording.events, "baseline")
    screen = Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"TERM": "xterm"})
    print_report(screen, recording)
    assert "more rejected" in screen.file.getvalue()  # type: ignore[attr-defined]


@needs_kernels
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_candidates_are_those_of_the_rows_places(seed: int, temperature: float) -> None:
    """A row would be shown with the noise of another place, or a dropped branch with a choice nobody made."""
    _, recording = recorded(seed, temperature)
    lanes = recording["candidates"]["lanes"]
    by_place = [row for step in lanes["baseline"] for row in step]
    for step, rows in zip(steps(recording.events, LANE), lanes[LANE], strict=True):
        assert len(rows) == len(step.drafted) + 1
        for r, row in enumerate(rows):
            followers = {token for token, parent in zip(step.drafted, step.parents, strict=True) if parent == r}
            assert followers <= {*row["ids"]}
            assert ("noise" in row) == (r in step.rows and temperature > 0)
        for r, token in zip(step.rows, step.token_ids, strict=True):
            plain, row = by_place[step.position + len(step.paths[r])], rows[r]
            assert token in row["ids"] and row["log_z"] == plain["log_z"]
            numbers = ((entry["logits"], *entry.get("noise", ())) for entry in (plain, row))
            for one, two in zip(*numbers, strict=True):
                wider = dict(zip(row["ids"], two, strict=True))
                assert [wider[token] for token in plain["ids"]] == one


@needs_kernels
def test_texts_of_draft_tokens_follow_their_own_paths() -> None:
    """Half a character of one branch would be joined to half a character of another."""
    race, recording = recorded(1)
    pieces = Pieces(race.loaded.tokenizer, race.prompt.token_ids, race.end_ids)
    for step in steps(recording.events, LANE):
        for path, text in zip(step.paths[1:], step.drafted_pieces, strict=True):
            assert pieces.peek([step.drafted[i] for i in path])[-1] == text
        pieces.push(step.token_ids)


def tree_step(recording: dict[str, Any]) -> dict[str, Any]:
    """The first step that kept two tokens and dropped others, one of them with a source."""
    return next(
        event
        for event in recording["events"]
        if event.get("parents")
        and event["num_accepted"] >= 2
        and len(event["drafted"]) > event["num_accepted"]
        and max(event["sources"]) >= 0
        and from_json(event).event.is_refuted is False  # type: ignore[union-attr]
    )


def kept_in(event: dict[str, Any]) -> tuple[int, ...]:
    return from_json(event).event.kept  # type: ignore[union-attr]


def of_kept(event: dict[str, Any]) -> None:
    event["parents"][kept_in(event)[1]] = 0


def other_source(event: dict[str, Any]) -> None:
    event["sources"][next(i for i, at in enumerate(event["sources"]) if at >= 0)] += 1


FAULTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a kept token's parent": of_kept,
    "a parent behind its child": lambda event: event["parents"].__setitem__(0, 1),
    "a parent too few": lambda event: event["parents"].pop(),
    "one more kept": lambda event: event.update(num_accepted=event["num_accepted"] + 1),
    "one less kept": lambda event: event.update(num_accepted=event["num_accepted"] - 1),
    "another token kept": lambda event: event["drafted"].__setitem__(kept_in(event)[0], 2047),
    "another source": other_source,
    "a source in the future": lambda event: event["sources"].__setitem__(0, 10_000),
    "a source too few": lambda event: event["sources"].pop(),
    "a chance above 1": lambda event: event["chances"].__setitem__(0, 1.5),
    "a chain's sources": lambda event: event.update(copied=[0, 0]),
}


@needs_kernels
@pytest.mark.parametrize("fault", FAULTS)
def test_what_no_tree_step_has_is_refused(fault: str) -> None:
    """A file would be shown that claims what the race did not do."""
    fields = copy.deepcopy(recorded(1)[1].fields)
    checked(json.dumps(fields).encode())
    FAULTS[fault](tree_step(fields))
    with pytest.raises(UsageError):
        checked(json.dumps(fields).encode())
