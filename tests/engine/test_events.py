"""Events and other JSON: frozen, one form, and readers that trust nothing."""

import dataclasses
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.core.events import FINISH_REASONS, Failed, Finished, LaneEvent, Started, Step
from engine.recordings.event_json import MAX_SECONDS, from_json, to_json
from engine.strict_json import MAX_INT, parse

counts = st.integers(0, MAX_INT)
seconds = st.floats(0, MAX_SECONDS)
ids = st.lists(counts, max_size=5).map(tuple)
texts = st.text(st.characters(), max_size=5)


@st.composite
def a_step(draw):
    """A step as `decode` or a server could have made it: with or without text, checksums, drafts and width."""
    drafted = draw(ids)
    num_accepted = draw(st.integers(0, len(drafted)))
    token_ids = drafted[:num_accepted] + ((draw(counts),) if draw(st.booleans()) else ())
    num_unknown = draw(st.sampled_from([0, len(drafted)]))
    drafted = () if num_unknown else drafted
    pieces, drafted_pieces = (
        draw(st.just(()) | st.lists(texts, min_size=len(x), max_size=len(x)).map(tuple)) for x in (token_ids, drafted)
    )
    checksums = draw(
        st.just(()) | st.lists(st.integers(0, 2**64 - 1), min_size=len(token_ids), max_size=len(token_ids)).map(tuple)
    )
    return Step(
        *(draw(counts), draw(counts), drafted, num_accepted, token_ids, draw(seconds), draw(seconds)),
        *(draw(counts | st.none()), pieces, drafted_pieces, checksums, num_unknown),
    )


events = (
    st.builds(Started, counts, seconds)
    | a_step()
    | st.builds(Finished, st.sampled_from(FINISH_REASONS), counts, seconds)
    | st.builds(Failed, texts)
)
lane_events = st.builds(LaneEvent, texts, seconds, events, st.none() | seconds)


@given(lane_events)
def test_events_survive_json(event):
    """Live page, recordings and replay would show different races."""
    assert from_json(json.loads(json.dumps(to_json(event), allow_nan=False))) == event


@given(lane_events)
def test_events_are_frozen_values(event):
    """A consumer could change what another one sees; equal events would not be equal."""
    assert hash(event) == hash(dataclasses.replace(event))
    for value in (event, event.event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, 0)


NO_TIMES = [10**400, -(10**400), float("inf"), float("-inf"), float("nan"), -1.0, True]
CONTRADICTIONS = [
    *({field: huge} for field in ("clock_s", "draft_s") for huge in NO_TIMES),
    {"num_accepted": 3}, {"num_accepted": 2, "token_ids": [7, 9]},
    {"token_ids": [7, 1, 2]}, {"token_ids": []}, {"token_ids": [8, 9]},
    {"token_ids": [7, -1]}, {"token_ids": [7, True]}, {"token_ids": [7, 1.0]},
    {"pieces": ["a"]}, {"drafted_pieces": ["a", "b", "c"]}, {"checksums": [1, 2, 3]}, {"checksums": [1, 2**64]},
    {"width": "8"}, {"width": -1}, {"wall_s": None}, {"wall_s": -0.5}, {"draft_s": "0"},
    {"num_drafted": 2}, {"num_drafted": 2, "drafted_pieces": []}, {"num_drafted": 2, "drafted": []},
    {"num_drafted": True, "drafted": [], "drafted_pieces": []},
    {"num_drafted": 2**60, "num_accepted": 2**60, "drafted": [], "drafted_pieces": []},
    {"num_unknown": 2, "drafted": [], "drafted_pieces": []},
    {"num_drafted": 0, "drafted": [], "drafted_pieces": [], "num_accepted": 0, "token_ids": [9], "pieces": [],
     "checksums": []},
]  # fmt: skip


@pytest.mark.parametrize("change", CONTRADICTIONS, ids=lambda change: f"{change}"[:40])
def test_a_step_that_cannot_be_is_refused(change):
    """A forged recording could claim tokens that were never drafted, or end in an OverflowError (10**400)."""
    good = to_json(LaneEvent("a", 0.0, Step(0, 0, (7, 8), 1, (7, 9), 0.1, 0.2, 4, ("x", "y"), ("x", "z"), (5, 6))))
    from_json(good)
    with pytest.raises(UsageError):
        from_json({**good, **change})


PARTS = (r"\\", r"\n", r"\"", r"\ud83d", r"\uDE00", r"\ude00", r"\uDbFf", r"\u0041", r"\ue000", "ud83d", "a", "é", "😀")


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
@example("\\\\ud83d")
@example("\\ud83d\\\\ude00")
@example("\\ud83d\\ud83d\\ude00")
def test_a_half_character_is_refused_and_nothing_else(text) -> None:
    """A text that cannot be written again, or one that can and is refused: emoji, a backslash before a u."""
    source = f'{{"a": ["{text}"]}}'
    value = json.loads(source)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        with pytest.raises(UsageError, match="the text holds half a character"):
            parse(source.encode(), 1000)
    else:
        assert parse(source.encode(), 1000) == value
