"""The browser's reading of tables against the engine's: what one refuses, the other does, and what is told is the
same."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from app.race_view import FOLDER
from engine.errors import UsageError
from engine.recordings.recording import check
from engine.what_if.read import what_if_of
from tests.helpers.page_browser import RACE_MS, open_tab, run_race
from tests.helpers.race_pages import race_over, words_of
from tests.helpers.races import with_tables

pytestmark = pytest.mark.browser
SCRIPTS = ("text.js", "model.js", "shapes.js", "whatif.js")
TELL = """text => {
    const recording = JSON.parse(text), race = new Race(), first = firstByRole(recording.spec.lanes);
    recording.events.forEach(event => race.add(event));
    try {
        const found = new WhatIf(recording, race, first, "speculative");
        return [...found.offered].map(([drafter, ks]) => [drafter, ks.map(k =>
            [k, found.steps(drafter, k).map(step => [step.position, step.drafted, step.num_accepted])])]);
    } catch (error) {
        if (!(error instanceof Shapes.Unusable)) throw error;
        return error.message;
    }
}"""
TEXT = "one two three four five six seven eight nine ten " * 3


def races() -> Iterator[dict[str, Any]]:
    """A good one, then others that are broken in one place each."""
    good = with_tables(race_over(words_of(TEXT), k=5), random.Random(3))
    yield good
    drafts = good["tables"]["ngram"]
    for wrong in ([], drafts[:-1], [[7] * 6] * len(drafts)):
        yield {**good, "tables": {"ngram": wrong}}
    for name in ("eagle3", "ngram@5", "ngram@auto", "x@07", "__proto__"):
        costs = {**good["costs"], "draft_s": {name: good["costs"]["draft_s"]["ngram"]}}
        yield {**good, "tables": {name: drafts}, "costs": costs}
    for change in ({"k": "auto"}, {"rule": "rejection"}, {"drafter": "eagle3"}):
        other = copy.deepcopy({**good, "tables": {"ngram": [[7] * 6] * len(drafts)}})
        other["spec"]["lanes"][-1].update(change)
        yield other
    yield {**good, "events": [event for event in good["events"] if event["lane"] == "speculative"]}


def engines(race: dict[str, Any]) -> Any:
    """What the engine says of it, in the form of TELL."""
    try:
        found = what_if_of(race)
    except UsageError as error:
        return str(error).replace("'", '"')
    told = {drafter: {k: found.steps(drafter, k) for k in ks} for drafter, ks in found.offered().items()}
    return json.loads(json.dumps([
        [of, [[k, [[s.position, s.drafted, s.num_accepted] for s in done]] for k, done in by_k.items()]]
        for of, by_k in told.items()
    ]))  # fmt: skip


def test_a_table_of_another_race_is_refused_in_the_browser(browser) -> None:
    """The slider would tell a race that the chart refuses, or look for a draft that is not there."""
    page = browser.new_page()
    program = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    page.set_content(f"<script>{program}</script>")
    answers = []
    for race in races():
        assert page.evaluate(TELL, json.dumps(race)) == engines(race)
        answers.append(engines(race))
    page.close()
    assert sum(isinstance(answer, str) for answer in answers) >= 4
    assert sum(isinstance(answer, list) for answer in answers) >= 6


FRAMES = """() => {
    const parse = JSON.parse;
    window.frames_ = [];
    JSON.parse = (...given) => {
        const value = parse(...given);
        if (value && typeof value === "object" && "seq" in value && "beside" in value) window.frames_.push(value);
        return value;
    };
}"""


def test_a_live_race_brings_its_tables_and_lets_the_next_one_in(browser, server) -> None:
    """The page would never get them, or the button do nothing until they are made."""
    tab = browser.new_page(reduced_motion="reduce")
    open_tab(tab, server)
    tab.evaluate(FRAMES)
    for _ in range(2):
        run_race(tab)
    tab.wait_for_function("() => window.frames_.at(-1).beside", timeout=RACE_MS)
    frames = tab.evaluate("window.frames_")
    tab.close()
    ended = [frame for frame in frames if frame["state"] == "finished"]
    whole = [frame for frame in ended if frame["recording"]]
    assert len({frame["race"] for frame in ended}) == len(whole) == 2
    last = [frame for frame in ended if frame["race"] == whole[-1]["race"]]
    assert [frame["beside"] is not None for frame in last] == [*[False] * (len(last) - 1), True]
    found = what_if_of(check({**whole[-1]["recording"], **last[-1]["beside"]}))
    assert found is not None and found.offered()
