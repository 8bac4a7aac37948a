"""Be the drafter: what a player types against the recorded text, and against the tables of the race's drafters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.race_view import RACE_VIEW_CSS, RACE_VIEW_JS, RACE_VIEW_TEMPLATE
from app.recorded import RACES
from engine.metrics import lane_metrics
from engine.recordings.recording import events_of, read
from engine.what_if.read import what_if_of
from tests.helpers.race_pages import SETTLED, page_html, race_over, words, words_of

pytestmark = pytest.mark.browser
ADDRESS = "http://photofinish.test/"
TITLES = {"ngram": "copy of earlier text (n-gram)", "eagle3": "extra network (EAGLE-3)"}
MARKS = """() => [...document.querySelectorAll('[data-ref=gameText] [data-kind]')].map(token =>
    [token.dataset.kind, token.textContent])"""
NEXT_LETTERS = 24


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Pages with an address, so that they have storage; without a server."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    html = page_html(RACE_VIEW_TEMPLATE, RACE_VIEW_CSS, RACE_VIEW_JS)
    page.route("**/*", lambda route: route.fulfill(body=html, content_type="text/html"))
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))

    def make(recording: dict[str, Any]) -> Any:
        page.goto(ADDRESS)
        assert page.evaluate("text => window.photofinish.open(text, 'race.json')", json.dumps(recording))
        page.evaluate(SETTLED)
        return page

    yield make
    context.close()
    assert problems == []


def pieces_of(recording: dict[str, Any]) -> list[str]:
    steps = (each for each in recording["events"] if each["type"] == "step" and each["lane"] == "baseline")
    return [piece for step in steps for piece in step["pieces"]]


def beside_the_text(page: Any) -> str:
    """All that is to be seen of the race but the text so far."""
    return page.inner_text(".pf").replace(page.inner_text("[data-ref=gameText]"), "")


def play(page: Any, typed: str) -> None:
    for part in re.split("(\n)", typed):
        page.keyboard.press("Shift+Enter") if part == "\n" else page.keyboard.type(part)
    page.keyboard.press("Enter")


def drafter_over(recording: dict[str, Any], drafter: str, start: int, end: int) -> tuple[int, int, int, int, int]:
    """k, kept, guessed, tokens, steps of a drafter from one position to another, at its fastest k of the whole race."""
    found = what_if_of(recording)
    assert found is not None
    ids = found.text.token_ids
    k = min(found.offered()[drafter], key=lambda k: sum(step.seconds for step in found.steps(drafter, k)))
    kept = guessed = steps = 0
    at = start
    while at < end:
        draft = recording["tables"][drafter][at][: min(k, end - at - 1)]
        right = next((i for i, token in enumerate(draft) if token != ids[at + i]), len(draft))
        kept, guessed, steps = kept + right, guessed + len(draft), steps + 1
        at += right + 1
    return k, kept, guessed, end - start, steps


def rows(page: Any) -> list[list[str]]:
    return [line.split("\t") for line in page.inner_text("[data-ref=gameScores]").splitlines()]


def cells(kept: int, guessed: int, tokens: int, steps: int) -> list[str]:
    # Half a percent is rounded up in the browser.
    return [f"{int(100 * kept / guessed + 0.5)} % of {guessed}" if guessed else "–", f"{tokens / steps:.2f}"]


@pytest.mark.parametrize("name", ["csv_to_json", "story"])
def test_a_round_by_keyboard_alone(visit, name: str) -> None:
    """A right guess struck out, a wrong one kept, a count or a drafter's figure that is not of this stretch of text;
    or the answer on the screen before one has guessed."""
    recording = read(RACES / f"{name}.json")
    pieces = pieces_of(recording)
    page = visit(recording)
    page.focus("[data-ref=gameBegin]")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.ref") == "gameTyped"
    before = words(page, "gameText")
    assert before and recording["prompt"]["text"].endswith(before)
    at, kept_all, guessed_all, marks = 0, 0, 0, []
    for step in range(10):
        rest = "".join(pieces[at:])
        assert rest[:NEXT_LETTERS] not in beside_the_text(page), "the answer"
        assert words(page, "gameHead") == f"Step {step + 1} of 10"
        right = step % 4  # so many right tokens, then: nothing, a wrong word, half a token, or no guess at all
        wrong = ["", "#wrong words#", pieces[at + right][:-1].strip(), ""][(step // 2) % 4]
        typed = "".join(pieces[at : at + right]) + wrong
        if step % 3 == 0 and re.match(r" \S", typed):
            typed = typed[1:]  # the space that begins a word's token
        elif re.match(r" \S", pieces[at]) and wrong and right == 0:
            wrong = f" {wrong}"
        play(page, typed)
        size, covered = right, len(wrong)
        while covered > 0:
            covered -= len(pieces[at + size])
            size += 1
        assert "".join(pieces[at : at + size]).startswith("".join(pieces[at : at + right]) + wrong) == (
            wrong in ("", pieces[at + right][:-1])
        )
        marks += [["accepted", piece] for piece in pieces[at : at + right]]
        if size > right:
            struck = [text for kind, text in page.evaluate(MARKS)[len(marks) :] if kind == "rejected"]
            assert "".join(struck) == wrong and len(struck) == size - right
            marks += [["rejected", text] for text in struck]
        marks.append([("correction" if size > right else "bonus") if size else "plain", pieces[at + right]])
        assert page.evaluate(MARKS) == marks
        said = words(page, "gameSays")
        assert (f"Kept: {right} of {size}." in said if size else "No guess." in said) and ("Struck out" in said) == (
            size > right
        )
        at, kept_all, guessed_all = at + right + 1, kept_all + right, guessed_all + size
    shown = {"You": cells(kept_all, guessed_all, at, 10)}
    line = [f"You {shown['You'][0]}"]
    for drafter in TITLES:
        if drafter in recording["tables"]:
            k, *tally = drafter_over(recording, drafter, 0, at)
            shown[f"{TITLES[drafter]}, {k} at once"] = cells(*tally)
            line.append(f"{TITLES[drafter]} {cells(*tally)[0].split(' of')[0]}")
    shown["The room"] = shown["You"]
    assert {title: rest for title, *rest in rows(page)} == shown
    assert words(page, "gameLine") == ", ".join(line) and words(page, "gameLine") in words(page, "gameSays")
    assert words(page, "gameHead") == "The round is over"
    assert page.evaluate("document.activeElement.dataset.ref") == "gameNext"


def test_the_room_and_the_ways_out(visit) -> None:
    """A player who has seen the answer on the last one's screen, a tally that forgets or mixes races, a game without an
    end, or one that goes on over another race."""
    recording = read(RACES / "story.json")
    pieces = pieces_of(recording)
    page = visit(recording)
    page.click("[data-ref=gameBegin]")
    assert page.is_hidden(".pf-lanes") and page.is_hidden("[data-ref=gameForget]")
    play(page, "".join(pieces[:3]))
    play(page, "Zzz")
    page.keyboard.press("Escape")
    at = 5
    first = rows(page)[0]
    assert first[1].startswith("75 % of 4") and words(page, "gameHead") == "The round is over"
    page.keyboard.press("Enter")  # the next player
    assert words(page, "gameHead") == "Step 1 of 10" and page.evaluate(MARKS) == []
    assert words(page, "gameText").endswith("".join(pieces[:at])), "who plays next begins where the last one stopped"
    assert "".join(pieces[at:])[:NEXT_LETTERS] not in beside_the_text(page)
    play(page, pieces[at])
    page.click("[data-tab=onestep]")  # leaving ends the round
    assert not page.locator(".pf[data-game]").count()
    page.click("[data-tab=text]")
    assert page.is_visible(".pf-lanes")
    page.reload()
    page = visit(recording)
    page.click("[data-ref=gameBegin]")
    assert words(page, "gameRoomLine").startswith("The room (2 rounds) 80 % of 5, extra network (EAGLE-3) ")
    assert words(page, "gameText").endswith("".join(pieces[: at + 2]))
    page.keyboard.press("Escape")  # nothing typed: no round
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.ref") == "gameBegin" and page.is_visible(".pf-lanes")
    page = visit(read(RACES / "csv_to_json.json"))
    page.click("[data-ref=gameBegin]")
    assert words(page, "gameRoomLine") == "", "another race's room"
    page = visit(recording)
    page.click("[data-ref=gameBegin]")
    play(page, "x")
    page.click("[data-ref=gameForget]")
    assert words(page, "gameRoomLine") == "" and page.evaluate("localStorage.getItem('photofinish.room')") is None
    assert page.evaluate("text => window.photofinish.open(text, 'other.json')", json.dumps(recording))
    page.evaluate(SETTLED)
    assert not page.locator(".pf[data-game]").count(), "another race is on the screen"


def test_a_race_without_tables_or_with_other_texts(visit) -> None:
    """Drafters that were never asked, or a game on two texts that differ; a guess beyond the text's end."""
    race = race_over(words_of("one two three four five"), k=2)
    page = visit(race)
    page.click("[data-ref=gameBegin]")
    play(page, "one two three four five six seven")
    assert [row[0] for row in rows(page)] == ["You", "The room"] and rows(page)[0][1:] == ["100 % of 5", "5.00"]
    assert words(page, "gameHead") == "The round is over"
    race["verdicts"]["speculative"]["kind"] = "near_tie"
    page = visit(race)
    assert page.is_disabled("[data-ref=gameBegin]")
    assert lane_metrics(events_of(race), "baseline").num_tokens == 5
