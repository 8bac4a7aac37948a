"""How a race waits and ends on the page: its card, what a reader gets to see of it, a race that was stopped, a machine
that was disturbed, and high contrast."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.analysis.loops import loop_sentence, with_counters
from engine.analysis.metrics import disturbance
from engine.core.errors import UsageError
from engine.core.events import LaneEvent, Step, steps, text_of
from engine.recordings.event_json import to_json
from engine.recordings.recording import loads
from tests.helpers.race_pages import (
    SETTLED,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    race_over,
    rejudged,
    show,
    words,
    words_of,
)
from tests.helpers.races import events_of, fixed_race

pytestmark = pytest.mark.browser
SHORT = race_over(words_of(TEXT)[:80], seed=5)
NEXT = race_over(words_of(TEXT)[:40], seed=6)
BAR = "document.querySelector('[data-ref=progress]').value"


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


def test_a_disturbed_machine_is_said_in_the_engines_words(page: Any) -> None:
    """The ratio of a stalled race is the first thing that would be quoted; page and command line must say the same of
    it."""
    for lane, known in (("plain", True), ("baseline", False), ("speculative", True)):
        recorded = slowed(race_over(words_of(TEXT, 2), seed=3, hit=0.4), lane, every=9, factor=7.0)
        for step in (e for e in recorded["events"] if e["type"] == "step" and not known):
            step["width"] = None
        found = disturbance(events_of(recorded))
        assert found is not None and found.lane == lane
        feed(page, recorded, race_id=lane, every=90)
        assert words(page, "disturbed") == found.sentence
        assert page.get_attribute("[data-ref=caution]", "title").startswith(found.sentence)
        loop = loop_sentence(with_counters(steps(events_of(recorded), "speculative")))
        assert (loop or "") in words(page, "caution"), "one warning in the place of the other"
        assert page.is_visible("[data-ref=caution]") and "do not quote" in words(page, "caution")
    feed(page, {**SHORT, "waited_share": 0.62}, race_id="overloaded")
    found = disturbance(events_of(SHORT), 0.62)
    assert found is not None and words(page, "disturbed") == found.sentence
    feed(page, SHORT, race_id="quiet")
    assert disturbance(events_of(SHORT)) is None and words(page, "disturbed") == words(page, "caution") == ""


def test_a_doubtful_ratio_looks_doubtful(page: Any) -> None:
    """The largest figure in white, above a sentence not to quote it."""
    colours = []
    for name, words_, share in (
        ("quiet", TEXT, 0.0),
        ("overloaded", TEXT, 0.62),
        ("loop", "one two three four.\n" * 30, 0),
    ):
        feed(page, {**race_over(words_of(words_)[:80], seed=5), "waited_share": share}, race_id=name, every=90)
        colours.append(page.evaluate("getComputedStyle(document.querySelector('[data-ref=ratio]')).color"))
    assert colours[0] != colours[1] == colours[2]


def test_another_pace_than_the_recordings_is_said(page: Any) -> None:
    """Half the recorded tokens per second, and nothing says that this is the machine."""
    slow = slowed(SHORT, "plain", every=1, factor=2.0)
    page.evaluate(
        """text => { window.fetch = async () => ({ ok: true, text: async () => text });
        document.body.insertAdjacentHTML('beforeend',
          '<div id="page-presets"><button id="page-example-a">A</button></div>'); }""",
        json.dumps(SHORT),
    )
    for race, says in ((slow, True), (SHORT, False)):
        sent = frames(race, race_id=f"live {says}", every=90)
        show(page, [{**frame, "name": "A"} for frame in sent])
        page.wait_for_timeout(100)  # the recording arrives later
        said = re.findall(r"at (\d\.\d\d)× its speed", words(page, "paceNote"))
        assert (float(said[0]) if said else None) == (pytest.approx(0.5, abs=0.02) if says else None)
        assert ("the recording's speed" in words(page, "statusText")) == says


def test_plain_text_ends_where_the_completion_ends(page: Any) -> None:
    """A stop string is not part of the text: the page shows the engine's `text`, even if one token contains both the
    text's end and the stop string's beginning."""
    for stop in (("end",), ("dend",), ("b",), ("cd", "nd"), ("never",)):
        recorded = copy.deepcopy(fixed_race())
        recorded["spec"]["params"]["stop"] = list(stop)
        feed(page, recorded, race_id=f"race {stop}")
        assert page.evaluate(TOKENS) == expected(recorded)
        if page.get_attribute("[data-ref=marks]", "aria-pressed") == "true":
            page.click("[data-ref=marks]")
        for lane, ref in (("baseline", "leftText"), ("speculative", "rightText")):
            assert page.inner_text(f"[data-ref={ref}]") == text_of(events_of(recorded), lane, stop)


def test_a_stopped_race_is_saved_and_opened_again(page: Any, tmp_path: Path) -> None:
    """What was stopped is still worth keeping, and says of itself that it was stopped."""
    recorded = stopped(SHORT, 90)
    show(page, frames(recorded, state="stopped", status="Stopped."))
    with page.expect_download() as download:
        page.click("[data-ref=save]")
    saved = tmp_path / "stopped.json"
    download.value.save_as(saved)
    assert loads(saved.read_bytes()) == rejudged(recorded)
    feed(page, SHORT, race_id="another")
    page.evaluate("text => window.photofinish.open(text, 'stopped.json')", saved.read_text())
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(recorded)
    assert page.evaluate(STATE)["state"] == "stopped" and "The race was stopped" in words(page, "statusText")
    del recorded["stopped"]
    for claim in ({}, {"stopped": False}, {"stopped": "yes"}):  # a file cut short by accident
        with pytest.raises(UsageError):
            loads(json.dumps(recorded | claim).encode())


def test_the_verdict_waits_until_both_texts_are_whole(open_page: Any) -> None:
    """Said over half a text, be it that the replay is paused there, it gives the end away and is true of nothing that
    one sees."""
    page = open_page()
    page.clock.install()
    feed(page, SHORT, ribbon="RECORDED", every=30)
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 0.1"))
    page.clock.run_for(1700)

    def kind() -> str:
        return page.get_attribute("[data-ref=verdict]", "data-kind")

    assert page.evaluate(STATE)["playing"]
    page.click("[data-ref=play]")
    state = page.evaluate(STATE)
    assert 0 < state["t"] < state["duration"] and kind() == "none"
    page.focus("[data-ref=scrub]")
    for key in ("End", "Home"):  # who has seen the end may look back under it
        page.keyboard.press(key)
        page.clock.run_for(100)
        assert kind() == "identical_bits"
    assert page.problems == []


def test_high_contrast_tells_tokens_apart(page: Any) -> None:
    """Windows high contrast takes the colours away: what remains is line and weight, and four kinds must still
    be four."""
    feed(page, SHORT)
    for scheme in ("light", "dark"):
        page.emulate_media(forced_colors="active", color_scheme=scheme, reduced_motion="reduce")
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", scheme == "dark")
        looks = page.evaluate("""() => Object.fromEntries(["accepted", "rejected", "correction", "bonus"].map(kind => {
            const style = getComputedStyle(document.querySelector(`.pf-text .pf-${kind}`));
            return [kind, { line: style.borderBottomStyle, strike: style.textDecorationLine,
                border: style.borderBottomColor, ink: style.color, paper: style.backgroundColor }];
        }))""")
        assert len({(look["line"], look["strike"]) for look in looks.values()}) == 4
        assert looks["rejected"]["strike"] == "line-through"
        for kind, look in looks.items():
            assert look["ink"] != look["paper"] and (kind == "rejected" or look["border"] == look["ink"]), (kind, look)


SPIES = """() => { window.said = []; window.wide = []; const pen = CanvasRenderingContext2D.prototype;
    const { fillText, fillRect } = pen;
    const writeText = async words => { window.copied = words; };
    Object.defineProperty(navigator, 'clipboard', { value: { writeText } });
    pen.fillText = function (words, ...rest) { window.said.push(words); fillText.call(this, words, ...rest); };
    pen.fillRect = function (x, y, width, high) { if (high === 32) window.wide.push(width);
      fillRect.call(this, x, y, width, high); }; }"""


@pytest.mark.parametrize("kind", ["copies", "disturbed", "loop"])
def test_what_is_sent_carries_the_caution(page: Any, kind: str) -> None:
    """A picture, a sentence or a file name would quote a ratio that the board itself doubts."""
    text = "one two three four.\n" * 30 if kind == "loop" else TEXT
    race = race_over(words_of(text)[:80], seed=14)
    race["prompt"]["text"] = TEXT if kind == "copies" else "a prompt"
    race["waited_share"] = 0.62 if kind == "disturbed" else 0.0
    (caution,) = rejudged(race)["cautions"]
    assert caution["kind"] == kind
    page.evaluate(SPIES)
    feed(page, race)
    page.click(".pf-share summary")
    with page.expect_download() as download:
        page.click("[data-ref=picture]")
    assert re.search(r"\dx", download.value.suggested_filename) is None
    assert caution["short"] in " ".join(page.evaluate("window.said"))
    page.click("[data-copy=sentence]")
    page.wait_for_function("window.copied")
    sentence = "No result: the text repeats itself" if kind == "loop" else caution["sentence"]
    assert sentence in page.evaluate("window.copied")


def test_the_picture_says_what_the_board_says(page: Any, tmp_path: Any) -> None:
    """A picture of a race that shows other figures than the race or the copied sentence, hides that the slower lane
    was not done, or is of a size that sites cut."""
    page.evaluate(SPIES)
    feed(page, race_over(words_of(TEXT)[:80], seed=14))
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
    leads = r"Pays: a server can run n-gram .*, k = 7: .* \(measured\), ([\d.]+)\s% less machine time for the same"
    saves = re.search(leads, " ".join(said))
    assert saves and float(saves[1]) == pytest.approx(100 * (1 - 1 / float(words(page, "ratio").rstrip("×"))), abs=0.3)
    assert re.fullmatch(r"photofinish_a-model_\d+\.\d\dx_\d{4}-\d\d-\d\d\.png", saved.name), saved.name
    assert "one 3-token prompt, greedy, 80 tokens written" in said
    for name in ("ratio", "verdictWord", "verdictRows"):
        assert page.inner_text(f"[data-ref={name}]").strip() in said, name
    assert set(re.split("[,;] ", page.inner_text("[data-ref=ratioWords]"))) <= set(said)
    for side in ("left", "right"):
        assert f"{page.inner_text(f'[data-ref={side}Figure]')} tok/s" in said
    page.click("[data-copy=sentence]")
    page.wait_for_function("window.copied?.includes('59.4\u00a0% less')")
    rail, plain, _, fast = page.evaluate("window.wide.splice(0)")
    assert plain < fast == rail
    slower = frames(race_over(words_of(TEXT)[:80], seed=5, hit=0.0), race_id="slower")
    show(page, [{**frame, "name": "Your prompt"} for frame in slower])
    page.evaluate("window.said = []")
    page.evaluate("document.querySelector('[data-ref=picture]').click()")
    rail, plain, _, slow = page.evaluate("window.wide")
    said = " ".join(page.evaluate("window.said"))
    assert slow < plain == rail and "26.0\u00a0% more machine time for the same tokens." in said
    assert "Does not pay: a server can run n-gram" in said
    assert "Your prompt: \u201ca prompt\u2026\u201d " in said


def test_one_row_a_step_begins_with_the_first_in_both_lanes(page: Any) -> None:
    """One text at its end next to the other at its start; steps counted from 0 next to tokens counted from 1."""
    feed(page, race_over(words_of(TEXT, 3), hit=0.82), every=90)
    page.click("[role=tab][data-tab=steps]")
    page.evaluate(SETTLED)
    assert page.evaluate("[...document.querySelectorAll('.pf-lane .pf-text')].map(box => box.scrollTop)") == [0, 0]
    first = (
        "[...document.querySelectorAll('.pf-lane .pf-text')].map(box => box.querySelector('.pf-step').dataset.number)"
    )
    assert [words.strip().split()[-1] for words in page.evaluate(first)] == ["1", "1"]


# ---- the card of a race that waits or is prepared, over a race that stays


def waiting(left: list[int | None], state: str = "waiting", seq: int = 0) -> list[dict[str, Any]]:
    """Frames of a race that waits so many seconds."""
    text = "2 races ahead of you."
    blank = {"race": "next", "ribbon": "", "header": None, "events": [], "metrics": None, "recording": None}
    told = [{"text": text, "share": None, "left_s": each} for each in left]
    return [{**blank, "seq": seq + i, "state": state, "status": status} for i, status in enumerate(told)]


def test_a_race_stays_until_the_next_one_begins(page: Any) -> None:
    """The screen would be empty while one waits; or the next race lack its first frames, or begin behind a card."""
    feed(page, SHORT)
    board = page.locator(".pf-board").bounding_box()
    seen = []
    for frame in waiting([30, 24, 12, None, 1]):
        show(page, [frame])
        seen.append((words(page, "cardLeft"), page.evaluate(BAR)))
        assert page.locator("[data-ref=progress]:indeterminate").count() == (frame["status"]["left_s"] is None)
    assert [left for left, _ in seen] == ["about 30 s", "about 24 s", "about 12 s", "", "about 1 s"]
    shares = [share for left, share in seen if left]
    assert shares == sorted(set(shares)) and 0 < shares[0] < 0.1 < 0.9 < shares[-1] < 1
    assert page.locator(".pf-board").bounding_box() == board
    page.click("[data-ref=play]")
    page.wait_for_function("window.photofinish.state.t > 0")
    page.focus("[data-ref=scrub]")
    page.keyboard.press("End")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(SHORT)
    assert page.is_enabled("[data-ref=save]") and page.is_disabled("[data-ref=open]")
    example = frames(SHORT, race_id="recorded-example")[-1] | {"seq": 0, "ribbon": "RECORDED"}
    show(page, [example, *waiting([2], seq=5)])
    assert page.evaluate(STATE)["race"] == "recorded-example" and words(page, "cardLeft") == "about 2 s"
    begun = [{**frame, "seq": frame["seq"] + 6} for frame in frames(NEXT, race_id="next")]
    show(page, begun[:1])
    assert page.is_visible("[data-ref=card]") and words(page, "cardText") == begun[0]["status"]["text"]
    assert page.evaluate(TOKENS) == [] and page.evaluate(BAR) == pytest.approx(0.4)
    show(page, begun[1:2])
    assert page.is_hidden("[data-ref=card]")
    show(page, begun[2:])
    assert page.evaluate(TOKENS) == expected(NEXT) and page.evaluate(STATE)["holes"] == 0


def test_an_estimate_is_counted_down_and_then_given_up(open_page: Any) -> None:
    """A card would say "about 2 s" for as long as nothing new is known."""
    page = open_page(reduced_motion="reduce")
    page.clock.install()
    last = waiting([2])[0]
    for seq, left in enumerate(("about 2 s", "about 1 s", "")):
        show(page, [{**last, "seq": seq}])
        page.clock.run_for(1100)
        assert words(page, "cardLeft") == left
    assert words(page, "cardTitle") == "Your race is waiting" and page.problems == []


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_race_that_ends_while_it_waits_leaves_the_one_that_is_there(page: Any, state: str) -> None:
    """Stop while one waits would empty the screen; a race that failed as soon as it had the device end without a
    word."""
    feed(page, SHORT)
    ended = waiting([None], state, 1)
    ended[0]["status"]["text"] = "The prompt is too long."
    show(page, [*waiting([9]), *ended])
    assert page.is_hidden("[data-ref=card]")
    if state == "stopped":
        assert page.evaluate(TOKENS) == expected(SHORT)
    else:
        assert page.evaluate(STATE)["state"] == state and words(page, "statusText") == "The prompt is too long."
    show(page, frames(NEXT, race_id="a third"))
    assert page.evaluate(TOKENS) == expected(NEXT)
