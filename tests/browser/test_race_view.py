"""The race view in a real Chromium: tokens, numbers, times, verdict and cautions are what the events say."""

import copy
import itertools
import re
from typing import Any

import pytest
from hypothesis import given, settings

from app.jobs.frames import frame_json
from engine.analysis.breakdown import compared
from engine.core.events import steps, text_of
from tests.helpers.race_pages import (
    SETTLED,
    SHORT,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    numbers_at,
    race_over,
    rejudged,
    show,
    words,
    words_of,
)
from tests.helpers.races import MOST, events_of, fixed_race, recordings, servers_races, steps_of

pytestmark = pytest.mark.browser
RACE_IDS = map(str, itertools.count())
ASIDE = """() => [...document.querySelectorAll('.pf-text [data-step]')].map(step =>
    [step.dataset.lane, +step.dataset.step, +(step.querySelector('.pf-aside')?.dataset.count ?? 0)])"""
VERDICT = "document.querySelector('[data-ref=verdict]').dataset.kind"


@settings(max_examples=12)
@given(recordings() | servers_races(recordings()), recordings(failing=True), recordings(k=f"tree:{MOST}"))
def test_the_dom_is_the_event_stream(shared_page: Any, recorded: Any, failing: Any, trees: Any) -> None:
    """A highlight found any other way than by its event would mark the wrong token; of a tree, a token of a dropped
    branch or a struck one from another place, or dropped ones that nobody counts."""
    for one in (recorded, failing, trees):
        feed(shared_page, one, race_id=next(RACE_IDS), every=2)
        shown = shared_page.evaluate(TOKENS)
        assert shown == expected(one)
        assert shared_page.problems == []
    for (lane, index, tokens), (*same, aside) in zip(shown, shared_page.evaluate(ASIDE), strict=True):
        step = steps(events_of(trees), lane)[index]
        struck = sum(kind == "rejected" for kind, *_ in tokens)
        assert same == [lane, index] and aside == len(step.drafted) - step.num_accepted - struck


# ---- numbers


def test_live_numbers_are_of_all_steps_so_far(page: Any) -> None:
    """A board that lags behind the texts; a ratio of a race that still runs, as if it were over."""
    sent = frames(SHORT)[:30]
    show(page, sent)
    page.wait_for_timeout(150)
    show(page, [{**sent[-1], "seq": len(sent), "events": []}])
    done = {**SHORT, "events": [event for frame in sent for event in frame["events"]]}
    numbers = numbers_at(done, float("inf"))
    right, *plain = (numbers["metrics"][name]["tokens_per_s"] for name in ("speculative", "plain", "baseline"))
    assert words(page, "rightFigure") == f"{right:.1f}" and page.evaluate(STATE)["speedup"] == numbers["speedup"]
    assert words(page, "ratio") == f"{right / max(plain):.2f}×" and words(page, "ratioWords").endswith(", so far")


APART = r"the texts are not compared; it ran [\d.]+× as fast as plain: over the \d+ tokens that both wrote.*"
LINE = r"([\d.]+) against ([\d.]+) tok/s in Plain's best run; ([\d.]+)× including the prompt"


def test_one_line_explains_the_ratio_and_one_the_bars(page: Any) -> None:
    """A ratio that the board's numbers do not give, leaves out the prompt without a word, or differs in Why; two full
    bars, which say nothing, or a place from another moment, which flatters a lane."""
    for seed in range(4):
        raced = race_over(words_of(TEXT)[:80], seed=seed)
        feed(page, raced, race_id=f"raced {seed}")
        numbers = numbers_at(raced, float("inf"))
        lane, *plain = (numbers["metrics"][name] for name in ("speculative", "plain", "baseline"))
        other = max(plain, key=lambda metrics: metrics["tokens_per_s"])
        match, ratio = re.fullmatch(LINE, words(page, "ratioWords")), words(page, "ratio")
        whole = (other["prefill_s"] + other["decode_s"]) / (lane["prefill_s"] + lane["decode_s"])
        assert match, words(page, "ratioWords")
        assert match.group(1) == words(page, "rightFigure") == f"{lane['tokens_per_s']:.1f}"
        assert match.groups()[1:] == (f"{other['tokens_per_s']:.1f}", f"{whole:.2f}")
        assert ratio == f"{numbers['speedup']:.2f}×"
        assert float(match.group(1)) / float(match.group(2)) == pytest.approx(float(ratio[:-1]), abs=0.02)
        lanes = {lane: steps_of(raced, lane) for lane in ("baseline", "speculative")}
        late, early = sorted(lanes, key=lambda lane: lanes[lane][-1]["clock_s"], reverse=True)
        end = lanes[early][-1]["clock_s"]
        num = sum(len(step["token_ids"]) for step in lanes[late] if step["clock_s"] <= end)
        name = {"baseline": "Plain", "speculative": "Speculative"}[early]
        assert page.locator(".pf-then:visible").all_inner_texts() == [f"{num} when {name} finished"]
        page.click("[data-tab=why]")
        race = compared(events_of(raced))
        cost = race and race.tokens_per_step / race.speedup
        assert race and words(page, "whySays") == (
            f"{race.tokens_per_step:.2f} tokens per step, and a step costs {cost:.2f} plain ones: {ratio}."
        )


# ---- replay


def test_the_scrubber_works_from_the_keyboard(page: Any) -> None:
    """Arrow keys that miss a step, Home and End an end, space play and pause; or another lane time's texts."""
    feed(page, SHORT)
    page.focus("[data-ref=scrub]")
    times = sorted({e["clock_s"] for e in SHORT["events"] if e["type"] == "step" and e["lane"] != "plain"})
    for key, wanted in (
        ("Home", -1.0),
        *(("ArrowRight", time) for time in times[:5]),
        ("ArrowLeft", times[3]),
        ("End", times[-1]),
    ):
        page.keyboard.press(key)
        page.evaluate(SETTLED)
        state = page.evaluate(STATE)
        assert state["t"] == pytest.approx(max(wanted, 0.0), abs=1e-9)
        assert page.evaluate(TOKENS) == expected(SHORT, wanted)
    for playing in (True, False):
        page.keyboard.press("Space")
        assert page.evaluate(STATE)["playing"] == playing


def test_a_finished_race_plays_once_by_itself(open_page: Any) -> None:
    """The promise of the page: a race that is over is replayed, once, at real speed or, on request, a quarter of it; a
    race that arrives whole plays soon, and its verdict waits until both texts were whole; nothing plays once a visitor
    takes the controls, or with reduced motion."""
    page = open_page()
    page.clock.install(time=0)
    page.clock.pause_at(9_000)  # from now on time passes only where it is wanted

    def after(seconds: float) -> dict[str, Any]:
        page.clock.run_for(1000 * seconds)
        return page.evaluate(STATE)

    def fed(race_id: str, is_whole: bool = False) -> None:
        """A race that is over."""
        sent = frames(SHORT, race_id=race_id, every=30, ribbon="RECORDED" if is_whole else "")
        sent = [{**sent[-1], "seq": 0}] if is_whole else sent
        page.evaluate("all => all.forEach(frame => photofinish.frame(frame))", [frame_json(frame) for frame in sent])
        after(0.05)

    fed("a")
    length = max(e["clock_s"] for e in SHORT["events"])
    assert not page.evaluate(STATE)["playing"] and any(after(0.1)["playing"] for _ in range(20))
    begun = page.evaluate(STATE)["t"]
    assert begun < 0.2 and after(0.5)["t"] == pytest.approx(begun + 0.5, abs=0.05), "from its beginning, in real time"
    assert after(length)["t"] == pytest.approx(length)
    assert page.evaluate(TOKENS) == expected(SHORT) and not after(3)["playing"]
    page.click("[data-ref=slow]")
    page.click("[data-ref=play]")
    assert after(1)["t"] == pytest.approx(0.25, abs=0.03)
    fed("b")
    page.focus("[data-ref=scrub]")
    page.keyboard.press("Home")
    assert after(3)["t"] == 0
    fed("whole", is_whole=True)
    assert after(0.5)["playing"] and "RECORDED" in words(page, "ribbon")
    page.click("[data-ref=play]")
    assert 0 < after(0.1)["t"] < length and page.evaluate(VERDICT) == "none", "over half a text"
    page.focus("[data-ref=scrub]")
    for key in ("End", "Home"):  # who has seen the end may look back under it
        page.keyboard.press(key)
        after(0.1)
        assert page.evaluate(VERDICT) == "identical_bits"
    page.emulate_media(reduced_motion="reduce")
    fed("still")
    assert after(3)["t"] == length and not page.evaluate(STATE)["playing"] and page.problems == []


# ---- the verdict, and what must be said with the ratio

KINDS = ("identical_bits", "identical_tokens", "near_tie", "different", "same_distribution", "same_text", "other_text")


def test_the_verdict_is_graded(page: Any) -> None:
    """A bare tick would hide what was compared and how closely."""
    difference = {"position": 40, "tokens": [7, 8], "pieces": ["\n", " cat"], "widths": [1, 8], "margin": 0.0312,
                  "rounding": 0.021, "rounding_share": 0.01}  # fmt: skip
    graded = set()
    for kind in KINDS:
        recorded, parts = copy.deepcopy(SHORT), kind in ("near_tie", "different")
        verdict = recorded["verdicts"]["speculative"]
        verdict |= {"kind": kind, "sentence": "near-tie flip: they part", "rows_compared": 41, "rows_different": None}
        if parts:
            verdict["first_difference"] = difference
        feed(page, recorded, race_id=kind, every=90)
        short = rejudged(recorded)["verdicts"]["speculative"]["short"]
        word, rows = words(page, "verdictWord"), words(page, "verdictRows")
        assert word.startswith("Identical") == kind.startswith("identical") and rows == short
        assert page.is_visible("text=Check why texts differ") == (kind == "other_text")
        assert page.locator(".pf[data-doubted]").count() == (parts or kind == "other_text"), "in white"
        graded.add((page.evaluate(VERDICT), words(page, "verdictIcon"), word, words(page, "verdictMeans")))
        assert "they part" in words(page, "verdictSentence")
        assert words(page, "plainVerdict").startswith("The plain lane not shown: ")
    assert [len(set(column)) for column in zip(*graded, strict=True)][::2] == [len(KINDS)] * 2


def test_a_lane_that_failed_says_so_and_is_not_called_identical(page: Any) -> None:
    """A green verdict and a large ratio over what a lane wrote before it failed; that text gone, or no reason."""
    recorded = copy.deepcopy(SHORT)
    *_, last, end = (i for i, e in enumerate(recorded["events"]) if e["lane"] == "speculative")
    where = {key: recorded["events"][last][key] for key in ("lane", "clock_s")}
    recorded["events"][last] = {**where, "type": "failed", "message": "the drafter broke"}
    del recorded["events"][end]
    feed(page, recorded, state="failed", every=90)
    assert words(page, "rightFailed") == "This lane failed: the drafter broke"
    assert page.evaluate(TOKENS) == expected(recorded)
    assert words(page, "verdictWord") == "Not compared" and "speculative failed after" in words(page, "verdictRows")
    assert words(page, "ratio") == "no result" and re.fullmatch(APART, words(page, "ratioWords"))


def test_what_belongs_to_a_race_is_said_of_it_alone(page: Any) -> None:
    """Made-up drafts or the text of random weights pass for a model's, even if the server forgot to say so."""
    drafts = race_over(words_of(TEXT)[:20], k=7)
    random_, named = ({**drafts, "model": {**SHORT["model"], "name": name}} for name in ("random:a/b", "a/random:b"))
    for name, race, ribbon in (
        ("a model's", drafts, ""),
        ("random", random_, "RANDOM"),
        ("named", named, ""),
        ("synthetic", {**drafts, "synthetic": ["speculative"]}, "SYNTHETIC"),
    ):
        feed(page, race, race_id=name)
        assert words(page, "ribbon").startswith(ribbon) and bool(words(page, "ribbon")) == bool(ribbon), name
        assert page.is_visible("[data-ref=ribbon]") == bool(ribbon), name


def test_plain_text_ends_where_the_completion_ends(page: Any) -> None:
    """A stop string shown in the text, also where one token holds the text's end and the string's beginning."""
    for stop in (("end",), ("dend",), ("b",), ("cd", "nd"), ("never",)):
        recorded = copy.deepcopy(fixed_race())
        recorded["spec"]["params"]["stop"] = list(stop)
        feed(page, recorded, race_id=f"race {stop}")
        assert page.evaluate(TOKENS) == expected(recorded)
        if page.get_attribute("[data-ref=marks]", "aria-pressed") == "true":
            page.click("[data-ref=marks]")
        for lane, ref in (("baseline", "leftText"), ("speculative", "rightText")):
            assert page.inner_text(f"[data-ref={ref}]") == text_of(events_of(recorded), lane, stop)
