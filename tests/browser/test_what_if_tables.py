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
from engine.what_if.read import what_if_of
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
