"""The rule "same odds (rejection)" on the page: chosen, raced, told and taken away."""

from __future__ import annotations

import ast
import shlex
from typing import Any

import pytest

from engine.cli.commands import RACE
from engine.cli.main import _parser
from engine.recordings.recording import loads
from engine.spec import standard_lanes
from tests.helpers.page_browser import RACE_MS, open_tab, run_race, set_number
from tests.helpers.race_pages import words

pytestmark = pytest.mark.browser
ODDS, TOKENS = "same odds (rejection)", "same tokens (coupled)"


def choose_odds(tab: Any) -> None:
    """Tick the rule, in the open panel."""
    if not tab.get_by_label(ODDS).is_visible():
        tab.click("#page-advanced button")
    tab.get_by_label(ODDS).check()


def test_same_odds_from_the_control_to_what_is_copied(browser, server) -> None:
    """A rule that is chosen and not raced; a verdict that looks like identity; a command, a program or a link that asks
    for another rule; an example that keeps it."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",
    )
    tab = context.new_page()
    open_tab(tab, server)
    set_number(tab, "Length", "48")
    set_number(tab, "Temperature", "0.8")
    choose_odds(tab)
    run_race(tab)
    tab.focus("[data-ref=scrub]")
    tab.keyboard.press("End")
    tab.wait_for_selector('.pf-verdict[data-kind="same_distribution"]', timeout=10_000)
    for said in ("verdictWord", "announce"):
        assert "Same odds, not the same text" in words(tab, said)
    assert "as likely as without guesses" in words(tab, "verdictMeans") and words(tab, "verdictRows") == ""
    assert words(tab, "titleFacts").endswith(f"temperature 0.8, seed 0, {ODDS}")
    green = "getComputedStyle(document.querySelector('.pf')).getPropertyValue('--bonus')"
    resolved = f"""() => {{ const probe = document.querySelector('.pf').appendChild(document.createElement('i'));
        probe.style.color = {green}; const value = getComputedStyle(probe).color; probe.remove();
        return [value, getComputedStyle(document.querySelector('.pf-verdict')).borderLeftColor,
          getComputedStyle(document.querySelector('.pf-verdict-icon')).color]; }}"""
    of_identity, *shown = tab.evaluate(resolved)
    assert of_identity not in shown
    tab.click("[data-tab=whatif]")
    assert ODDS in words(tab, "whatIfWords") and tab.is_disabled("[data-ref=whatIfK]")
    copied = {}
    for name in ("command", "python", "link", "json"):
        tab.click(".pf-share summary")
        tab.click(f"[data-copy={name}]")
        tab.wait_for_selector(f"[data-copy={name}]:has-text('Copied')")
        copied[name] = tab.evaluate("navigator.clipboard.readText()")
        tab.keyboard.press("Escape")
    recording = loads(copied["json"].encode())
    lane = recording["spec"]["lanes"][-1]
    assert lane["rule"] == "rejection" and recording["verdicts"]["speculative"]["kind"] == "same_distribution"
    asked = _parser("race", RACE).parse_args(shlex.split(copied["command"])[4:])
    assert (asked.rule, asked.temperature, asked.drafter) == ("rejection", 0.8, lane["drafter"])
    (call,) = [
        node
        for node in ast.walk(ast.parse(copied["python"]))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "standard_lanes"
    ]
    given = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    assert standard_lanes(ast.literal_eval(call.args[0]), **given)[-1].rule == "rejection"
    other = context.new_page()
    other.goto(copied["link"])
    other.wait_for_function("document.querySelector('#page-prompt textarea')?.value", timeout=15_000)
    other.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)
    other.click("#page-settings-button")
    other.click("#page-advanced button")
    other.wait_for_function("document.querySelector('input[value=rejection]')?.checked", timeout=15_000)
    other.keyboard.press("Escape")
    other.click("text=SQL")
    other.wait_for_function("document.querySelector('input[value=coupled]').checked", timeout=15_000)
    context.close()


def test_at_temperature_0_both_rules_are_one(browser, server) -> None:
    """The control says so; a verdict that said anything else would contradict it."""
    tab = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    open_tab(tab, server)
    set_number(tab, "Length", "32")
    set_number(tab, "Temperature", "0")
    choose_odds(tab)
    assert "At temperature 0 nothing is drawn: both are the same." in tab.inner_text("#page-advanced")
    run_race(tab)
    tab.wait_for_selector('.pf-verdict[data-kind="identical_bits"]', timeout=10_000)
    assert ODDS not in words(tab, "titleFacts") and "greedy" in words(tab, "titleFacts")
    tab.close()
