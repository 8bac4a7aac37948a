"""A real Chromium, the page that it visits, and pages with the race view alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.race_view import RACE_VIEW_CSS, RACE_VIEW_JS, RACE_VIEW_TEMPLATE
from tests.helpers.page_browser import CHROMIUM, FLAGS
from tests.helpers.race_pages import page_html


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Of one file: while it is open its event loop runs, and no other test of the process could run one."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; install it, or set CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    pages: list[Any] = []

    def make(width: int = 1280, height: int = 1000, dark: bool = False, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
        page.on("dialog", lambda dialog: (page.problems.append("a dialog"), dialog.dismiss()))
        page.set_content(page_html(RACE_VIEW_TEMPLATE, RACE_VIEW_CSS, RACE_VIEW_JS, dark))
        pages.append(page)
        return page

    yield make
    for page in pages:
        page.close()


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Iterator[Any]:
    """A page that plays nothing by itself."""
    page = open_page(reduced_motion="reduce")
    yield page
    ran = page.evaluate("window.ran")
    page.close()
    assert page.problems == [] and ran is None
