"""What a study of servers is made of: its prompts; and its metrics, against plain recomputations."""

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from numpy import percentile

from engine.analysis.verdict_words import THRESHOLD, capital
from engine.core.errors import UsageError
from engine.core.spec import SamplingParams
from engine.remote.endpoint import Endpoint
from engine.remote.request import Question, optional, request_of
from engine.studies.load.data import dealt, questions_of, synthetic
from engine.studies.load.level_metrics import HIGHER, Answer, level_metrics, rate_error, report
from engine.studies.load.pays_under_load import LITTLE_GAIN, ranks, rough, says
from engine.studies.load.study import Plan
from engine.studies.prompts.prompts import FilePrompt

# Prompts

TURN = FilePrompt(1, "k", "why", (("user", "why"),), is_turn=True)


def test_prompts_become_questions() -> None:
    """A prompt would be asked twice, or lose its roles."""
    chat = (("system", "s"), ("user", "u"))
    questions = questions_of([TURN, replace(TURN, line=2), FilePrompt(3, "k", "u", chat)], False)
    assert questions == [Question("why"), Question("", chat)]


@pytest.mark.parametrize("chat", [False, True])
def test_made_up_prompts_have_their_lengths_and_are_written_to_the_end(chat) -> None:
    """Lanes would get different work, a cache would answer, or a model end after three tokens what was to be 200."""
    questions, num_tokens = synthetic("synthetic:50,200", chat, 300, 7)
    texts = [question.messages[0][1] if chat else question.text for question in questions]
    assert num_tokens == 200 and len(set(texts)) == 300 and {len(text.split()) for text in texts} == {50}
    assert questions == synthetic("synthetic:50,200", chat, 300, 7)[0] != synthetic("synthetic:50,200", chat, 300, 8)[0]
    endpoint = Endpoint("a", "m", "http://127.0.0.1:9/v1")
    bare = questions_of([TURN], chat)[0]
    asked = [optional(endpoint, prompt, SamplingParams(), False) for prompt in (*questions, bare)]
    assert all("ignore_eos" in fields for fields in asked[:-1]) and "ignore_eos" not in asked[-1]
    assert request_of(endpoint, questions[0], SamplingParams(), asked[0])["ignore_eos"] is True


@pytest.mark.parametrize("data", ["synthetic:", "synthetic:5", "synthetic:0,5", "synthetic:5,0", "synthetic:5,100001",
                                  "synthetic:-5,5", "synthetic:1,5"])  # fmt: skip
def test_what_gives_no_prompts_is_refused(data) -> None:
    """A study would begin without prompts, or with the same one again and again."""
    with pytest.raises(UsageError):
        synthetic(data, False, 300, 0)


def test_too_few_prompts_are_used_in_turns() -> None:
    """A dozen of an engineer's own prompts would be refused; or with one too few, which nobody would be told."""
    asked = [Question(f"{i}") for i in range(10)]
    assert dealt(asked, 8) == tuple(asked)
    assert [question.text for question in dealt(asked[:3], 5)] == ["0", "1", "2", "0", "1", "2", "0"]
    plan = Plan((Endpoint("a", "m", "http://127.0.0.1:9/v1"),), dealt(asked[:9], 8), (1, 2), 4, SamplingParams())
    assert "9 different ones for 10 requests" in plan.said({})["repeats"]
    assert replace(plan, questions=dealt(asked, 8)).said({})["repeats"] == ""


# Metrics


@pytest.mark.parametrize("seed", range(20))
def test_metrics_are_what_a_plain_computation_gives(seed: int) -> None:
    """A metric would divide by the wrong count, or take the first token twice."""
    rng = random.Random(seed)
    answers, ttfts, itls, tpots, tokens, prompts = [], [], [], [], 0, 0
    for _ in range(rng.randint(1, 30)):
        first, span, num, prompt = rng.uniform(0.1, 2), rng.uniform(0, 5), rng.randint(1, 50), rng.randint(1, 99)
        answers.append(Answer(first, first + span, first + span + 0.1, num, prompt))
        ttfts.append(first)
        if num > 1:
            itls.append(span / (num - 1))
        tpots.append((first + span + 0.1) / num)
        tokens, prompts = tokens + num, prompts + prompt
    metrics = level_metrics(answers, 3, 7.0, 41.62)
    assert (metrics["num_requests"], metrics["num_errors"]) == (len(answers) + 3, 3)
    assert metrics["num_output_tokens"] == tokens
    assert metrics["output_tokens_per_s"] == pytest.approx(tokens / 7)
    assert metrics["total_tokens_per_s"] == pytest.approx((tokens + prompts) / 7)
    assert metrics["ttft_p95_s"] == pytest.approx(percentile(ttfts, 95))
    assert metrics["tpot_p95_s"] == pytest.approx(percentile(tpots, 95))
    assert metrics["itl_p95_s"] == (pytest.approx(percentile(itls, 95)) if itls else None)
    assert metrics["dollars_per_million"] == pytest.approx(1e6 / (tokens / 7) * 41.62 / 3600)
    assert metrics["mean_acceptance_length"] is None


def test_acceptance_length_takes_every_answer() -> None:
    """A mean over the answers that tell it would be shown as that of all; or a dead server look infinitely fast."""
    assert all(level_metrics([], 5, 1.0, 2.0)[metric] is None for metric in HIGHER)
    answer, silent = Answer(1, 2, 2, 9, 1, num_accepted=6, num_steps=3), Answer(1, 2, 2, 9, 1)
    assert level_metrics([answer, answer], 0, 1.0)["mean_acceptance_length"] == 3
    assert level_metrics([answer, silent], 0, 1.0)["mean_acceptance_length"] is None


def test_improvement_needs_both_lanes() -> None:
    """A lane would look better by failing where it is slow."""
    rows = [
        {"lane": lane, "concurrency": 1, "num_requests": 9, **dict.fromkeys(HIGHER, value)}
        for lane, value in (("a", 2.0), ("b", 3.0))
    ]
    extra = {"lane": "a", "concurrency": 5, "num_requests": 9, **dict.fromkeys(HIGHER, 99.0)}
    study = report([*rows, extra], ["a", "b"], {})
    gains = study["improvement_by_users"]
    assert gains == {"1": {metric: 50.0 if more else -50.0 for metric, more in HIGHER.items()}}
    assert (study["gains_with"], study["loses_with"]) == ([1], [])


@pytest.mark.parametrize("num_users", [1, 8])
def test_the_interval_of_a_ratio_holds_the_true_one(num_users: int) -> None:
    """A difference that is chance would be recommended, or one that is none be called unclear."""
    rng, true, num_held, num_called = random.Random(0), 1.2, 0, 0

    def level(lane: str, slower: float) -> dict[str, Any]:
        free, answers = [0.0] * num_users, []
        for num_tokens in (rng.randint(20, 120) for _ in range(40)):
            took = slower * num_tokens * rng.lognormvariate(0, 0.3)
            answers.append(Answer(0.1, took, took, num_tokens))
            free[free.index(min(free))] += took
        wall_s = max(free)
        metrics = {"rate_error": rate_error(answers, num_users, wall_s), **level_metrics(answers, 0, wall_s)}
        return {"lane": lane, "concurrency": num_users, **metrics}

    for _ in range(400):
        lanes = level("plain", 0.01 * true), level("speculative", 0.01)
        _, words, *_ = says(lanes, ["plain", "speculative"])
        low, high = map(float, re.search(r"95 % interval (\S+) to ([\d.]+)", words).groups())
        num_held += low <= true <= high
        num_called += ranks([lanes[0], {**level("speculative", 0.01 * true)}], "plain", "speculative")[num_users] != 0
    assert 0.9 < num_held / 400 < 0.99
    assert num_called < 0.08 * 400, "equal servers"


def two_lanes(users, rates, waits=None, **more):
    """Rows of lanes plain and speculative. rates, waits: of each lane, by users."""
    waits = waits or [[None] * len(users)] * 2
    return [
        {"lane": lane, "concurrency": num, "num_requests": 3 * num,
         "output_tokens_per_s": rate, "ttft_p95_s": wait, **more}
        for lane, speeds, own in zip(("plain", "speculative"), rates, waits, strict=True)
        for num, rate, wait in zip(users, speeds, own, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ((199, 240, 210), f"Speculation on with 1 user, {LITTLE_GAIN} with 4, off with 16: 1.99x, 1.20x, 0.70x "
         "output tokens a second."),
        ((150, 270, 300 * THRESHOLD), "Speculation on with 1, 4 and 16 users: 1.50x, 1.35x, "
         f"{THRESHOLD:.2f}x output tokens a second."),
        ((110, 220, 330), f"{capital(LITTLE_GAIN)} with 1, 4 and 16 users: 1.10x, 1.10x, 1.10x output tokens a "
         "second."),
        ((50, 100, 150), "Speculation off with 1, 4 and 16 users: 0.50x, 0.50x, 0.50x output tokens a second."),
        ((99, 198, 303), "No clear difference with 1, 4 and 16 users: 0.99x, 0.99x, 1.01x output tokens "
         "a second."),
        ((150, None, 201), "Speculation on with 1 user, no answer with 4, off with 16: 1.50x, 0.67x output tokens a "
         "second."),
    ],
)  # fmt: skip
def test_the_verdict_recommends_what_was_measured(rates, words) -> None:
    """An engineer would switch on what loses under load, or read of a number of users that nobody measured."""
    rows = two_lanes((1, 4, 16), ((100, 200, 300), rates), ((1, 1, 1), (2, 1, 0.5)))
    verdict, *others = says(rows, ["plain", "speculative"])
    assert verdict == words
    assert others[0].startswith(
        f"With 1 user (speculative against plain): {rates[0] / 100:.2f}x, {rates[0]:.1f} against 100.0"
    )
    named = says([{**row, "lane": row["lane"][0]} for row in rows], ["p", "s"])
    assert "peculation" not in named[0] and named[0].split(": ")[1] == words.split(": ")[1]
    waits = next((sentence for sentence in named if "says otherwise" in sentence), "")
    assert ("2.000 s against 1.000 s with 1" in waits) == (rates[0] > 97) and ("0.500" in waits) == (rates[2] < 309)


@pytest.mark.parametrize("seed", range(200))
def test_the_recommendation_never_contradicts_a_level(seed: int) -> None:
    """One sentence is what gets forwarded: a loss in it as a gain."""
    rng = random.Random(seed)
    users = sorted(rng.sample(range(1, 200), rng.randint(1, 8)))
    gains = {num: rng.choice([None, 1, rng.uniform(0.5, 2), rng.uniform(0.95, 1.05)]) for num in users}
    rows = two_lanes(users, [[100.0] * len(users), [gain and 100.0 * gain for gain in gains.values()]])
    rng.shuffle(rows)
    grades = ranks(rows, "plain", "speculative")
    wanted = {num: gain and (gain > 1.03) - (gain < 1 / 1.03) for num, gain in gains.items()}
    assert grades == {num: 2 if round(gains[num] or 0, 2) >= THRESHOLD else sign for num, sign in wanted.items()}


def test_texts_that_differ_are_in_the_headline_with_their_prompts_and_what_may_cause_it() -> None:
    """What gets forwarded would say "on" of what may write something else; or a broken setup pass as rounding, or as a
    batch that is none, or as random numbers at temperature 0."""
    for same, has_no_batch in (((6, 5), False), ((5, 5), True), ((6, 6), None)):
        rows = two_lanes((1, 4), ((1, 1), (2, 2)), num_compared=6)
        for row in rows:
            row["num_same_text"] = same[row["concurrency"] > 1]
            row["other_prompts"] = [3, 9][: 6 - row["num_same_text"]]
        rows[0]["num_compared"] = rows[1]["num_compared"] = None
        study = report([{**dict.fromkeys(HIGHER), **row} for row in rows], ["plain", "speculative"],
                       {"temperature": 0 if has_no_batch else 0.8})  # fmt: skip
        head, where, why = study["says"][0], study["differ"], study["causes"]
        assert head.startswith("Speculation on" if has_no_batch is None else "Faster with 1 and 4 users")
        num = max(6 - count for count in same)
        said = f"; {12 - sum(same)} of 12 answers differ, to {num} prompt{'s' * (num > 1)}."
        assert head.endswith(said) == (has_no_batch is not None) == bool(why)
        assert (
            ("With 1 user there is no batch" in where)
            == (has_no_batch is True)
            == ("in a batch" not in why and bool(why))
        )
        assert ("numbered in their order: 3." in where) == (has_no_batch is not None)
        assert ("own random numbers" in why) == (has_no_batch is False)
        assert study["recommends"] == "speculation on with 1 and 4 users"


def test_few_requests_of_each_user_are_said() -> None:
    """A ratio of one and a half requests each would be shown like any other."""
    rows = [{"concurrency": users, "num_requests": 24} for users in (8, 16)]
    assert rough(rows[:1]) == ""
    assert rough(rows) == "24 requests with 16 users: fewer than 3 each, so the ratio there is rough."


def test_unequal_work_has_no_ratio_and_is_said() -> None:
    """Servers without ignore_eos that write 12 and 30 of 60 tokens: "2.01x" for work that was not the same; or a study
    would end with a traceback while only one lane has been measured."""
    answers = [[Answer(0.1, 1.0, 1.1, num, 3, num_chunks=num) for _ in range(3)] for num in (12, 30, 12)]
    rows = [{**level_metrics(some, 0, 3.0), "lane": lane, "concurrency": users, "num_short": 3, "rate_error": 0.01}
            for some, lane, users in zip(answers, ("a", "b", "a"), (1, 1, 4), strict=True)]  # fmt: skip
    for num in (1, 2, 3):
        study = report(rows[:num], ["a", "b"], {})
        assert study["speedup_by_users"] == {} and not study["gains_with"]
    said = " ".join(study["says"])
    assert "different lengths" in said and "after 30 tokens" in said and "x output tokens" not in said
    assert set(study["improvement_by_users"]["1"].values()) == {None}
    row = {**rows[0], "num_short": 0, "num_requests": 6, "errors": {}, "fault": "busy"}
    lanes = [[row | {"num_errors": a}, row | {"lane": "b", "num_errors": b}] for a, b in ((0, 1), (0, 3), (3, 0))]
    assert [bool(report(levels, ["a", "b"], {})["speedup_by_users"]) for levels in lanes] == [True, False, False]
