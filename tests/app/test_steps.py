"""What the tab "One step" says, without a page: verdicts, chances, sources and dice are those of the recording."""

import copy
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from app.jobs.recorded import RACES
from engine.core.events import Step, steps
from engine.recordings.event_json import from_json
from engine.recordings.recording import read
from tests.helpers import CHAINS
from tests.helpers.races import events_of, steps_of

GREEDY, SAMPLED = (read(CHAINS / f"{name}.json").fields for name in ("csv_to_json", "story"))
TREES = read(RACES / "history.json").fields
MODULES = ("tabs/step.js", "tabs/dice.js", "base/model.js")
Call = Callable[..., Any]
WALK = """recording => {
    const race = new Race(recording.events);
    const walk = new Walk(recording, race, ["baseline", "speculative"]);
    return walk.steps.map(step => {
        const places = walk.places(step);
        return { places, cost: walk.cost(step), says: stepSays(walk, step),
            excerpts: places.slice(0, -1).map((_, r) => walk.excerpt(step, r)), last: walk.lastPlace(step),
            why: whyStruck(walk, step, places), odds: places.map(place => oddsSay(walk, place)),
            dice: step.token_ids.map((_, r) => {
                const [left, right] = [walk.plain, walk.lane].map(lane => diceOf(walk, lane, step.position + r));
                return left && right && { left, right, says: diceSay(walk, step.position + r, left, right) };
            }) };
    });
}"""


def chance_words(chance: float) -> str:
    """A chance as the page writes it."""
    if chance == 0:
        return "0 %"
    return "< 0.1 %" if chance < 0.0005 else "> 99.9 %" if 0.9995 < chance < 1 else f"{100 * chance:.1f} %"


def verdicts_of(step: dict[str, Any]) -> list[str]:
    """What became of each guess of a step, and of the place after: right, the model's own token, or neither."""
    of = from_json(step).event
    assert isinstance(of, Step)
    verdicts = ["ok" if i in of.kept else "no" if row in of.rows else "unused" for i, row in enumerate(of.follows)]
    if of.is_refuted or len(of.token_ids) == of.num_accepted:
        return [*verdicts, "unused"]
    return [*verdicts, "extra" if verdicts else "own"]


@pytest.mark.parametrize("recording", [GREEDY, SAMPLED, TREES], ids=["greedy", "sampled", "trees"])
def test_every_place_is_the_recordings(pure: Call, recording: dict[str, Any]) -> None:
    """A verdict, a chance or a time that the recording does not have."""
    plain = statistics.mean(e["draft_s"] + e["verify_s"] for e in steps_of(recording, "baseline"))
    rows = recording["candidates"]["lanes"]["speculative"]
    events = steps(events_of(recording), "speculative")
    for step, event, row, view in zip(steps_of(recording), events, rows, pure(WALK, recording), strict=True):
        assert [place["verdict"] for place in view["places"]] == verdicts_of(step)
        assert [place["text"] for place in view["places"][:-1]] == step["drafted_pieces"]
        unknown = [None] * len(event.drafted)
        assert [place["chance"] for place in view["places"][:-1]] == (step.get("chances") or unknown)
        last = event.num_drafted if not event.parents else event.kept[-1] + 1 if event.kept else 0
        for place, at in zip(view["places"], [*event.follows, last], strict=True):
            of, depth = row[at], len(event.paths[at])
            guesses = [token for token, other in zip(event.drafted, event.follows, strict=True) if other == at]
            chosen = event.token_ids[depth : depth + 1] if at in event.rows else ()
            assert (place["row"], place["depth"]) == (at, depth)
            assert [(answer["id"], answer["guess"], answer["chosen"]) for answer in place["answers"]] == [
                (token, token in guesses, token in chosen)
                for i, token in enumerate(of["ids"])
                if i < 3 or token in guesses or token in chosen
            ]
            chances = dict(zip(of["ids"], (math.exp(logit - of["log_z"]) for logit in of["logits"]), strict=True))
            assert [candidate["chance"] for candidate in place["answers"]] == [
                pytest.approx(chances[candidate["id"]]) for candidate in place["answers"]
            ]
        spent, tokens = step["draft_s"] + step["verify_s"], len(step["token_ids"])
        cost = {"seconds": spent, "tokens": tokens, "plain": plain, "saved": plain * tokens - spent}
        assert view["cost"] == pytest.approx(cost)


def test_a_sentence_for_each_case(pure: Call) -> None:
    """A fully accepted draft described as a rejection; a struck token without the choice that struck it."""
    race = read(RACES / "sql.json").fields
    says = {"own": "No guess in this step", "extra": "right, plus a free token"}
    seen: Counter[str] = Counter()
    for step, view in zip(steps_of(race), pure(WALK, race), strict=True):
        kept, drafted = step["num_accepted"], len(step["drafted"])
        kind = next((v for v in verdicts_of(step) if v in (*says, "no")), "cut")
        seen[kind] += 1
        if kind == "no":
            assert ("The first guess was wrong" if kept == 0 else f"Guess {kept + 1} was wrong") in view["says"]
            assert step["drafted_pieces"][kept].strip() in view["why"] and step["pieces"][kept].strip() in view["why"]
        elif kind == "cut":
            assert "ends within this draft" in view["says"] and (drafted == kept or str(drafted - kept) in view["says"])
        else:
            assert says[kind] in view["says"] and view["why"] == ""
    assert set(seen) >= {"own", "extra", "no"}
    assert "End of the race" in view["says"]


def test_where_a_guess_came_from(pure: Call) -> None:
    """A copy shown at a place that it was not copied from, or as a head's guess."""
    prompt, steps, origins = GREEDY["prompt"], steps_of(GREEDY), Counter[str]()
    text = [*prompt["token_ids"], *(t for step in steps for t in step["token_ids"])]
    for i, (step, view) in enumerate(zip(steps, pure(WALK, GREEDY), strict=True)):
        start, place = step.get("copied", [len(step["drafted"]), None])
        for r, guess in enumerate(view["places"][:-1]):
            origins[guess["source"]] += 1
            assert guess["source"] == ("copied" if r >= start else "EAGLE-3 head")
        if place is None or not step["drafted"]:
            assert not any(view["excerpts"])
            continue
        assert not any(view["excerpts"][:start])
        copied, excerpt = step["drafted_pieces"][start:], view["excerpts"][start]
        assert all(other == excerpt for other in view["excerpts"][start:])
        before = "".join(p for s in steps[:i] for p in s["pieces"])
        assert excerpt["copied"] == copied and text[place] == step["drafted"][start]
        shown = excerpt["before"] + "".join(copied) + excerpt["after"]
        assert shown in prompt["text"] + before + "".join(copied)
        assert excerpt["where"].startswith("the prompt" if place < len(prompt["token_ids"]) else "the text written")
    assert origins["copied"] and origins["EAGLE-3 head"]


def test_where_a_trees_guess_came_from(pure: Call) -> None:
    """A copy joined with another branch's, or shown at another place."""
    text, origins = [*TREES["prompt"]["token_ids"]], Counter[str]()
    for step, view in zip(steps_of(TREES), pure(WALK, TREES), strict=True):
        sources = step.get("sources", [-1] * len(step["drafted"]))
        for r, (guess, excerpt) in enumerate(zip(view["places"][:-1], view["excerpts"], strict=True)):
            origins[guess["source"]] += 1
            if "parents" not in step:
                continue
            assert (guess["source"] == "copied") == (sources[r] >= 0) == (excerpt is not None)
            if excerpt is None:
                continue
            run = excerpt["run"]
            assert r in run and excerpt["copied"] == [step["drafted_pieces"][i] for i in run]
            for one, other in pairwise(run):
                assert step["parents"][other] == one + 1 and sources[other] == sources[one] + 1
            for i in run:
                assert sources[i] >= len(text) or text[sources[i]] == step["drafted"][i]
        text += step["token_ids"]
    assert origins["copied"] > 20


def test_a_sampled_pick_is_called_drawn_and_a_copys_odds_are_told_under_rejection(pure: Call) -> None:
    """A less likely token "picked" without a reason; odds where q is unknown, or other than the recording's."""
    assert all("at random" not in view["why"] and not any(view["odds"]) for view in pure(WALK, GREEDY))
    whys = [view["why"] for view in pure(WALK, SAMPLED) if view["why"]]
    assert whys and all("drawn at random at temperature 0.9, is " in why for why in whys)
    race, seen = copy.deepcopy(GREEDY), 0
    race["spec"]["params"]["temperature"], race["spec"]["lanes"][-1]["rule"] = 0.8, "rejection"
    for view in pure(WALK, race):
        for place, odds in zip(view["places"], view["odds"], strict=True):
            chance = next((answer["chance"] for answer in place["answers"] or () if answer["guess"]), None)
            known = place["source"] == "copied" and chance is not None
            assert odds.count(chance_words(chance) if known else "p = ") == 2 * known and bool(odds) == known
            seen += known
    assert seen > 20


def test_a_sentence_for_each_tree(pure: Call) -> None:
    """A path that is not the kept one; guesses of another place as those that the model's choice struck."""
    seen: Counter[str] = Counter()
    for step, view in zip(steps_of(TREES), pure(WALK, TREES), strict=True):
        if "parents" not in step:
            continue
        event, says, why = from_json(step).event, view["says"], view["why"]
        assert isinstance(event, Step) and f"tree of {len(event.drafted)} guesses" in says
        last = view["places"][view["last"]]
        if len(event.token_ids) == event.num_accepted:
            seen["cut"] += 1
            assert "ends within" in says and last["verdict"] == "ok"
        elif event.is_refuted:
            seen["wrong"] += 1
            row = event.rows[-1]
            struck = [piece for piece, at in zip(event.drafted_pieces, event.follows, strict=True) if at == row]
            assert last["row"] == row and last["verdict"] == "no"
            assert all(piece.strip() in why for piece in (*struck, event.pieces[-1]))
            assert why.count("\u201c") == len(struck) + 1
        else:
            seen["all"] += 1
            assert f"a path of {event.num_accepted} was right to its end" in says and why == ""
            assert last["verdict"] == "extra" and last["row"] == event.rows[-1]
    assert min(seen["wrong"], seen["all"]) > 3


def test_the_same_dice_in_both_lanes(pure: Call) -> None:
    """A winner that is not the largest sum; lanes said to be equal whose numbers are not."""
    lanes = SAMPLED["candidates"]["lanes"]
    baseline = [row for rows in lanes["baseline"] for row in rows]
    for i, (step, view) in enumerate(zip(steps_of(SAMPLED), pure(WALK, SAMPLED), strict=True)):
        for r, dice in enumerate(view["dice"]):
            for side, row in (("left", baseline[step["position"] + r]), ("right", lanes["speculative"][i][r])):
                sums = [a + b for a, b in zip(row["logits"], row["noise"][0], strict=True)]
                assert row["ids"][sums.index(max(sums))] == dice[side]["wins"]["id"] == step["token_ids"][r]
                assert [(score["id"], score["sum"]) for score in dice[side]["scores"]] == [
                    (token, pytest.approx(total)) for token, total in zip(row["ids"], sums, strict=True)
                ]
            assert "the scores are equal" in dice["says"] and re.search(r"\bdiffer\b", dice["says"]) is None


def test_under_rejection_the_odds_are_the_same_and_the_draws_are_not(pure: Call) -> None:
    """Texts that part, with nothing to say why; or noise that the lane did not choose by."""
    race = copy.deepcopy(SAMPLED)
    race["spec"]["lanes"][-1]["rule"] = "rejection"
    last, rows = steps_of(race)[-1], race["candidates"]["lanes"]["speculative"][-1]
    r = len(last["token_ids"]) - 1
    taken = last["token_ids"][r], *last["drafted"][r : r + 1]
    last["token_ids"][r] = next(token for token in rows[r]["ids"] if token not in taken)
    *same, parted = (dice["says"] for view in pure(WALK, race) for dice in view["dice"])
    assert all("the probabilities are equal in both lanes" in says for says in (*same, parted))
    assert all("Both draws gave" in says for says in same)
    assert "Only the draws differ" in parted and parted.endswith("From here on the texts differ.")


@pytest.mark.parametrize("change", ["logits", "noise", "checksums"])
def test_records_that_differ_are_said_to(pure: Call, change: str) -> None:
    """A lane whose numbers were changed, shown as the same dice."""
    doctored = json.loads(json.dumps(SAMPLED))  # both lanes share their rows
    row = doctored["candidates"]["lanes"]["baseline"][0][0]
    if change == "logits":
        row["logits"] = [value + 0.001 for value in row["logits"]]
        row["log_z"] += 0.001
    elif change == "noise":
        row["noise"][0] = [value + 0.5 for value in row["noise"][0]]
    else:
        steps_of(doctored)[0]["checksums"][0] -= 2**40
    says = pure(WALK, doctored)[0]["dice"][0]["says"]
    assert "the records of the two lanes differ" in says


@pytest.mark.parametrize("chance", [0, 1e-9, 0.0004999, 0.0005, 0.123456, 0.9995, 0.99951, 1])
def test_a_chance_is_never_rounded_to_certainty(pure: Call, chance: float) -> None:
    """A chance of 0 or 100 % where it is neither."""
    assert pure("chanceWords", chance) == chance_words(chance)
