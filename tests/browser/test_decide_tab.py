"""The tab "Decide" in a real page; what it computes is tested in tests/app/test_decide.py."""

import json
from typing import Any

import pytest

from engine.recordings.recording import read
from tests.helpers import CHAINS
from tests.helpers.page_browser import UNREADABLE, copied, reload
from tests.helpers.race_pages import PAID, SETTLED, SLIDE, frames, opened, show, words
from tests.helpers.races import a_race, on_servers

pytestmark = pytest.mark.browser


def table(page: Any) -> dict[str, list[str]]:
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator("[data-ref=decideRows] tr").all()]
    return {row[0]: row[1:] for row in rows}


def test_the_tab_of_a_recorded_race(visit: Any) -> None:
    """Figures of another race; dollars without a price; a price that is forgotten; a button that copies nothing; a tab
    that sends the race away, scrolls sideways, or cannot be read or reached."""
    tab = visit()
    with tab.expect_response(lambda answer: "/run/" in answer.url):  # settings that fit the file's race
        tab.set_input_files("[data-ref=file]", CHAINS / "csv_to_json.json")
    tab.wait_for_function("window.photofinish.state.race === 'file:csv_to_json.json'")
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(request.url))
    tab.focus("#pf-tab-details")
    tab.keyboard.press("ArrowLeft")
    assert tab.get_attribute("#pf-tab-decide", "aria-selected") == "true"
    sent.clear()  # what the file's settings asked for
    gain = "n-gram (copies earlier text), k = "
    assert words(tab, "decideSays").startswith(f"{PAID}: {gain}")
    assert "$" not in tab.inner_text(".pf-answer, [data-ref=decideRows]")
    assert "A load study" in words(tab, "answerBatch") and tab.is_visible("[data-ref=ribbon]")
    tab.fill("[data-decide=hours]", "30")
    assert "30 must be above 0 and at most 24; using 24." in words(tab, "decideCaution")
    tab.fill("[data-decide=hours]", "24")
    tab.select_option("[data-ref=gpus]", "3.99")
    assert tab.input_value("[data-decide=dollars]") == "3.99" and "runpod.io/pricing" in words(tab, "priceNote")
    tab.fill("[data-decide=dollars]", "41.62")
    assert "1,000,000 tokens (on this CPU)" in table(tab)
    assert words(tab, "moneyHead") == "Money, from a race on a CPU" and "on the GPU" in words(tab, "moneyBasis")
    for button in tab.locator("[data-ref=serve] button").all():
        button.click()
        button.filter(has_text="Copied").wait_for()
        shown = button.locator("xpath=ancestor::section[1]//pre").text_content()
        assert tab.evaluate("navigator.clipboard.readText()") == shown and shown
    sent_on = copied(tab, "sentence")["sentence"]
    assert f"{PAID}: a server can run {gain}" in sent_on and "$" not in sent_on
    for size in ((1280, 800), (390, 844)):
        tab.set_viewport_size({"width": size[0], "height": size[1]})
        tab.evaluate(SETTLED)
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        assert tab.evaluate(UNREADABLE) == []
    assert [url for url in sent if "queue/join" in url or "/run/" in url] == []
    reload(tab)
    tab.click("#pf-tab-decide")
    assert tab.input_value("[data-decide=dollars]") == "41.62"
    differing = on_servers(a_race([(3, 2)] * 8))
    differing["verdicts"]["speculative"]["kind"] = "other_text"
    opened(tab, differing)
    tab.click("text=Check why texts differ")
    assert tab.is_checked("#page-yours [name=what][value=servers]") and tab.is_checked("#page-yours [value=checkup]")


def test_no_figure_changes_once_it_is_shown(page: Any) -> None:
    """The best that raced as the verdict, and another one a moment later, when the tables are there."""
    *before, last = frames(dict(read(CHAINS / "csv_to_json.json")), every=99)
    raced = json.loads(last["recording"])
    del raced["tables"], raced["costs"]
    page.click("#pf-tab-decide")
    show(page, [*before, {**last, "recording": json.dumps(raced), "complete": False}])
    assert words(page, "decideWaits").startswith("Still computing")
    assert page.is_hidden("[data-ref=answer]") and page.is_hidden("[data-ref=decide]")
    show(page, [{**last, "seq": last["seq"] + 1}])
    assert words(page, "decideWaits") == "" and words(page, "decideSays").startswith(f"{PAID}: ")
    assert page.is_visible("[data-ref=decide]")


def test_what_was_chosen_in_what_if_is_what_decide_is_about(page: Any) -> None:
    """A choice that is forgotten on the way, or a command and money of another; or no way back to the best."""
    opened(page, read(CHAINS / "csv_to_json.json"), "decide")
    best = words(page, "decideSays")
    for drafter, k, is_served in (("ngram", 3, True), ("eagle3", 4, False)):
        page.click("#pf-tab-whatif")
        page.select_option("[data-ref=whatIfDrafter]", drafter)
        page.evaluate(SLIDE, str(k - 1))
        page.evaluate(SETTLED)
        ratio = words(page, "whatIfShown").removeprefix(f"{k}: ")
        assert ratio == words(page, "ratio")
        page.click("#pf-tab-decide")
        says = words(page, "decideSays")
        assert f", k = {k} (chosen in What if): {ratio} as fast as Plain (computed)" in says
        assert table(page)["tokens per second"][2] == ratio
        assert "Best that a server can run: n-gram (copies earlier text), k = " in words(page, "answerElse")
        commands = page.locator("[data-ref=serve] pre").all_text_contents()
        assert bool(commands) == is_served and all(f'tokens": {k}' in command for command in commands[:1])
        page.click("#pf-tab-whatif")
        page.evaluate(SETTLED)
        assert words(page, "whatIfShown") == f"{k}: {ratio}", "the choice is still there"
    page.click("[data-ref=whatIfRaced]")
    page.click("#pf-tab-decide")
    assert words(page, "decideSays") == best
