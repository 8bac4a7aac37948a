"""The page with words that take more room than ours, and on paper; and the box of the prompt."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from app.jobs.recorded import RACES
from app.page.exported import exported
from engine.recordings.recording import read
from tests.helpers.page_browser import CUT, PANELS, close_settings, figures, open_settings, watched
from tests.helpers.race_pages import SETTLED, SHORT, feed, show, waiting
from tests.helpers.results import CHECK_UP, LOAD, STUDY, joint

pytestmark = pytest.mark.browser
DESK, PAPER = {"width": 1280, "height": 800}, {"width": 794, "height": 1123}  # A4, narrower than Letter
LONGER = """() => { const done = window.longer ??= new WeakSet(), all = "button, a, summary, label, legend, h1, h2, h3,"
      + "th, dt, output, .pf-track-name, .pf-card *, button *, label span, h2 span, h3 span";
    for (const node of document.querySelectorAll(all)) for (const text of node.childNodes) {
      const words = text.nodeType === 3 && !done.has(text) ? text.data.trim() : "";
      if (words.length > 1) { done.add(text); text.data += words.slice(0, Math.ceil(0.4 * words.length)); } } }"""
SPACED = """* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }
p { margin-bottom: 2em !important; }"""  # WCAG 1.4.12
ABOVE = "dialog[open], .pf[data-stage], .sidebar.open"  # what may lie over the page
COVERED = """above => [...(document.querySelector(above) ?? document).querySelectorAll(
    "button, a[href], summary, input, select, textarea")].filter(node => {
    const unlike = ":disabled, .pf-sr, .wrap-inner *, .js-plotly-plot *, .pf-text *";
    if (!node.checkVisibility({ visibilityProperty: true }) || node.matches(unlike)) return false;
    node.scrollIntoView({ block: "center", inline: "center" });
    const { left, top, width, height } = node.getBoundingClientRect();
    const found = document.elementFromPoint(left + width / 2, top + height / 2);
    return width > 1 && !node.contains(found) && !found?.closest("label")?.contains(node);
  }).map(node => node.outerHTML.slice(0, 90))"""
# On paper: what is only pressed, boxes that cut, lanes smaller than their text, and texts that lie on each other.
ON_PAPER = """() => {
    const found = [], texts = [], says = ".pf-proof-open, .pf-one-guess, .pf-one-verdict, .pf-track-more, .ps-race";
    for (const node of document.body.querySelectorAll(":not(svg, svg *, option)")) {
      if (!node.checkVisibility({ visibilityProperty: true })) continue;
      const { overflowY, overflowX } = getComputedStyle(node), isHigh = node.scrollHeight > node.clientHeight + 1;
      const isWide = overflowX !== "visible" && node.scrollWidth > node.clientWidth + 1;
      if (node.matches(`button:not(${says}), [role=tab], input[type=range]`)) found.push(["pressed", node.outerHTML]);
      if (isWide || (isHigh && (overflowY !== "visible" || node.matches(".pf-text, .pf-lane"))))
        found.push(["cut", node.outerHTML.slice(0, 90)]);
      for (const text of node.childNodes) if (text.nodeType === 3 && text.data.trim()) {
        const range = document.createRange();
        range.selectNodeContents(text);
        texts.push(...[...range.getClientRects()].filter(box => box.width > 1).map(box => [text.data, box])); } }
    for (const [i, [one, a]] of texts.entries()) for (const [other, b] of texts.slice(0, i)) {
      const over = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (over > 0.4 * Math.min(a.height, b.height) && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3)
        found.push(["over", one, other]); }
    return document.documentElement.scrollWidth > innerWidth + 1 ? [...found, ["wide"]] : found; }"""


def places(tab: Any) -> Any:
    """Opens every tab and dialog, one after the other, and gives its name."""
    for name in tab.locator(PANELS).evaluate_all("tabs => tabs.map(tab => tab.dataset.tab)"):
        tab.evaluate("name => document.getElementById(`pf-tab-${name}`).click()", name)
        if name in ("charts", "why") and tab.locator("#page-why").count():
            figures(tab, name)
        yield name
    for button in ("[data-ref=proofOpen]", "[data-glossary]", "#page-yours-button"):
        if tab.locator(button).count():
            tab.locator(button).first.evaluate("button => button.click()")
            yield button
            tab.keyboard.press("Escape")


@pytest.mark.parametrize("page", ["served", "exported"])
def test_what_is_printed_is_whole(visit: Any, browser: Any, tmp_path: Path, page: str) -> None:
    """A report for a boss with texts cut where a box scrolled, the footer across them, and dead buttons."""
    if page == "served":
        tab = visit(until="race", color_scheme="dark")
        results = json.dumps(joint(STUDY, LOAD, CHECK_UP)).encode()
        saved = {"name": "a.json", "mimeType": "text/plain", "buffer": results}
        tab.set_input_files("#race .pf:not(dialog) [data-ref=file]", saved)
        tab.wait_for_selector("#page-yours [data-ref=opened] >> text=Opened from a file")
        tab.keyboard.press("Escape")
    else:
        (file := tmp_path / "race.html").write_text(exported(read(RACES / "story.json")), "ascii")
        tab = watched(browser.new_page(reduced_motion="reduce"), "file:")
        tab.goto(file.as_uri())
        tab.wait_for_selector("#about:not([hidden])")
    for name in places(tab):
        tab.set_viewport_size(PAPER)
        tab.emulate_media(media="print")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.evaluate(SETTLED)
        assert tab.evaluate(ON_PAPER) == [], name
        tab.emulate_media(media="screen")
        tab.evaluate("dispatchEvent(new Event('afterprint')); document.getElementById('pf-tab-text').click()")
        tab.set_viewport_size(DESK)  # with no figure in sight: drawing all anew takes seconds
        tab.evaluate(SETTLED)


def test_other_words_have_room(visit: Any) -> None:
    """A translator, German, a reader's own spacing, or a page twice as large: a tab lay under "Play again"."""
    tab = visit(until="race")
    tab.evaluate("document.documentElement.requestFullscreen = null")  # that would have one size

    def look(where: str) -> None:
        tab.evaluate(LONGER if how == "longer" else SETTLED)
        tab.evaluate(SETTLED)
        under = tab.locator(ABOVE).count() > 0
        assert [cut for cut in tab.evaluate(CUT) if not under or cut[0] == "cut off"] == [], (how, where)
        assert tab.evaluate(COVERED, ABOVE) == [], (how, where)

    for how in ("twice as large", "spaced", "longer"):
        tab.set_viewport_size({"width": 640, "height": 400} if how == "twice as large" else DESK)
        spacing = tab.add_style_tag(content=SPACED if how == "spaced" else " ")
        for name in places(tab):
            look(name)
        open_settings(tab)
        look("settings")
        close_settings(tab)
        tab.evaluate("document.getElementById('page-stage-button').click()")
        tab.evaluate(LONGER if how == "longer" else SETTLED)
        assert tab.evaluate(COVERED, ABOVE) == [], (how, "the stage")
        tab.keyboard.press("Escape")
        tab.evaluate("document.getElementById('pf-tab-text').click()")
        spacing.evaluate("style => style.remove()")
    tab.add_style_tag(content=".page-header * { font-size: 44px !important; }")  # Firefox can zoom text alone
    assert [cut for cut in tab.evaluate(CUT) if cut[0] == "cut off"] == [] and tab.is_visible("#page-yours-button")


def test_a_race_that_waits_has_room(page: Any) -> None:
    """The card lay over the board in a place of fixed height: what it said was cut."""
    feed(page, SHORT)
    show(page, waiting([30]))
    page.add_style_tag(content=SPACED)
    page.evaluate(LONGER)
    for width in (1280, 640, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate(SETTLED)
        assert page.is_visible("[data-ref=card]") and page.evaluate(COVERED, ABOVE) == [], width
        assert [cut for cut in page.evaluate(CUT) if cut[0] == "cut off"] == [], width


def test_the_prompt_box_shows_whole_lines(tab: Any) -> None:
    """Half a third line, at everybody's first visit: text shows in a box's padding too."""
    for width, lines in product((1280, 390), (1, 3, 8, 40)):
        tab.set_viewport_size({"width": width, "height": 800})
        tab.fill("#page-prompt textarea", "\n".join(["a line"] * lines))
        for does in ("focus", "blur"):
            shown = tab.locator("#page-prompt textarea").evaluate(
                f"box => {{ box.{does}(); return box.clientHeight / parseFloat(getComputedStyle(box).lineHeight); }}"
            )
            assert shown >= 2 and shown == int(shown), (width, lines, does, shown)
