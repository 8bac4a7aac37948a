"""The server is restarted under a visitor's race and study, in a real Chromium: what the visitor had comes back."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from app.jobs.queue import RESTARTS
from tests.helpers.dialogs import Dialog
from tests.helpers.page_browser import open_tab, run_race, settings
from tests.helpers.pageserver import NO_MODEL, free_port, served

pytestmark = pytest.mark.browser
NUM = 20
FILE = "".join(json.dumps({"prompt": f"def f{i}(x):\n    return"}) + "\n" for i in range(NUM))
MINE = "def mine(a):\n    return a"


def test_a_restart_loses_nothing_of_a_visitor(browser: Any, page_cache: Path) -> None:
    """A stream that breaks off without a word; a process that does not end; a prompt, a race or a study that is gone
    with the server, or a study that begins anew."""
    port, context = free_port(), browser.new_context()
    with served(page_cache, port=port) as before:
        tab, studying = (open_tab(context, before.url) for _ in range(2))  # a tab runs one thing at a time
        study = Dialog(studying, "study")
        settings(tab, Maximum_length="1000")
        tab.fill("#page-prompt textarea", MINE)
        study.open(prompts="own", question="study")
        study.choose(FILE)
        study.fill(length="32")
        studying.click(study["start"])
        study.says("goesSays", f"1 of {NUM} prompts finished")
        run_race(tab, "running")
        began = time.monotonic()
        before.process.terminate()
        assert before.process.wait(5) == 0 and time.monotonic() - began < 5
        tab.wait_for_selector('.pf[data-state="stopped"]')
        assert RESTARTS[4:] in tab.text_content("[data-ref=statusText]")
        study.says("goesSays", RESTARTS[4:])
    race = tab.evaluate("window.photofinish.state.race")
    with served(page_cache, *NO_MODEL, port=port):
        tab.reload()
        tab.wait_for_function("race => window.photofinish?.state.race === race", arg=race)
        assert tab.input_value("#page-prompt textarea") == MINE
        studying.reload()
        studying.click("#page-yours-button:has-text(': ')")
        num = len({row["line"] for row in study.saved()["rows"]})
        assert 0 < num < NUM and study.text("start") == "Continue"
        assert f"{num} of {NUM} prompts finished" in study.text("goesSays")
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
