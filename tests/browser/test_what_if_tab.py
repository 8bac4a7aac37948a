"""The tab "What if": recorded races, recomputed for other draft lengths."""

import re
from typing import Any

import pytest

from engine.recordings.extras import EXTRAS
from engine.recordings.recording import read
from engine.what_if.judged import what_if_of
from tests.helpers import CHAINS
from tests.helpers.page_browser import choose
from tests.helpers.race_pages import SAME, SETTLED, SLIDE, STATE, TOKENS, opened, words
from tests.helpers.races import on_servers

pytestmark = pytest.mark.browser
CSV = CHAINS / "csv_to_json.json"


def test_the_slider_tells_the_same_race_at_that_length(page: Any) -> None:
    """Marks, figures or a clock of another length; a computed race that does not say so, or outlives its tab."""
    recording = read(CSV)
    what_if = what_if_of(recording)
    assert what_if is not None
    opened(page, recording)
    raced, figures = page.evaluate(TOKENS), [words(page, name) for name in ("ratio", "rightFigure", "rightPlace")]
    page.click("[data-tab=whatif]")
    assert page.evaluate(TOKENS) == raced and words(page, "whatIfShown") == "as raced"
    shown = page.evaluate("document.querySelector('[data-ref=whatIfDrafter]').selectedOptions[0].textContent")
    assert shown == "as raced", "a drafter is named that did not race"
    share = 100 * recording["oracles"]["speculative"]["share"]
    assert words(page, "whatIfWords").endswith(f"This race reached {share:.0f} % of the best possible (the oracle).")
    for drafter in ("ngram", "eagle3"):
        page.select_option("[data-ref=whatIfDrafter]", drafter)
        for k in (1, 7):
            page.evaluate(SLIDE, str(k - 1))
            page.evaluate(SETTLED)
            steps = what_if.steps(drafter, k)
            shown = page.evaluate(STATE)["metrics"]["speculative"]
            assert shown["decode_s"] == pytest.approx(sum(step.seconds for step in steps))
            assert words(page, "whatIfShown") == f"{k}: {words(page, 'ratio')}"
            bars = page.locator(".pf-whatif-curve i")
            assert bars.count() == len(what_if.offered()[drafter]) and page.locator("i[data-on]").count() == 1
            assert bars.nth(k - 1).get_attribute("title") == f"{words(page, 'whatIfShown')} (computed)"
            assert sum(lane == "speculative" for lane, *_ in page.evaluate(TOKENS)) == len(steps)
            assert "COMPUTED" in page.get_attribute("[data-ref=ribbon]", "data-words")
            assert words(page, "verdictWord") == "The same text at every length"
    page.click("[data-ref=whatIfRaced]")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == raced
    page.evaluate(SLIDE, "0")
    page.click("[data-tab=text]")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == raced and "COMPUTED" not in page.get_attribute("[data-ref=ribbon]", "data-words")
    assert [words(page, name) for name in ("ratio", "rightFigure", "rightPlace")] == figures
    assert words(page, "verdictWord") == SAME


def test_what_is_not_there_is_named(page: Any) -> None:
    """A slider that does nothing; or "Not available", and nobody knows what."""
    recording = read(CSV)
    bare = {key: value for key, value in recording.items() if key not in EXTRAS}
    alone = {**bare, "events": [event for event in bare["events"] if event["lane"] == "speculative"]}
    unnamed = re.compile(r"(?m)(?:^|[.!?] )(?:(?:Not|Only) (?:available|known|if)|Available|Shown)\b.*")
    for name in ("decide", "onestep", "why", "timing", "whatif"):
        choose(page, name)
        assert unnamed.findall(page.inner_text(".pf")) == []
        for race in (on_servers(bare), alone, {**bare, "synthetic": ["speculative"]}, bare):
            opened(page, race, name)
            assert unnamed.findall(page.inner_text(".pf")) == []
    assert "has no tables" in words(page, "whatIfWords")
    assert page.is_disabled("[data-ref=whatIfK]") and page.is_disabled("[data-ref=whatIfDrafter]")
    opened(page, recording, "whatif")
    assert page.is_enabled("[data-ref=whatIfK]")
