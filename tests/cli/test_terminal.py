"""The terminal shows what happened, obeys nothing that a model writes, and costs the race nothing."""

from __future__ import annotations

import io
import re
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from engine.analysis.verdict_words import VERDICTS
from engine.cli.report import print_report
from engine.cli.terminal import ProgressLine, Screen, marked
from engine.core.events import Failed, LaneEvent, Started, Step
from engine.core.race import race
from engine.core.spec import RaceSpec, SamplingParams, lanes_of
from engine.recordings.recording import Recording, summary
from engine.recordings.words import clean
from tests.helpers import races
from tests.helpers.races import events_of

OWN_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = "\x1b[2J\x1b]0;title\x07[red]x[/red] :smile: \u202eabc\u2066 \x9b31m \r\x08\0"


def console(terminal: bool, width: int = 80, height: int = 24) -> Console:
    own = {"highlight": False, "markup": False, "emoji": False, "color_system": "truecolor" if terminal else None}
    size = {"width": width, "height": height, "force_terminal": terminal}
    return Console(file=io.StringIO(), _environ={"TERM": "xterm"}, **size, **own)


def output(on: Console) -> str:
    return on.file.getvalue()  # type: ignore[attr-defined]


def race_of(*names: str) -> dict[str, Any]:
    """One race with speculative lanes of these names, each with one step of one token."""
    spec = RaceSpec(lanes_of((name, "ngram", 3) for name in names), SamplingParams(max_new_tokens=1))
    lanes = {lane.name: races.a_step(seconds=0.1 + 0.1 * i) for i, lane in enumerate(spec.lanes)}
    played = {name: iter([Started(1, 0.5), *races.finished("length", [step])]) for name, step in lanes.items()}
    return races.recording(spec, [1], list(race(played)))


def step(drafted: tuple[int, ...], accepted: int, committed: tuple[int, ...], *pieces: tuple[str, ...]) -> Step:
    return Step(0, 0, drafted, accepted, committed, 0.1, 0.1, 8, *pieces)


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Zs", "Co", "Cn"])))
def test_cleaned_text_holds_nothing_that_a_terminal_obeys(text):
    """Control, direction and private characters are escaped; what is printable, and newlines, stay as they are."""
    cleaned = clean(text)
    assert all(c.isprintable() or c == "\n" or c in "\u200c\u200d" for c in cleaned)
    assert clean("naïve 猫\nx") == "naïve 猫\nx"
    assert clean("\x1b[31m") == "\\x1b[31m" and clean("\u202e") == "\\u202e"


def test_each_token_has_its_mark():
    """Accepted, rejected in their place, then correction or bonus; a step without a draft is the target's own."""
    assert marked(step((1, 2, 3), 1, (1, 9), ("a", "i"), ("a", "b\n", "c"))) == [
        ("a", "accepted"),
        ("b⏎", "rejected"),
        ("c", "rejected"),
        ("i", "correction"),
    ]
    assert marked(step((1, 2), 2, (1, 2, 3), ("a", "b", "c"), ("a", "b"))) == [
        ("a", "accepted"),
        ("b", "accepted"),
        ("c", "bonus"),
    ]
    assert marked(step((), 0, (5,), ("e",), ())) == [("e", "own")]
    beyond_the_end = marked(step((1, 2), 1, (1,), ("end",), ("end", "more")))
    assert beyond_the_end == [("end", "accepted")], "drafts beyond the end were not rejected"
    unknown = Step(0, 0, (), 1, (1, 9), 0.1, 0.1, None, ("a", "i"), (), (), 3)
    assert marked(unknown) == [("a", "accepted"), ("i", "correction")], "text was made up where none is known"
    assert marked(step((1, 2), 0, (3,), (), ())) == [("<1>", "rejected"), ("<2>", "rejected"), ("<3>", "correction")], (
        "without pieces ids are shown, not nothing"
    )


@given(
    races.many_lanes() | races.many_lanes(failing=True) | races.servers_races(),
    st.booleans(),
    st.sampled_from([40, 80, 200]),
)
def test_any_race_prints_within_the_width_and_without_foreign_codes(recording, terminal, width):
    """A line would be wider than the terminal, or an escape code not be rich's own."""
    on = console(terminal, width)
    with Screen(recording, on) as show:
        for event in events_of(recording):
            show(event)
    print_report(on, Recording.of(recording), recorded=True)
    text = OWN_CODES.sub("", output(on))
    assert "\x1b" not in text.replace("\\x1b", "")
    assert ("\x1b" in output(on)) == terminal
    assert "RECORDED" in text and "what each lane did" in text
    assert max(map(cell_len, text.splitlines())) <= width
    if terminal:
        assert on.file.getvalue().count("\x1b[31m") == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_hostile_text_is_shown_and_not_obeyed(terminal):
    """Markup, escape sequences, window titles or direction marks of a model would be obeyed."""
    recording = {"spec": {"lanes": [{"name": "speculative", "role": "speculative"}]}, "synthetic": []}
    on = console(terminal)
    with Screen(recording, on) as show:
        show(LaneEvent("speculative", 0.0, Started(1, 0.1)))
        show(LaneEvent("speculative", 0.2, step((1,), 0, (2,), (HOSTILE,), (HOSTILE,))))
        show(LaneEvent("speculative", 0.2, Failed(HOSTILE)))
    text = OWN_CODES.sub("", output(on))
    assert not any(c in text for c in "\x07\u202e\u2066\x9b\x08\0")
    assert "]0;" not in output(on).replace("\\x1b]0;", "")
    if terminal:
        assert "[red]x[/red]" in text and ":smile:" in text
    else:
        assert text == "", "no live part where there is no terminal"


def test_a_report_at_80_columns_names_everything():
    """Without a terminal a number, a verdict or the widths would be missing or cut off."""
    recording = races.fixed_race()
    on = console(False)
    print_report(on, Recording.of(recording))
    text = output(on)
    same = VERDICTS["identical_bits"].head
    assert re.match(rf"1\.11x as fast as plain.*{same}", text), "what everybody asks comes first"
    rows = ("tokens/s", "TTFT", "slow steps (p95)", "acceptance rate", "1.11x", "plain lane: ", "widths: ", "licence")
    for words in ("--- plain, baseline, speculative\nabcd\n", same, *rows):
        assert words in text
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert "RECORDED" not in text


@pytest.mark.parametrize("width", [60, 80, 240])
def test_every_number_of_every_lane_is_whole(width):
    """Of seven lanes beside each other at 80 columns the numbers would end in ellipses."""
    recording = race_of("ngram", "hybrid", "draft model", "a name of forty characters, no fewer ...", "e")
    on = console(False, width)
    print_report(on, Recording.of(recording))
    text = output(on)
    assert "…" not in text
    numbers = [row for row in text.splitlines() if row.startswith("│ tokens/s")]
    speeds = [f"{lane['tokens_per_s']:.1f}" for lane in summary(Recording.of(recording))["lanes"].values()]
    assert [word for row in numbers for word in row.split() if word[0].isdigit()] == speeds
    for name in ("ngram", "hybrid", "e"):
        assert re.search(rf"^{name}: \d+\.\d\dx as fast as plain", text, re.MULTILINE)
        assert f"baseline and {name} wrote the same" in text.replace("\n", " ")


def test_lanes_that_do_not_fit_beside_each_other_stand_below():
    """Six panels in 80 columns would leave 9 letters a line; and all must be on the screen at once."""
    screen = Screen(race_of(*"abcde"), console(True, 80, 40))
    with screen.console.capture() as captured:
        screen.console.print(screen.frame())
    rows = OWN_CODES.sub("", captured.get()).splitlines()
    tops = [row for row in rows if row.startswith("╭")]
    assert [[name for name in ("baseline", *"abcde") if f" {name}  - tok/s" in row] for row in tops] == [
        ["baseline", "a", "b"],
        ["c", "d", "e"],
    ]
    assert len(rows) <= 40


def test_drawing_is_rare_and_cheap():
    """Drawing would take the time of a long race: more than ten frames a second, or ever slower ones."""
    now, drawn = [0.0], []
    screen = Screen(races.fixed_race(), console(True), clock=lambda: now[0])
    whole_frame = screen.frame
    screen.frame = lambda: drawn.append(now[0]) or whole_frame()  # type: ignore[func-returns-value, method-assign]
    with screen as show:
        started = time.perf_counter()
        for i in range(5_000):
            now[0] += 0.002
            step = Step(i, i, (1, 2), 0, (3,), 0.001, 0.001, 8, ("word ",), ("no ", "not "))
            show(LaneEvent("speculative", i / 500, step))
        seconds = time.perf_counter() - started
        assert 85 <= len(drawn) <= 101
        assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(drawn))
        assert seconds / len(drawn) < 0.05


def test_progress_is_silent_without_a_terminal():
    """Logs would be full of bars, a stage be missing, or a bar be drawn too often."""
    on, off = console(True), console(False)
    for where in (on, off):
        with ProgressLine(where, clock=lambda: 5.0) as progress:
            for share in (None, 0.0, 0.5, 1.0, 7.0):
                progress("converting [x]", share)
            progress("probing", 0.25)
    assert output(off) == ""
    assert output(on).count("converting [x]") == 1 and "probing" in output(on)
