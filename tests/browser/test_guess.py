"""Be the drafter: what a player types against the recorded text, and against the tables of the race's drafters."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from engine.recordings.recording import read
from tests.helpers import CHAINS
from tests.helpers.page_browser import watched
from tests.helpers.race_pages import PAGE_HTML, opened, race_over, words, words_of

pytestmark = pytest.mark.browser
ADDRESS = "http://photofinish.test/"
MARKS = """() => [...document.querySelectorAll('[data-ref=gameText] [data-kind]')].map(token =>
    [token.dataset.kind, token.textContent])"""
NEXT_LETTERS = 24


@pytest.fixture
def visit(context: Any) -> Iterator[Callable[..., Any]]:
    """Pages with an address, so that they have storage; without a server."""
    page = watched(context.new_page(), ADDRESS)
    page.route("**/*", lambda route: route.fulfill(body=PAGE_HTML, content_type="text/html"))

    def make(recording: Mapping[str, Any]) -> Any:
        page.goto(ADDRESS)
        opened(page, recording)
        return page

    yield make
    assert page.problems == []


def pieces_of(recording: Mapping[str, Any]) -> list[str]:
    steps = (event for event in recording["events"] if event["type"] == "step" and event["lane"] == "baseline")
    return [piece for step in steps for piece in step["pieces"]]


def beside_the_text(page: Any) -> str:
    """Everything visible of the race except the text so far."""
    return page.inner_text(".pf").replace(page.inner_text("[data-ref=gameText]"), "")


def play(page: Any, typed: str) -> None:
    for part in re.split("(\n)", typed):
        page.keyboard.press("Shift+Enter") if part == "\n" else page.keyboard.type(part)
    page.keyboard.press("Enter")


def rows(page: Any) -> list[list[str]]:
    return [line.split("\t") for line in page.inner_text("[data-ref=gameScores]").splitlines()]


def test_a_round_by_keyboard_alone(visit) -> None:
    """A right guess struck out, a wrong one kept; or the answer on the screen before one has guessed."""
    recording = read(CHAINS / "csv_to_json.json")
    pieces = pieces_of(recording)
    page = visit(recording)
    page.focus("[data-ref=gameBegin]")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.ref") == "gameTyped"
    before = words(page, "gameText")
    assert before and recording["prompt"]["text"].endswith(before)
    at, marks = 0, []
    page.keyboard.press("Enter")
    assert words(page, "gameHead") == "Step 1 of 10" and "at least one character" in words(page, "gameNote")
    for step, (right, wrong) in enumerate(((2, ""), (1, "#wrong words#"), (2, ""), (0, "#wrong"), (3, "")), start=1):
        assert "".join(pieces[at:])[:NEXT_LETTERS] not in beside_the_text(page), "the answer"
        assert words(page, "gameHead") == f"Step {step} of 10"
        play(page, "".join(pieces[at : at + right]) + wrong)
        marks += [["accepted", piece] for piece in pieces[at : at + right]]
        struck = [text for kind, text in page.evaluate(MARKS)[len(marks) :] if kind == "rejected"]
        assert "".join(struck) == wrong
        marks += [["rejected", text] for text in struck]
        marks.append(["correction" if struck else "bonus", pieces[at + right]])
        assert page.evaluate(MARKS) == marks
        assert ("Struck out" in words(page, "gameSays")) == bool(struck)
        at += right + 1
    page.keyboard.press("Escape")
    assert [row[0] for row in rows(page)][:: len(rows(page)) - 1] == ["You", "All players"]
    assert words(page, "gameHead") == "The round is over" and "Type" not in words(page, "gameNote")
    assert page.evaluate("document.activeElement.dataset.ref") == "gameNext"


def test_the_room_and_the_ways_out(visit) -> None:
    """A player who has seen the answer on the last one's screen, a tally that forgets or mixes races, a game without an
    end, or one that goes on over another race."""
    recording = read(CHAINS / "story.json")
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
    assert words(page, "gameRoomLine").startswith("All players (2 rounds) 80 % of 5, EAGLE-3 head ")
    assert words(page, "gameText").endswith("".join(pieces[: at + 2]))
    page.keyboard.press("Escape")  # nothing typed: no round
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.ref") == "gameBegin" and page.is_visible(".pf-lanes")
    page = visit(read(CHAINS / "csv_to_json.json"))
    page.click("[data-ref=gameBegin]")
    assert words(page, "gameRoomLine") == "", "another race's room"
    page.go_back()
    page.wait_for_selector(".pf-lanes", state="visible")
    page = visit(recording)
    page.click("[data-ref=gameBegin]")
    play(page, "x")
    page.click("[data-ref=gameForget]")
    assert words(page, "gameRoomLine") == "" and page.evaluate("localStorage.getItem('photofinish.room')") is None
    opened(page, recording)
    assert not page.locator(".pf[data-game]").count(), "another race is on the screen"


def test_a_right_character_inside_a_longer_token(visit) -> None:
    """A right character struck out without a word; figures that a projector or a phone cuts off."""
    recording = read(CHAINS / "csv_to_json.json")
    pieces = pieces_of(recording)
    at = next(i for i, piece in enumerate(pieces) if i > 1 and len(piece) > 1 and piece[0] != " ")
    page = visit(recording)
    page.click("[data-ref=gameBegin]")
    play(page, "".join(pieces[: at - 1]))
    play(page, pieces[at][0])
    note = words(page, "gameNote")
    assert note.startswith(f"“{pieces[at][0]}” began right, but the model's token is “{pieces[at]}”")
    assert note in words(page, "gameSays")
    for width, height in ((1280, 720), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(
            """width => width === innerWidth && [...document.querySelectorAll(
            ".pf-game-scores, .pf-game-scores :is(td, th)")].every(node => node.scrollWidth <= node.clientWidth + 1 &&
              node.getBoundingClientRect().left >= 0 && node.getBoundingClientRect().right <= innerWidth)""",
            arg=width,
        )


def test_a_race_without_tables_or_with_other_texts(visit) -> None:
    """Drafters that were never asked, or a game on two texts that differ; a guess beyond the text's end."""
    race = race_over(words_of("one two three four five"), k=2)
    page = visit(race)
    page.click("[data-ref=gameBegin]")
    play(page, "one two three four five six seven")
    assert [row[0] for row in rows(page)] == ["You", "All players"] and rows(page)[0][1:] == ["100 % of 5", "5.00", "–"]
    assert words(page, "gameHead") == "The round is over"
    race["verdicts"]["speculative"]["kind"] = "near_tie"
    page = visit(race)
    assert page.is_disabled("[data-ref=gameBegin]")
