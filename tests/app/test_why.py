"""The tab "Why" as the server makes it: words and tables say what figures show, and no stranger's race breaks it."""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.figures.charts import charts
from app.figures.cheats import cheats, eager
from app.figures.why import NO_DRAFTS, NO_IDS, NO_RATIO, NOT_KNOWN, compared_of, why
from app.jobs.recorded import RACES
from app.page.sentences import chart_table
from engine.analysis.breakdown import compared
from engine.analysis.inflate import CHUNK_S, SWITCHES, inflated
from engine.analysis.metrics import lane_metrics
from engine.core.spec import SamplingParams
from engine.recordings.recording import Recording, build, read
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint
from engine.remote.request import Question
from engine.remote.server_race import RemoteRace
from tests.helpers.loopback import says as says_so
from tests.helpers.loopback import servers, sse, stream_of
from tests.helpers.races import a_race, events_of, recordings, servers_races, with_tables


def said(race: Mapping[str, Any]) -> list[Any]:
    return list(why(Recording.of(race)))


@pytest.mark.parametrize("path", sorted(RACES.glob("*.json")), ids=lambda path: path.stem)
def test_the_shipped_races_are_told_with_their_own_numbers(path) -> None:
    """A figure would show other times than the race's, or other tokens."""
    race = read(path)
    numbers, (origin, losses) = lane_metrics(events_of(race), "speculative"), said(race)
    assert sum(trace.x[0] for trace in losses.figure.data) == pytest.approx(numbers.decode_s, rel=1e-9)
    if origin.figure is None:
        assert NOT_KNOWN in origin.sentence
    else:
        assert sum(trace.x[0] for trace in origin.figure.data) == numbers.num_tokens
        assert sum(trace.x[0] for trace in origin.figure.data[:3]) == sum(numbers.per_step_accepted)


def test_of_a_server_that_reports_neither_tokens_nor_drafts_nothing_is_made_up() -> None:
    """Tokens without ids would be a loop from the first one on, and all of them the model's own."""
    words = [f" word{i}" for i in range(8)]
    parts = [[sse(event) for event in stream_of(sizes, words, ids=False)] for sizes in ([1] * 8, [2] * 4)]
    with servers(*(says_so(part, 0.002) for part in parts)) as pair:
        lanes = [Endpoint(name, "m", server.url) for name, server in zip(("baseline", "spec"), pair, strict=True)]
        race = RemoteRace(lanes, Question("x"), SamplingParams(max_new_tokens=8), Patience(5, 10))
        assert len(list(race.events()))
        origin, *_ = why(build(race.header(), (), race.result()))
    assert (origin.figure, origin.sentence) == (None, f"{NO_DRAFTS} {NO_IDS}")


def test_a_race_without_copies_or_lanes_says_so() -> None:
    """An empty figure, or numbers of nothing."""
    race = a_race([(3, 2)] * 4)
    assert said(race)[0].figure is None and said(race)[0].sentence.startswith(NOT_KNOWN)
    alone = {**race, "events": [event for event in race["events"] if event["lane"] == "speculative"]}
    assert [chart.sentence for chart in said(alone)] == [NO_RATIO] * 2
    assert cheats(compared_of(Recording.of(alone))) == {}
    assert all(chart.figure is None for chart in why(None))


STRANGERS = (
    st.builds(with_tables, recordings(), st.randoms(use_true_random=False))
    | st.builds(with_tables, recordings(), st.randoms(use_true_random=False), st.just("ngram"), st.just("ngram@tree"))
    | servers_races()
    | recordings(failing=True)
)


@settings(max_examples=37)
@given(STRANGERS, st.sampled_from(["ngram", "eagle3:<b>x</b>\n" + "y" * 99]))
def test_a_strangers_race_is_drawn_or_refused_in_words(race, drafter) -> None:
    """A file would end in a fault of the program, or bring markup into the page."""
    race = json.loads(json.dumps(race).replace('"ngram"', json.dumps(drafter)))
    for trace in charts(Recording.of(race))[0].figure.data:
        assert "<" not in trace.name and len(trace.name) <= 36 and all(y >= 0 for y in trace.y)
    for chart in said(race):
        assert chart.sentence and "\n" not in chart.sentence and "<" not in chart.sentence
        assert len({len(row) for row in chart.table}) <= 1
        assert "\n" not in "".join(map("".join, chart.table))
    json.dumps(cheats(compared_of(Recording.of(race))), allow_nan=False)


@pytest.mark.parametrize("step_s", [0.0, 5e-324, 1e-300, 1.0, 4e5])
@pytest.mark.parametrize("plain_s", [0.0, 5e-324, 1e-300, 1.0, 4e5])
def test_times_that_no_race_has_are_no_fault(plain_s: float, step_s: float) -> None:
    """A file with the smallest or the largest time would end in an overflow."""
    race = a_race([(3, 2)] * 8, plain_s, step_s, step_s / 2)
    assert all(chart.sentence for chart in said(race))
    json.dumps(cheats(compared_of(Recording.of(race))), allow_nan=False)


def test_a_table_is_text() -> None:
    """A drafter's name from a file would be markup in the page."""
    html = chart_table("<i>", [["head"], ["<img src=x>${1}{{2}}`\\'"]])
    assert set(re.findall(r"<\w+", html)) == {
        *("<details", "<summary", "<div", "<table", "<thead", "<tbody", "<tr", "<th", "<td")
    }
    assert not set("${}`\\'") & set(html)
    assert chart_table("x", ()) == ""


MEASURED = "transformers' eager loop is {:.1f} times slower"


def test_each_switch_is_looked_up_at_its_own_place() -> None:
    """The page would show one switch's number with another's sentence."""
    race = compared(events_of(read(RACES / "csv_to_json.json")))
    assert race is not None
    sent = cheats(race)
    plain_s, num = sum(step.seconds for step in race.plain), sum(len(step.token_ids) for step in race.plain)
    assert sent["ratios"][0] == pytest.approx(race.speedup) and len(sent["ratios"]) == 2 ** len(SWITCHES)
    for place, ratio in enumerate(sent["ratios"]):
        on = {name for i, name in enumerate(sent["names"]) if place >> i & 1}
        assert [ratio] == inflated(race, eager().slower, [on])
    by_name: dict[str, Callable[[str], bool]] = {
        "eager": lambda words: MEASURED.format(eager().slower) in words and eager().device in words,
        "prefill": lambda words: f"Charging both gives {race.with_prefill:.2f}×" in words,
        "chunks": lambda words: f"{num} tokens in about {math.ceil(plain_s / CHUNK_S)} chunks" in words,
        "best": lambda words: "fifths" in words,
        "loop": lambda words: f"instead of {race.tokens_per_step:.2f} here" in words,
    }
    for name, words in zip(sent["names"], sent["exposed"], strict=True):
        assert by_name[name](words), words


def test_a_switch_that_does_nothing_says_so() -> None:
    """A slow lane has a chunk for each token; a short text has no fifths."""
    race = compared(events_of(a_race([(1, 0), (1, 1)], plain_s=0.2, step_s=0.25)))
    sent = cheats(race)
    for name in ("chunks", "best"):
        place = sent["names"].index(name)
        assert sent["ratios"][1 << place] == sent["ratios"][0] and "changes nothing" in sent["exposed"][place]
