"""The page in another page's frame, which that page makes as high as its content, as Hugging Face does with a Space.
The other half of iframe-resizer comes with Gradio."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT
from tests.helpers.page_browser import CUT, REPORTS, loaded, run_race, unfold
from tests.helpers.pageserver import TARGET, served

pytestmark = pytest.mark.browser
RESIZER = ROOT / "tests/fixtures/iframe_resizer/iframeResizer.min.js"
HOST = """<!doctype html><meta charset="utf-8"><style>body { margin: 0 } header { height: 60px }
iframe { width: 1px; min-width: 100%; border: 0; display: block; min-height: calc(100vh - 60px) }</style>
<header></header><iframe id="f" src="URL" allow="fullscreen" sandbox="allow-forms allow-modals allow-popups
  allow-popups-to-escape-sandbox allow-same-origin allow-scripts allow-downloads"></iframe>
<script src="RESIZER"></script><script>iFrameResize({ checkOrigin: false }, "#f")</script>"""
FORBIDDEN = """for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, {
  get() { throw new DOMException("denied", "SecurityError"); } });
if (navigator.locks) navigator.locks.request = () => Promise.reject(new DOMException("denied", "SecurityError"))"""
# Gradio's own tolerance is 2 pixels. What has scrolled inside ends as much too high.
BELOW = """() => scrollY ? ["scrolled inside"] : [...document.querySelectorAll(
  ".page-footer, .pf, .pf [role=tabpanel], .page-figures")].filter(node => node.checkVisibility()
  && node.getBoundingClientRect().bottom > innerHeight + 2).map(node => node.className)"""


def settled(host: Any) -> int:
    """The frame's height once it stays; fails where it does not."""
    heights: list[int] = []
    while len(set(heights[-5:])) > 1 or len(heights) < 5:
        assert len(heights) < 150, heights[::10]
        heights.append(host.evaluate("document.getElementById('f').offsetHeight"))
        host.wait_for_timeout(50)
    return heights[-1]


@pytest.fixture(scope="module")
def space(page_cache: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACE_ID", "owner/name")
        with served(page_cache, "--target", TARGET, "--dtype", "float32") as server:
            yield server


def test_a_frame_that_forbids_the_program_says_so(browser: Any, space: Any) -> None:
    """A frame without an origin (sandbox="allow-scripts") may not load a program of this machine: it stayed empty."""
    host = browser.new_page()
    host.set_content(f'<iframe sandbox="allow-scripts" src="{space.url}"></iframe>')
    host.frame_locator("iframe").get_by_text("open it in a tab of its own").wait_for()
    host.close()


@pytest.mark.parametrize(("width", "script"), [(1280, ""), (320, FORBIDDEN)], ids=["wide", "a phone without storage"])
def test_the_frame_settles_and_everything_is_within_it(
    browser: Any, space: Any, tmp_path: Path, width: int, script: str
) -> None:
    """A height of the page that follows the frame's makes the frame grow without end: the verdict is a screen away, and
    what is below the texts is never reached. A dialog opens where nobody looks."""
    host, errors = browser.new_page(viewport={"width": width, "height": 800}, reduced_motion="reduce"), list[str]()
    host.on("pageerror", lambda error: errors.append(str(error)))
    host.add_init_script(f"{script};\n{REPORTS}")
    file = tmp_path / "host.html"
    file.write_text(HOST.replace("URL", space.url).replace("RESIZER", RESIZER.as_uri()))
    host.goto(file.as_uri())
    page = host.frames[1]
    loaded(page)
    settled(host)
    tabs = page.locator(".pf-tab:not([hidden], [data-tab=steps])")  # which "Details" opens
    names = tabs.evaluate_all("tabs => tabs.map(tab => tab.dataset.tab)")
    for tab in (*names, "why", "details", "charts"):  # figures are drawn once, and then there at once
        page.eval_on_selector(f"#pf-tab-{tab}", "tab => tab.click()")  # a frame out of sight is never "stable"
        page.wait_for_function(f"({BELOW})().length === 0")
        settled(host)
        assert [fault for fault in page.evaluate(CUT) if fault[0] == "cut off"] == [], tab
    if script:  # a race of one's own is also what a page without storage or locks must run
        run_race(page)
        settled(host)
    page.click("#pf-tab-text")
    high = settled(host)
    page.click(".page-footer [data-glossary]")
    page.wait_for_selector("dialog[open]")
    host.wait_for_timeout(300)
    top = page.locator("dialog[open]").evaluate("it => it.getBoundingClientRect().top")
    assert 0 <= host.evaluate("document.getElementById('f').getBoundingClientRect().top") + top < 700
    page.evaluate("document.querySelector('dialog[open]').close()")
    for refuses in (False, True):
        if refuses:
            page.evaluate("document.documentElement.requestFullscreen = () => Promise.reject(); 0")
        unfold(page)
        page.click("#page-stage-button")
        page.wait_for_selector(".pf[data-stage]")
        tall = settled(host)
        assert page.evaluate(BELOW) == [] and (not refuses or tall >= 56 * 16)
        host.keyboard.press("Escape")
        page.evaluate("document.fullscreenElement && document.exitFullscreen()")
        page.wait_for_selector(".pf:not([data-stage])")
    assert settled(host) == high and errors == []
    host.close()
