"""The race view in a real Chromium: steps, views and words, what is sent of a race, and the card of the next one."""

import base64
import re
import time
from pathlib import Path
from typing import Any

import pytest

from engine.analysis.metrics import race_speedup
from engine.analysis.verdict_words import PAYS, capital
from tests.helpers.page_browser import choose, to_end
from tests.helpers.race_pages import (
    PAID,
    SAME,
    SETTLED,
    SHORT,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    race_over,
    rejudged,
    show,
    waiting,
    words,
    words_of,
)
from tests.helpers.races import events_of, steps_of

pytestmark = pytest.mark.browser
NEXT = race_over(words_of(TEXT)[:40], seed=6)
BAR = "document.querySelector('[data-ref=progress]').value"
VERDICT = "document.querySelector('[data-ref=verdict]').dataset.kind"


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
    choose(page, "steps")
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
    """Views of several races; texts that cannot be compared by eye: one at its end, one at its beginning."""
    recorded = race_over(words_of(TEXT, 6))
    feed(page, recorded, every=200)
    lanes = [{e["index"]: e for e in steps_of(recorded, name)} for name in ("baseline", "speculative")]
    for view, marks in (("text", True), ("steps", True), ("text", False)):
        choose(page, view)
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
    assert len(said) == 3 and SAME in said[-1]


def test_high_contrast_tells_tokens_apart(page: Any) -> None:
    """Windows high contrast takes the colours away: by line and weight, four kinds must still be four."""
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
        chosen = "[aria-selected=true], .pf [aria-pressed=true]"
        outlines = "nodes => nodes.map(it => getComputedStyle(it).outlineStyle)"
        lines = page.locator(f".pf {chosen}").evaluate_all(outlines)
        assert len(lines) >= 2 and set(lines) == {"solid"}, "what is chosen looks like what is not"
        assert page.evaluate("getComputedStyle(document.querySelector('.pf progress')).forcedColorAdjust") == "none"


# ---- what is sent

SPIES = """() => { window.said = []; window.wide = []; const pen = CanvasRenderingContext2D.prototype;
    const { fillText, fillRect } = pen;
    window.ClipboardItem = class { constructor(data) { this.data = data; } };
    const write = async ([{ data }]) => { if (window.event?.type !== 'click') throw new Error("too late");
      window.copied = await (await data['text/plain']).text(); };
    Object.defineProperty(navigator, 'clipboard', { value: { write } });
    pen.fillText = function (words, ...rest) { window.said.push(words); fillText.call(this, words, ...rest); };
    pen.fillRect = function (x, y, width, high) { if (high === 32) window.wide.push(width);
      fillRect.call(this, x, y, width, high); }; }"""
DOUBTED = """() => { const root = document.querySelector('.pf'), ratio = document.querySelector('[data-ref=ratio]');
    const doubted = getComputedStyle(ratio).color;
    root.removeAttribute('data-doubted');
    return getComputedStyle(ratio).color !== doubted; }"""
# A video's size, its seconds, and how much of its last frame's upper left is light, where the ratio is.
PLAYED = """async text => {
    const video = document.createElement('video'), canvas = document.createElement('canvas');
    const pen = canvas.getContext('2d');
    const happened = name => new Promise(done => video.addEventListener(name, done, { once: true }));
    video.src = URL.createObjectURL(await (await fetch(`data:video/webm;base64,${text}`)).blob());
    await happened('loadeddata');
    video.currentTime = 1e6;
    await happened('seeked');
    Object.assign(canvas, { width: 1200, height: 630 });
    pen.drawImage(video, 0, 0);
    const pixels = pen.getImageData(56, 160, 300, 120).data;
    const num = pixels.filter((value, i) => i % 4 === 0 && value > 180).length;
    return [[video.videoWidth, video.videoHeight], video.currentTime, num / (300 * 120)]; }"""
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
    assert (words(page, "ratio") == "no result") == ("loop" in kinds)
    assert page.evaluate(DOUBTED) == bool(kinds), "in the colour of any other ratio"
    assert ("do not quote: " in words(page, "ratioWords")) == ("disturbed" in kinds), "far from the figure"


def test_the_picture_says_what_the_board_says(page: Any) -> None:
    """A picture of a race that shows other figures than the race or the copied sentence, hides that the slower lane
    was not done, or is of a size that sites cut; or the noise that a browser gives out in its place."""
    page.evaluate(SPIES)
    recorded = race_over(words_of(TEXT)[:80], seed=14)
    recorded["prompt"]["text"] = "<b> a|b __c__ `d`"  # in a table's row its signs are not Markdown's
    feed(page, recorded)
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
    saves = rf"{int(100 * (1 - 1 / float(shown[0].rstrip('×'))))}\.\d\s% less"
    assert re.search(rf"{PAID}: a server can run n-gram .*, k = 7: .* \(measured\), {saves}", said), (saves, said)
    (share,) = re.findall(r"([\d.]+)\s% less machine time", said)
    assert f"{share}\u00a0% less" in copied
    page.click("[data-copy=proof]")
    page.wait_for_function("window.copied.includes('Compared: ')")
    page.click("[data-copy=row]")
    page.wait_for_function("window.copied.startsWith('|')")
    table = page.evaluate("window.copied").split("\n")
    columns, _, cells = ([cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in table)
    row = dict(zip(columns, cells, strict=True))
    assert row["prompt"] == r"“\<b> a\|b \_\_c\_\_ \`d\`”"
    assert row["ratio"] == shown[0] and row["tok/s"] == words(page, "rightFigure") and row["outputs"] == shown[1]
    rail, plain, _, fast = page.evaluate("window.wide")
    assert plain < fast == rail
    assert plain / fast == pytest.approx(float(words(page, "leftFigure")) / float(words(page, "rightFigure")))
    slower = race_over(words_of(TEXT)[:80], seed=5, hit=0.0)
    show(page, [{**frame, "name": "Your prompt"} for frame in frames(slower, race_id="slower")])
    said = " ".join(pictured(page)[2])
    rail, plain, _, slow = page.evaluate("window.wide")
    more = 100 / (race_speedup(events_of(slower)) or 0) - 100
    assert slow < plain == rail and f"{more:.1f}\u00a0% more machine time for the same tokens." in said
    assert f"{capital(PAYS['loses'])}: a server can run n-gram" in said
    assert "Your prompt: \u201ca prompt\u201d" in said
    page.evaluate("CanvasRenderingContext2D.prototype.getImageData = () => ({ data: Array(32).fill(255) }); 0")
    for ref in ("picture", "clip"):
        page.evaluate("document.querySelector('.pf-share').open = true")
        page.click(f"[data-ref={ref}]")
        page.wait_for_selector(".pf-alert:has-text('noise in place of pictures')")
        page.evaluate("document.querySelector('[data-ref=alertClose]').click()")


def test_a_clip_shows_the_race_and_its_result(page: Any) -> None:
    """A video that no browser plays, that takes too long, is too large for a mail, or ends before the result; or, where
    a browser records nothing (WebKitGTK without codecs), an empty file in its place."""
    feed(page, SHORT, every=90)
    page.click(".pf-share summary")
    began = time.monotonic()
    with page.expect_download() as download:
        page.click("[data-ref=clip]")
    video = Path(download.value.path()).read_bytes()
    assert time.monotonic() - began < 12 and download.value.suggested_filename.endswith(".webm")
    assert video[:4] == b"\x1a\x45\xdf\xa3" and 20_000 < len(video) < 3_000_000
    size, seconds, last = page.evaluate(PLAYED, base64.b64encode(video).decode())
    assert size == [1200, 630] and 5 < seconds < 9, (size, seconds)
    assert last > 0.05, "the last frame has no large ratio"
    page.wait_for_timeout(1100)
    assert page.evaluate("url => fetch(url).then(({ ok }) => ok)", download.value.url), "Safari has not read it yet"
    page.evaluate("window.MediaRecorder.prototype.start = function () { this.onstop(); }; 0")
    page.click("[data-ref=clip]")
    page.wait_for_selector(".pf-alert:not([hidden])")
    assert "cannot record a clip: its recorder wrote nothing. Save a picture" in words(page, "alertText")


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


def test_a_copy_is_made_without_https(page: Any) -> None:
    """At http://192.168.1.20 a browser has no clipboard for programs: every button to copy would say "blocked"."""
    page.evaluate("""() => { Object.defineProperty(navigator, 'clipboard', { value: undefined });
        document.onpaste = event => { window.pasted = event.clipboardData.getData('text'); }; }""")
    feed(page, SHORT)
    for opener, button in ((".pf-share summary", "copy=sentence"), ("[data-ref=proofOpen]", "ref=proofCopy")):
        page.click(opener)
        page.click(f"[data-{button}]")
        page.wait_for_selector(f"[data-{button}]:has-text('Copied')")
        page.keyboard.press("Escape")
        page.keyboard.press("Control+v")
        assert ("Compared: " if "proof" in button else "Photofinish, ") in page.evaluate("window.pasted")


# ---- the card of a race that waits or is prepared, over a race that stays


def test_a_race_stays_until_the_next_one_begins(page: Any) -> None:
    """The screen would be empty while one waits; or the next race lack its first frames, begin behind a card, or under
    the last one's tokens, figures and verdict."""
    feed(page, SHORT)
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
    page.wait_for_function("window.photofinish.state.t > 0")
    to_end(page)
    assert page.evaluate(TOKENS) == expected(SHORT)
    assert page.is_enabled("[data-ref=save]") and page.is_disabled("[data-ref=open]")
    example = frames(SHORT, race_id="recorded-example")[-1] | {"seq": 0, "ribbon": "RECORDED"}
    show(page, [example, *waiting([2], seq=5)])
    assert page.evaluate(STATE)["race"] == "recorded-example" and words(page, "cardLeft") == "about 2 s"
    begun = [{**frame, "seq": frame["seq"] + 6} for frame in frames(NEXT, race_id="next")]
    show(page, begun[:1])
    assert page.is_visible("[data-ref=card]") and words(page, "cardText") == begun[0]["status"]["text"]
    assert page.evaluate(TOKENS) == [] and page.evaluate(BAR) == pytest.approx(0.4)
    assert page.evaluate(VERDICT) == "none" and words(page, "ratioWords") == "times as fast as plain", "no claim"
    assert words(page, "rightFigure") == "–"
    page.press("[data-ref=share] summary", "Enter")
    page.wait_for_selector("text=A race must be over first.")
    assert page.locator(".pf-menu button:enabled").count() == 0, "they do nothing"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY", "the keyboard begins anew"
    show(page, begun[1:2])
    assert page.is_hidden("[data-ref=card]")
    show(page, begun[2:])
    assert page.evaluate(TOKENS) == expected(NEXT)
    show(page, [{**begun[0], "race": "none", "state": "stopped"}])
    assert words(page, "verdictWord").startswith("No verdict"), "it is promised for a race that is over"


def test_an_estimate_is_counted_down_and_then_given_up(open_page: Any) -> None:
    """A card would say "about 2 s" for as long as nothing new is known."""
    page = open_page(reduced_motion="reduce")
    page.clock.install()
    last = waiting([2])[0]
    for seq, left in enumerate(("about 2 s", "about 1 s", "")):
        show(page, [{**last, "seq": seq}])
        page.clock.run_for(1100)
        assert words(page, "cardLeft") == left
    assert words(page, "cardTitle") == "Your race is waiting" and page.problems == []
