"""Studies of many prompts and of servers under load in a real browser, with real races and loopback servers."""

import json
import re
import statistics
from typing import Any

import pytest

from engine.analysis.verdict_words import THRESHOLD
from engine.cli.options import LENGTH
from engine.recordings.recording import OUTPUT_SCHEMA
from tests.helpers.dialogs import Dialog
from tests.helpers.page_browser import RACE_MS, choose, pasted, reload, saved, unfold
from tests.helpers.trained import PROMPTS

pytestmark = pytest.mark.browser
KEY = "sk-of-nobody-0123456789"
NUM_TOKENS = 12
SHORTEST = 16  # the least that the page's setting for the length allows
HOSTILE = "<img src=x onerror=alert(1)> {{value}} ${1}\n"
TEXTS = [*PROMPTS[:2], HOSTILE, *(f"x{i} = [{i}, {i + 1}]" for i in range(7))]
FILE = "".join(json.dumps({"prompt": text, "kind": f"<b>{i % 2}</b>"}) + "\n" for i, text in enumerate(TEXTS))
# Says of the first prompt that the machine was disturbed.
DISTURB = """() => {
    const kept = JSON.parse(localStorage.getItem("photofinish.study"));
    kept.rows.find(row => row.line === 1).disturbed = true;
    localStorage.setItem("photofinish.study", JSON.stringify(kept)); }"""
# Stops the study as soon as the page's button shows a finished prompt: a busy machine would miss that moment.
STOP_SOON = """stop => {
    const button = document.querySelector("#page-yours-button");
    const stopped = new MutationObserver(() => { if (/[1-9]\\/10$/.test(button.textContent)) {
      stopped.disconnect(); document.querySelector(stop).click(); } });
    stopped.observe(button, { childList: true, subtree: true }); }"""
RACED = """text => window.photofinish.state.state === "finished"
    && document.querySelector("[data-ref=titleName]").textContent === "Your prompt"
    && document.querySelector("#page-prompt textarea").value === text"""
CHAT = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
OVER = "#page-yours [data-kind=study]:not([data-verdict=''])"


def test_a_file_of_prompts_to_a_verdict(visit: Any) -> None:
    """A dialog that waits for ever on what cannot be studied; prompts that are raced again after the page was left, or
    rows of another file among them; a verdict that is not of the rows beneath it; markup of a file that runs."""
    tab = visit()
    ps = Dialog(tab, "study")
    tab.focus("#page-yours-button")
    tab.keyboard.press("Enter")
    tab.check("#page-yours [value=own]")
    assert tab.is_disabled(ps["start"]) and ps.text("whyNot") == "Choose a file of prompts, or paste some."
    ps.choose('prompt,kind\n"a\nb",x\n', "a.csv")
    tab.wait_for_selector("#page-yours [value=study]:checked")
    ps.says("found", "a.csv: 1 prompt (CSV).")
    ps.choose('{"prompt": 3}')
    ps.says("found", "mine.jsonl: line 1: the prompt must be text, not int.")
    ps.choose("\udcff\udcc0", "x.txt")
    ps.says("found", "not UTF-8")
    assert tab.is_disabled(ps["start"]) and all("a status of 400" in problem for problem in tab.problems)
    tab.problems.clear()
    ps.fill(paste="one\n\ntwo\n", limit="1")
    ps.says("found", "pasted text: 1 prompt of 3 lines.")
    assert tab.is_hidden(ps["leftOut"])
    tab.check(ps["perLine"])
    ps.says("found", "pasted text: 2 prompts, one a line.")
    ps.says("leftOut", "Racing 1 of them, evenly by kind; 1 left out.")
    ps.choose(CHAT)
    ps.says("found", "mine.jsonl: 1 prompt (JSON lines, 1 with messages).")
    assert tab.is_hidden(ps["perLineBox"]) and tab.is_visible(ps["flattenBox"])

    ps.choose(FILE)
    ps.says("found", f"mine.jsonl: {len(TEXTS)} prompts (JSON lines).")
    assert tab.is_hidden(ps["flattenBox"])
    ps.fill(length=str(NUM_TOKENS), limit="20")
    tab.evaluate(STOP_SOON, ps["stop"])
    tab.focus(ps["start"])
    tab.keyboard.press("Enter")
    tab.wait_for_selector(f"{ps['stop']}:visible", timeout=RACE_MS)
    tab.keyboard.press("Escape")
    choose(tab, "steps")
    tab.click("#page-yours-button")
    tab.wait_for_selector(OVER, timeout=RACE_MS)
    kept = json.loads(tab.evaluate("localStorage.getItem('photofinish.study')"))["rows"]
    assert 0 < len(kept) < len(TEXTS) and "the results so far" in ps.text("caution")
    tab.evaluate(DISTURB)
    reload(tab)
    tab.click("#page-yours-button")
    ps.choose("print(1)\n", "other.txt")
    ps.says("start", "Start")
    ps.choose(FILE)
    ps.fill(length=str(NUM_TOKENS))
    ps.says("start", "Continue")
    tab.click(ps["start"])
    ps.says("goesSays", f"{len(TEXTS)} of {len(TEXTS)} prompts finished")
    tab.wait_for_selector(OVER, timeout=RACE_MS)
    study = ps.saved()
    rows = {row["line"]: row for row in study["rows"]}
    assert rows[1]["disturbed"] and "machine disturbed" in tab.text_content(ps["all"])
    assert (study["schema"], study["format"]) == (OUTPUT_SCHEMA, "photofinish-study")
    assert all(rows[row["line"]]["speedup"] == row["speedup"] for row in kept)
    assert [row["prompt"] for row in study["rows"]] == [" ".join(text.split()) for text in TEXTS]
    assert all(row["identical"] and row["num_tokens"] == NUM_TOKENS for row in study["rows"])
    median = statistics.median(row["speedup"] for row in study["rows"])
    best = study["best"]
    shown = tab.inner_text("#page-yours")
    says = {name: re.sub(r"(\d)x\b", r"\1×", words) for name, words in study["says"].items() if name != "verdict"}
    assert re.sub(r"(\d)x\b", r"\1×", study["reason"]) in shown and study["said"]["scope"] in shown
    assert ps.text("verdict") == re.sub(r"(\d)x\b", r"\1×", study["says"]["verdict"][""])
    assert says["then"] in ps.text("money").replace("\xa0", " ") and "$" not in shown and says["here"] in shown
    commands = tab.locator(f"{ps['serve']} code").all_text_contents()
    assert len(commands) == 3 * (study["verdict"] == "ship" or best["median_speedup"] >= THRESHOLD)
    assert not commands or f'"num_speculative_tokens": {best["k"]}' in commands[0]
    assert f"{median:.2f}×" in shown
    heat = tab.locator(f"{ps['table']} td")
    assert heat.count() == len({row["kind"] for row in study["rows"]}) + 1
    assert "a step" in heat.last.inner_text() and ("(slower)" in heat.last.inner_text()) == (median < 0.995)
    assert "<b>0</b>" in shown and tab.locator("#page-yours b").count() == 2 * len(TEXTS), "the dots, and no markup"
    tab.click(ps["allHead"])
    assert HOSTILE.strip() in ps.text("all")
    assert tab.evaluate("localStorage.getItem('photofinish.study')") is None and ps.text("start") == "Start"
    command = pasted(tab, ps["copy"])
    assert command.startswith("python -m engine study-prompts --target ") and command.endswith(
        f"--prompts mine.jsonl --limit 20 --drafter ngram {LENGTH.names[0]} {NUM_TOKENS}"
    )
    ps.can_be_read()
    opens_again(tab, ps, study)


def opens_again(tab: Any, ps: Dialog, study: Any) -> None:
    """One of its prompts, raced on the page; then what was saved, shown by a page that has not raced it."""
    verdict, disturbed = ps.text("verdict"), dict(study)
    disturbed["rows"] = [{**row, "disturbed": row["line"] in (2, 4)} for row in study["rows"]]
    tab.click(f"{ps['all']} .ps-race >> text={TEXTS[3]}")
    tab.wait_for_function(RACED, arg=TEXTS[3], timeout=RACE_MS)
    assert json.loads(saved(tab))["spec"]["params"]["max_new_tokens"] == max(NUM_TOKENS, SHORTEST)
    reload(tab)
    unfold(tab)
    tab.click("#page-yours-button")
    ps.choose(json.dumps(disturbed), "photofinish_study.json")
    ps.says("opened", "Opened from a file")
    assert ps.text("scope") == study["said"]["scope"]
    before, now = (words.split(": ")[-1].split(", but ")[0] for words in (verdict, ps.text("verdict")))
    assert before == now, "after it the verdict is of the races that nothing disturbed, which are others here"
    assert "disturbed in 2 of 10 races" in ps.text("caution") and tab.is_enabled(ps["start"])
    assert tab.is_hidden(ps["copy"]) and not tab.locator(".ps-race").count()
    assert ps.saved()["rows"] == disturbed["rows"]
