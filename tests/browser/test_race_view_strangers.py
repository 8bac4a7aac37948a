"""The live component against strangers: text that wants to run, files that are not what they say or have lanes of any
number and name, and what gradio does to a page."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.jobs.recorded import RACES
from app.page.theme import HEAD, PAGE_CSS
from app.web import RACE_VIEW_CSS, RACE_VIEW_JS, RACE_VIEW_TEMPLATE
from app.web.components import DIALOGS_CSS
from engine.analysis.metrics import race_speedups
from engine.core.errors import UsageError
from engine.recordings.recording import loads
from tests.helpers.broken_races import SHORT, mutants, with_more_lanes
from tests.helpers.page_browser import saved, selected
from tests.helpers.race_pages import (
    HOSTILE,
    SETTLED,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    opened,
    race_over,
    show,
    words,
    words_of,
)
from tests.helpers.races import as_trees, events_of, known_in_part, on_servers, spec_of

RACE = race_over(words_of(TEXT, 3), hit=0.82)


# ---- what gr.HTML would evaluate, and what gradio would drop


def test_the_template_holds_nothing_that_gradio_evaluates() -> None:
    """gr.HTML runs the template through Handlebars and a template literal: any of these would execute or break it."""
    assert [mark for mark in ("${", "{{", "`", "\\") if mark in RACE_VIEW_TEMPLATE] == []


def test_the_program_writes_text_only_as_text() -> None:
    """innerHTML and its kin would run what a model writes."""
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", RACE_VIEW_JS) == []


def test_the_style_survives_gradio() -> None:
    """gradio drops @container, @supports and @layer rules of launch(css=...) and splits selectors at every comma, also
    inside :is()."""
    assert re.findall(r"@(?:container|supports|layer|import)|url\(", RACE_VIEW_CSS) == []
    assert re.findall(r":(?:is|not|where|has)\([^)]*,", RACE_VIEW_CSS) == []


def test_no_rule_searches_the_page_for_every_word() -> None:
    """With `:has` on what the race is in, Chromium restyles the page whenever a word is added: 8 ms of each frame."""
    rules = HEAD + RACE_VIEW_CSS + DIALOGS_CSS + PAGE_CSS
    assert {*re.findall(r"[^\s,{}]*:has\(", rules)} == {"#page-top:has(", "#page-model:has(", ".pf-left:has("}


def test_no_height_follows_the_screen_in_a_frame() -> None:
    """A frame may be as high as its page: where the page's height follows the frame's, both grow without end. What is a
    share of the screen goes by `--screen`, which is fixed there."""
    rules = re.sub(r"var\(--screen, 100d?vh\)", "", HEAD + RACE_VIEW_CSS + DIALOGS_CSS + PAGE_CSS)
    assert re.findall(r"[\d.]+[dsl]?v(?:h|b|max|min)\b[^;]*", rules) == []


@pytest.mark.browser
def test_no_declaration_is_lost_when_gradio_writes_the_style_anew(page: Any) -> None:
    """A shorthand with a variable that is overridden in part serialises to nothing: in gradio, borders and fonts would
    be gone."""
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


# ---- hostile text


@pytest.mark.browser
def test_hostile_text_is_exact_and_runs_nothing(page: Any) -> None:
    """A model may write anything; all of it is shown as it is."""
    recorded = race_over(HOSTILE * 3, seed=3, hit=0.6)
    feed(page, recorded)
    assert page.evaluate(TOKENS) == expected(recorded)
    for button in ("[data-tab=steps]", "[role=tab][data-tab=text]", "[data-ref=marks]", "[data-ref=marks]"):
        page.click(f"button{button}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for node in page.query_selector_all("[data-ref=rightText] .pf-step")[:12]:
        node.focus()
    page.wait_for_timeout(100)
    assert page.evaluate("document.querySelectorAll('.pf script, .pf img').length") == 0
    marks = page.evaluate("[...document.querySelectorAll('.pf-text .pf-unseen')].map(n => n.dataset.mark)")
    assert {"RLO", "ZWSP", "BOM", "NUL", "ESC", "CR", "U+2028", "U+E0041"} <= set(marks)


@pytest.mark.browser
def test_what_is_copied_is_what_was_written(page: Any) -> None:
    """Both texts, pasted to be compared, would refute the verdict: a struck-out guess in the middle of a word, a line
    for each step. Nobody would find a name across one."""
    hostile = race_over([word for word in HOSTILE if word != "\x00"], seed=3, hit=0.6)
    trees = as_trees(race_over(words_of(TEXT)[:90], seed=5, k=4, hit=0.6), random.Random(4))
    shipped = [json.loads(file.read_bytes()) for file in sorted(RACES.glob("*.json"))]
    for recorded in (*shipped, trees, hostile):
        opened(page, recorded)
        written = {
            lane: "".join("".join(e["pieces"]) for e in recorded["events"] if (e["lane"], e["type"]) == (lane, "step"))
            for lane in ("baseline", "speculative")
        }
        for button in ("#pf-tab-steps", "#pf-tab-text", "[data-ref=marks]", "[data-ref=marks]"):
            page.click(button)
            for lane, ref in (("baseline", "leftText"), ("speculative", "rightText")):
                assert selected(page, f"[data-ref={ref}]") == written[lane], (button, lane, recorded["prompt"])
        if recorded in shipped:  # by the browser alone, which knows no such blanks
            assert written["speculative"].replace("\xa0", " ") in selected(page, ".pf-lanes")
    opened(page, json.loads((RACES / "csv_to_json.json").read_bytes()))
    assert page.evaluate("getSelection().empty(), find('la Gomez') && find('la Gomez')")
    assert page.evaluate("getSelection().anchorNode.parentElement.closest('[data-ref=rightText]') !== null")


@pytest.mark.browser
def test_hostile_labels_run_nothing(page: Any) -> None:
    """Names, sentences and status texts come from strangers' files too."""
    recorded = json.loads(json.dumps(SHORT))
    for where, key in (
        (recorded["model"], "name"),
        (recorded["device"], "name"),
        (recorded["verdicts"]["speculative"], "sentence"),
        (recorded["verdicts"]["plain"], "sentence"),
    ):
        where[key] = "<img src=x onerror=window.ran=1>${window.ran=1}\u202e" + "W" * 900
    sent = frames(recorded, ribbon="<b>RECORDED", status="</p><script>window.ran=1</script>")
    show(page, sent)
    page.wait_for_timeout(100)
    assert page.evaluate("document.querySelectorAll('.pf img, .pf script, .pf b').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# ---- files


@pytest.mark.browser
def test_files_are_checked_saved_and_opened(tab: Any, tmp_path: Path) -> None:
    """A stranger's broken race over the one that was there; a saved race that is no longer the same file, since a
    checksum has 64 bits and JavaScript's numbers 53; or an example that no click brings back, since its frame was the
    last one from the server. What is refused, and why: tests/recordings."""
    good, path, example = json.dumps(SHORT, indent=1), tmp_path / "race.json", tab.evaluate(STATE)["race"]

    def open_file(content: bytes) -> None:
        path.write_bytes(content)
        tab.set_input_files("[data-ref=file]", [])
        tab.set_input_files("[data-ref=file]", path)

    open_file(good.encode())
    tab.wait_for_function("window.photofinish.state.fromFile")
    tab.evaluate(SETTLED)
    before = tab.evaluate(TOKENS)
    assert before == expected(SHORT) and "RECORDED" in words(tab, "ribbon")
    assert saved(tab).decode() == loads(good.encode()).text
    wrong = json.dumps({**SHORT, "verdicts": {"nobody": {}}})
    for content, why in (
        (wrong.encode(), "nobody"),
        (b"", "not JSON"),
        (b"[" * 300_000, "brackets"),
        (b"\xff\xfe", "not UTF-8"),
        (b" " * 11_000_000, "larger than"),
    ):
        tab.evaluate("document.querySelector('[data-ref=alertText]').textContent = ''")
        open_file(content)
        tab.wait_for_function("document.querySelector('[data-ref=alertText]').textContent")
        said = words(tab, "alertText")
        assert said.startswith("race.json cannot be opened: ") and said.endswith(".") and why in said
    assert tab.evaluate(TOKENS) == before
    assert all("the server responded with a status of 4" in problem for problem in tab.problems)
    tab.problems.clear()
    tab.locator("#page-presets button:not(#page-settings-button)").first.click()
    tab.wait_for_function("!window.photofinish.state.fromFile")
    assert tab.evaluate(STATE)["race"] == example and example.startswith("recorded-")


@pytest.mark.browser
def test_every_kind_of_good_recording_is_shown(page: Any) -> None:
    """Races that are known in part, of servers, without an audit, or that ship: people would be locked out of their
    own, or be shown another verdict."""
    in_part = known_in_part(SHORT, random.Random(4))
    assert loads(json.dumps(in_part).encode()) == in_part
    shipped = [json.loads(path.read_bytes()) for path in sorted(RACES.glob("*.json"))[::3]]
    for recorded in (race_over(HOSTILE, seed=9), race_over(words_of(TEXT)[:9], audit=False), in_part, *shipped):
        opened(page, recorded)
        assert page.evaluate(TOKENS) == expected(recorded)
        assert words(page, "verdictWord").startswith("Identical") and words(page, "plainVerdict")
    opened(page, on_servers(SHORT))
    assert page.evaluate(TOKENS) == expected(on_servers(SHORT)) and words(page, "verdictWord") == "The same text"


@pytest.mark.browser
def test_whatever_the_check_accepts_can_be_shown(page: Any) -> None:
    """An odd file that the server accepts would stop the program."""

    good = []
    for text in mutants(300):
        with suppress(UsageError):
            good.append(json.dumps(loads(text.encode()).fields))
    page.evaluate("texts => texts.forEach(text => window.photofinish.open(text))", good)
    page.evaluate(SETTLED)
    assert 20 < len(good) < 250


@pytest.mark.browser
def test_a_file_on_screen_stays_until_the_next_race(page: Any) -> None:
    """Late frames of the race before must not write into an opened file."""
    sent = frames(RACE, race_id="served")
    show(page, sent[:-1])
    assert page.is_disabled("[data-ref=open]")
    opened(page, SHORT)
    show(page, sent[-1:])
    assert page.evaluate(TOKENS) == expected(SHORT)
    show(page, frames(RACE, race_id="next")[:3])
    assert page.evaluate(STATE)["race"] == "next"


# ---- lanes of any number and name


@pytest.mark.browser
@pytest.mark.parametrize("live", [True, False], ids=["live", "file"])
@pytest.mark.parametrize("names", [["a", "b", "c", "d", "e"], ["__proto__", "toString", "constructor"]])
def test_the_page_shows_the_baseline_and_the_first_that_drafts(page: Any, names: list[str], live: bool) -> None:
    """The last lane, or the one called speculative, would be shown, with another lane's verdict or ratio."""
    recorded = with_more_lanes(names, first=1)
    if live:
        feed(page, recorded)
    else:
        opened(page, recorded)
    page.wait_for_function("!window.photofinish.state.live")
    state = page.evaluate(STATE)
    assert state["lanes"] == ["baseline", names[0]]
    assert page.evaluate(TOKENS) == expected(recorded, lanes=("baseline", names[0]))
    assert words(page, "verdictSentence") == f"Identical tokens: baseline and {names[0]}."
    assert words(page, "plainVerdict").startswith("The plain lane not shown: ")
    gains = race_speedups(events_of(recorded), spec_of(recorded).lanes)
    assert state["speedup"] == pytest.approx(gains[names[0]])
    clocks = {e["lane"]: e["clock_s"] for e in recorded["events"]}
    shown = max(clocks[name] for name in ("plain", "baseline", names[0]))
    assert state["duration"] == pytest.approx(shown), "the replay would go on after both lanes' ends"


@pytest.mark.browser
def test_roles_and_not_names_say_which_lane_is_which(page: Any) -> None:
    """A baseline of another name would be shown as the lane that drafts."""
    text = json.dumps(SHORT).replace('"plain"', '"p"').replace('"baseline"', '"b"').replace('"speculative"', '"s"')
    recorded = json.loads(text)
    for lane, role in zip(recorded["spec"]["lanes"], ("plain", "baseline", "speculative"), strict=True):
        lane["role"] = role
    assert loads(json.dumps(recorded).encode()) == recorded
    opened(page, recorded)
    assert page.evaluate(STATE)["lanes"] == ["b", "s"]
    assert page.evaluate(TOKENS) == expected(recorded, lanes=("b", "s"))
