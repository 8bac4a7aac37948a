"""The live component against strangers: text that wants to run, files that are not what they say, and what gradio does
to a page."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from app.jobs.frames import frame_json
from app.web import RACE_VIEW_CSS, RACE_VIEW_JS, RACE_VIEW_TEMPLATE
from engine.recordings.recording import loads
from tests.helpers.broken_races import SHORT
from tests.helpers.page_browser import open_tab
from tests.helpers.race_pages import (
    HOSTILE,
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
from tests.helpers.races import known_in_part, on_servers

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


def test_a_frame_has_no_script_tag_and_no_nan() -> None:
    """gr.HTML warns at script tags in a value; NaN is no JSON and would stop the page."""
    assert "<" not in frame_json({"text": "<script>"})
    assert json.loads(frame_json({"text": "<script>\u2028"})) == {"text": "<script>\u2028"}
    with pytest.raises(ValueError):
        frame_json({"speedup": float("nan")})


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
def test_files_are_checked_saved_and_opened(browser: Any, server: Any, tmp_path: Path) -> None:
    """A stranger's broken race over the one that was there; or a saved race that is no longer the same file, since a
    checksum has 64 bits and JavaScript's numbers 53. What is refused, and why: tests/recordings."""
    tab = browser.new_page(reduced_motion="reduce")
    open_tab(tab, server)
    good, path = json.dumps(SHORT, indent=1), tmp_path / "race.json"

    def open_file(content: bytes) -> None:
        path.write_bytes(content)
        tab.set_input_files("[data-ref=file]", [])
        tab.set_input_files("[data-ref=file]", path)

    open_file(good.encode())
    tab.wait_for_function("window.photofinish.state.fromFile")
    tab.evaluate(SETTLED)
    before = tab.evaluate(TOKENS)
    assert before == expected(SHORT) and "RECORDED" in words(tab, "ribbon")
    with tab.expect_download() as download:
        tab.click("[data-ref=save]")
    assert Path(download.value.path()).read_bytes() == good.encode()
    wrong = json.dumps({**SHORT, "verdicts": {"nobody": {}}})
    for content, why in (
        (wrong.encode(), "nobody"),
        (b"", "not JSON"),
        (b"[" * 200_000, "brackets"),
        (b"\xff\xfe", "not UTF-8"),
        (b" " * 11_000_000, "larger than"),
    ):
        tab.evaluate("document.querySelector('[data-ref=alertText]').textContent = ''")
        open_file(content)
        tab.wait_for_function("document.querySelector('[data-ref=alertText]').textContent")
        said = words(tab, "alertText")
        assert said.startswith("race.json cannot be opened: ") and said.endswith(".") and why in said
    assert tab.evaluate(TOKENS) == before
    tab.close()


@pytest.mark.browser
def test_the_example_of_the_first_page_replaces_an_opened_file(browser: Any, server: Any, tmp_path: Path) -> None:
    """Its frame was the last one from the server, so a click on it would do nothing."""
    tab = browser.new_page(reduced_motion="reduce")
    open_tab(tab, server)
    tab.wait_for_function("window.photofinish.state.race?.startsWith('recorded-')")
    first, path = tab.evaluate("window.photofinish.state.race"), tmp_path / "race.json"
    path.write_text(json.dumps(SHORT), encoding="utf-8")
    tab.set_input_files("[data-ref=file]", path)
    tab.wait_for_function("window.photofinish.state.fromFile")
    tab.locator("#page-presets button:not(#page-settings-button)").first.click()
    tab.wait_for_function("!window.photofinish.state.fromFile")
    assert tab.evaluate("window.photofinish.state.race") == first
    tab.close()


@pytest.mark.browser
def test_every_kind_of_good_recording_is_shown(page: Any) -> None:
    """Races that are known in part, of servers, without an audit: people would be locked out of their own."""
    races = (RACE, race_over(HOSTILE, seed=9), race_over(words_of(TEXT)[:9], audit=False))
    in_part = known_in_part(SHORT, random.Random(4))
    assert loads(json.dumps(in_part).encode()) == in_part
    for recorded in (*races, in_part):
        page.evaluate("text => window.photofinish.open(text)", json.dumps(recorded, ensure_ascii=False))
        page.evaluate(SETTLED)
        assert page.evaluate(TOKENS) == expected(recorded)
        assert words(page, "verdictWord").startswith("Identical") and words(page, "plainVerdict")
    page.evaluate("text => window.photofinish.open(text)", json.dumps(on_servers(SHORT)))
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(on_servers(SHORT)) and words(page, "verdictWord") == "The same text"


@pytest.mark.browser
def test_a_file_on_screen_stays_until_the_next_race(page: Any) -> None:
    """Late frames of the race before must not write into an opened file."""
    sent = frames(RACE, race_id="served")
    show(page, sent[:-1])
    assert page.is_disabled("[data-ref=open]")
    page.evaluate("text => window.photofinish.open(text)", json.dumps(SHORT))
    show(page, sent[-1:])
    assert page.evaluate(TOKENS) == expected(SHORT)
    show(page, frames(RACE, race_id="next")[:3])
    assert page.evaluate(STATE)["race"] == "next"
