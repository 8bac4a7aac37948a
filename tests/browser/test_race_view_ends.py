"""How a race ends on the page: what a reader gets to see of it, a race that was stopped, a machine that was disturbed,
and high contrast."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.caveats import loop_sentence
from engine.errors import UsageError
from engine.events import LaneEvent, Step, steps, to_json
from engine.metrics import disturbance
from engine.recordings.recording import events_of, loads, text
from tests.helpers.race_pages import (
    SETTLED,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    race_over,
    show,
    words,
    words_of,
)
from tests.helpers.races import fixed_race

pytestmark = pytest.mark.browser
SHORT = race_over(words_of(TEXT)[:80], seed=5)


def slowed(recorded: dict[str, Any], lane: str, every: int, factor: float) -> dict[str, Any]:
    """The same race on a machine that stalled at each `every`th step of a lane."""
    clocks: dict[str, float] = {}
    events = []
    for e in events_of(recorded):
        event = e.event
        if isinstance(event, Step):
            event = (
                replace(event, verify_s=event.verify_s * factor)
                if e.lane == lane and event.index % every == 0
                else event
            )
            clocks[e.lane] = clocks.get(e.lane, 0.0) + event.seconds
        elif hasattr(event, "decode_s"):
            event = replace(event, decode_s=clocks[e.lane])
        events.append(to_json(LaneEvent(e.lane, clocks.get(e.lane, 0.0), event)))
    return {**recorded, "events": events}


def stopped(recorded: dict[str, Any], num_events: int) -> dict[str, Any]:
    """A race whose visitor clicked Stop after so many events."""
    return {**recorded, "events": recorded["events"][:num_events], "stopped": True}


@pytest.mark.parametrize("known", [True, False], ids=["known width", "unknown width"])
@pytest.mark.parametrize("lane", ["plain", "baseline", "speculative"])
def test_a_disturbed_machine_is_said_in_the_engines_words(page: Any, lane: str, known: bool) -> None:
    """The ratio of a stalled race is the first thing that would be quoted; page and command line must say the same of
    it."""
    recorded = slowed(race_over(words_of(TEXT, 2), seed=3, hit=0.4), lane, every=9, factor=7.0)
    for step in (e for e in recorded["events"] if e["type"] == "step" and not known):
        step["width"] = None
    found = disturbance(events_of(recorded))
    assert found is not None and found.lane == lane
    feed(page, recorded)
    assert words(page, "disturbed") == found.sentence
    assert page.get_attribute("[data-ref=caution]", "title").startswith(found.sentence)
    loop = loop_sentence([token for step in steps(events_of(recorded), "speculative") for token in step.token_ids])
    assert (loop or "") in words(page, "caution"), "one warning in the place of the other"
    assert page.is_visible("[data-ref=caution]") and "do not quote" in words(page, "caution")
    feed(page, SHORT, race_id="quiet")
    assert disturbance(events_of(SHORT)) is None and words(page, "disturbed") == words(page, "caution") == ""


def test_plain_text_ends_where_the_completion_ends(page: Any) -> None:
    """A stop string is no part of the text: the page shows what the engine's `text` gives, also where a token holds the
    end and the beginning."""
    for stop in (("end",), ("dend",), ("b",), ("cd", "nd"), ("never",)):
        recorded = copy.deepcopy(fixed_race())
        recorded["spec"]["params"]["stop"] = list(stop)
        feed(page, recorded, race_id=f"race {stop}")
        assert page.evaluate(TOKENS) == expected(recorded)
        if page.get_attribute("[data-ref=marks]", "aria-pressed") == "true":
            page.click("[data-ref=marks]")
        for lane, ref in (("baseline", "leftText"), ("speculative", "rightText")):
            assert page.inner_text(f"[data-ref={ref}]") == text(events_of(recorded), lane, stop)


def test_a_stopped_race_is_saved_and_opened_again(page: Any, tmp_path: Path) -> None:
    """What was stopped is still worth keeping, and says of itself that it was stopped."""
    recorded = stopped(SHORT, 90)
    show(page, frames(recorded, state="stopped", status="Stopped."))
    with page.expect_download() as download:
        page.click("[data-ref=save]")
    saved = tmp_path / "stopped.json"
    download.value.save_as(saved)
    assert loads(saved.read_bytes()) == recorded
    feed(page, SHORT, race_id="another")
    page.set_input_files("[data-ref=file]", saved)
    page.wait_for_function("window.photofinish.state.fromFile")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(recorded)
    assert page.evaluate(STATE)["state"] == "stopped" and "the race was stopped" in words(page, "statusText")


def test_the_verdict_waits_until_both_texts_are_whole(open_page: Any) -> None:
    """Said over half a text, be it that the replay is paused there, it gives the end away and is true of nothing that
    one sees."""
    page = open_page()
    feed(page, SHORT, ribbon="RECORDED")
    kind = "document.querySelector('[data-ref=verdict]').dataset.kind"
    page.wait_for_function("window.photofinish.state.playing && window.photofinish.state.t > 0.05")
    page.click("[data-ref=play]")
    page.evaluate(SETTLED)
    assert (
        page.evaluate("window.photofinish.state.t < window.photofinish.state.duration")
        and page.evaluate(kind) == "none"
    )
    page.focus("[data-ref=scrub]")
    page.keyboard.press("End")
    page.wait_for_function(f"{kind} === 'identical_bits'")
    page.keyboard.press("Home")
    assert page.evaluate(kind) == "identical_bits", "who has seen the end may look back under it"
    page.close()
    assert page.problems == []


@pytest.mark.parametrize("claim", [None, False, "yes"])
def test_only_a_race_that_says_so_may_lack_its_end(page: Any, claim: Any) -> None:
    """A file cut short by accident must not pass for a race: neither here nor in the engine."""
    broken = stopped(SHORT, 90)
    broken.pop("stopped") if claim is None else broken.update(stopped=claim)
    with pytest.raises(UsageError):
        loads(json.dumps(broken).encode())
    assert page.evaluate("text => window.photofinish.open(text)", json.dumps(broken)) is False


@pytest.mark.parametrize("dark", [False, True])
def test_high_contrast_tells_tokens_apart(open_page: Any, dark: bool) -> None:
    """Windows high contrast takes the colours away: what remains is line and weight, and four kinds must still
    be four."""
    page = open_page(
        dark=dark, forced_colors="active", color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    feed(page, SHORT)
    looks = page.evaluate("""() => Object.fromEntries(["accepted", "rejected", "correction", "bonus"].map((kind) => {
        const style = getComputedStyle(document.querySelector(`.pf-text .pf-${kind}`));
        return [kind, { line: style.borderBottomStyle, strike: style.textDecorationLine,
            border: style.borderBottomColor, ink: style.color, paper: style.backgroundColor }];
    }))""")
    assert len({(look["line"], look["strike"]) for look in looks.values()}) == 4
    assert looks["rejected"]["strike"] == "line-through"
    for kind, look in looks.items():
        assert look["ink"] != look["paper"] and (kind == "rejected" or look["border"] == look["ink"]), (kind, look)


@pytest.mark.browser
def test_the_picture_says_what_the_board_says(page: Any, tmp_path: Any) -> None:
    """A picture of a race that shows other figures than the race, at a size that sites cut."""
    page.evaluate(
        """() => { window.said = []; const draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (words, ...rest) {
          window.said.push(words); draw.call(this, words, ...rest); }; }"""
    )
    feed(page, fixed_race())
    page.focus("[data-ref=scrub]")
    page.keyboard.press("Home")
    page.click(".pf-share summary")
    with page.expect_download() as download:
        page.click("[data-ref=picture]")
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    data = saved.read_bytes()
    assert saved.suffix == ".png" and data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 10_000
    assert [int.from_bytes(data[at : at + 4]) for at in (16, 20)] == [1200, 630]
    said = page.evaluate("window.said")
    for name in ("ratio", "ratioWords", "verdictWord", "verdictRows"):
        assert page.inner_text(f"[data-ref={name}]").strip() in said, name
    for side in ("left", "right"):
        assert f"{page.inner_text(f'[data-ref={side}Figure]')} tok/s" in said


@pytest.mark.browser
def test_one_row_a_step_begins_with_the_first_in_both_lanes(page: Any) -> None:
    """One text at its end beside the other at its start; steps that count from 0 beside tokens that count from 1."""
    feed(page, race_over(words_of(TEXT, 3), hit=0.82))
    page.click("[role=tab][data-tab=steps]")
    page.wait_for_timeout(200)
    assert page.evaluate("[...document.querySelectorAll('.pf-text')].map(box => box.scrollTop)") == [0, 0]
    first = "[...document.querySelectorAll('.pf-text')].map(box => box.querySelector('.pf-step').dataset.number)"
    assert [words.strip().split()[-1] for words in page.evaluate(first)] == ["1", "1"]
