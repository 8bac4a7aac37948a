"""The tab "One step" in a page: what it draws of a recording, keys, the quiz, the way in from a token, strangers'
texts. What a step did is computed, and tested, without a page: tests/app/test_steps.py."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from engine.recordings.recording import read
from tests.helpers import CHAINS, race_pages
from tests.helpers.race_pages import SETTLED, STATE, TEXT, feed, race_over, words, words_of
from tests.helpers.races import known_in_part
from tests.helpers.steps_apart import chance_words, steps_of, taken_apart, verdicts_of

pytestmark = pytest.mark.browser
GREEDY = taken_apart(read(CHAINS / "csv_to_json.json").fields)
SAMPLED = taken_apart(read(CHAINS / "story.json").fields)
THREE_KINDS = taken_apart(race_over(words_of(TEXT)[:60], seed=5, k=3, hit=0.6))
VERDICTS = "() => [...document.querySelectorAll('.pf-one-place')].map(place => place.dataset.verdict)"
ANSWERS = """() => [...document.querySelectorAll('.pf-one-place')].map(place =>
    [...place.querySelectorAll('.pf-one-answer')].map(answer => [+answer.dataset.tokenId,
      answer.querySelector('.pf-one-chance').textContent, answer.classList.contains('pf-one-guessed'),
      answer.classList.contains('pf-one-chosen'), parseFloat(answer.querySelector('.pf-one-bar').style.width)]))"""
GUESSES = """() => [...document.querySelectorAll('.pf-one-guess')].map(box =>
    [box.querySelector('.pf-one-word').textContent, box.querySelector('.pf-one-of').textContent])"""
DICE = """() => [...document.querySelectorAll('.pf-dice-lane')].map(lane =>
    [...lane.querySelectorAll('.pf-dice-score')].map(score => [+score.dataset.tokenId,
      score.querySelector('.pf-dice-numbers').textContent, score.querySelector('.pf-dice-end').textContent]))"""
HELD = "() => [document.activeElement.className.split(' ')[0], document.activeElement.dataset.place ?? null]"
ABOVE = """() => ['.pf-title', '.pf-board', '.pf-verdict', '.pf-bar'].map(name => {
    const { x, y, width, height } = document.querySelector(name).getBoundingClientRect();
    return [name, x, y, width, height]; })"""


def opened(page: Any, recording: dict[str, Any], tab: str = "onestep") -> list[dict[str, Any]]:
    """Open the recording at its first step. Returns the steps of the lane that guesses."""
    race_pages.opened(page, recording, tab)
    return steps_of(recording)


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
        page.evaluate(SETTLED)


def click(page: Any, what: str) -> None:
    page.click(what)
    page.evaluate(SETTLED)


def reach(page: Any, name: str) -> None:
    while page.evaluate(HELD)[0] != name:
        page.keyboard.press("Tab")


def says(page: Any) -> str:
    return str(page.text_content(".pf-dice-says"))


def step(page: Any) -> int:
    return int(words(page, "stepHead").split()[1])


def test_steps_are_drawn_as_they_were(page: Any) -> None:
    """A verdict, a chance, a source or a kept token of another step than tests/app/test_steps.py checks."""
    for recording in (GREEDY, SAMPLED):
        steps = opened(page, recording)
        rows = recording["candidates"]["lanes"]["speculative"]
        for i, one in enumerate(steps[:2]):
            assert words(page, "stepHead") == f"Step {i + 1} of {len(steps)}"
            assert page.evaluate(VERDICTS) == verdicts_of(one)
            for r, (answers, row) in enumerate(zip(page.evaluate(ANSWERS), rows[i], strict=True)):
                chances = [math.exp(logit - row["log_z"]) for logit in row["logits"]]
                guess, chosen = one["drafted"][r : r + 1], one["token_ids"][r : r + 1]
                shown = [(t, c) for j, (t, c) in enumerate(zip(row["ids"], chances, strict=True))
                         if j < 3 or [t] in (guess, chosen)]  # fmt: skip
                assert answers == [
                    [t, chance_words(c), [t] == guess, [t] == chosen, pytest.approx(100 * c, abs=0.01)]
                    for t, c in shown
                ]
            guesses = page.evaluate(GUESSES)
            start = one.get("copied", [len(one["drafted"])])[0]
            assert [text for text, _ in guesses] == one["drafted_pieces"]
            assert [source == "copied" for _, source in guesses] == [r >= start for r in range(len(guesses))]
            if start < len(guesses):
                page.hover(f".pf-one-guess >> nth={start}")
                assert "was copied from the " in page.text_content(".pf-one-source")
                assert page.text_content(".pf-one-copied") == "".join(one["drafted_pieces"][start:])
            for kind, pieces in (("kept", one["pieces"]), ("dropped", one["drafted_pieces"][one["num_accepted"] :])):
                assert page.locator(f".pf-one-{kind} .pf-token").all_text_contents() == pieces
            assert f"in {1000 * (one['draft_s'] + one['verify_s']):.1f} ms" in page.text_content(".pf-one-cost-words")
            click(page, "[data-ref=stepNext]")
        page.focus("[data-ref=stepHead]")
        press(page, "End")
        assert page.is_disabled("[data-ref=stepNext]") and "End of the race" in words(page, "stepSays")


def test_the_same_dice_in_both_lanes(page: Any) -> None:
    """Bars of one lane drawn twice, or of another seed; dropped places with dice; dice where there are none."""
    one = opened(page, SAMPLED)[0]
    click(page, ".pf-unused summary")
    click(page, ".pf-dice summary")
    lanes, seeds = SAMPLED["candidates"]["lanes"], SAMPLED["candidates"]["seeds"]
    click(page, f".pf-one-verdict[data-place='{len(one['token_ids'])}']")
    assert "was discarded" in says(page) and not page.evaluate(DICE)
    click(page, ".pf-one-verdict[data-place='0']")
    for die in (1, 0):
        click(page, f"[data-die='{die}']")
        assert f"seed {seeds[die]}" in says(page) if die else "the scores are equal" in says(page)
    for shown, row in zip(page.evaluate(DICE), (lanes["baseline"][0][0], lanes["speculative"][0][0]), strict=True):
        assert [(token, end) for token, _, end in shown if end == "wins"] == [(one["token_ids"][0], "wins")]
        assert [token for token, _, _ in shown] == row["ids"]
    assert page.text_content(".pf-dice-head") == "Same random numbers: why both texts are equal"
    doctored = json.loads(json.dumps(SAMPLED))
    doctored["candidates"]["lanes"]["baseline"][0][0]["noise"][0][0] += 0.5
    opened(page, doctored)
    click(page, ".pf-one-verdict[data-place='0']")
    assert page.text_content(".pf-dice-head") == "Not the same in both lanes" and page.locator(".pf-dice-odd").count()
    opened(page, GREEDY)
    assert "At temperature 0 the largest score wins" in says(page) and not page.locator("[data-die]").count()


def test_under_rejection_the_odds_are_the_same_and_the_draws_are_not(page: Any) -> None:
    """Texts that part, with nothing to say why; or noise that the lane did not choose by."""
    race = json.loads(json.dumps(SAMPLED))
    race["spec"]["lanes"][-1]["rule"] = "rejection"
    race["verdicts"]["speculative"] = {**race["verdicts"]["speculative"], "kind": "same_distribution"}
    lane = race["candidates"]["lanes"]["speculative"]
    for row in (row for rows in lane for row in rows):
        row.pop("noise", None)
    last = steps_of(race)[-1]
    r = len(last["token_ids"]) - 1
    other = next(t for t in lane[-1][r]["ids"] if t not in (last["token_ids"][r], *last["drafted"][r : r + 1]))
    last["token_ids"][r], last["pieces"][r] = other, race["candidates"]["pieces"][str(other)]
    place = last["position"] + r
    opened(page, race)
    assert "the probabilities are equal in both lanes" in says(page)
    click(page, "text=Go to the first difference")
    said = says(page)
    assert said.startswith(f"Token {place + 1} ")
    assert "Only the draws differ" in said and "From here on the texts differ" in said
    shown = page.evaluate(DICE)
    assert [[t for t, _, end in lane if end == "drawn"] for lane in shown] == [
        [[t for e in steps_of(race, "baseline") for t in e["token_ids"]][place]],
        [other],
    ]
    for numbers, row in zip(shown, (race["candidates"]["lanes"]["baseline"][place][0], lane[-1][r]), strict=True):
        assert [n for _, n, _ in numbers] == [chance_words(math.exp(x - row["log_z"])) for x in row["logits"]]


def test_a_race_that_keeps_no_answers_says_why(page: Any) -> None:
    """An empty picture, or chances that nobody recorded; drafts of which only the number is known."""
    bare = {key: value for key, value in GREEDY.items() if key != "candidates"}
    unaudited = race_over(words_of(TEXT)[:30], audit=False)
    in_part = known_in_part(race_over(words_of(TEXT)[:60], seed=5), random.Random(2))
    del in_part["candidates"]
    for race in (bare, unaudited, in_part):
        said = "only audited races keep them" if race is unaudited else "recorded without them"
        opened(page, race)
        for _ in range(2):
            assert said in page.text_content(".pf-one-row:nth-of-type(2) .pf-note")
            assert page.locator(".pf-one-row").count() == 4
            assert not page.locator(".pf-one-answer, .pf-dice").count()
            click(page, "[data-ref=stepNext]")
    feed(page, race_over(words_of(TEXT)[:9]), race_id="live", state="running")
    assert "Each step is shown after the race." in words(page, "stepSays") and page.is_disabled("[data-ref=stepNext]")


def test_by_keys_alone(page: Any) -> None:
    """A step or a place that only a mouse reaches; focus that is lost when the picture is drawn anew."""
    total = len(opened(page, GREEDY))
    page.focus("#pf-tab-onestep")
    reach(page, "pf-one-guess")
    forth, back = "ArrowRight", "ArrowLeft"
    for key, at in ((forth, 2), (forth, 3), (back, 2), ("End", total), ("Home", 1), (back, 1)):
        press(page, key)
        assert step(page) == at and page.evaluate(HELD)[0] == "pf-one-guess"
    reach(page, "pf-one-verdict")
    place = int(page.evaluate(HELD)[1])
    press(page, "ArrowUp", "ArrowUp", "ArrowDown")
    assert page.evaluate(HELD) == ["pf-one-verdict", str(place - 1)]
    assert page.locator(".pf-one-verdict[aria-pressed=true]").get_attribute("data-place") == str(place - 1)
    assert page.text_content(".pf-dice-says").startswith(f"Token {place} ")
    assert page.evaluate(STATE)["t"] == page.evaluate(STATE)["duration"]
    opened(page, SAMPLED)
    page.click(".pf-dice summary")
    page.focus("[data-die='1']")
    press(page, "Enter")
    assert page.evaluate("document.activeElement.dataset.die") == "1" and "seed 12" in says(page)
    page.click("[data-ref=stepSays]", position={"x": 3, "y": 3})
    press(page, "ArrowRight")
    assert step(page) == 2


def test_the_way_in_from_a_token_and_back(page: Any) -> None:
    """Another step explained than the one that was pressed; a place in the walk that is lost with the tab."""
    opened(page, GREEDY, "text")
    page.click(".pf-lane[data-side=right] .pf-step >> nth=4")
    click(page, "text=Explain this step")
    assert step(page) == 5 and page.get_attribute(".pf", "data-tab") == "onestep"
    assert page.evaluate("document.activeElement.dataset.ref") == "stepHead"
    for name in ("text", "onestep"):
        click(page, f"#pf-tab-{name}")
    assert step(page) == 5
    page.click("#pf-tab-text")
    page.focus(".pf-lane[data-side=right] .pf-step >> nth=2")
    press(page, "Enter")
    assert step(page) == 3
    page.click("#pf-tab-text")
    page.click(".pf-lane[data-side=left] .pf-step >> nth=2")
    assert page.is_visible("[data-ref=pop]") and not page.locator("text=Explain this step").count()
    opened(page, SAMPLED)
    assert step(page) == 1


def test_a_quiz_takes_bets(page: Any) -> None:
    """A class that sees the answer before it bets; a click that only looks; a right bet that loses; a wrong score."""
    steps = opened(page, GREEDY)
    click(page, "[data-ref=stepAsk]")
    bets = won = 0
    for one in steps[:9]:
        answer = one["num_accepted"] if len(one["token_ids"]) > one["num_accepted"] < len(one["drafted"]) else None
        if one["drafted"]:
            hidden = page.locator(".pf-one-verdict, .pf-one-answer, .pf-one-kept, .pf-one-cost-words, .pf-dice")
            marked = page.locator("#pf-panel-onestep :is(.pf-accepted, .pf-rejected)")
            assert not hidden.count() and not marked.count()
            assert page.locator(".pf-one-guess").count() == len(one["drafted"])
            page.focus(".pf-one-guess >> nth=0")
            press(page, "ArrowDown", "ArrowUp")
            assert "first wrong one" in words(page, "stepSays"), "looking is no bet"
            bet = answer if bets % 2 else (0 if answer else None)
            press(page, "Enter") if bet == 0 else click(
                page, f".pf-one-guess >> nth={bet}" if bet is not None else "text=All are right"
            )
            bets, won = bets + 1, won + (bet == answer)
            name, was = ("none" if each is None else str(each + 1) for each in (bet, answer))
            result = f"Right: {was}." if bet == answer else f"You said {name}, it was {was}."
            score = f"{won} of {bets} bet{'s' * (bets > 1)} won."
            assert words(page, "stepSays").startswith(f"{result} {score}"), one["index"]
        assert page.evaluate(VERDICTS), "a step without guesses has nothing to hide"
        click(page, "[data-ref=stepNext]")
    assert 0 < won < bets
    click(page, "[data-ref=stepAsk]")
    assert page.evaluate(VERDICTS) and "won" not in words(page, "stepSays")


def is_of(event: dict[str, Any], kind: str) -> bool:
    if event["type"] != "step" or len(event["token_ids"]) == event["num_accepted"]:
        return False
    all_kept = event["num_accepted"] == len(event["drafted"])
    return kind == ("empty" if not event["drafted"] else "all" if all_kept else "wrong")


def test_it_finds_and_it_plays(open_page: Any) -> None:
    """A step of another kind than was looked for; a walk that does not go on, or does not stop."""
    page = open_page(reduced_motion="reduce")
    page.clock.install()
    opened(page, THREE_KINDS)
    for kind, mark in (("all", "extra"), ("wrong", "no"), ("empty", "own")):
        click(page, f"[data-find={kind}]")
        first = step(page)
        assert mark in page.evaluate(VERDICTS)
        click(page, f"[data-find={kind}]")
        assert mark in page.evaluate(VERDICTS) and step(page) > first
        at = next(e["index"] for e in THREE_KINDS["events"] if e["lane"] == "speculative" and is_of(e, kind))
        assert first == at + 1 or at == 0
        press(page, "Home")
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 0.1"))
    page.click("[data-ref=stepPlay]")
    page.clock.run_for(3000)
    assert step(page) == 2 and words(page, "stepPlay") == "Pause"
    page.clock.resume()
    page.focus("[data-ref=stepHead]")
    press(page, " ")
    assert words(page, "stepPlay") == "Play" and step(page) == 2 and page.problems == []


def test_nothing_above_moves_and_the_replay_stops(open_page: Any) -> None:
    """A board that jumps when one looks at a step; a tab bar that wraps; a race that plays on behind it."""
    page = open_page(1280, 800)
    opened(page, GREEDY, "text")
    page.wait_for_function("window.photofinish.state.playing")
    before = page.evaluate(ABOVE)
    click(page, "#pf-tab-onestep")
    assert not page.evaluate(STATE)["playing"] and page.evaluate(ABOVE) == before
    assert (
        len({round(tab["y"]) for tab in (each.bounding_box() for each in page.locator(".pf-tab:visible").all())}) == 1
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280 and page.problems == []
