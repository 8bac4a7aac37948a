"""The card of a race that waits or is prepared, over a race that stays."""

from __future__ import annotations

from typing import Any

import pytest

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

RACE = race_over(words_of(TEXT)[:60], seed=5)
NEXT = race_over(words_of(TEXT)[:40], seed=6)
BAR = "document.querySelector('[data-ref=progress]').value"

pytestmark = pytest.mark.browser


def waiting(left: list[int | None], state: str = "waiting", seq: int = 0) -> list[dict[str, Any]]:
    """Frames of a race that waits so many seconds."""
    text = "2 races before yours."
    blank = {"race": "next", "ribbon": "", "header": None, "events": [], "metrics": None, "recording": None}
    told = [{"text": text, "share": None, "left_s": each} for each in left]
    return [{**blank, "seq": seq + i, "state": state, "status": status} for i, status in enumerate(told)]


def test_a_race_stays_until_the_next_one_begins(page: Any) -> None:
    """The screen would be empty while one waits; or the next race lack its first frames, or begin behind a card."""
    feed(page, RACE)
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
    page.wait_for_function("window.photofinish.state.t > 0.1")
    page.focus("[data-ref=scrub]")
    page.keyboard.press("End")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(RACE)
    assert page.is_enabled("[data-ref=save]") and page.is_disabled("[data-ref=open]")
    example = frames(RACE, race_id="recorded-example")[-1] | {"seq": 0, "ribbon": "RECORDED"}
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


def test_an_estimate_is_counted_down_and_then_given_up(page: Any) -> None:
    """A card would say "about 2 s" for as long as nothing new is known."""
    last = waiting([2])[0]
    show(page, [last])
    assert words(page, "cardLeft") == "about 2 s"
    page.wait_for_timeout(1100)
    show(page, [{**last, "seq": 1}])
    assert words(page, "cardLeft") == "about 1 s"
    page.wait_for_timeout(1100)
    show(page, [{**last, "seq": 2}])
    assert words(page, "cardLeft") == "" and words(page, "cardTitle") == "Your race waits"


def test_giving_up_the_place_leaves_the_race_that_is_there(page: Any) -> None:
    """Stop while one waits would empty the screen."""
    feed(page, RACE)
    show(page, waiting([9]))
    show(page, waiting([None], "stopped", 1))
    assert page.is_hidden("[data-ref=card]") and page.evaluate(TOKENS) == expected(RACE)
    show(page, frames(NEXT, race_id="a third"))
    assert page.evaluate(TOKENS) == expected(NEXT)


def test_what_is_wrong_with_a_race_that_waited_is_told(page: Any) -> None:
    """A race that failed as soon as it had the device would end without a word."""
    feed(page, RACE)
    failed = waiting([None], "failed", 1)
    failed[0]["status"]["text"] = "The prompt is too long."
    show(page, [*waiting([9]), *failed])
    assert page.is_hidden("[data-ref=card]") and words(page, "statusText") == "The prompt is too long."
    assert page.evaluate(STATE)["state"] == "failed"
