"""Your prompts, on the page: a file to a yes or no with real races, by keyboard, stopped and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.study_view import FOLDER
from engine.cli.options import LENGTH
from engine.recordings.recording import OUTPUT_SCHEMA
from engine.traffic.rows import Row
from engine.traffic.verdict import report
from tests.helpers.page_browser import RACE_MS, SEEN, UNREADABLE, open_tab
from tests.helpers.trained import PROMPTS

pytestmark = pytest.mark.browser
NUM_TOKENS = 12
TEXTS = [*PROMPTS[:2], "def f(x):\n    return x\n", "<img src=x onerror=alert(1)> {{value}} ${1}\n"]
NUM_MANY = 14
MANY = "\n".join(f"x{i} = [{i}, {i + 1}]" for i in range(NUM_MANY))
OVER = "dialog.ps section[data-verdict]:not([data-verdict=''])"
REF = "dialog.ps [data-ref={}]"


def lines() -> str:
    return "".join(json.dumps({"prompt": text, "kind": f"<b>{i % 2}</b>"}) + "\n" for i, text in enumerate(TEXTS))


@pytest.fixture
def tab(browser: Any, server: Any) -> Any:
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",
    )
    context.add_init_script(SEEN)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: (page.problems.append("a dialog"), dialog.dismiss()))
    open_tab(page, server)
    yield page
    assert page.problems == []
    context.close()


def ref(name: str) -> str:
    return REF.format(name)


def says(page: Any, name: str, words: str) -> None:
    """Wait until a part of the dialog says this."""
    page.wait_for_function(
        "([part, words]) => document.querySelector(part).textContent.includes(words)", arg=[ref(name), words]
    )


def choose(page: Any, text: str, name: str = "mine.jsonl") -> None:
    page.set_input_files(ref("file"), {"name": name, "mimeType": "text/plain", "buffer": text.encode()})
    page.fill(ref("length"), str(NUM_TOKENS))
    says(page, "found", f"{name}: {len(text.split(chr(10))) - text.endswith(chr(10))} prompt")


def test_a_file_to_a_verdict(tab: Any, tmp_path: Path) -> None:
    """A verdict that is not of the rows beneath it, other members than the command prints, markup of a file that runs,
    or a page that cannot be used meanwhile."""
    tab.focus("#page-study-button")
    tab.keyboard.press("Enter")
    assert tab.is_disabled(ref("start"))
    choose(tab, lines())
    tab.focus(ref("start"))
    tab.keyboard.press("Enter")
    tab.wait_for_selector(f"{ref('stop')}:enabled")
    tab.keyboard.press("Escape")
    tab.wait_for_function(r"() => /\d\/4$/.test(document.querySelector('#page-study-button').textContent)")
    tab.click("[data-tab=steps]")
    tab.click("#page-study-button")
    tab.wait_for_selector(OVER, timeout=RACE_MS)
    with tab.expect_download() as download:
        tab.click(ref("save"))
    found = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert list(found) == ["schema", "rows", "summary", "best", "verdict", "reason"]
    assert found["schema"] == OUTPUT_SCHEMA
    assert [row["prompt"] for row in found["rows"]] == [" ".join(text.split()) for text in TEXTS]
    assert all(row["identical"] and row["num_tokens"] == NUM_TOKENS for row in found["rows"])
    values = sorted(row["speedup"] for row in found["rows"])
    assert found["summary"]["ngram"]["median_speedup"] == pytest.approx(sum(values[1:3]) / 2)
    shown = tab.inner_text("dialog.ps")
    assert found["reason"] in shown and found["verdict"] in tab.inner_text(ref("verdict")).lower()
    its = found["summary"]["ngram"]
    doubtful = its["num_loops"] > 0 and its["without_loops"] != found["verdict"]
    assert ("texts repeat themselves; without them" in tab.inner_text(ref("verdict"))) == doubtful
    assert "rule of thumb" in shown and "middle half" in shown
    assert "<b>0</b>" in shown and tab.locator("dialog.ps b").count() == len(TEXTS), "the dots, and nothing of a file"
    tab.click(ref("allHead"))
    assert TEXTS[3].strip() in tab.inner_text(ref("all"))
    assert tab.evaluate(UNREADABLE) == []
    tab.click(ref("copy"))
    command = tab.evaluate("navigator.clipboard.readText()")
    assert command.startswith("python -m engine study-prompts --target ") and command.endswith(
        f"--prompts mine.jsonl --limit 20 --drafter ngram {LENGTH.names[0]} {NUM_TOKENS}"
    )
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.evaluate("document.querySelector('dialog.ps').scrollWidth <= innerWidth")


def test_stopped_and_gone_on_with(tab: Any, server: Any) -> None:
    """Prompts that are raced again after the page was left, or rows of another file among them."""
    tab.click("#page-study-button")
    choose(tab, MANY, "mine.txt")
    tab.click(ref("start"))
    tab.wait_for_function(f"() => document.querySelectorAll('{ref('all')} tr').length > 0", timeout=RACE_MS)
    tab.click(ref("stop"))
    tab.wait_for_selector(OVER, timeout=RACE_MS)
    first = tab.locator(f"{ref('all')} tr").count()
    assert first < NUM_MANY and "what the finished ones say" in tab.inner_text(ref("caution"))
    speeds = tab.evaluate("JSON.parse(localStorage.getItem('photofinish.study')).rows.map(row => row.speedup)")
    open_tab(tab, server)
    tab.click("#page-study-button")
    choose(tab, "print(1)\n", "other.txt")
    assert tab.inner_text(ref("start")) == "Start"
    choose(tab, MANY, "mine.txt")
    assert tab.inner_text(ref("start")) == "Go on"
    tab.click(ref("start"))
    tab.wait_for_selector(OVER, timeout=RACE_MS)
    assert f"{NUM_MANY} of {NUM_MANY} prompts finished" in tab.inner_text(ref("says"))
    kept = [f"{speed:.2f}×" for speed in speeds]
    assert all(each in tab.text_content(ref("all")) for each in kept), "the finished ones, as they were"
    assert tab.evaluate("localStorage.getItem('photofinish.study')") is None and tab.inner_text(ref("start")) == "Start"


def test_what_cannot_be_studied_is_said(tab: Any) -> None:
    """A dialog that waits for ever; a refusal behind the dialog, where nobody sees it."""
    tab.click("#page-study-button")
    choose(tab, '{"prompt": 3}')
    tab.click(ref("start"))
    says(tab, "says", "Line 1")
    assert tab.is_hidden(ref("result")) and tab.is_enabled(ref("start"))
    tab.set_input_files(ref("file"), {"name": "x.txt", "mimeType": "text/plain", "buffer": b"\xff\xfe"})
    says(tab, "found", "not UTF-8")
    assert tab.is_disabled(ref("start"))
    tab.fill(ref("paste"), "one\n\ntwo\n")
    says(tab, "found", "prompts.txt: 2 prompts.")
    assert tab.inner_text(ref("leftOut")) == ""
    tab.fill(ref("limit"), "1")
    says(tab, "leftOut", "Raced: 1 of them, as many of each kind as can be. Left out: 1.")
    tab.fill(ref("limit"), "500")
    tab.click(ref("start"))
    says(tab, "says", "not 500")


def test_its_numbers_are_the_engines() -> None:
    """A report that the dialog cannot show: it reads these members by name."""
    rows = [Row(i, "p", "k", "ngram", "auto", 1.5, 0.01, None, None, 3, True) for i in range(4)]
    found = report(rows)
    program = (FOLDER / "results.js").read_text(encoding="utf-8")
    for name in ("num_prompts", "median_speedup", "p25", "p75", "share_above_1_3", "num_gain", "num_lose", "by_kind"):
        assert name in found["summary"]["ngram"] and name in program
