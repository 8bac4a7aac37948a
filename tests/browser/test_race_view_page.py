"""The live component around its texts: verdict, warnings, words, views, keys, sizes, speed, and more than
two lanes."""

from __future__ import annotations

import copy
import re
import statistics
from typing import Any

import pytest

from app.jobs.frames import frame_json
from engine.analysis.metrics import lane_metrics, race_speedups
from engine.core.spec import RaceSpec, SamplingParams, lanes_of
from engine.drafters import short_label
from engine.recordings.recording import Recording, build
from engine.session import TorchRace
from engine.text import encode_prompt
from engine.what_if.ask import members
from tests.helpers.page_browser import slowness
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
    rejudged,
    show,
    words,
    words_of,
)
from tests.helpers.steps_apart import steps_of
from tests.helpers.trained import text_of, trained

pytestmark = pytest.mark.browser
RACE = race_over(words_of(TEXT, 3), hit=0.82)
SHORT = race_over(words_of(TEXT)[:60], seed=5)


VERDICTS = {
    "identical_bits": "Identical, bit for bit",
    "identical_tokens": "Identical tokens",
    "near_tie": "Near-tie flip",
    "different": "Different: a fault",
    "same_distribution": "Same probabilities, different text",
    "same_text": "The same text",
    "other_text": "Different texts",
}


def test_the_verdict_is_graded(page: Any) -> None:
    """A bare tick would hide what was compared and how closely."""
    difference = {"position": 40, "tokens": [7, 8], "pieces": ["\n", " cat"], "widths": [1, 8], "margin": 0.0312,
                  "rounding": 0.021, "rounding_share": 0.01}  # fmt: skip
    for kind, word in VERDICTS.items():
        recorded, parts = copy.deepcopy(SHORT), kind in ("near_tie", "different")
        recorded["verdicts"]["speculative"] |= {"kind": kind, "sentence": "near-tie flip: they part",
                                                "rows_compared": 41, "rows_different": None}  # fmt: skip
        if parts:
            recorded["verdicts"]["speculative"]["first_difference"] = difference
        feed(page, recorded, race_id=kind, every=90)
        short = rejudged(recorded)["verdicts"]["speculative"]["short"]
        assert words(page, "verdictWord") == word and words(page, "verdictRows") == short
        assert "they part" in words(page, "verdictSentence")
        assert words(page, "plainVerdict").startswith("The plain lane not shown: ")
        assert page.evaluate("document.querySelector('[data-ref=difference]').hidden") != parts
        for part in ("token 40", '"\\n" #7, width 1', '" cat" #8, width 8', "0.0312") if parts else ():
            assert part in words(page, "difference")


def test_a_lane_that_failed_is_not_called_identical_and_has_no_ratio(page: Any) -> None:
    """A green verdict and a large ratio over what a lane wrote before it failed."""
    *events, last = copy.deepcopy([e for e in SHORT["events"] if e["lane"] == "speculative"])
    others = [e for e in SHORT["events"] if e["lane"] != "speculative"]
    end = {"lane": "speculative", "clock_s": last["clock_s"], "type": "failed", "message": "out of memory"}
    feed(page, {**SHORT, "events": [*others, *events, end]}, every=90)
    assert words(page, "verdictWord") == "Not compared" and "speculative failed after" in words(page, "verdictRows")
    assert words(page, "ratio") == "no result" and words(page, "ratioWords").startswith("the texts are not compared; ")


def test_a_drafter_that_drafts_nothing_is_called_out(page: Any) -> None:
    """What users of other programs complain of: nothing tells them that speculation was silently off."""
    recorded = race_over(words_of(TEXT)[:20], k=7)
    rerun = race_over(words_of(TEXT)[:20], k=0, drafter="none")
    empty = {**rerun, "spec": recorded["spec"]}
    feed(page, empty)
    assert "No guesses in this race" in words(page, "warning")
    feed(page, recorded, race_id="with drafts")
    assert words(page, "warning") == ""
    feed(page, rerun, race_id="no drafter")
    assert words(page, "warning") == ""


def test_what_is_no_models_wears_its_ribbon(page: Any) -> None:
    """Text of random weights, or made-up drafts, would be taken for a model's, even if a server forgot to say so."""
    for name, shown in (("random:Qwen/Qwen3-8B", True), ("Qwen/random:8B", False)):
        feed(page, {**SHORT, "model": {**SHORT["model"], "name": name}}, race_id=name)
        assert ("RANDOM" in words(page, "ribbon")) == shown
    feed(page, {**SHORT, "synthetic": ["speculative"]}, race_id="synthetic")
    assert "SYNTHETIC" in words(page, "ribbon") and page.is_visible("[data-ref=ribbon]")


def test_a_step_tells_what_it_did(open_page: Any) -> None:
    """On hover, on focus and on tap: how many were kept, the whole draft, the times; Escape puts it away."""
    page = open_page(reduced_motion="reduce")
    feed(page, SHORT)
    step = next(e for e in steps_of(SHORT) if 0 < e["num_accepted"] < len(e["drafted"]))
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


def test_each_view_shows_the_same_nodes(page: Any) -> None:
    """Reading, rows and plain text are one race: the tokens are not made again, only shown otherwise."""
    feed(page, SHORT)
    page.click("[role=tab][data-tab=steps]")
    rows = page.locator("[data-ref=rightText] .pf-step")
    tops = rows.evaluate_all("all => all.map(each => Math.round(each.getBoundingClientRect().top))")
    assert len(set(tops)) == len(tops)
    page.click("[role=tab][data-tab=text]")
    page.click("[data-ref=marks]")
    committed = "".join(piece for step in steps_of(SHORT) for piece in step["pieces"])
    assert page.inner_text("[data-ref=rightText]").strip() == committed.strip()
    assert page.evaluate(TOKENS) == expected(SHORT)


AT_TOP = """() => [...document.querySelectorAll('.pf-lane .pf-text')].map(box => {
    const { top } = box.getBoundingClientRect(), steps = [...box.querySelectorAll('.pf-step')];
    return +steps.find(step => step.getBoundingClientRect().bottom > top + 4).dataset.step; })"""


def test_both_texts_begin_at_the_top_and_scroll_together(page: Any) -> None:
    """Two texts that cannot be compared by eye: one at its end and one at its beginning, or at other tokens."""
    recorded = race_over(words_of(TEXT, 6))
    feed(page, recorded, every=200)
    lanes = [{e["index"]: e for e in steps_of(recorded, name)} for name in ("baseline", "speculative")]
    for view, marks in (("text", True), ("steps", True), ("text", False)):
        page.click(f"[data-tab={view}]")
        if not marks:
            page.click("[data-ref=marks]")
        assert page.evaluate("[...document.querySelectorAll('.pf-lane .pf-text')].map(box => box.scrollTop)") == [0, 0]
        for share in (0.4, 0.15):
            page.evaluate("share => { const box = document.querySelector('[data-ref=rightText]');"
                          " box.scrollTop = share * box.scrollHeight; }", share)  # fmt: skip
            page.wait_for_timeout(100)
            left, right = (lane[at]["position"] for lane, at in zip(lanes, page.evaluate(AT_TOP), strict=True))
            assert right > 20 and abs(left - right) < 20, (view, marks, left, right)
        page.evaluate("document.querySelector('[data-ref=leftText]').scrollTop = 0")
        page.wait_for_timeout(100)


def test_a_failed_lane_says_so(page: Any) -> None:
    """What a lane committed before it failed stays visible, with the reason below it."""
    recorded = copy.deepcopy(SHORT)
    index = max(i for i, e in enumerate(recorded["events"]) if e["lane"] == "speculative")
    where = {key: recorded["events"][index][key] for key in ("lane", "clock_s")}
    recorded["events"][index] = {**where, "type": "failed", "message": "the drafter broke"}
    feed(page, recorded, state="failed")
    assert words(page, "rightFailed") == "This lane failed: the drafter broke"
    assert page.evaluate(TOKENS) == expected(recorded)


def test_the_status_line_is_spoken_when_it_changes_not_at_every_token(page: Any) -> None:
    """A screen reader that hears every token hears nothing."""
    page.evaluate(
        "window.said = []; new MutationObserver(() => "
        "said.push(document.querySelector('[data-ref=announce]').textContent)).observe("
        "document.querySelector('[data-ref=announce]'), {childList: true, characterData: true, subtree: true})"
    )
    for frame in frames(SHORT, every=20):
        show(page, [frame])
    said = page.evaluate("said")
    assert len(said) == 3
    assert "Identical, bit for bit" in said[-1]


TERMS = {
    "Plain": "plain decoding", "Speculative": "speculative decoding", "tok/s": "tokens per second",
    "first token with prompt": "TTFT", "per token": "TPOT", "95 % of steps within": "95th percentile",
    "a correct guess": "accepted",
    "wrong, and all after it": "rejected", "the model's own token": "correction", "a free extra token": "bonus",
    "scores (logits)": "picked from", "Drafter": "guesses ahead", "Draft length": "k",
    "guesses kept": "acceptance rate", "tokens a step": "mean acceptance length",
}  # fmt: skip


def test_each_word_of_the_field_is_explained_where_it_stands(page: Any) -> None:
    """A plain word whose term nobody finds, or a term that nobody explains."""
    for temperature, words_, term in ((0, "greedy", "likeliest token"), (1, "temperature", "seed fixes the random")):
        recording = copy.deepcopy(SHORT)
        recording["spec"]["params"]["temperature"] = temperature
        feed(page, recording, race_id=words_, every=90)
        said = page.evaluate(
            "() => [...document.querySelectorAll('.pf [title]')].map(node => [node.textContent.trim(), node.title])"
        )
        for word, meaning in {**TERMS, words_: term}.items():
            assert any(word in text and meaning in title for text, title in said), word


LOOKS = [(360, 740, True), (360, 740, False), (768, 1024, False), (1280, 800, True), (3840, 2160, False)]


def test_a_phone_shares_and_warns_first(page: Any) -> None:
    """A file that goes where nobody finds it, or a link with the prompt that says so once it is sent."""
    feed(page, SHORT, every=90)
    page.evaluate("""() => { window.matchMedia = () => ({ matches: true });
        navigator.canShare = ({ files }) => files[0].type === "image/png";
        navigator.share = async ({ files }) => { window.shared = files[0].name; }; }""")
    page.click(".pf-share summary")
    note, link = (page.locator(name).bounding_box() for name in ("[data-ref=linkNote]", "[data-copy=link]"))
    assert note["y"] + note["height"] <= link["y"] and "contains the prompt" in words(page, "linkNote")
    page.click("[data-ref=picture]")
    page.wait_for_function("window.shared?.endsWith('.png')")


def test_no_size_scrolls_sideways(page: Any) -> None:
    """From a small phone to 4K, on every tab, with a ribbon, hostile words and a popover open; text that is cut."""
    feed(page, race_over([*HOSTILE, *words_of(TEXT)], seed=4), ribbon="RECORDED", every=90)
    for width, height, dark in LOOKS:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
        for tab in ("text", "steps", "charts", "timing"):
            page.click(f"[role=tab][data-tab={tab}]")
            if tab in ("text", "steps"):
                page.locator("[data-ref=rightText] .pf-step").nth(-6).focus()
            page.evaluate(SETTLED)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, tab)
            page.keyboard.press("Escape")


def test_twenty_frames_a_second_reach_the_screen(page: Any) -> None:
    """From frame to pixels, two lanes of 400 tokens: a slow component would make the race look slow."""
    sent = [frame_json(frame) for frame in frames(RACE, every=20)]
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
            }
            return waits;
        }""",
        sent,
    )
    p95 = statistics.quantiles(waits, n=20)[18]
    assert len(sent) > 40 and p95 < 150 * slowness()


# ---- several lanes that guess

ROWS = """() => [...document.querySelectorAll('.pf-track-right, .pf-track-more')].map(row =>
    [row.querySelector('.pf-track-name').textContent, row.querySelector('.pf-track-count').textContent])"""


def race_of_three() -> Recording:
    """A real race of three drafters, with tables."""
    loaded = trained()
    lanes = lanes_of([("speculative", text_of("ngram"), 4), *((d, text_of(d), 3) for d in ("draft_model", "eagle3"))])
    spec = RaceSpec(lanes, SamplingParams(1.2, seed=2, max_new_tokens=60), audit=True)  # at 0 the text repeats itself
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, "def add(a, b):\n    return a + b\n\ndef "))
    events = list(race.events())
    return build(race.header(), events, {**race.result(), **members(race)})


def test_all_are_ranked_and_each_can_be_looked_at(page: Any) -> None:
    """A rank that contradicts the times, another lane's ratio next to a name, or texts, figures and tables of one lane
    under the name of another."""
    recording = race_of_three()
    feed(page, recording.fields, every=90)
    lanes = {lane["name"]: lane for lane in recording["spec"]["lanes"][2:]}
    gains = race_speedups(recording.events, recording.spec.lanes)
    speeds = {name: lane_metrics(recording.events, name).tokens_per_s or 0.0 for name in lanes}
    rows = page.evaluate(ROWS)
    assert len(rows) == 3
    places = {}
    for (title, count), (name, lane) in zip(rows, lanes.items(), strict=True):
        place, shown = re.fullmatch(r"(\d)\. (.*), k = \d+", title).groups()
        places[name] = int(place)
        assert short_label(lane["drafter"]).startswith(shown[:70])
        assert count.split() == ["≡", "60", f"{gains[name]:.2f}×"]
    ordered = sorted(lanes, key=lambda name: -speeds[name])
    assert places[ordered[0]] == 1 and [places[name] for name in ordered] == sorted(places.values())
    for name in ("eagle3", "speculative", "draft_model"):
        page.locator(".pf-track-more", has_text=short_label(lanes[name]["drafter"])[:40]).click()
        page.evaluate(SETTLED)
        right = [step for step in page.evaluate(TOKENS) if step[0] != "baseline"]
        done = [e for e in recording["events"] if e["type"] == "step" and e["lane"] == name]
        assert {step[0] for step in right} == {name} and len(right) == len(done)
        assert words(page, "rightFigure") == f"{speeds[name]:.{int(speeds[name] < 1000)}f}"
        assert float(words(page, "ratio")[:-1]) == pytest.approx(gains[name], rel=0.01, abs=0.006)
        assert len(page.evaluate(ROWS)) == 3 and page.evaluate(STATE)["lanes"][1] == name
    page.click("[data-tab=whatif]")
    page.evaluate(SETTLED)
    chosen = page.evaluate("document.querySelector('[data-ref=whatIfDrafter]').value")
    assert chosen == lanes["draft_model"]["drafter"] and words(page, "whatIfShown") == "as raced"
