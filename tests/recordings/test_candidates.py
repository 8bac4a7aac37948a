"""What real races keep of each row: chances, dice, and where a copy came from."""

import math
from functools import cache

import pytest

from engine.core.events import steps, token_ids
from engine.core.spec import lanes_of
from engine.recordings.recording import checked
from tests.helpers import trained
from tests.helpers.trained import race_of, text_of


@cache
def recorded(drafter: str, k: int | str = 5, rule: str = "coupled", audit: bool = True, **params):
    """A real race of the trained fixture, checked by the reader of recordings; the text has copies in it."""
    race = race_of(lanes_of([(drafter, drafter, k)], rule=rule), audit=audit, seed=3, max_new_tokens=24, **params)
    return race, checked(trained.recorded(race).text.encode())


def rows_by_position(recording, lane):
    """Of committed tokens, with the token."""
    candidates = recording["candidates"]["lanes"][lane]
    return [
        (row, token)
        for step, rows in zip(steps(recording.events, lane), candidates, strict=True)
        for row, token in zip(rows, step.token_ids, strict=False)
    ]


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.7}, {"temperature": 1.3, "top_k": 3}, {"temperature": 0.9, "top_p": 0.6}]
)
def test_chances_are_those_that_the_target_gives(params):
    """A chance that is made up: here every row is computed again, by a target of its own."""
    race, recording = recorded("ngram", **params)
    reader = race.reader((), lambda share: None)
    prompt, text = race.prompt.token_ids, token_ids(recording.events, "baseline")
    reader.extend(prompt[:-1], 0)
    for (row, token), last in zip(rows_by_position(recording, "baseline"), [prompt[-1], *text[:-1]], strict=True):
        logits = reader.extend([last], 1)[0][0]
        wanted = race.sampler.processed(logits) if params else logits.float()
        chances = wanted.softmax(-1)
        shown = {i: math.exp(logit - row["log_z"]) for i, logit in zip(row["ids"], row["logits"], strict=True)}
        assert all(abs(chance - float(chances[i])) < 1e-3 for i, chance in shown.items())
        likely = min(5, int((chances > 0).sum()))
        assert len(shown) >= likely and token in shown
        likeliest = pytest.approx(chances.topk(likely).values.tolist(), abs=1e-3)
        assert sorted(shown.values(), reverse=True)[:likely] == likeliest


def test_without_an_audit_or_without_dice():
    """A race that nobody audits would pay for it; lanes under rejection would show noise that chose nothing."""
    assert "candidates" not in recorded("ngram", audit=False)[1]
    _, recording = recorded("ngram", temperature=0.8, rule="rejection")
    assert recording["candidates"]["seeds"] == [3] and len(rows_by_position(recording, "baseline")[0][0]["noise"]) == 1
    assert not any("noise" in row for row, _ in rows_by_position(recording, "ngram"))


@pytest.mark.parametrize("k", [5, "auto"])
@pytest.mark.parametrize("name", ["ngram", "hybrid", "draft_model"])
def test_copies_say_where_they_come_from(name, k):
    """ "Copied from the prompt" would be said of a guess, or of another place; the reader compares token by token."""
    drafter = text_of(name)
    _, recording = recorded(drafter, k=k)
    drafted = [step for step in steps(recording.events, drafter) if step.drafted]
    copies = [step.copied[0] for step in drafted if step.copied]
    assert bool(copies) == (name != "draft_model")
    if name == "ngram":
        assert copies == [0] * len(drafted)
    elif k != "auto":
        assert not any(copies), "at a fixed k a hybrid copies all of a draft, or nothing"
