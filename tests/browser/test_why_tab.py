"""The tab "Why" in a real Chromium: the engine's numbers, switches that say SIMULATED, a page that stays as it was."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.figures.cheats import cheats
from app.figures.why import compared_of, why
from app.jobs.frames import frame_json
from app.jobs.recorded import RACES
from engine.recordings.recording import Recording, read
from tests.helpers.page_browser import choose
from tests.helpers.race_pages import frames, words
from tests.helpers.races import a_race

pytestmark = pytest.mark.browser
CSV = RACES / "csv_to_json.json"
SENTENCES = "#page-why .page-chart-sentence"
SHOWN = """() => { const figures = document.querySelector('#page-why');
  return !figures.classList.contains('page-stale') && !document.querySelector('[data-ref=cheats]').disabled; }"""
OUTSIDE = """() => ['.pf-title', '.pf-board', '.pf-verdict', '.pf-bar', '.pf-lanes'].map(
    name => document.querySelector(name).outerHTML)"""


def opened(tab: Any, file: Path) -> Recording:
    """Open the tab "Why" of this race, and the race if it is not on the screen. All switches are off."""
    if tab.evaluate("window.photofinish.state.race") != f"file:{file.name}":
        tab.set_input_files("[data-ref=file]", file)
        tab.wait_for_function("name => window.photofinish.state.race === `file:${name}`", arg=file.name)
    tab.click("[role=tab][data-tab=why]")
    tab.wait_for_function(SHOWN)
    for switch in tab.locator("[data-cheat]").all():
        switch.uncheck()
    return read(file)


def test_a_race_is_sent_once(tab: Any) -> None:
    """Megabytes that the server already has would go up again for every figure, and be checked again."""
    posted: list[int] = []
    tab.on("request", lambda request: posted.append(len(request.post_data or "")))
    race = opened(tab, CSV)
    assert sum(posted) < 1.1 * CSV.stat().st_size + 5_000
    posted.clear()
    choose(tab, "charts")
    tab.wait_for_selector("#page-charts:not(.page-stale) .js-plotly-plot")
    assert race and max(posted) < 2_000


def test_each_switch_raises_the_number_and_says_simulated(tab: Any) -> None:
    """Sentences or figures of another race, a ratio that is not the board's; an inflated number that could be taken for
    this race's, that no screen reader announces, that stays when its switch is off, or that reaches the board."""
    race = opened(tab, CSV)
    drawn, sent = why(race), cheats(compared_of(race))
    assert tab.locator(SENTENCES).all_inner_texts() == [chart.sentence for chart in drawn]
    plots = tab.evaluate("[...document.querySelectorAll('#page-why .js-plotly-plot')].map(plot => plot.data.length)")
    assert plots == [len(chart.figure.data) for chart in drawn if chart.figure is not None]
    honest, before = f"{sent['ratios'][0]:.2f}×", tab.evaluate(OUTSIDE)
    assert (words(tab, "cheatRatio"), words(tab, "cheatHonest")) == (honest, "as fast as Plain, without tricks")
    on = 0
    for place, name in enumerate(sent["names"]):
        tab.focus(f"[data-cheat={name}]")
        tab.keyboard.press("Space")
        on |= 1 << place
        assert words(tab, "cheatRatio") == f"{sent['ratios'][on]:.2f}×"
        assert words(tab, "cheatHonest") == f"instead of {honest} without tricks"
        assert tab.is_visible("[data-ref=cheatRibbon]") and "SIMULATED" in words(tab, "cheatRibbon")
        alone = sent["ratios"][1 << place]
        assert alone > sent["ratios"][0]
        said = tab.inner_text(f"[data-exposed={name}]")
        assert said == f"SIMULATED {alone:.2f}× instead of {honest}. {sent['exposed'][place]}"
    assert tab.evaluate(OUTSIDE) == before and tab.get_attribute("[data-ref=cheated]", "role") == "status"
    for name in sent["names"]:
        tab.uncheck(f"[data-cheat={name}]")
        assert tab.is_hidden(f"[data-exposed={name}]")
    assert words(tab, "cheatRatio") == honest and tab.is_hidden("[data-ref=cheatRibbon]")
    assert tab.evaluate(OUTSIDE) == before


def test_switches_belong_to_one_race(tab: Any, tmp_path: Path) -> None:
    """Another race would be shown as inflated, or with the first one's numbers; copies that are not counted."""
    opened(tab, CSV)
    tab.check("[data-cheat=loop]")
    copies = a_race([(3, 3)] * 6, token_ids=[1, 2, 3, 50] * 6, drafter="ngram")
    for event in copies["events"]:
        if event["lane"] == "speculative" and event["type"] == "step":
            event["copied"] = [0, 0]
    (file := tmp_path / "copies.json").write_text(json.dumps(copies))
    tab.set_input_files("[data-ref=file]", file)
    tab.wait_for_function("name => window.photofinish.state.race === `file:${name}`", arg=file.name)
    tab.wait_for_function(SHOWN)
    assert not tab.is_checked("[data-cheat=loop]") and tab.is_hidden("[data-ref=cheatRibbon]")
    assert words(tab, "cheatRatio") == f"{cheats(compared_of(read(file)))['ratios'][0]:.2f}×"
    said = tab.inner_text(f"{SENTENCES} >> nth=0")
    assert "Of 18 accepted tokens 18 were copied from the prompt" in said and "starts to loop after 4 tokens" in said
    tab.check("[data-cheat=loop]")
    tab.evaluate("frame => window.photofinish.frame(frame)", frame_json(frames(a_race([(3, 2)] * 4), "begins")[0]))
    assert tab.is_disabled("[data-cheat=loop]") and words(tab, "cheatRatio") == "–"
    assert tab.is_hidden(f"{SENTENCES} >> nth=0")


def test_figures_requested_while_others_are_drawn_come_too(tab: Any) -> None:
    """Figures asked for first and answered last, as another race is opened, took the place of the newest for ever."""
    routes: list[Any] = []
    tab.click("[role=tab][data-tab=why]")
    tab.route("**/run/predict*", lambda route: routes.append(route))
    for num, file in enumerate((RACES / "sql.json", RACES / "chat.json")):
        with tab.expect_response("**/recordings/*.json"):  # the last thing before the figures are requested
            tab.set_input_files("[data-ref=file]", file)
        tab.wait_for_function("name => window.photofinish.state.race === `file:${name}`", arg=file.name)
        tab.wait_for_timeout(300)
        assert routes or num
    for route in reversed(routes):
        with tab.expect_response("**/run/predict*"):
            route.continue_()
    tab.unroute("**/run/predict*")
    tab.wait_for_function(SHOWN, timeout=10_000)
    assert words(tab, "cheatRatio") == f"{cheats(compared_of(read(file)))['ratios'][0]:.2f}×"
