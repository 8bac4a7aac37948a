"""The server is restarted under a visitor's race, in a real Chromium: what the visitor had comes back."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from app.jobs.queue import RESTARTS
from tests.helpers.page_browser import open_tab, run_race, settings
from tests.helpers.pageserver import NO_MODEL, free_port, served

pytestmark = pytest.mark.browser
MINE = "def mine(a):\n    return a"


def test_a_restart_loses_nothing_of_a_visitor(browser: Any, page_cache: Path) -> None:
    """A stream that breaks off without a word; a process that does not end; a prompt or a race that is gone with the
    server. A study that goes on: tests/browser/test_studies.py."""
    port, context = free_port(), browser.new_context()
    with served(page_cache, port=port) as before:
        tab = open_tab(context, before.url)
        settings(tab, Maximum_length="1000")
        tab.fill("#page-prompt textarea", MINE)
        run_race(tab, "running")
        began = time.monotonic()
        before.process.terminate()
        assert before.process.wait(5) == 0 and time.monotonic() - began < 5
        tab.wait_for_selector('.pf[data-state="stopped"]')
        assert RESTARTS[4:] in tab.text_content("[data-ref=statusText]")
    race = tab.evaluate("window.photofinish.state.race")
    with served(page_cache, *NO_MODEL, port=port):
        tab.reload()
        tab.wait_for_function("race => window.photofinish?.state.race === race", arg=race)
        assert tab.input_value("#page-prompt textarea") == MINE
    context.close()


def test_a_server_that_dies_leaves_a_page_that_can_race(browser: Any, page_cache: Path) -> None:
    """A crash says nothing: the page would wait for its race for ever, with its button off, until it is reloaded."""
    port, context = free_port(), browser.new_context()
    with served(page_cache, port=port) as before:
        tab = open_tab(context, before.url)
        settings(tab, Maximum_length="1000", Temperature="0.9")
        run_race(tab, "running")
        os.kill(before.process.pid, signal.SIGKILL)
        tab.wait_for_selector("[data-ref=alert] >> text=The page tries again")
    with served(page_cache, port=port):
        tab.wait_for_selector('.pf[data-state="failed"]')
        assert "Your last race did not finish" in tab.inner_text("[data-ref=alertText]")
        settings(tab, Maximum_length="16")
        run_race(tab)
    context.close()
