"""A check-up in a real browser: a head with a planted fault, examined on a real page."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.dialogs import Dialog
from tests.helpers.heads import HEADS, changed
from tests.helpers.page_browser import RACE_MS, open_tab, pasted, run_race
from tests.helpers.pageserver import TARGET, served
from tests.helpers.trained import PROMPTS

pytestmark = pytest.mark.browser
OPENER = "#pf-panel-why [data-yours=checkup]"
REMEDY = "Set norm_before_residual to true in the head's config.json"
FILE = "".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS)
STEP = """() => window.photofinish.state.state === "finished" && document.querySelector(".pf").dataset.tab === "onestep"
    && document.querySelector("[data-ref=stepSays]").textContent"""

# Stop while it races; again if it was over before the browser heard of it, or the server of Stop.
START_AND_STOP = """async () => {
    const part = name => document.querySelector(`#page-yours [data-ref=${name}]`);
    for (let attempt = 0; attempt < 5; attempt++) {
      part("start").click();
      while (part("start").hidden) {
        await new Promise(done => setTimeout(done, 20));
        if (part("goesSays").textContent.includes("1 of 2")) part("stop").click();
      }
      if (part("goesSays").textContent.includes("Stopped.")) return true;
    }
    return false; }"""


def test_a_planted_fault_from_the_click_to_its_step(context: Any, page_cache: Any, tmp_path: Path) -> None:
    """A visitor who lost a race finds no reason, or one for other prompts; a finding that leads to another race, or to
    a step without the fault; a dialog that Back does not close; a Stop after which the device stays taken."""
    head = changed(HEADS["eagle3"], tmp_path / "head", lambda config: config.update(norm_before_residual=False))
    (tmp_path / "limits.toml").write_text("max_new_tokens = 24", encoding="utf-8")  # enough to see it
    pair = "--target", TARGET, "--dtype", "float32", "--drafter", f"eagle3:{head}"
    pair = *pair, "--limits", str(tmp_path / "limits.toml")
    with served(page_cache, *pair) as server:
        tab = open_tab(context, server.url)
        pc = Dialog(tab, "checkup")
        pc.open(question="checkup")
        assert pc.text("need") == "With three short prompts."
        pc.choose(FILE)
        pc.says("need", f"With your {len(PROMPTS)} prompts (mine.jsonl).")
        tab.focus(pc["start"])
        tab.keyboard.press("Enter")
        tab.wait_for_selector(pc["save"], timeout=RACE_MS)
        assert pc.text("verdict") == f"Change first: {REMEDY}."
        report = pc.saved()
        assert (report["first"]["level"], report["first"]["check"]) == ("fault", "settings")
        assert report["first"] in report["findings"] and len(report["findings"]) > 1
        lines = tab.locator(f"{pc['list']} > li").all_inner_texts()
        for finding, line in zip(report["findings"], lines, strict=True):
            assert finding["level"] in line and finding["says"] in line
        command = f"python -m engine doctor --target {TARGET} --drafter eagle3:{head} --prompts mine.jsonl"
        assert pasted(tab, pc["copy"]) == command
        pc.can_be_read()

        before, place = tab.evaluate("window.photofinish.state.race"), report["first"]
        tab.click(f"{pc['list']} button >> nth=0")
        says = tab.wait_for_function(STEP, timeout=RACE_MS).json_value()
        assert tab.evaluate("window.photofinish.state.race") != before and not tab.locator("dialog[open]").count()
        assert tab.input_value("#page-prompt textarea") == PROMPTS[place["prompt"]]
        assert "first guess was wrong" in says

        tab.click("[data-tab=why]")
        tab.click(OPENER)
        tab.go_back()
        tab.wait_for_selector("dialog[open]", state="detached")
        tab.click(OPENER)
        assert tab.evaluate(START_AND_STOP)
        assert pc.text("verdict") == "No fault so far."
        tab.keyboard.press("Escape")
        run_race(tab)
        assert tab.problems == []
