"""The terminal shows what happened, and obeys nothing that a model writes."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from engine.analysis.verdict_words import VERDICTS
from engine.cli.report import print_report
from engine.cli.terminal import ProgressLine, marked
from engine.core.events import Started, Step
from engine.core.race import race
from engine.core.spec import RaceSpec, SamplingParams, lanes_of
from engine.recordings.recording import Recording, summary
from engine.recordings.words import clean
from tests.helpers import races

OWN_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = "\x1b[2J\x1b]0;title\x07[red]x[/red] :smile: \u202eabc\u2066 \x9b31m \r\x08\0"


def console(terminal: bool, width: int = 80, height: int = 24) -> Console:
    own = {"highlight": False, "markup": False, "emoji": False, "color_system": "truecolor" if terminal else None}
    size = {"width": width, "height": height, "force_terminal": terminal}
    return Console(file=io.StringIO(), _environ={"TERM": "xterm"}, **size, **own)


def output(on: Console) -> str:
    return on.file.getvalue()  # type: ignore[attr-defined]


def race_of(*names: str, **steps: Step) -> dict[str, Any]:
    """One race with speculative lanes of these names, each with one step of one token, or with this one."""
    spec = RaceSpec(lanes_of((name, "ngram", 3) for name in (*names, *steps)), SamplingParams(max_new_tokens=1))
    lanes = {lane.name: races.a_step(seconds=0.1 + 0.1 * i) for i, lane in enumerate(spec.lanes)} | steps
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


def marks(of: Step) -> str:
    return " ".join(f"{text}:{mark}" for text, mark in marked(of))


def test_each_token_has_its_mark():
    """Accepted, rejected in their place, then correction or bonus; a step without a draft is the target's own."""
    refuted = step((1, 2, 3), 1, (1, 9), ("a", "i"), ("a", "b\n", "c"))
    assert marks(refuted) == "a:accepted b⏎:rejected c:rejected i:correction"
    assert marks(step((1, 2), 2, (1, 2, 3), ("a", "b", "c"), ("a", "b"))) == "a:accepted b:accepted c:bonus"
    assert marks(step((), 0, (5,), ("e",), ())) == "e:own"
    beyond_the_end = step((1, 2), 1, (1,), ("end",), ("end", "more"))
    assert marks(beyond_the_end) == "end:accepted", "drafts beyond the end were not rejected"
    unknown = Step(0, 0, (), 1, (1, 9), 0.1, 0.1, None, ("a", "i"), (), (), 3)
    assert marks(unknown) == "a:accepted i:correction", "text was made up where none is known"
    nameless = step((1, 2), 0, (3,), (), ())
    assert marks(nameless) == "<1>:rejected <2>:rejected <3>:correction", "ids are shown, not nothing"


@given(
    races.many_lanes() | races.many_lanes(failing=True) | races.servers_races(),
    st.booleans(),
    st.sampled_from([40, 80, 200]),
)
def test_any_race_prints_within_the_width_and_without_foreign_codes(recording, terminal, width):
    """A line would be wider than the terminal, or an escape code not be rich's own."""
    on = console(terminal, width)
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
    guess = step((7,), 0, (8,), (HOSTILE,), (HOSTILE,))
    on = console(terminal)
    print_report(on, Recording.of(race_of("ngram", **{"a name \x1b[2J": guess})))
    text = OWN_CODES.sub("", output(on))
    assert not any(c in text for c in "\x07\u202e\u2066\x9b\x08\0")
    assert "]0;" not in output(on).replace("\\x1b]0;", "")
    assert text.count("[red]x[/red]") == text.count(":smile:") == 1 + terminal, "the rejected guess too"


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
