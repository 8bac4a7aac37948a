"""The page in a real Chromium: what its tests do in a tab."""

import os
import time
from pathlib import Path
from typing import Any

from tests.helpers.race_pages import SETTLED

SHELL, BROWSER = Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium")
# The shell is the same browser without windows of its own: a tab opens in 0.7 s instead of 1.2.
CHROMIUM = Path(os.environ.get("CHROMIUM") or (SHELL if SHELL.exists() else BROWSER))
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
# How long any wait may take, by default: a race, on a machine that does other things too.
RACE_MS = 90_000
# The race view's own report of its state, where the tests expect it; a page has no global names.
REPORTS = """Object.defineProperty(window, "photofinish", {
    configurable: true, get: () => document.querySelector(".pf")?.photofinish })"""
PANELS = "[role=tab]:not([hidden], [data-tab=details])"  # "Details" opens the one of its own that was open last
UNREADABLE = """() => {
    const number = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
      const full = text.startsWith('color(srgb') ? 255 : 1;      // of color-mix
      return { rgb: [r * full, g * full, b * full], a }; };
    const light = ({ rgb }) => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = node => { for (; node; node = node.parentElement) {
      const style = getComputedStyle(node), colour = number(style.backgroundColor);
      if (style.backgroundImage !== 'none') return null;
      if (colour.a > 0.99) return colour; } return number('rgb(255, 255, 255)'); };
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, parent = node.parentElement, style = getComputedStyle(parent);
      const range = document.createRange(); range.selectNodeContents(node);
      const { width, height } = range.getBoundingClientRect();
      if (!node.textContent.trim() || width < 2 || height < 2
          || !parent.checkVisibility({ visibilityProperty: true, opacityProperty: true })
          || parent.closest('button:disabled, .pf-sr, script, style, [hidden], .pf-unseen, .pf-newline')) continue;
      const size = parseFloat(style.fontSize), back = behind(parent), ink = number(style.color);
      const [high, low] = back ? [light(ink), light(back)].sort((a, b) => b - a) : [1, 0];
      const contrast = (high + 0.05) / (low + 0.05), large = size >= 24 || (size >= 18.5 && style.fontWeight >= 700);
      if (size < 14 || contrast < (large ? 3 : 4.5))
        found.push([node.textContent.trim().slice(0, 40), size, +contrast.toFixed(2), parent.className]);
    }
    return found; }"""  # texts of a page below 14 px, or below the contrast of 4.5:1 (3:1 of large letters)
# Texts that a box cuts off, at whose end letters are left out, or on which something else lies. What scrolls, or has no
# room at all and is not shown, is not cut.
CUT = """() => {
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const hidden = "script, style, option, .pf-sr, .sr-only, .pf-unseen, .pf-newline, .js-plotly-plot, .pf-one-word,"
      + ".pf-one-excerpt";      // of tokens side by side the end of one may be its neighbour's
    while (walker.nextNode()) {
      const text = walker.currentNode, node = text.parentElement, range = document.createRange();
      const seen = node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
      if (!text.data.trim() || node.closest(hidden) || !seen) continue;
      range.selectNodeContents(text);
      const rects = [...range.getClientRects()].filter(({ width, height }) => width > 1 && height > 1);
      const words = text.data.trim().slice(0, 60);
      let scrolls = !rects.length;
      for (let box = node; box !== document.body && !scrolls; box = box.parentElement) {
        const style = getComputedStyle(box), area = box.getBoundingClientRect();
        const has = (...values) => values.includes(style.overflowX) || values.includes(style.overflowY);
        const outside = rects.every(({ top, left }) => top >= area.bottom - 1 || left >= area.right - 1);
        if (has("auto", "scroll") || (has("hidden", "clip") && outside)) scrolls = true;
        else if (has("hidden", "clip") && (rects.some(({ left, right, top, bottom }) => right > area.right + 1.5
            || left < area.left - 1.5 || bottom > area.bottom + 2.5 || top < area.top - 2.5)
            || (style.textOverflow === "ellipsis" && box.scrollWidth > box.clientWidth))) {
          found.push(["cut off", words]);
          break; }
      }
      for (const { left, width, top, height } of scrolls ? [] : rects) for (const share of [0.02, 0.5, 0.98]) {
        const [x, y] = [left + share * width, top + height / 2], above = document.elementFromPoint(x, y);
        if (above && !above.contains(node) && !node.contains(above) && !above.closest("#page-prompt, #page-panel"))
          found.push(["covered", words, above.className]);
      }
    }
    return found; }"""


def watched(page: Any, url: str = "") -> Any:
    """The page, which from now on collects in `problems` what must not happen: errors of a script or in the console,
    dialogs, and requests to elsewhere than `url`."""
    page.problems = []
    page.add_init_script(REPORTS)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
    own = (url, "data:", "blob:")
    page.on("request", lambda request: request.url.startswith(own) or page.problems.append(request.url))
    page.on("dialog", lambda dialog: (page.problems.append("a dialog"), dialog.dismiss()))
    return page


def loaded(tab: Any, until: str = "ready") -> None:
    """Wait for the served page ("page"), its recorded race ("race"), its loaded model ("model"), or both ("ready")."""
    tab.wait_for_selector("#page-race-button")
    if until in ("race", "ready"):
        tab.wait_for_function("window.photofinish?.state.duration > 0")
    if until in ("model", "ready"):
        tab.wait_for_selector('.page-model[data-state="ready"]', state="attached")  # a phone does not say it


def reload(tab: Any, until: str = "ready") -> None:
    """Load the page again; what Gradio's program logs about its broken streams is no problem."""
    before = list(tab.problems)
    tab.reload()
    tab.problems[:] = before
    loaded(tab, until)


def open_tab(context: Any, url: str, address: str = "", until: str = "ready") -> Any:
    """The page at this URL, in a new tab that is `watched`.

    address: what follows the URL; until: what to wait for, see `loaded`."""
    tab = watched(context.new_page(), url)
    tab.goto(url + address)
    loaded(tab, until)
    return tab


def settings(tab: Any, **numbers: str) -> None:
    """Fill number boxes of the side panel, by their labels (with _ for blanks), and close it."""
    open_settings(tab)
    for label, value in numbers.items():
        field = tab.get_by_label(f"number input for {label.replace('_', ' ')}", exact=True)
        field.fill(value)
        field.press("Tab")
    close_settings(tab)


def unfold(tab: Any) -> None:
    """Show the doors, examples and Settings, which a phone has behind Menu."""
    if tab.is_visible("#page-menu-button[aria-expanded=false]"):
        tab.click("#page-menu-button")


def example(tab: Any, name: str) -> None:
    """Choose an example, which may be behind More."""
    if not tab.is_visible(button := f"#page-presets button:text-is('{name}')"):
        tab.click("#page-more-button")
    tab.click(button)


def open_settings(tab: Any) -> None:
    if not tab.locator(".sidebar.open").count():
        unfold(tab)
        tab.click("#page-settings-button")
        tab.wait_for_selector(".sidebar.open")


def close_settings(tab: Any) -> None:
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".sidebar.open", state="detached")


def choose(tab: Any, name: str) -> None:
    """Open a tab of the race, which may be one of those below "Details"."""
    if not tab.is_visible(f"#pf-tab-{name}"):
        tab.click("#pf-tab-details")
    tab.click(f"#pf-tab-{name}")


def figures(tab: Any, name: str) -> None:
    """Open the tab "charts" or "why", if it is not, and wait for the figures of the race on the screen."""
    if tab.get_attribute(".pf", "data-tab") != name:
        choose(tab, name)
    tab.wait_for_function(
        "name => { const figures = document.getElementById(`page-${name}`);"
        " return !figures.classList.contains('page-stale') && figures.querySelector('.js-plotly-plot')"
        " && figures.querySelector('[data-charts-of]').dataset.chartsOf"
        " === window.photofinish.state.asked[name]; }",
        arg=name,
    )


def pasted(tab: Any, button: str) -> str:
    """What a button puts into the clipboard, which it says when it is there."""
    tab.click(button)
    tab.wait_for_selector(f"{button}:has-text('Copied')")
    return tab.evaluate("navigator.clipboard.readText()")


def copied(tab: Any, *names: str) -> dict[str, str]:
    """What the buttons of the menu Share put into the clipboard."""
    texts = {}
    for name in names:
        tab.click(".pf-share summary")
        texts[name] = pasted(tab, f"[data-copy={name}]")
        tab.keyboard.press("Escape")
    return texts


def selected(tab: Any, selector: str) -> str:
    """What the clipboard has after all of this was selected and copied."""
    tab.evaluate(
        """selector => { getSelection().selectAllChildren(document.querySelector(selector));
        document.onpaste = (event) => { window.pasted = event.clipboardData.getData("text"); }; }""",
        selector,
    )
    tab.keyboard.press("Control+c")
    tab.keyboard.press("Control+v")
    return str(tab.evaluate("window.pasted"))


def saved(tab: Any) -> bytes:
    """The file that the button Save gives."""
    tab.evaluate("document.querySelector('.pf-share').open = true")
    with tab.expect_download() as download:
        tab.click("[data-ref=save]")
    tab.keyboard.press("Escape")
    return Path(download.value.path()).read_bytes()


def to_end(tab: Any) -> None:
    """Put the replay at its end, whatever it does."""
    tab.focus("[data-ref=scrub]")
    tab.keyboard.press("End")
    tab.wait_for_function("(({ t, duration, playing }) => t >= duration && !playing)(window.photofinish.state)")
    tab.evaluate(SETTLED)


def run_race(tab: Any, state: str = "finished", button: str = "#page-race-button") -> None:
    """Race, and wait for a race that was not there before (the recorded one on the page has ended too) to be in
    `state`. Race again where a busy browser first sees the race when it is over."""
    for attempt in range(6):
        before = tab.evaluate("window.photofinish.state.race")
        tab.click(button)
        if new_race(tab, before, state, missed=state == "running" and attempt < 5):
            return


def new_race(tab: Any, before: str | None, state: str = "finished", missed: bool = False) -> bool:
    """Wait until another race than `before` is in `state`, or over. Returns whether it was in `state`, which only a
    caller who accepts that it `missed` it needs to know."""
    over = ("finished", "stopped", "failed")
    reached = (
        "({ before, states }) => { const { race, state } = window.photofinish.state;"
        " return race !== before && states.includes(state) && state; }"
    )  # the board is painted a frame later
    outcome = tab.wait_for_function(reached, arg={"before": before, "states": [state, *over]}).json_value()
    tab.wait_for_selector(", ".join(f'.pf[data-state="{name}"]' for name in (outcome, *over)))
    assert outcome == state or (missed and outcome == "finished"), outcome
    return outcome == state


def end(tab: Any) -> str:
    """Stop the race, if it still runs. Returns how it ended: stopped or finished."""
    tab.evaluate("document.getElementById('page-stop-button').click()")
    tab.wait_for_selector('.pf:is([data-state="stopped"], [data-state="finished"])')
    return str(tab.get_attribute(".pf", "data-state"))


def slowness() -> float:
    """What bars of time are multiplied by: how many times 10 ms a fixed loop of Python takes here now; at least 1."""
    began = time.thread_time()
    sum(i * i for i in range(300_000))
    return max(1.0, (time.thread_time() - began) / 0.01)
