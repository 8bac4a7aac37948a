"""The page in a real Chromium: what a visitor sees, from first paint to a screenshot of every look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers import ROOT
from tests.helpers.page_browser import RACE_MS, open_tab, run_race, set_number

ARTEFACTS = ROOT / "artefacts"
RACED = ("light", "narrow")
"""Looks at a race that was just run; the others are at the recorded one, which is the same board."""
LOOKS = {
    "light": (1440, 1000, "light"),
    "dark": (1440, 1000, "dark"),
    "narrow": (360, 760, "light"),
    "narrow-dark": (360, 760, "dark"),
    "wide": (3840, 2160, "light"),
}

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser, server) -> Iterator[Any]:
    """A tab with the page ready, in which no script may fail."""
    tab = browser.new_page(viewport={"width": 1440, "height": 1000})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    open_tab(tab, server)
    yield tab
    tab.close()
    assert errors == []


def test_first_paint_needs_no_model_and_no_network(browser, server) -> None:
    """A visitor sees prompt, buttons and lanes at once; nothing is fetched from anywhere else."""
    tab = browser.new_page()
    foreign: list[str] = []
    tab.on(
        "request",
        lambda request: (
            foreign.append(request.url) if not request.url.startswith((server.url, "data:", "blob:")) else None
        ),
    )
    tab.goto(server.url)
    for selector in ("#page-race-button", "#page-stop-button", "#page-prompt textarea", ".pf"):
        tab.wait_for_selector(selector, timeout=10_000)
    tab.close()
    assert foreign == []


def test_a_live_race_to_its_verdict(page) -> None:
    """Race, and what belongs to it when it is over: verdict, three charts with their sentences, and a cost that follows
    the price without another race."""
    page.click("text=CSV to JSON")
    run_race(page)
    page.wait_for_selector(".pf-verdict[data-kind=identical_bits]", timeout=10_000)
    page.wait_for_selector("#page-charts .js-plotly-plot", timeout=30_000)
    page.wait_for_function("document.querySelectorAll('#page-charts .js-plotly-plot').length === 3", timeout=30_000)
    assert all(text.strip() for text in page.locator(".page-chart-sentence").all_inner_texts())
    before = page.locator(".page-cost b").first.inner_text()
    assert page.locator(".page-cost b").count() == 3 and "$" in before
    page.locator("#page-dollars input").fill("250")
    page.locator("#page-dollars input").press("Tab")
    page.wait_for_function(
        "before => document.querySelector('.page-cost b').innerText !== before", arg=before, timeout=10_000
    )


def test_stop_and_nothing_of_another_race_under_a_live_one(page) -> None:
    """Charts and costs of the recorded race would be taken for those of the race above them. Stop is Stop, and the next
    race runs."""
    page.wait_for_selector("#page-charts .js-plotly-plot", timeout=30_000)
    set_number(page, "Length", "900")
    run_race(page, "running")
    page.wait_for_selector("#page-charts", state="hidden", timeout=10_000)
    assert page.locator(".page-cost b").count() == 0
    page.click("#page-stop-button")
    page.wait_for_selector('.pf[data-state="stopped"]', timeout=3_000)
    page.wait_for_selector("#page-charts", state="visible", timeout=30_000)
    page.wait_for_selector(".page-cost b", timeout=10_000)
    set_number(page, "Length", "32")
    run_race(page)


def test_a_mistake_is_answered_in_a_sentence(page) -> None:
    """An empty prompt gets words, and the page goes on."""
    page.locator("#page-prompt textarea").fill("")
    page.click("#page-race-button")
    page.wait_for_selector("text=the prompt is empty", timeout=10_000)
    page.locator("#page-prompt textarea").fill("def f(x):")
    run_race(page)


def test_hostile_prompts_run_nothing(page) -> None:
    """Text from a visitor is text wherever it is shown."""
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    hostile = (
        "${alert(1)} {{alert(2)}} `x` </script><script>alert(3)</script><img src=x onerror=alert(4)> \u202e\u200b "
        "👩\u200d💻 " + "w" * 10_000
    )
    page.locator("#page-prompt textarea").fill(hostile)
    set_number(page, "Length", "32")
    page.click("#page-race-button")
    page.wait_for_selector('.pf[data-state="finished"], .pf[data-state="failed"]', timeout=RACE_MS)
    assert page.evaluate("document.querySelectorAll('img[src=\"x\"]').length") == 0


@pytest.mark.parametrize("look", LOOKS)
def test_every_look(browser, server, look) -> None:
    """Screenshots to be looked at; and nothing may stick out of the window at any width."""
    width, height, scheme = LOOKS[look]
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    open_tab(tab, server)
    if look in RACED:
        run_race(tab)
    tab.wait_for_selector("#page-charts .js-plotly-plot", timeout=30_000)
    tab.wait_for_timeout(1000)
    ARTEFACTS.mkdir(exist_ok=True)
    tab.screenshot(path=ARTEFACTS / f"page-{look}.png", full_page=True)
    tab.click("#page-settings-button")
    tab.wait_for_timeout(700)
    tab.screenshot(path=ARTEFACTS / f"settings-{look}.png")
    overflow = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    tab.close()
    assert overflow <= 0, json.dumps({"look": look, "overflow": overflow})
