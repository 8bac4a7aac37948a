"""Drafts that are trees, in a page: what Text marks and One step draws is the path that was kept, and nothing that was
dropped is lost. What a step did is computed, and tested, without a page: tests/app/test_steps.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.core.events import steps
from tests.helpers.race_pages import SETTLED, TEXT, feed, opened, race_over, words_of
from tests.helpers.races import as_trees, events_of
from tests.helpers.steps_apart import taken_apart

pytestmark = pytest.mark.browser
TREES = taken_apart(
    as_trees(race_over(words_of(TEXT)[:90], seed=5, k=4, hit=0.6, drafter="hybrid:ngram+eagle3"), random.Random(4))
)
STEPS = steps(events_of(TREES), "speculative")
BRANCHED = [step for step in STEPS if step.parents]
NODES = """() => [...document.querySelectorAll('.pf-one-guess')].map(node => {
    const { x, y, width } = node.getBoundingClientRect();
    return { r: +node.dataset.place, x, y, width, text: node.querySelector('.pf-one-word').textContent,
      kept: node.closest('li').dataset.kept, chance: node.querySelector('.pf-one-sure').textContent }; })"""
COLUMNS = """() => [...document.querySelectorAll('.pf-one-place')].map(column => ({
    r: +column.querySelector('button').dataset.place,
    pressed: column.querySelector('button').getAttribute('aria-pressed') === 'true',
    guessed: [...column.querySelectorAll('.pf-one-guessed')].map(each => +each.dataset.tokenId) }))"""


def opened_at(page: Any, index: int) -> None:
    """Open TREES at a step."""
    opened(page, TREES, "onestep")
    page.focus("[data-ref=stepHead]")
    page.keyboard.press("Home")
    for _ in range(index):
        page.keyboard.press("ArrowRight")
    page.evaluate(SETTLED)


def test_every_token_of_a_tree_is_in_its_popover(page: Any) -> None:
    """A dropped guess that can be seen nowhere; a count that leaves branches out."""
    feed(page, TREES, race_id="popover")
    for step in BRANCHED[:4]:
        page.locator(f".pf-step[data-lane=speculative][data-step='{step.index}']").focus()
        page.evaluate(SETTLED)
        assert page.locator("[data-ref=pop] .pf-pop-row").count() == len(step.drafted) + len(step.rows) - len(step.kept)
        head = page.text_content("[data-ref=pop] .pf-pop-head")
        assert f"{step.num_accepted} of {len(step.drafted)} guesses kept, of a tree {step.depth} deep" in head
        page.keyboard.press("Escape")


def test_a_tree_is_drawn_as_it_branches(page: Any) -> None:
    """A guess after the wrong one; the kept path on two lines, or unmarked; the answers of another row."""
    for step in BRANCHED[:3]:
        opened_at(page, step.index)
        nodes = {node["r"]: node for node in page.evaluate(NODES)}
        assert [nodes[r]["text"] for r in range(len(step.drafted))] == list(step.drafted_pieces)
        assert len({(node["x"], node["y"]) for node in nodes.values()}) == len(nodes)
        for r, row in enumerate(step.parents):
            node, before = nodes[r], nodes[row - 1] if row else None
            assert node["kept"] == str(r in step.kept).lower() and node["chance"].endswith("%")
            if before:
                assert node["x"] >= before["x"] + before["width"] and node["y"] >= before["y"]
        assert len({nodes[r]["y"] for r in step.kept}) <= 1
        assert len({nodes[r]["x"] for r, row in enumerate(step.parents) if row == 0}) == 1
        columns = page.evaluate(COLUMNS)
        assert {step.parents[column["r"]] for column in columns if column["r"] < len(nodes)} >= {*step.parents}
        r = len(step.drafted) - 1
        page.click(f".pf-one-guess[data-place='{r}']")
        page.evaluate(SETTLED)
        (pressed,) = (each for each in page.evaluate(COLUMNS) if each["pressed"])
        follow = {token for token, at in zip(step.drafted, step.parents, strict=True) if at == step.parents[r]}
        assert {*pressed["guessed"]} == follow


def test_arrows_walk_through_a_tree(page: Any) -> None:
    """A focus that leaves the tree, or jumps in the order of drafting."""
    step = max(BRANCHED, key=lambda each: len(each.drafted))
    opened_at(page, step.index)
    order = [node["r"] for node in page.evaluate(NODES)]
    page.click(f".pf-one-guess[data-place='{order[0]}']")
    for wanted in order[1:]:
        page.keyboard.press("ArrowDown")
        page.evaluate(SETTLED)
        assert page.evaluate("document.activeElement.dataset.place") == str(wanted)
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.place") == str(order[-1])
