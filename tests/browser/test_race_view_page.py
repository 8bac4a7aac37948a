"""The live component around its texts: verdict, warnings, views, keys, sizes, speed, and inside gradio."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest

from app.race_view import RACE_VIEW_CSS, frame_json
from app.race_view.component import race_view
from tests.helpers.race_pages import (
    ARTEFACTS,
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

RACE = race_over(words_of(TEXT, 3), hit=0.82)
SHORT = race_over(words_of(TEXT)[:60], seed=5)


@pytest.mark.browser
@pytest.mark.parametrize(
    "kind, word",
    [
        ("identical_bits", "Identical, bit for bit"),
        ("identical_tokens", "Identical tokens"),
        ("near_tie", "Near-tie flip"),
        ("different", "Different: a fault"),
        ("same_distribution", "Same odds, not the same text"),
        ("same_text", "The same text"),
        ("other_text", "Two texts"),
    ],
)
def test_the_verdict_is_graded(page: Any, kind: str, word: str) -> None:
    """A bare tick would hide what was compared and how closely."""
    recorded = copy.deepcopy(SHORT)
    recorded["verdicts"]["speculative"] |= {
        "kind": kind,
        "sentence": "near-tie flip: they part",
        "rows_compared": 41,
        "rows_different": None,
    }
    if kind in ("near_tie", "different"):
        recorded["verdicts"]["speculative"]["first_difference"] = {
            "position": 40,
            "tokens": [7, 8],
            "pieces": ["\n", " cat"],
            "widths": [1, 8],
            "margin": 0.0312,
            "rounding": 0.021,
            "rounding_share": 0.01,
        }
    feed(page, recorded)
    assert words(page, "verdictWord") == word
    assert words(page, "verdictRows") == "41 tokens compared"
    assert "they part" in words(page, "verdictSentence")
    assert words(page, "plainVerdict").startswith("The plain lane that is not shown: ")
    if kind in ("near_tie", "different"):
        shown = words(page, "difference")
        assert all(part in shown for part in ("token 40", '"\\n" #7, width 1', '" cat" #8, width 8', "0.0312"))


@pytest.mark.browser
def test_the_worse_time_is_marked_beyond_colour(page: Any) -> None:
    """Amber alone says nothing to those who do not see it."""
    feed(page, RACE)
    worse = page.evaluate(
        "[...document.querySelectorAll('.pf-worse')].map(n => [n.dataset.time, "
        "getComputedStyle(n.querySelector('dd'), '::after').content])"
    )
    assert sorted(name for name, _ in worse) == ["left-tpot", "right-itl", "right-ttft"]
    assert all("\u25b2" in content for _, content in worse)
    sizes = page.evaluate(
        "[...new Set([...document.querySelectorAll('.pf-times dd')].map(n => getComputedStyle(n).fontSize))]"
    )
    assert len(sizes) == 1


@pytest.mark.browser
def test_a_drafter_that_drafts_nothing_is_called_out(page: Any) -> None:
    """What users of other programs complain of: nothing tells them that speculation was silently off."""
    recorded = race_over(words_of(TEXT)[:20], k=7)
    rerun = race_over(words_of(TEXT)[:20], k=0, drafter="none")
    empty = {**rerun, "spec": recorded["spec"]}
    feed(page, empty)
    assert "Nothing was guessed" in words(page, "warning")
    feed(page, recorded, race_id="with drafts")
    assert words(page, "warning") == ""
    feed(page, rerun, race_id="no drafter")
    assert words(page, "warning") == ""


@pytest.mark.browser
def test_random_weights_wear_their_ribbon(page: Any) -> None:
    """Text without meaning, and an acceptance that no real model has, would be taken for a model's."""
    for name, shown in (("random:Qwen/Qwen3-8B", True), ("Qwen/random:8B", False)):
        feed(page, {**SHORT, "model": {**SHORT["model"], "name": name}}, race_id=name)
        assert ("RANDOM" in words(page, "ribbon")) == shown


@pytest.mark.browser
def test_synthetic_drafts_wear_their_ribbon(page: Any) -> None:
    """Made-up drafts must not look like a drafter's, even if a server forgets to say so."""
    feed(page, {**SHORT, "synthetic": ["speculative"]})
    assert "SYNTHETIC" in words(page, "ribbon")
    assert page.is_visible("[data-ref=ribbon]")


@pytest.mark.browser
def test_a_step_tells_what_it_did(page: Any) -> None:
    """On hover, on focus and on tap: how many were kept, the whole draft, the times; Escape puts it away."""
    feed(page, SHORT)
    step = next(
        e
        for e in SHORT["events"]
        if e["lane"] == "speculative" and e["type"] == "step" and 0 < e["num_accepted"] < len(e["drafted"])
    )
    node = page.locator(f"[data-ref=rightText] [data-step='{step['index']}']")
    for reach in (node.hover, node.focus, node.click):
        reach()
        page.wait_for_selector("[data-ref=pop]:not([hidden])")
        shown = words(page, "pop")
        assert f"step {step['index'] + 1}: {step['num_accepted']} of {len(step['drafted'])} guesses kept" in shown
        assert page.locator("[data-ref=pop] li").count() == len(step["drafted"]) + 1
        assert f"width {step['width']}" in shown
        page.keyboard.press("Escape")
        page.mouse.move(2, 2)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_selector("[data-ref=pop]", state="hidden")
    page.click("[role=tab][data-tab=steps]")
    page.locator("[data-ref=rightText] .pf-step").last.focus()
    page.keyboard.press("Home")
    page.evaluate(SETTLED)
    assert page.is_visible("[data-ref=pop]") and "step 1: " in words(page, "pop")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.step") == "1"


@pytest.mark.browser
def test_each_view_shows_the_same_nodes(page: Any) -> None:
    """Reading, rows and plain text are one race: the tokens are not made again, only shown otherwise."""
    feed(page, SHORT)
    page.click("[role=tab][data-tab=steps]")
    tops = page.evaluate(
        "[...document.querySelectorAll('[data-ref=rightText] .pf-step')].map(n => "
        "Math.round(n.getBoundingClientRect().top))"
    )
    assert len(set(tops)) == len(tops)
    page.click("[role=tab][data-tab=text]")
    page.click("[data-ref=marks]")
    visible = page.inner_text("[data-ref=rightText]")
    committed = "".join(
        p for e in SHORT["events"] if e["type"] == "step" and e["lane"] == "speculative" for p in e["pieces"]
    )
    assert visible.strip() == committed.strip()
    assert page.evaluate(TOKENS) == expected(SHORT)


@pytest.mark.browser
def test_a_failed_lane_says_so(page: Any) -> None:
    """What a lane committed before it failed stands; why it failed is written under it."""
    recorded = copy.deepcopy(SHORT)
    index = max(i for i, e in enumerate(recorded["events"]) if e["lane"] == "speculative")
    end = recorded["events"][index]
    recorded["events"][index] = {
        "lane": "speculative",
        "clock_s": end["clock_s"],
        "type": "failed",
        "message": "the drafter broke",
    }
    feed(page, recorded, state="failed")
    assert words(page, "rightFailed") == "This lane failed: the drafter broke"
    assert page.evaluate(TOKENS) == expected(recorded)


@pytest.mark.browser
def test_the_status_line_is_spoken_when_it_changes_not_at_every_token(page: Any) -> None:
    """A screen reader that hears every token hears nothing."""
    page.evaluate(
        "window.said = []; new MutationObserver(() => "
        "said.push(document.querySelector('[data-ref=announce]').textContent)).observe("
        "document.querySelector('[data-ref=announce]'), {childList: true, characterData: true, subtree: true})"
    )
    for frame in frames(RACE, every=20):
        show(page, [frame])
    said = page.evaluate("said")
    assert len(said) == 3
    assert "Identical, bit for bit" in said[-1]


# ---- sizes, speed, gradio


@pytest.mark.browser
@pytest.mark.parametrize(
    "width, height, dark, tab",
    [
        (360, 740, True, "text"),
        (360, 740, False, "steps"),
        (360, 740, False, "charts"),
        (360, 740, True, "timing"),
        (768, 1024, False, "text"),
        (1280, 800, True, "text"),
        (1280, 800, False, "charts"),
        (1280, 800, True, "steps"),
        (1920, 1080, True, "timing"),
        (3840, 2160, False, "text"),
    ],
)
def test_no_size_scrolls_sideways(open_page: Any, width: int, height: int, dark: bool, tab: str) -> None:
    """From a small phone to 4K, with a ribbon, hostile words and a popover open; the pictures are for looking at."""
    page = open_page(width, height, dark, reduced_motion="reduce")
    feed(page, race_over([*HOSTILE, *words_of(TEXT)], seed=4), race_id="hostile", ribbon="RECORDED", every=30)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    feed(page, RACE, ribbon="RECORDED", every=30)
    page.click(f"[role=tab][data-tab={tab}]")
    if tab in ("text", "steps"):
        page.locator("[data-ref=rightText] .pf-step").nth(-6).focus()
    page.evaluate(SETTLED)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"race_view_{width}_{'dark' if dark else 'light'}_{tab}.png", full_page=True)


@pytest.mark.browser
def test_twenty_frames_a_second_reach_the_screen(page: Any) -> None:
    """From frame to pixels, two lanes of 400 tokens: a slow component would make the race look slow."""
    sent = [frame_json(frame) for frame in frames(RACE, every=9)]
    waits = page.evaluate(
        """async sent => {
            const waits = [];
            for (const frame of sent) {
                const began = performance.now();
                window.photofinish.frame(frame);
                await new Promise(done => requestAnimationFrame(() => {
                    const channel = new MessageChannel();
                    channel.port1.onmessage = done; channel.port2.postMessage(0);
                }));
                waits.push(performance.now() - began);
                await new Promise(done => setTimeout(done, 50));
            }
            return waits;
        }""",
        sent,
    )
    p95 = statistics.quantiles(waits, n=20)[18]
    print(f"frame to pixels: median {statistics.median(waits):.1f} ms, p95 {p95:.1f} ms")
    assert len(sent) > 90 and p95 < 150


@pytest.mark.browser
def test_inside_gradio(browser: Any) -> None:
    """The seam itself: gr.HTML's template, js_on_load and watch, launch(css), a generator of frames."""
    recorded = race_over([*words_of(TEXT), *HOSTILE], seed=6)

    def run() -> Iterator[str]:
        for frame in frames(recorded, every=6, ribbon="RECORDED"):
            yield frame_json(frame)
            time.sleep(0.05)

    with gr.Blocks() as demo:
        view = race_view(elem_id="race")
        gr.Button("Race", elem_id="go").click(run, None, view, show_progress="hidden")
    demo.launch(prevent_thread_lock=True, server_name="127.0.0.1", quiet=True, css=RACE_VIEW_CSS)
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 1400}, reduced_motion="reduce")
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{demo.local_url}?__theme=dark")
        page.wait_for_function("window.photofinish")
        page.click("#go")
        page.wait_for_function("window.photofinish.state.counts.right > 10", timeout=20_000)
        assert page.evaluate(STATE)["live"]
        page.wait_for_function("window.photofinish.state.state === 'finished'", timeout=30_000)
        page.evaluate(SETTLED)
        assert page.evaluate(TOKENS) == expected(recorded)
        assert problems == [] and page.evaluate("window.ran") is None
        assert page.evaluate("getComputedStyle(document.querySelector('.pf')).colorScheme") == "dark"
        assert page.evaluate("document.querySelector('.pf-board').getBoundingClientRect().width") > 800
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / "race_view_gradio.png", full_page=True)
        page.set_viewport_size({"width": 360, "height": 740})
        page.evaluate(SETTLED)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.screenshot(path=ARTEFACTS / "race_view_gradio_360.png", full_page=True)
        page.close()
    finally:
        demo.close()
