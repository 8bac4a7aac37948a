"""The metrics of a study of servers, against slow and plain recomputations and against a published study."""

from __future__ import annotations

import json
import math
import random
from collections import Counter

import pytest

from engine.under_load.metrics import HIGHER, Answer, crossing, geomean, improvement_percent, level_metrics, report
from tests.helpers import ROOT

PUBLISHED = ROOT / "tests" / "fixtures" / "gptoss_study.json"


def plain_p95(values: list[float]) -> float:
    values = sorted(values)
    place = 0.95 * (len(values) - 1)
    low = int(place)
    return values[low] if low == place else values[low] * (low + 1 - place) + values[low + 1] * (place - low)


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
    found = level_metrics(answers, 3, 7.0, 41.62)
    assert (found["num_requests"], found["num_errors"]) == (len(answers) + 3, 3)
    assert found["num_output_tokens"] == tokens
    assert found["output_tokens_per_s"] == pytest.approx(tokens / 7)
    assert found["total_tokens_per_s"] == pytest.approx((tokens + prompts) / 7)
    assert found["ttft_p95_s"] == pytest.approx(plain_p95(ttfts))
    assert found["tpot_p95_s"] == pytest.approx(plain_p95(tpots))
    assert found["itl_p95_s"] == (pytest.approx(plain_p95(itls)) if itls else None)
    assert found["dollars_per_million"] == pytest.approx(1e6 / (tokens / 7) * 41.62 / 3600)
    assert found["mean_acceptance_length"] is None


def test_a_level_without_an_answer_has_no_metrics() -> None:
    """A dead server would divide by zero, or look infinitely fast."""
    found = level_metrics([], 5, 1.0, 2.0)
    assert found["num_requests"] == found["num_errors"] == 5
    assert all(found[metric] is None for metric in HIGHER)


def test_acceptance_length_takes_every_answer() -> None:
    """A mean over the answers that tell it would be shown as that of all."""
    told, silent = Answer(1, 2, 2, 9, 1, num_accepted=6, num_steps=3), Answer(1, 2, 2, 9, 1)
    assert level_metrics([told, told], 0, 1.0)["mean_acceptance_length"] == 3
    assert level_metrics([told, silent], 0, 1.0)["mean_acceptance_length"] is None


def test_means_need_every_level() -> None:
    """A lane would look better by failing where it is slow."""
    assert geomean([2.0, 8.0]) == pytest.approx(math.sqrt(16))
    assert geomean([2.0, None]) is None
    rows = [
        {"lane": lane, "concurrency": 1, **dict.fromkeys(HIGHER, value)} for lane, value in (("a", 2.0), ("b", 3.0))
    ]
    extra = {"lane": "a", "concurrency": 5, **dict.fromkeys(HIGHER, 99.0)}
    found = report([*rows, extra], ["a", "b"], 1)
    assert found["geomeans"]["a"]["ttft_p95_s"] == pytest.approx(2)
    assert all((gain > 0) == HIGHER[metric] for metric, gain in found["improvement_percent"].items())


def test_the_crossing_is_where_the_second_stops_being_better() -> None:
    """The report would name the wrong levels."""
    rates = {"a": (10, 40, 90), "b": (20, 45, 80)}
    levels = [
        {"lane": lane, "concurrency": users, "output_tokens_per_s": rate}
        for lane, its in rates.items()
        for users, rate in zip((1, 5, 25), its, strict=True)
    ]
    assert crossing(levels, "a", "b") == (5, 25)
    assert crossing(levels, "b", "a") is None


def test_the_published_study_is_recomputed() -> None:
    """Our definition of improvement would not be the study's, or the claim about its errors would be wrong."""
    counted, wrong = Counter[str](), set()
    for table, rows in json.loads(PUBLISHED.read_text())["tables"].items():
        for row in rows:
            metric = row["metric"].replace("_ms", "_s")
            gain = improvement_percent(metric, row["first"], row["second"])
            low, high = row["possible"]
            exact = abs(gain - row["printed"]) <= 0.0501
            status = "exact" if exact else "rounding" if low - 0.05 <= row["printed"] <= high + 0.05 else "wrong"
            counted[status] += 1
            if status == "wrong":
                wrong.add((table, metric))
    assert counted == {"exact": 20, "rounding": 11, "wrong": 3}
    assert wrong == {("mlperf_tp1", "itl_p95_s"), ("mlperf_tp1", "tpot_p95_s"), ("mlperf_tp2", "ttft_p95_s")}
