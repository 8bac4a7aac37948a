"""The tab "One step": each step of a race, compared with the numbers of its recording."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import Counter
from typing import Any

import pytest

from app.recorded import RACES
from engine.recordings.recording import read
from tests.helpers.race_pages import SETTLED, TEXT, feed, race_over, words, words_of
from tests.helpers.races import known_in_part
from tests.helpers.steps_apart import taken_apart

pytestmark = pytest.mark.browser
GREEDY = taken_apart(read(RACES / "csv_to_json.json"))
SAMPLED = taken_apart(read(RACES / "story.json"))
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
HELD = "() => [document.activeElement.className, document.activeElement.dataset.place ?? null]"


def opened(page: Any, recording: dict[str, Any], step: int = 0) -> list[dict[str, Any]]:
    """The recording's tab at a step. Returns the steps of the lane that guesses."""
    assert page.evaluate("text => window.photofinish.open(text, 'race.json')", json.dumps(recording)), words(
        page, "alertText"
    )
    page.click("#pf-tab-onestep")
    at(page, step)
    return steps_of(recording)


def at(page: Any, step: int) -> None:
    """Go to a step by keys, from the one that is shown."""
    page.evaluate(SETTLED)
    page.focus("[data-ref=stepHead]")
    away = step + 1 - int(words(page, "stepHead").split()[1])
    for _ in range(abs(away)):
        page.keyboard.press("ArrowRight" if away > 0 else "ArrowLeft")
    page.evaluate(SETTLED)
    assert words(page, "stepHead").startswith(f"Step {step + 1} of ")


def steps_of(recording: dict[str, Any], lane: str = "speculative") -> list[dict[str, Any]]:
    return [e for e in recording["events"] if e["type"] == "step" and e["lane"] == lane]


def chance_words(chance: float) -> str:
    if chance == 0:
        return "0 %"
    return "< 0.1 %" if chance < 0.0005 else "> 99.9 %" if 0.9995 < chance < 1 else f"{100 * chance:.1f} %"


def verdicts_of(step: dict[str, Any]) -> list[str]:
    drafted, kept = len(step["drafted"]), step["num_accepted"]
    if len(step["token_ids"]) == kept:
        return ["ok"] * kept + ["unused"] * (drafted + 1 - kept)
    own = "own" if not drafted else "extra" if kept == drafted else "no"
    return ["ok"] * kept + [own] + ["unused"] * (drafted - kept)


def test_every_step_is_the_recordings(page: Any) -> None:
    """A verdict, a chance, a time or a kept token that the recording does not have."""
    for recording in (GREEDY, SAMPLED):
        steps = opened(page, recording)
        rows = recording["candidates"]["lanes"]["speculative"]
        plain = statistics.median(e["draft_s"] + e["verify_s"] for e in steps_of(recording, "baseline"))
        for i, step in enumerate(steps):
            assert words(page, "stepHead") == f"Step {i + 1} of {len(steps)}"
            assert page.evaluate(VERDICTS) == verdicts_of(step)
            shown = page.evaluate(ANSWERS)
            assert len(shown) == len(rows[i])
            for r, (answers, row) in enumerate(zip(shown, rows[i], strict=True)):
                chances = [math.exp(logit - row["log_z"]) for logit in row["logits"]]
                guess, chosen = step["drafted"][r : r + 1], step["token_ids"][r : r + 1]
                assert answers == [
                    [
                        token,
                        chance_words(chance),
                        [token] == guess,
                        [token] == chosen,
                        pytest.approx(100 * chance, abs=0.01),
                    ]
                    for j, (token, chance) in enumerate(zip(row["ids"], chances, strict=True))
                    if j < 5 or [token] in (guess, chosen)
                ]
            assert [text for text, _ in page.evaluate(GUESSES)] == step["drafted_pieces"]
            kept = page.locator(".pf-one-kept .pf-token").all_text_contents()
            assert kept == step["pieces"]
            spent, tokens = 1000 * (step["draft_s"] + step["verify_s"]), len(step["token_ids"])
            cost = page.text_content(".pf-one-cost-words")
            assert f"in {spent:.1f} ms. Plain: {tokens} × {1000 * plain:.1f} ms" in cost
            assert ("Saved" in cost) == (tokens * plain * 1000 >= spent)
            dropped = page.locator(".pf-one-dropped .pf-token").all_text_contents()
            assert dropped == step["drafted_pieces"][step["num_accepted"] :]
            page.click("[data-ref=stepNext]", force=True) if i + 1 < len(steps) else None
            page.evaluate(SETTLED)
        assert page.is_disabled("[data-ref=stepNext]") and "Here the race ends" in words(page, "stepSays")


def test_a_sentence_for_each_case(page: Any) -> None:
    """A full accept told as a rejection; a struck token without the choice that struck it."""
    race = taken_apart(race_over(words_of(TEXT)[:60], seed=5, k=3, hit=0.6))
    race["events"] = list(race["events"])
    steps = opened(page, race)
    says = {"own": "No guess here", "extra": "right, and one more token", "no": ""}
    seen: Counter[str] = Counter()
    for i, step in enumerate(steps):
        at(page, i)
        kept, drafted = step["num_accepted"], len(step["drafted"])
        kind = next((v for v in verdicts_of(step) if v in says), "cut")
        seen[kind] += 1
        said = words(page, "stepSays")
        if kind == "no":
            assert ("The first guess was wrong" if kept == 0 else f"Guess {kept + 1} was wrong") in said
            why = page.text_content(".pf-one-why")
            assert step["drafted_pieces"][kept].strip() in why and step["pieces"][kept].strip() in why
        elif kind == "cut":
            assert "ends within this draft" in said and (drafted == kept or str(drafted - kept) in said)
        else:
            assert says[kind] in said and not page.locator(".pf-one-why").count()
    assert seen["own"] and seen["extra"] and seen["no"] and set(seen) >= {"own", "extra", "no"}


def test_where_a_guess_came_from(page: Any) -> None:
    """A copy shown at a place that it was not copied from, or a head that was surer than its margin."""
    prompt = GREEDY["prompt"]
    steps, origins = opened(page, GREEDY), Counter[str]()
    text = [*prompt["token_ids"], *(t for step in steps for t in step["token_ids"])]
    for i, step in enumerate(steps[:16]):
        at(page, i)
        start, place = step.get("copied", [len(step["drafted"]), None])
        table, margins = (GREEDY[name]["eagle3"][step["position"]] for name in ("tables", "table_margins"))
        for r, (_, source) in enumerate(page.evaluate(GUESSES)):
            is_heads = step["drafted"][:start] == table[:start]
            assert (
                source == "copied"
                if r >= start
                else source.endswith(f" (+{margins[r]:.1f})")
                if is_heads
                else source == "extra network"
            )
            origins["copied" if r >= start else "margin" if is_heads else "head"] += 1
        if place is None:
            assert not page.locator(".pf-one-excerpt").count()
            continue
        copied = "".join(step["drafted_pieces"][start:])
        assert page.text_content(".pf-one-copied") == copied
        excerpt = page.text_content(".pf-one-excerpt").strip("…")
        in_prompt = "the prompt" if place < len(prompt["token_ids"]) else "the text written before"
        page.hover(f".pf-one-guess >> nth={start}")
        assert f"copied from {in_prompt}" in page.text_content(".pf-one-source")
        assert page.text_content(".pf-one-here") == step["drafted_pieces"][start]
        before = "".join(p for s in steps[:i] for p in s["pieces"])
        assert excerpt in prompt["text"] + before + copied and copied in excerpt
        assert text[place] == step["drafted"][start]
    assert origins["copied"] and origins["margin"]


def test_the_same_dice_in_both_lanes(page: Any) -> None:
    """Bars of one lane drawn twice; another seed's winner that is not the largest sum; dropped places with dice."""
    steps = opened(page, SAMPLED)
    lanes, seeds = SAMPLED["candidates"]["lanes"], SAMPLED["candidates"]["seeds"]
    baseline = [row for rows in lanes["baseline"] for row in rows]
    dropped = 0
    for i, step in enumerate(steps[:5]):
        at(page, i)
        for r, own in enumerate(lanes["speculative"][i]):
            page.click(f".pf-one-verdict[data-place='{r}']")
            page.evaluate(SETTLED)
            if r >= len(step["token_ids"]):
                dropped += 1
                assert "was thrown away" in page.text_content(".pf-dice-says") and not page.evaluate(DICE)
                continue
            for die in range(len(seeds)):
                page.click(f"[data-die='{die}']")
                page.evaluate(SETTLED)
                winners = set()
                for shown, row in zip(page.evaluate(DICE), (baseline[step["position"] + r], own), strict=True):
                    sums = [a + b for a, b in zip(row["logits"], row["noise"][die], strict=True)]
                    winner = row["ids"][sums.index(max(sums))]
                    winners.add(winner)
                    assert [[token, numbers.rsplit("= ")[-1], end] for token, numbers, end in shown] == [
                        [token, f"{total:.4f}", "wins" if token == winner else ""]
                        for token, total in zip(row["ids"], sums, strict=True)
                    ]
                said = page.text_content(".pf-dice-says")
                assert len(winners) == 1 and "differ" not in said
                if die:
                    assert f"seed {seeds[die]}" in said
                    assert ("the same token again" in said) == (winners == {step["token_ids"][r]})
                else:
                    assert winners == {step["token_ids"][r]} and "the scores are equal" in said
            page.click("[data-die='0']")
    assert dropped


@pytest.mark.parametrize("change", ["logits", "noise", "checksums"])
def test_records_that_differ_are_said_to(page: Any, change: str) -> None:
    """A lane whose numbers were changed, shown as the same dice."""
    doctored = json.loads(json.dumps(SAMPLED))
    row = doctored["candidates"]["lanes"]["baseline"][0][0]
    if change == "logits":
        row["logits"] = [value + 0.001 for value in row["logits"]]
        row["log_z"] += 0.001
    elif change == "noise":
        row["noise"][0] = [value + 0.5 for value in row["noise"][0]]
    else:
        steps_of(doctored)[0]["checksums"][0] -= 2**40
        doctored["verdicts"]["speculative"]["kind"] = "identical_tokens"
    opened(page, doctored)
    page.click(".pf-one-verdict[data-place='0']")
    page.evaluate(SETTLED)
    assert page.text_content(".pf-dice-head") == "Not the same in both lanes"
    assert "differ" in page.text_content(".pf-dice-odd") or "not equal" in page.text_content(".pf-dice-odd")
    opened(page, SAMPLED)
    page.click(".pf-one-verdict[data-place='0']")
    page.evaluate(SETTLED)
    assert not page.locator(".pf-dice-odd").count()
    assert page.text_content(".pf-dice-head") == "The same dice: why both texts are equal"


def test_without_dice_the_largest_score_is_chosen(page: Any) -> None:
    """Dice where there are none."""
    steps = opened(page, GREEDY)
    assert "No dice at temperature 0" in page.text_content(".pf-dice-says") and not page.locator("[data-die]").count()
    for shown in page.evaluate(DICE):
        assert [token for token, _, end in shown if end] == [
            steps[0]["token_ids"][min(steps[0]["num_accepted"], len(steps[0]["token_ids"]) - 1)]
        ]


def test_under_rejection_the_odds_are_the_same_and_the_draws_are_not(page: Any) -> None:
    """Texts that part, with nothing to say why; or noise that the lane did not choose by."""
    race = json.loads(json.dumps(SAMPLED))
    race["spec"]["lanes"][-1]["rule"] = "rejection"
    race["verdicts"]["speculative"] = {**race["verdicts"]["speculative"], "kind": "same_distribution"}
    lane = race["candidates"]["lanes"]["speculative"]
    for rows in lane:
        for row in rows:
            row.pop("noise", None)
    last = steps_of(race)[-1]
    r = len(last["token_ids"]) - 1
    other = next(t for t in lane[-1][r]["ids"] if t not in (last["token_ids"][r], *last["drafted"][r : r + 1]))
    last["token_ids"][r], last["pieces"][r] = other, race["candidates"]["pieces"][str(other)]
    place = last["position"] + r
    opened(page, race)
    assert "the chances are equal in both lanes" in page.text_content(".pf-dice-says")
    page.click("text=To the place where the texts part")
    page.evaluate(SETTLED)
    said = page.text_content(".pf-dice-says")
    assert said.startswith(f"Token {place + 1} ") and "Only the draws differ" in said and "Here the texts part" in said
    shown = page.evaluate(DICE)
    assert [[t for t, _, end in lane if end == "drawn"] for lane in shown] == [
        [[t for e in steps_of(race, "baseline") for t in e["token_ids"]][place]],
        [other],
    ]
    for numbers, row in zip(shown, (race["candidates"]["lanes"]["baseline"][place][0], lane[-1][r]), strict=True):
        assert [n for _, n, _ in numbers] == [chance_words(math.exp(x - row["log_z"])) for x in row["logits"]]


def test_a_race_that_keeps_no_answers_says_why(page: Any) -> None:
    """An empty picture, or chances that nobody recorded; drafts of which only the number is known."""
    bare = {key: value for key, value in GREEDY.items() if key not in ("candidates", "table_margins")}
    unaudited = race_over(words_of(TEXT)[:30], audit=False)
    in_part = known_in_part(race_over(words_of(TEXT)[:60], seed=5), random.Random(2))
    del in_part["candidates"]
    for race, said in (
        (bare, "was recorded without it"),
        (unaudited, "was not audited"),
        (in_part, "recorded without it"),
    ):
        steps = opened(page, race)
        for i in range(len(steps)):
            at(page, i)
            assert said in page.text_content(".pf-one-row:nth-of-type(2) .pf-note")
            assert page.locator(".pf-one-row").count() == 4
            assert not page.locator(".pf-one-answer, .pf-dice").count()
    feed(page, race_over(words_of(TEXT)[:9]), race_id="live", state="running")
    assert "when it is over" in words(page, "stepSays") and page.is_disabled("[data-ref=stepNext]")
