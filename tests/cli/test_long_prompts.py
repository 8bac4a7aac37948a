"""A race of a long prompt in the terminal: how much of it is read, and then the race."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.cli import hold
from engine.events import LaneEvent, Started
from engine.recordings.recording import events_of
from engine.spec import RaceSpec, SamplingParams, standard_lanes
from engine.target import target
from engine.text import encode_prompt
from tests.helpers.tiny import TRAINED


def test_a_long_prompt_shows_how_much_of_it_is_read(monkeypatch):
    """The terminal would stand still for seconds without a word; or the screen of the race be drawn over the line that
    tells; or events of before the first step not be shown."""
    monkeypatch.setattr(target, "PREFILL_CHUNK", 16)
    happened: list[str | tuple[str, float | None] | LaneEvent] = []

    @contextmanager
    def line() -> Iterator[object]:
        yield lambda stage, share: happened.append((stage, share))
        happened.append("the race")

    @contextmanager
    def screen(header: object) -> Iterator[object]:
        yield happened.append

    monkeypatch.setattr(hold, "progress_line", line)
    lanes = standard_lanes("ngram", 3)
    recording = hold.hold_race(
        str(TRAINED),
        "float32",
        "cpu",
        RaceSpec(lanes, SamplingParams(max_new_tokens=4)),
        lambda tokenizer: encode_prompt(tokenizer, "class Reader:\n    pass\n" * 8, False),
        screen,
    )
    start = happened.index("the race")
    assert happened[start + 1 :] == events_of(recording)
    num_tokens = next(e.event.num_prompt_tokens for e in events_of(recording) if isinstance(e.event, Started)) - 1
    for lane in lanes:
        said = [
            share
            for what in happened[:start]
            if isinstance(what, tuple)
            for stage, share in [what]
            if stage.endswith(f": lane {lane.name}")
        ]
        assert said == [done / num_tokens for done in range(16, num_tokens, 16)] and len(said) > 2
