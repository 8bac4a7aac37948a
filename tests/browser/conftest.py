"""A real Chromium, visitors of the served page, and pages with the race view alone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.page_browser import CHROMIUM, FLAGS, RACE_MS, open_tab, watched
from tests.helpers.race_pages import PAGE_HTML

DESK = {"width": 1280, "height": 800}
ALLOWED = ["clipboard-read", "clipboard-write"]
AS_VISITOR: dict[str, Any] = {"viewport": DESK, "reduced_motion": "reduce", "permissions": ALLOWED}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One per file: while it is open its event loop runs, and no other test of the process could run one. Every wait in
    a page of it may take as long as a race."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; install it, or set CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        browser.on("context", lambda context: context.set_default_timeout(RACE_MS))
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    """A visitor's browser, for a page that a test has started itself, or opens by steps of its own."""
    context = browser.new_context(**AS_VISITOR)
    yield context
    context.close()


@pytest.fixture(scope="module")
def visitor(browser: Any, server: Any) -> Iterator[Callable[..., Any]]:
    """Opens the served page in a tab of its own, with its own storage.

    address, until: see `open_tab`. Other arguments go to Playwright's `new_context`; the defaults are reduced
    motion and a clipboard."""
    contexts = []

    def make(address: str = "", until: str = "ready", **options: Any) -> Any:
        contexts.append(browser.new_context(**AS_VISITOR | options))
        return open_tab(contexts[-1], server.url, address, until)

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def visit(visitor: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """`visitor` for one test: its tabs are closed afterwards, and nothing may have gone wrong in any of them."""
    tabs: list[Any] = []

    def make(*arguments: Any, **options: Any) -> Any:
        tabs.append(visitor(*arguments, **options))
        return tabs[-1]

    yield make
    problems = [tab.problems for tab in tabs]
    for tab in tabs:
        tab.context.close()
    assert problems == [[] for _ in tabs]


@pytest.fixture(scope="module")
def shared_tab(visitor: Callable[..., Any]) -> Any:
    return visitor()


@pytest.fixture
def tab(shared_tab: Any) -> Iterator[Any]:
    """The served page, ready, in one tab for all tests of a file: loading it takes longer than most of them."""
    shared_tab.set_viewport_size(DESK)
    yield shared_tab
    problems, shared_tab.problems = shared_tab.problems, []
    assert problems == []


@pytest.fixture(scope="module")
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages with the race view alone, without a server."""
    pages: list[Any] = []

    def make(width: int = 1280, height: int = 1000, **options: Any) -> Any:
        page = watched(browser.new_page(viewport={"width": width, "height": height}, **options))
        page.set_content(PAGE_HTML)
        pages.append(page)
        return page

    yield make
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def shared_page(open_page: Callable[..., Any]) -> Any:
    return open_page(reduced_motion="reduce")


@pytest.fixture
def page(shared_page: Any) -> Iterator[Any]:
    """A page that plays nothing by itself, loaded anew for each test: half the work of a new one. The mouse and the
    clock of the last test are still there, so a test of either needs a page of its own."""
    shared_page.goto("about:blank")
    shared_page.set_viewport_size({"width": 1280, "height": 1000})
    shared_page.emulate_media(color_scheme="light", forced_colors="none", reduced_motion="reduce")
    shared_page.set_content(PAGE_HTML)
    shared_page.problems.clear()
    yield shared_page
    assert shared_page.problems == [] and shared_page.evaluate("window.ran") is None
