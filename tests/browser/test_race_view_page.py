"""The race view in a real Chromium: steps, views, words, pictures and files, also of strangers: text that wants to run,
and lanes of any number and name."""

from __future__ import annotations

import json
import random
import re
import statistics
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.jobs.frames import frame_json
from app.jobs.recorded import RACES
from app.web import RACE_VIEW_CSS
from engine.analysis.metrics import lane_metrics, race_speedups
from engine.core.errors import UsageError
from engine.core.spec import RaceSpec, SamplingParams, lanes_of
from engine.drafters import short_label
from engine.recordings.recording import Recording, build, loads
from engine.session import TorchRace
from engine.text import encode_prompt
from engine.what_if.ask import members
from tests.helpers.broken_races import SHORT, mutants, with_more_lanes
from tests.helpers.page_browser import saved, selected, slowness
from tests.helpers.race_pages import (
    HOSTILE,
    SETTLED,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    opened,
    race_over,
    rejudged,
    show,
    words,
    words_of,
)
from tests.helpers.races import as_trees, events_of, known_in_part, on_servers, spec_of
from tests.helpers.steps_apart import steps_of
from tests.helpers.trained import text_of, trained

pytestmark = pytest.mark.browser
RACE = race_over(words_of(TEXT, 3), hit=0.82)


# ---- steps, views and words


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


TOPS = "[...document.querySelectorAll('.pf-lane .pf-text')].map(box => box.scrollTop)"
AT_TOP = """() => [...document.querySelectorAll('.pf-lane .pf-text')].map(box => {
    const { top } = box.getBoundingClientRect(), steps = [...box.querySelectorAll('.pf-step')];
    return +steps.find(step => step.getBoundingClientRect().bottom > top + 4).dataset.step; })"""


def test_each_view_shows_the_same_nodes_and_both_texts_scroll_together(page: Any) -> None:
    """Reading, rows and plain text are one race; two texts that cannot be compared by eye: one at its end and one at
    its beginning, or at other tokens."""
    recorded = race_over(words_of(TEXT, 6))
    feed(page, recorded, every=200)
    lanes = [{e["index"]: e for e in steps_of(recorded, name)} for name in ("baseline", "speculative")]
    for view, marks in (("text", True), ("steps", True), ("text", False)):
        page.click(f"[data-tab={view}]")
        if not marks:
            page.click("[data-ref=marks]")
            assert page.inner_text("[data-ref=rightText]").strip() == (TEXT * 6).strip()
        page.evaluate(SETTLED)
        assert page.evaluate(TOPS) == page.evaluate(AT_TOP) == [0, 0]
        if view == "steps":
            rows = page.locator("[data-ref=rightText] .pf-step")
            tops = rows.evaluate_all("all => all.map(row => Math.round(row.getBoundingClientRect().top))")
            assert len(set(tops)) == len(tops) and rows.first.get_attribute("data-number") == "1"
        for share in (0.4, 0.15):
            page.evaluate("share => { const box = document.querySelector('[data-ref=rightText]');"
                          " box.scrollTop = share * box.scrollHeight; }", share)  # fmt: skip
            page.wait_for_timeout(100)
            left, right = (lane[at]["position"] for lane, at in zip(lanes, page.evaluate(AT_TOP), strict=True))
            assert right > 20 and abs(left - right) < 20, (view, marks, left, right)
        page.evaluate("document.querySelector('[data-ref=leftText]').scrollTop = 0")
        page.wait_for_timeout(100)
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
    assert len(said) == 3 and "Identical, bit for bit" in said[-1]


def test_each_word_of_the_field_is_explained_where_it_stands(page: Any) -> None:
    """A plain word whose term nobody finds: of a figure, a mark or a time."""
    for temperature, term in ((0, "Greedy: always the likeliest token."), (1, "The seed fixes the random numbers.")):
        recording = json.loads(json.dumps(SHORT))
        recording["spec"]["params"]["temperature"] = temperature
        feed(page, recording, race_id=str(temperature), every=90)
        assert page.get_attribute("[data-ref=titleFacts]", "title").endswith(term)
    for kind in (
        "[data-ref=leftName], .pf [data-ref=rightName]",
        "abbr",
        "dl.pf-times dt",
        ".pf-legend li:has(mark, del, ins)",
        "[data-ref=timing] tr",
    ):
        terms = page.locator(f".pf {kind}").evaluate_all("nodes => nodes.map(node => node.title)")
        assert terms and all(terms), kind


def test_high_contrast_tells_tokens_apart(page: Any) -> None:
    """Windows high contrast takes the colours away: what remains is line and weight, and four kinds must still
    be four."""
    feed(page, SHORT)
    for scheme in ("light", "dark"):
        page.emulate_media(forced_colors="active", color_scheme=scheme, reduced_motion="reduce")
        page.evaluate("dark => document.body.classList.toggle('dark', dark)", scheme == "dark")
        looks = page.evaluate("""() => Object.fromEntries(["accepted", "rejected", "correction", "bonus"].map(kind => {
            const style = getComputedStyle(document.querySelector(`.pf-text .pf-${kind}`));
            return [kind, { line: style.borderBottomStyle, strike: style.textDecorationLine,
                border: style.borderBottomColor, ink: style.color, paper: style.backgroundColor }];
        }))""")
        assert len({(look["line"], look["strike"]) for look in looks.values()}) == 4
        assert looks["rejected"]["strike"] == "line-through"
        for kind, look in looks.items():
            assert look["ink"] != look["paper"] and (kind == "rejected" or look["border"] == look["ink"]), (kind, look)


WAITS = """async sent => {
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
    return waits; }"""


def test_twenty_frames_a_second_reach_the_screen(page: Any) -> None:
    """From frame to pixels, two lanes of 400 tokens: a slow component would make the race look slow."""
    for race_id in "abcd":  # another program may take the processor meanwhile
        sent = [frame_json(frame) for frame in frames(RACE, race_id, every=20)]
        assert len(sent) > 40
        waits = page.evaluate(WAITS, sent)
        if quick := statistics.quantiles(waits, n=20)[18] < 150 * slowness():
            break
    assert quick and page.evaluate(TOKENS) == expected(RACE)


# ---- what is sent

SPIES = """() => { window.said = []; window.wide = []; const pen = CanvasRenderingContext2D.prototype;
    const { fillText, fillRect } = pen;
    const writeText = async words => { window.copied = words; };
    Object.defineProperty(navigator, 'clipboard', { value: { writeText } });
    pen.fillText = function (words, ...rest) { window.said.push(words); fillText.call(this, words, ...rest); };
    pen.fillRect = function (x, y, width, high) { if (high === 32) window.wide.push(width);
      fillRect.call(this, x, y, width, high); }; }"""
DOUBTED = """() => { const root = document.querySelector('.pf'), ratio = document.querySelector('[data-ref=ratio]');
    const doubted = getComputedStyle(ratio).color;
    root.removeAttribute('data-doubted');
    return getComputedStyle(ratio).color !== doubted; }"""
LOOP = "one two three four.\n" * 30


def pictured(page: Any) -> tuple[str, bytes, list[str], str]:
    """Name and content of the picture, its words in lines, and the sentence to copy."""
    page.evaluate("window.said = []; window.wide = []; window.copied = null")
    page.evaluate("document.querySelector('.pf-share').open = true")
    with page.expect_download() as download:
        page.click("[data-ref=picture]")
    page.click("[data-copy=sentence]")
    page.wait_for_function("window.copied")
    content = Path(download.value.path()).read_bytes()
    return download.value.suggested_filename, content, *page.evaluate("[window.said, window.copied]")


@pytest.mark.parametrize("kinds", [(), ("copies",), ("disturbed",), ("loop",), ("disturbed", "loop")])
def test_a_ratio_that_is_not_to_be_quoted_is_doubted_wherever_it_stands(page: Any, kinds: tuple[str, ...]) -> None:
    """The ratio of a stalled race, or of a text that loops, is the first thing that would be quoted: on the board in
    white and without the engine's words, in a picture, a sentence or a file name."""
    race = race_over(words_of(LOOP if "loop" in kinds else TEXT)[:80], seed=14)
    race["prompt"]["text"] = TEXT if "copies" in kinds else "a prompt"
    race["waited_share"] = 0.62 if "disturbed" in kinds else 0.0
    cautions = rejudged(race)["cautions"]
    assert {caution["kind"] for caution in cautions} == set(kinds)
    page.evaluate(SPIES)
    feed(page, race)
    whole = " ".join(caution["sentence"] for caution in cautions if caution["lane"] is None)
    assert words(page, "disturbed") == whole and page.is_visible("[data-ref=caution]") == bool(kinds)
    assert words(page, "caution") == " ".join(caution["short"] for caution in cautions)
    assert all(caution["sentence"] in page.get_attribute("[data-ref=caution]", "title") for caution in cautions)
    name, _, said, copied = pictured(page)
    assert bool(re.search(r"\dx", name)) == (not kinds)
    for caution in cautions:
        loops = caution["kind"] == "loop"
        assert caution["short"] in " ".join(said)
        assert ("No result: the text repeats itself" if loops else caution["sentence"]) in copied
    assert page.evaluate(DOUBTED) == bool(kinds), "in the colour of any other ratio"


def test_the_picture_says_what_the_board_says(page: Any) -> None:
    """A picture of a race that shows other figures than the race or the copied sentence, hides that the slower lane
    was not done, or is of a size that sites cut."""
    page.evaluate(SPIES)
    feed(page, race_over(words_of(TEXT)[:80], seed=14))
    page.focus("[data-ref=scrub]")
    page.keyboard.press("Home")
    name, data, lines, copied = pictured(page)
    said = " ".join(lines)
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 10_000
    assert [int.from_bytes(data[at : at + 4]) for at in (16, 20)] == [1200, 630]
    assert re.fullmatch(r"photofinish_a-model_\d+\.\d\dx_\d{4}-\d\d-\d\d\.png", name), name
    shown = [words(page, ref).strip() for ref in ("ratio", "verdictWord", "verdictRows")]
    shown += re.split("[,;] ", words(page, "ratioWords"))
    shown += [f"{words(page, f'{side}Figure')} tok/s" for side in ("left", "right")]
    assert set(shown) <= set(lines) and "one 3-token prompt, greedy, 80 tokens written" in said
    saves = rf"{100 * (1 - 1 / float(shown[0].rstrip('×'))):.0f}\.\d\s% less"
    assert re.search(rf"Pays: a server can run n-gram .*, k = 7: .* \(measured\), {saves}", said), (saves, said)
    (share,) = re.findall(r"([\d.]+)\s% less machine time", said)
    assert f"{share}\u00a0% less" in copied
    rail, plain, _, fast = page.evaluate("window.wide")
    assert plain < fast == rail
    slower = frames(race_over(words_of(TEXT)[:80], seed=5, hit=0.0), race_id="slower")
    show(page, [{**frame, "name": "Your prompt"} for frame in slower])
    said = " ".join(pictured(page)[2])
    rail, plain, _, slow = page.evaluate("window.wide")
    assert slow < plain == rail and "26.0\u00a0% more machine time for the same tokens." in said
    assert "Does not pay: a server can run n-gram" in said and "Your prompt: \u201ca prompt\u2026\u201d" in said


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


# ---- strangers' texts


def test_hostile_text_and_labels_are_exact_run_nothing_and_push_nothing(page: Any) -> None:
    """A model may write anything, and names, sentences and status texts come from strangers' files too: all of it is
    shown as it is, on every tab and from a small phone to 4K without scrolling sideways."""
    recorded = race_over(HOSTILE * 3, seed=3, hit=0.6)
    feed(page, recorded)
    assert page.evaluate(TOKENS) == expected(recorded)
    marks = page.evaluate("[...document.querySelectorAll('.pf-text .pf-unseen')].map(n => n.dataset.mark)")
    assert {"RLO", "ZWSP", "BOM", "NUL", "ESC", "CR", "U+2028", "U+E0041"} <= set(marks)
    feed(page, race_over([*HOSTILE, *words_of(TEXT)], seed=4), race_id="looks", ribbon="RECORDED", every=90)
    for width, height in ((360, 740), (768, 1024), (1280, 800), (3840, 2160)):
        page.set_viewport_size({"width": width, "height": height})
        for tab in ("text", "steps", "charts", "timing"):
            page.click(f"[role=tab][data-tab={tab}]")
            if tab == "text":
                page.click("[data-ref=marks]")
            if tab in ("text", "steps"):
                page.locator("[data-ref=rightText] .pf-step").nth(-6).focus()
            page.evaluate(SETTLED)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, tab)
            page.keyboard.press("Escape")
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.click("[role=tab][data-tab=text]")
    for where, key in (
        (recorded["model"], "name"),
        (recorded["device"], "name"),
        (recorded["verdicts"]["speculative"], "sentence"),
        (recorded["verdicts"]["plain"], "sentence"),
    ):
        where[key] = "<img src=x onerror=window.ran=1>${window.ran=1}\u202e" + "W" * 900
    status = "</p><script>window.ran=1</script>"
    feed(page, recorded, race_id="labels", ribbon="<b>RECORDED", status=status, every=90)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelectorAll('.pf img, .pf script, .pf b').length") == 0


def test_no_declaration_is_lost_when_gradio_writes_the_style_anew(page: Any) -> None:
    """A shorthand with a variable that is overridden in part serialises to nothing: in gradio, borders and fonts would
    be gone."""
    lost = page.evaluate(
        """css => {
            const sheet = new CSSStyleSheet();
            sheet.replaceSync(css);
            const texts = rule =>
                rule.cssRules && !rule.selectorText ? [...rule.cssRules].flatMap(texts) : [rule.cssText];
            return [...sheet.cssRules].flatMap(texts).filter(text => /:\\s*;/.test(text));
        }""",
        RACE_VIEW_CSS,
    )
    assert lost == []


def test_every_good_recording_is_shown_and_copied_as_it_was_written(page: Any) -> None:
    """Both texts, pasted to be compared, would refute the verdict: a struck-out guess in the middle of a word, a line
    for each step. Nobody would find a name across one. Races of trees, of servers, without an audit or known in part:
    people would be locked out of their own."""
    hostile = race_over([word for word in HOSTILE if word != "\x00"], seed=3, hit=0.6)
    trees = as_trees(race_over(words_of(TEXT)[:90], seed=5, k=4, hit=0.6), random.Random(4))
    in_part, servers = known_in_part(SHORT, random.Random(4)), on_servers(SHORT)
    assert loads(json.dumps(in_part).encode()) == in_part
    shipped = [json.loads(file.read_bytes()) for file in sorted(RACES.glob("*.json"))]
    for recorded in (*shipped, trees, hostile, race_over(words_of(TEXT)[:9], audit=False), in_part, servers):
        opened(page, recorded)
        assert page.evaluate(TOKENS) == expected(recorded) and words(page, "plainVerdict")
        assert words(page, "verdictWord").startswith("The same text" if recorded is servers else "Identical")
        written = {
            lane: "".join("".join(step["pieces"]) for step in steps_of(recorded, lane))
            for lane in ("baseline", "speculative")
        }
        for button in ("#pf-tab-steps", "#pf-tab-text", "[data-ref=marks]", "[data-ref=marks]"):
            page.click(button)
            for lane, ref in (("baseline", "leftText"), ("speculative", "rightText")):
                assert selected(page, f"[data-ref={ref}]") == written[lane], (button, lane, recorded["prompt"])
        if recorded in shipped:  # by the browser alone, which knows no such blanks
            assert written["speculative"].replace("\xa0", " ") in selected(page, ".pf-lanes")
    opened(page, json.loads((RACES / "csv_to_json.json").read_bytes()))
    assert page.evaluate("getSelection().empty(), find('la Gomez') && find('la Gomez')")
    assert page.evaluate("getSelection().anchorNode.parentElement.closest('[data-ref=rightText]') !== null")


# ---- files, and lanes of any number and name


def test_files_are_checked_saved_and_opened(tab: Any, tmp_path: Path) -> None:
    """A stranger's broken race over the one that was there; a saved race that is no longer the same file, since a
    checksum has 64 bits and JavaScript's numbers 53; or an example that no click brings back, since its frame was the
    last one from the server. What is refused, and why: tests/recordings."""
    good, path, example = json.dumps(SHORT, indent=1), tmp_path / "race.json", tab.evaluate(STATE)["race"]

    def open_file(content: bytes) -> None:
        path.write_bytes(content)
        tab.set_input_files("[data-ref=file]", [])
        tab.set_input_files("[data-ref=file]", path)

    open_file(good.encode())
    tab.wait_for_function("window.photofinish.state.fromFile")
    tab.evaluate(SETTLED)
    before = tab.evaluate(TOKENS)
    assert before == expected(SHORT) and "RECORDED" in words(tab, "ribbon")
    assert saved(tab).decode() == loads(good.encode()).text
    wrong = json.dumps({**SHORT, "verdicts": {"nobody": {}}})
    for content, why in (
        (wrong.encode(), "nobody"),
        (b"", "not JSON"),
        (b"[" * 300_000, "brackets"),
        (b"\xff\xfe", "not UTF-8"),
        (b" " * 11_000_000, "larger than"),
    ):
        tab.evaluate("document.querySelector('[data-ref=alertText]').textContent = ''")
        open_file(content)
        tab.wait_for_function("document.querySelector('[data-ref=alertText]').textContent")
        said = words(tab, "alertText")
        assert said.startswith("race.json cannot be opened: ") and said.endswith(".") and why in said
    assert tab.evaluate(TOKENS) == before
    assert all("the server responded with a status of 4" in problem for problem in tab.problems)
    tab.problems.clear()
    tab.locator("#page-presets button:not(#page-settings-button)").first.click()
    tab.wait_for_function("!window.photofinish.state.fromFile")
    assert tab.evaluate(STATE)["race"] == example and example.startswith("recorded-")


def test_whatever_the_check_accepts_can_be_shown(page: Any) -> None:
    """An odd file that the server accepts would stop the program."""
    good = []
    for text in mutants(300):
        with suppress(UsageError):
            good.append(json.dumps(loads(text.encode()).fields))
    page.evaluate("texts => texts.forEach(text => window.photofinish.open(text))", good)
    page.evaluate(SETTLED)
    assert 20 < len(good) < 250


def test_a_file_on_screen_stays_until_the_next_race(page: Any) -> None:
    """Late frames of the race before must not write into an opened file."""
    sent = frames(RACE, race_id="served")
    show(page, sent[:-1])
    assert page.is_disabled("[data-ref=open]")
    opened(page, SHORT)
    show(page, sent[-1:])
    assert page.evaluate(TOKENS) == expected(SHORT)
    show(page, frames(RACE, race_id="next")[:3])
    assert page.evaluate(STATE)["race"] == "next"


@pytest.mark.parametrize("live", [True, False], ids=["live", "file"])
@pytest.mark.parametrize("names", [["a", "b", "c", "d", "e"], ["__proto__", "toString", "constructor"]])
def test_the_page_shows_the_baseline_and_the_first_that_drafts(page: Any, names: list[str], live: bool) -> None:
    """The last lane, or the one called speculative, would be shown, with another lane's verdict or ratio; a baseline of
    another name as the lane that drafts."""
    recorded = with_more_lanes(names, first=1)
    recorded = json.loads(json.dumps(recorded).replace('"baseline"', '"base"'))
    recorded["spec"]["lanes"][-1]["role"] = "baseline"
    if live:
        feed(page, recorded)
    else:
        opened(page, recorded)
    page.wait_for_function("!window.photofinish.state.live")
    state = page.evaluate(STATE)
    assert state["lanes"] == ["base", names[0]]
    assert page.evaluate(TOKENS) == expected(recorded, lanes=("base", names[0]))
    assert words(page, "verdictSentence") == f"Identical tokens: baseline and {names[0]}."
    assert words(page, "plainVerdict").startswith("The plain lane not shown: ")
    gains = race_speedups(events_of(recorded), spec_of(recorded).lanes)
    assert state["speedup"] == pytest.approx(gains[names[0]])
    clocks = {e["lane"]: e["clock_s"] for e in recorded["events"]}
    shown = max(clocks[name] for name in ("plain", "base", names[0]))
    assert state["duration"] == pytest.approx(shown), "the replay would go on after both lanes' ends"


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
    rows, places = page.evaluate(ROWS), list[int]()
    for (title, count), (name, lane) in zip(rows, lanes.items(), strict=True):
        place, shown = re.fullmatch(r"(\d)\. (.*), k = \d+", title).groups()
        places.append(int(place))
        assert short_label(lane["drafter"]).startswith(shown[:70])
        assert count.split() == ["≡", "60", f"{gains[name]:.2f}×"]
    by_speed = [place for _, place in sorted(zip(speeds.values(), places, strict=True), reverse=True)]
    assert by_speed[0] == 1 and by_speed == sorted(places)
    for name in ("eagle3", "speculative", "draft_model"):
        page.locator(".pf-track-more", has_text=short_label(lanes[name]["drafter"])[:40]).click()
        page.evaluate(SETTLED)
        assert page.evaluate(TOKENS) == expected(recording, lanes=("baseline", name))
        assert words(page, "rightFigure") == f"{speeds[name]:.{int(speeds[name] < 1000)}f}"
        assert float(words(page, "ratio")[:-1]) == pytest.approx(gains[name], rel=0.01, abs=0.006)
        assert len(page.evaluate(ROWS)) == 3 and page.evaluate(STATE)["lanes"][1] == name
    page.click("[data-tab=whatif]")
    page.evaluate(SETTLED)
    chosen = page.evaluate("document.querySelector('[data-ref=whatIfDrafter]').value")
    assert chosen == lanes["draft_model"]["drafter"] and words(page, "whatIfShown") == "as raced"
