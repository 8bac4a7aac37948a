"""The race view in a real Chromium against strangers: text that wants to run, files, lanes of any number and name."""

import json
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from app.jobs.recorded import RACES
from app.page.exported import exported as page_of
from app.web import RACE_VIEW_CSS
from engine.analysis.metrics import lane_metrics, race_speedups
from engine.core.errors import UsageError
from engine.core.events import token_ids
from engine.drafters import short_label
from engine.recordings.recording import checked
from tests.helpers.altered import altered
from tests.helpers.page_browser import choose, saved, selected
from tests.helpers.race_pages import (
    HOSTILE,
    SETTLED,
    SHORT,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    opened,
    race_over,
    words,
    words_of,
)
from tests.helpers.races import (
    events_of,
    known_in_part,
    many_lanes,
    on_servers,
    recordings,
    servers_races,
    spec_of,
    steps_of,
    with_tables,
)

pytestmark = pytest.mark.browser
RACE = race_over(words_of(TEXT, 3), hit=0.82)


# ---- strangers' texts


def looked_at(page: Any) -> None:
    """From a small phone to 4K, nothing makes the page scroll sideways."""
    for width, height in ((360, 740), (1280, 800), (3840, 2160)):
        page.set_viewport_size({"width": width, "height": height})
        for tab in ("text", "steps", "charts", "timing"):
            choose(page, tab)
            if tab == "text":
                page.click("[data-ref=marks]")
            if tab in ("text", "steps"):
                page.locator("[data-ref=rightText] .pf-step").nth(-6).focus()
            page.evaluate(SETTLED)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, tab)
            page.keyboard.press("Escape")


def test_hostile_text_and_labels_are_exact_run_nothing_and_push_nothing(page: Any) -> None:
    """A model may write anything, and names, sentences and status texts come from strangers' files too: all of it is
    shown as it is, on every tab and from a small phone to 4K without scrolling sideways."""
    recorded = race_over(HOSTILE * 3, seed=3, hit=0.6)
    feed(page, recorded)
    assert page.evaluate(TOKENS) == expected(recorded)
    marks = page.evaluate("[...document.querySelectorAll('.pf-text .pf-unseen')].map(n => n.dataset.mark)")
    assert {"RLO", "ZWSP", "BOM", "NUL", "ESC", "CR", "U+2028", "U+E0041"} <= set(marks)
    long = race_over([*HOSTILE, *words_of(TEXT)], seed=4)
    feed(page, long, race_id="looks", ribbon="RECORDED", every=90)
    looked_at(page)
    recorded = long
    for where, key in (
        (recorded["model"], "name"),
        (recorded["device"], "name"),
        (recorded["verdicts"]["speculative"], "sentence"),
        (recorded["verdicts"]["plain"], "sentence"),
    ):
        where[key] = "<img src=x onerror=window.ran=1>${window.ran=1}\u202e" + "W" * 900
    status = "</p><script>window.ran=1</script>"
    feed(page, recorded, race_id="labels", ribbon="<b>RECORDED", status=status, every=90)
    looked_at(page)
    assert page.evaluate("document.querySelectorAll('.pf img:not([data-ref]), .pf script, .pf b').length") == 0


def test_no_declaration_is_lost_when_gradio_writes_the_style_anew(page: Any) -> None:
    """A shorthand with a variable, overridden in part, serialises to nothing: in gradio, borders and fonts go."""
    lost = page.evaluate(
        """css => {
            const sheet = new CSSStyleSheet();
            sheet.replaceSync(css);
            const texts = rule =>
                rule.cssRules && !rule.selectorText ? [...rule.cssRules].flatMap(texts) : [rule.cssText];
            return [...sheet.cssRules].flatMap(texts).filter(text => /:\\s*;/.test(text));
        }""",
        RACE_VIEW_CSS,
    )
    assert lost == []


def test_every_good_recording_is_shown_and_copied_as_it_was_written(page: Any) -> None:
    """Both texts, pasted to be compared, would refute the verdict: a struck-out guess in the middle of a word, a line
    for each step. Nobody would find a name across one. Races of trees, of servers, without an audit or known in part:
    people would be locked out of their own."""
    hostile = race_over([word for word in HOSTILE if word != "\x00"], seed=3, hit=0.6)
    in_part, servers = known_in_part(SHORT, random.Random(4)), on_servers(SHORT)
    assert checked(json.dumps(in_part).encode()) == in_part
    shipped = [json.loads((RACES / f"{name}.json").read_bytes()) for name in ("chat", "history")]  # a chain, a tree
    for recorded in (*shipped, hostile, race_over(words_of(TEXT)[:9], audit=False), in_part, servers):
        opened(page, recorded)
        assert page.evaluate(TOKENS) == expected(recorded) and words(page, "plainVerdict")
        assert words(page, "verdictWord").startswith("The same text" if recorded is servers else "Identical")
        written = {
            lane: "".join("".join(step["pieces"]) for step in steps_of(recorded, lane))
            for lane in ("baseline", "speculative")
        }
        choose(page, "steps")
        for button in ("#pf-tab-steps", "#pf-tab-text", "[data-ref=marks]", "[data-ref=marks]"):
            page.click(button)
            for lane, ref in (("baseline", "leftText"), ("speculative", "rightText")):
                assert selected(page, f"[data-ref={ref}]") == written[lane], (button, lane, recorded["prompt"])
        if recorded in shipped:  # by the browser alone, which knows no such blanks
            assert written["speculative"].replace("\xa0", " ") in selected(page, ".pf-lanes")
    opened(page, json.loads((RACES / "csv_to_json.json").read_bytes()))
    assert page.evaluate("getSelection().empty(), find('la Gomez') && find('la Gomez')")
    assert page.evaluate("getSelection().anchorNode.parentElement.closest('[data-ref=rightText]') !== null")


# ---- files, and lanes of any number and name


def test_files_are_checked_saved_and_opened(tab: Any, tmp_path: Path) -> None:
    """A stranger's broken race over the one that was there; a saved race that is no longer the same file, since a
    checksum has 64 bits and JavaScript's numbers 53; or an example that no click brings back, since its frame was the
    last one from the server. What is refused, and why: tests/recordings."""
    good, path, example = json.dumps(SHORT, indent=1), tmp_path / "race.json", tab.evaluate(STATE)["race"]

    def open_file(content: bytes) -> None:
        path.write_bytes(content)
        tab.set_input_files("[data-ref=file]", [])
        tab.set_input_files("[data-ref=file]", path)

    open_file(page_of(checked(good.encode())).encode("utf-16"))
    tab.wait_for_function("window.photofinish.state.fromFile")
    tab.evaluate(SETTLED)
    before = tab.evaluate(TOKENS)
    assert before == expected(SHORT) and "RECORDED" in words(tab, "ribbon")
    assert saved(tab).decode() == checked(good.encode()).text
    for content, why in ((b"", "not JSON"), (b" " * 11_000_000, "larger than")):
        tab.evaluate("document.querySelector('[data-ref=alertText]').textContent = ''")
        open_file(content)
        tab.wait_for_function("document.querySelector('[data-ref=alertText]').textContent")
        said = words(tab, "alertText")
        assert said.startswith("race.json cannot be opened: ") and "“Try it on yours”." in said and why in said
    assert tab.evaluate(TOKENS) == before
    assert all("the server responded with a status of 4" in problem for problem in tab.problems)
    tab.problems.clear()
    tab.locator("#page-presets button:not(#page-settings-button)").first.click()
    tab.wait_for_function("!window.photofinish.state.fromFile")
    assert tab.evaluate(STATE)["race"] == example and example.startswith("recorded-")


@settings(max_examples=60)
@given(altered(many_lanes() | servers_races() | recordings()))
def test_whatever_the_check_accepts_can_be_shown(shared_page: Any, recorded: dict[str, Any]) -> None:
    """An odd file that the server accepts would stop the program."""
    with suppress(UsageError):
        fields = checked(json.dumps(recorded).encode()).fields
        shared_page.evaluate("text => window.photofinish.open(text)", json.dumps(fields))
        shared_page.evaluate(SETTLED)
        assert shared_page.problems == []


@pytest.mark.parametrize(("names", "live"), [("abcde", True), (["__proto__", "toString", "constructor"], False)])
def test_the_page_shows_the_baseline_and_the_first_that_drafts(page: Any, names: Any, live: bool) -> None:
    """The last lane, or the one called speculative, would be shown, with another lane's verdict or ratio; a baseline of
    another name as the lane that drafts."""
    recorded = race_over(words_of(TEXT)[:60], drafters=dict.fromkeys(names, "ngram"))
    recorded["spec"]["lanes"].append(recorded["spec"]["lanes"].pop(1))  # the baseline comes last
    recorded = json.loads(json.dumps(recorded).replace('"baseline"', '"base"'))
    recorded["spec"]["lanes"][-1]["role"] = "baseline"
    feed(page, recorded) if live else opened(page, recorded)
    page.wait_for_function("!window.photofinish.state.live")
    state = page.evaluate(STATE)
    assert state["lanes"] == ["base", names[0]]
    assert page.evaluate(TOKENS) == expected(recorded, lanes=("base", names[0]))
    assert words(page, "verdictSentence").startswith(f"Identical, bit for bit: baseline and {names[0]} wrote the same")
    assert words(page, "plainVerdict").startswith("The plain lane not shown: ")
    gains = race_speedups(events_of(recorded), spec_of(recorded).lanes)
    assert state["speedup"] == pytest.approx(gains[names[0]])
    clocks = {e["lane"]: e["clock_s"] for e in recorded["events"]}
    shown = max(clocks[name] for name in ("plain", "base", names[0]))
    assert state["duration"] == pytest.approx(shown), "the replay would go on after both lanes' ends"


ROWS = """() => [...document.querySelectorAll('.pf-track-right, .pf-track-more')].map(row =>
    [row.querySelector('.pf-track-name').textContent, row.querySelector('.pf-track-count').textContent])"""


def test_all_are_ranked_and_each_can_be_looked_at(page: Any) -> None:
    """A rank that contradicts the times; a ratio, text, figure or table of one lane under the name of another."""
    drafters, rng = {"speculative": "ngram", "draft_model": "draft_model:a/b", "eagle3": "eagle3"}, random.Random(1)
    recording = with_tables(race_over(words_of(TEXT)[:60], drafters=drafters), rng, drafters["draft_model"])
    feed(page, recording, every=90)
    lanes = {lane["name"]: lane for lane in recording["spec"]["lanes"] if lane["role"] == "speculative"}
    events, num = events_of(recording), str(len(token_ids(events_of(recording), "baseline")))
    gains = race_speedups(events, spec_of(recording).lanes)
    speeds = {name: lane_metrics(events, name).tokens_per_s or 0.0 for name in lanes}
    rows, places = page.evaluate(ROWS), list[int]()
    for (title, count), (name, lane) in zip(rows, lanes.items(), strict=True):
        place, shown = re.fullmatch(r"(\d)\. (.*), k = \d+", title).groups()
        places.append(int(place))
        assert short_label(lane["drafter"]).startswith(shown[:70])
        assert count.split() == ["≡", num, f"{gains[name]:.2f}×"]
    by_speed = [place for _, place in sorted(zip(speeds.values(), places, strict=True), reverse=True)]
    assert by_speed[0] == 1 and by_speed == sorted(places)
    for name in ("eagle3", "speculative", "draft_model"):
        page.locator(".pf-track-more", has_text=short_label(lanes[name]["drafter"])[:40]).click()
        page.evaluate(SETTLED)
        assert page.evaluate(TOKENS) == expected(recording, lanes=("baseline", name))
        assert words(page, "rightFigure") == f"{speeds[name]:.{int(speeds[name] < 1000)}f}"
        assert float(words(page, "ratio")[:-1]) == pytest.approx(gains[name], rel=0.01, abs=0.006)
        assert len(page.evaluate(ROWS)) == 3 and page.evaluate(STATE)["lanes"][1] == name
    page.click("[data-tab=whatif]")
    page.evaluate(SETTLED)
    chosen = page.evaluate("document.querySelector('[data-ref=whatIfDrafter]').value")
    assert chosen == lanes["draft_model"]["drafter"] and words(page, "whatIfShown") == "as raced"
