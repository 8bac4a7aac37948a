"""The dialog "Under load" in a real browser, against loopback servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.page_browser import RACE_MS, SEEN, UNREADABLE
from tests.helpers.pageserver import served
from tests.helpers.schedule import Scheduled, serving

pytestmark = pytest.mark.browser
CLIPBOARD = ["clipboard-read", "clipboard-write"]
KEY = "sk-of-nobody-0123456789"


def ref(name: str) -> str:
    return f"dialog.pl [data-ref={name}]"


def opened(tab: Any, url: str) -> None:
    tab.goto(url)
    tab.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)
    tab.focus("#page-load-button")
    tab.keyboard.press("Enter")


def ended(tab: Any, words: str) -> None:
    tab.wait_for_function(f"document.querySelector('{ref('says')}').textContent === '{words}'", timeout=RACE_MS)


def test_a_study_of_two_servers(browser: Any, page_cache: Any, monkeypatch: Any) -> None:
    """Numbers that are not the file's, a study that is lost with its page, letters that nobody can read, or a page that
    tells where the servers are."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    slow, fast = Scheduled(0.3), Scheduled(0.1)
    fast.counters = True
    with serving(slow) as one, serving(fast) as two:
        lanes = [
            "--lane",
            f"baseline=openai:{one}",
            "--lane",
            f"speculative=openai:{two}",
            "--model",
            "m",
            "--same-device",
            "--chat",
        ]
        with served(page_cache, *lanes, "--under-load") as server:
            tab = browser.new_page(
                viewport={"width": 1280, "height": 800}, permissions=CLIPBOARD, reduced_motion="reduce"
            )
            problems: list[str] = []
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.add_init_script(SEEN)
            opened(tab, server.url)
            assert "take turns" in tab.inner_text(ref("turns")) and not tab.locator("#page-study-button").count()
            tab.fill(ref("users"), "5,1")
            tab.click(ref("start"))
            tab.wait_for_function(f"document.querySelector('{ref('says')}').textContent.includes('5,1')")
            tab.fill(ref("users"), "1,4")
            tab.fill(ref("requests"), "6")
            tab.fill(ref("dollars"), "3.6")
            tab.focus(ref("start"))
            tab.keyboard.press("Enter")
            tab.wait_for_function(f"document.querySelectorAll('{ref('levels')} tr').length > 0", timeout=RACE_MS)
            tab.keyboard.press("Escape")
            tab.wait_for_function("/\\d %$/.test(document.querySelector('#page-load-button').textContent)")
            tab.click("#page-load-button")
            tab.click(ref("stop"))
            ended(tab, "Stopped.")
            asked = len(slow.asked)
            opened(tab, server.url)
            tab.fill(ref("users"), "1,4")
            tab.fill(ref("requests"), "6")
            tab.fill(ref("dollars"), "3.6")
            tab.click(ref("start"))
            ended(tab, "Finished.")
            assert len(slow.asked) < asked + 2 + 12, "finished levels are not asked again"
            with tab.expect_download() as download:
                tab.click(ref("save"))
            found = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
            levels = [(level["lane"], level["concurrency"]) for level in found["levels"]]
            assert levels == [(lane, num) for num in (1, 4) for lane in ("baseline", "speculative")]
            cells = tab.locator(f"{ref('levels')} tr").all_inner_texts()
            for level, line in zip(found["levels"], cells, strict=False):
                assert f"{level['output_tokens_per_s']:.1f}" in line and f"{level['dollars_per_million']:.2f}" in line
                assert f"{1000 * level['itl_p95_s']:.2f}" in line
            assert f"+{found['improvement_percent']['output_tokens_per_s']:.1f} %" in cells[-1]
            assert "speculative gives more tokens/s at every number of users" in tab.inner_text(ref("said"))
            assert "counters" in tab.inner_text(ref("notes")) and tab.locator("dialog.pl figure svg").count() == 6
            assert tab.evaluate(UNREADABLE) == []
            tab.click(ref("copy"))
            command = tab.evaluate("navigator.clipboard.readText()")
            assert command == (
                "python -m engine study --lane baseline=openai:URL --lane speculative=openai:URL --model m "
                "--concurrency 1,4 --requests 6 --data synthetic:100,128 --dollars 3.6 --chat"
            )
            tab.set_viewport_size({"width": 390, "height": 844})
            assert tab.evaluate("document.querySelector('dialog.pl').scrollWidth <= innerWidth")
            assert tab.evaluate(UNREADABLE) == []
            told = tab.content() + server.log.read_text() + json.dumps(found)
            tab.close()
    assert problems == [] and not any(secret in told for secret in (KEY, one, two, one.split("/")[2]))
