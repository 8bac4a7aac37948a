"""The live component in a real Chromium: the tokens, numbers and times on the page are what the events say."""

from __future__ import annotations

import copy
import itertools
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings

from engine.analysis.breakdown import compared
from tests.helpers.race_pages import (
    SETTLED,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    numbers_at,
    race_over,
    rounded,
    show,
    words,
    words_of,
)
from tests.helpers.races import events_of, recordings, servers_races

pytestmark = pytest.mark.browser
RACE = race_over(words_of(TEXT, 3), hit=0.82)
SHORT = race_over(words_of(TEXT)[:60], seed=5)


RACE_IDS = map(str, itertools.count())


@settings(max_examples=12)
@given(recorded=recordings() | servers_races(recordings()), failing=recordings(failing=True))
def test_the_dom_is_the_event_stream(shared_page: Any, recorded: dict[str, Any], failing: dict[str, Any]) -> None:
    """A highlight found any other way than by its event would mark the wrong token."""
    for one in (recorded, failing):
        feed(shared_page, one, race_id=next(RACE_IDS), every=2)
        assert shared_page.evaluate(TOKENS) == expected(one)
        assert shared_page.problems == []


def test_four_hundred_tokens_live_then_at_every_lane_time(page: Any) -> None:
    """Live, scrubbed back and forth: the same race, and both lanes at the same lane time."""
    feed(page, RACE, every=30)
    assert len(RACE["events"]) > 800
    assert page.evaluate(TOKENS) == expected(RACE)
    end = page.evaluate(STATE)["duration"]
    for share in (0.0, 0.71, 0.2, 0.5, 0.05, 1.0):
        page.evaluate(
            "t => { const scrub = document.querySelector('[data-ref=scrub]'); scrub.value = t; "
            "scrub.dispatchEvent(new Event('input')); }",
            round(1000 * end * share),
        )
        page.evaluate(SETTLED)
        t = page.evaluate(STATE)["t"]
        assert page.evaluate(TOKENS) == expected(RACE, t)


def test_no_text_is_made_up_for_guesses_that_nobody_knows(page: Any) -> None:
    """A server counts its drafts and names none: struck-out words, or "0 of 0 kept", would be invented."""
    recorded = copy.deepcopy(SHORT)
    for e in recorded["events"]:
        if e["type"] == "step" and e["drafted"]:
            e.update(num_drafted=len(e["drafted"]), drafted=[], drafted_pieces=[], width=None)
    feed(page, recorded)
    assert page.evaluate(TOKENS) == expected(recorded)
    assert page.locator("[data-ref=rightText] .pf-rejected").count() == 0
    done = [e for e in recorded["events"] if e["lane"] == "speculative" and e.get("num_drafted")]
    for dropped in (True, False):
        step = next(e for e in done if (e["num_accepted"] < e["num_drafted"]) == dropped)
        page.locator(f"[data-ref=rightText] [data-step='{step['index']}']").focus()
        page.wait_for_selector("[data-ref=pop]:not([hidden])")
        told = f"step {step['index'] + 1}: {step['num_accepted']} of {step['num_drafted']} guesses kept"
        assert page.text_content(".pf-pop-head") == told + ("; which ones were dropped is not known" if dropped else "")
        assert page.locator("[data-ref=pop] li").count() == len(step["token_ids"]) and "unknown width" in words(
            page, "pop"
        )
    drafted, kept = (sum(e[key] for e in done) for key in ("num_drafted", "num_accepted"))
    assert words(page, "rateWords") == f"{kept} of {drafted} guesses"


def test_live_numbers_are_the_servers(page: Any) -> None:
    """While a race runs the page computes nothing that the server counts."""
    sent = frames(SHORT)
    sent[6]["metrics"]["speculative"]["tokens_per_s"] = 123.45
    sent[6]["speedup"] = 0.5
    show(page, sent[:7])
    assert words(page, "rightFigure") == "123.5"
    left = max(sent[6]["metrics"][name]["tokens_per_s"] for name in ("plain", "baseline"))
    assert words(page, "ratio") == f"{123.45 / left:.2f}×"
    assert words(page, "ratioWords") == f"123.5 against {left:.1f} tok/s, the faster of two plain runs, so far"
    assert page.evaluate(STATE)["speedup"] == 0.5


LINE = r"([\d.]+) against ([\d.]+) tok/s, the faster of two plain runs; ([\d.]+)× with reading the prompt"


def test_one_line_explains_the_ratio(page: Any) -> None:
    """A ratio that no two numbers on the board give, that leaves out the prompt without a word, or that is another
    one in the tab Why."""
    for seed in range(4):
        faster = race_over(words_of(TEXT)[:80], seed=seed)
        feed(page, faster, race_id=f"faster {seed}")
        numbers = numbers_at(faster, float("inf"))
        lane, *plain = (numbers["metrics"][name] for name in ("speculative", "plain", "baseline"))
        other = max(plain, key=lambda each: each["tokens_per_s"])
        told = re.fullmatch(LINE, words(page, "ratioWords"))
        assert told, words(page, "ratioWords")
        assert told.group(1) == words(page, "rightFigure") == f"{lane['tokens_per_s']:.1f}"
        assert told.group(2) == f"{other['tokens_per_s']:.1f}"
        ratio = words(page, "ratio")
        assert ratio == f"{numbers['speedup']:.2f}×"
        assert float(told.group(1)) / float(told.group(2)) == pytest.approx(float(ratio[:-1]), abs=0.02)
        whole = (other["prefill_s"] + other["decode_s"]) / (lane["prefill_s"] + lane["decode_s"])
        assert told.group(3) == f"{whole:.2f}"
        with_it = f"Including the prompt, the speculative lane was {whole:.2f}× as fast as Plain"
        assert with_it in page.text_content("[data-ref=ttftNote]"), "another divisor than the board's"
        page.click("[data-tab=why]")
        race = compared(events_of(faster))
        assert race and words(page, "whySays") == (
            f"{race.tokens_per_step:.2f} tokens per step, and a step costs {race.break_even:.2f} plain ones: {ratio}."
        )


def test_a_ratio_within_its_noise_is_no_difference(page: Any) -> None:
    """1.03x faster, in green, from a race whose steps scatter by 10 %; or a text that loops, without a word."""
    even = race_over(words_of(TEXT)[:60], k=0, drafter="none")
    rng = random.Random(4)
    for event in even["events"]:
        if event["type"] == "step":
            event["verify_s"] = rng.gauss(0.025, 0.004)
    feed(page, even, race_id="even")
    assert words(page, "ratioWords").startswith("no difference: the noise is")
    assert page.get_attribute(".pf", "data-sense") == "even"
    feed(page, SHORT, race_id="clear")
    assert page.get_attribute(".pf", "data-sense") == "faster" and words(page, "caution") == ""
    feed(page, race_over(words_of(TEXT)[:20] * 5, seed=3), race_id="loop")
    assert words(page, "caution").startswith("The text repeats itself") and page.evaluate(STATE)["noise"] > 0


def test_holes_are_repaired_by_the_last_frame(page: Any) -> None:
    """Frames get lost (a hidden tab, two in one tick); frames come twice. The end must be right."""
    sent = frames(RACE, every=20)
    kept = [f for i, f in enumerate(sent[:-1]) if i % 7]
    show(page, kept)
    assert page.evaluate(STATE)["holes"] > 0
    show(page, [sent[3], sent[-1], sent[5]])
    assert page.evaluate(TOKENS) == expected(RACE)
    assert page.evaluate(STATE)["holes"] == 0


def test_a_new_race_clears_the_old(page: Any) -> None:
    """Tokens of the last race under the next one's verdict would be a lie."""
    feed(page, RACE, race_id="first", every=90)
    show(page, frames(SHORT, race_id="second")[:1])
    assert page.evaluate(TOKENS) == []
    assert page.get_attribute("[data-ref=verdict]", "data-kind") == "none"
    assert words(page, "rightFigure") == "–"


# ---- replay


def test_the_scrubber_works_from_the_keyboard(page: Any) -> None:
    """Arrow keys go from step to step, Home and End to the ends, space plays and pauses; or another lane time's numbers
    under the texts. Whether they are the engine's: tests/app/test_twins.py."""
    feed(page, SHORT)
    page.focus("[data-ref=scrub]")
    times = sorted({e["clock_s"] for e in SHORT["events"] if e["type"] == "step" and e["lane"] != "plain"})
    page.keyboard.press("Home")
    page.evaluate(SETTLED)
    assert page.evaluate(STATE)["t"] == 0
    assert page.evaluate(TOKENS) == []
    for wanted in times[:5]:
        page.keyboard.press("ArrowRight")
        page.evaluate(SETTLED)
        state = page.evaluate(STATE)
        assert state["t"] == pytest.approx(wanted, abs=1e-9)
        assert page.evaluate(TOKENS) == expected(SHORT, wanted)
        shown = {"metrics": state["metrics"], "speedup": state["speedup"]}
        assert rounded(shown) == rounded(numbers_at(SHORT, state["t"]))
    page.keyboard.press("ArrowLeft")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(SHORT, times[3])
    page.keyboard.press("Space")
    page.wait_for_timeout(80)
    assert page.evaluate(STATE)["playing"]
    page.keyboard.press("Space")
    assert not page.evaluate(STATE)["playing"]
    page.keyboard.press("End")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(SHORT)


def test_a_finished_race_plays_once_by_itself(open_page: Any) -> None:
    """The promise of the page: a race that is over is replayed, once, at real speed or, on request, a quarter of it; a
    race that arrives whole plays soon; nothing plays once a visitor takes the controls, or with reduced motion."""
    page = open_page()
    page.clock.install()

    def fed(race_id: str) -> None:
        """A race that is over, and no time passes after that: only where it is wanted."""
        page.clock.resume()
        feed(page, SHORT, race_id=race_id, every=30)
        page.clock.pause_at(page.evaluate("Date.now() / 1000 + 0.1"))

    def after(seconds: float) -> dict[str, Any]:
        page.clock.run_for(1000 * seconds)
        return page.evaluate(STATE)

    fed("a")
    length = max(e["clock_s"] for e in SHORT["events"])
    assert not page.evaluate(STATE)["playing"] and any(after(0.1)["playing"] for _ in range(20))
    begun = page.evaluate(STATE)["t"]
    assert begun < 0.2 and after(0.5)["t"] == pytest.approx(begun + 0.5, abs=0.05), "from its beginning, in real time"
    assert after(length)["lasted"]["lane_s"] == pytest.approx(length)
    assert page.evaluate(STATE)["lasted"]["wall_s"] == pytest.approx(length, abs=0.05)
    assert page.evaluate(TOKENS) == expected(SHORT) and not after(3)["playing"]
    page.click("[data-speed='0.25']")
    page.click("[data-ref=play]")
    assert after(1)["t"] == pytest.approx(0.25, abs=0.03)
    fed("b")
    page.focus("[data-ref=scrub]")
    page.keyboard.press("Home")
    assert after(3)["t"] == 0
    page.clock.resume()
    show(page, [{**frames(SHORT, race_id="whole", ribbon="RECORDED")[-1], "seq": 0}])
    assert after(0.5)["playing"] and "RECORDED" in words(page, "ribbon")
    page.emulate_media(reduced_motion="reduce")
    feed(page, SHORT, race_id="still", every=30)
    assert after(3)["t"] == length and not page.evaluate(STATE)["playing"] and page.problems == []
