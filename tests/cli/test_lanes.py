"""Many lanes in one race (--lane), and many drafts of one race: race --tables. (What is refused:
test_refusals.py.)"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli import main as cli
from engine.cli.commands import RACE
from engine.cli.lane_options import lanes_from
from engine.cli.main import _parser
from engine.core.errors import UsageError
from engine.core.events import steps
from engine.core.spec import MAX_WIDTH, RULES, LaneSpec
from engine.recordings import recording as recordings
from engine.what_if import ask
from engine.what_if.judged import what_if_of
from tests.helpers.trained import DRAFT, PROMPTS, TRAINED

ON = ["--prompt", PROMPTS[0], "--target", str(TRAINED), "--dtype", "float32", "--threads", "1"]
names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=40).filter(
    lambda name: name.isprintable() and "=" not in name and name not in ("plain", "baseline")
)
drafters = st.sampled_from(["ngram", "none", "synthetic:0.5", "draft_model:owner/name", "draft_model:a@b=c/d@e"])
ks = st.none() | st.just("auto") | st.integers(1, 63)


@given(
    st.dictionaries(names, st.tuples(drafters, ks), min_size=1, max_size=14),
    st.sampled_from(["auto", str(MAX_WIDTH)]),
    st.sampled_from(RULES),
)
def test_every_lane_is_read_as_it_is_written(asked, width, rule):
    """A name, an argument with an @ or an = in it, or a k would go to another lane, or be lost; the baseline run under
    other conditions than the lanes that are compared with it, or under a rule of theirs."""
    asked = {name: (kind, "auto" if k is None and "@" in kind else k) for name, (kind, k) in asked.items()}
    words = [f"--lane={name}={kind}" + ("" if k is None else f"@{k}") for name, (kind, k) in asked.items()]
    lanes = lanes_from(_parser("race", RACE).parse(["--prompt", "x", *words, "--width", width, "--rule", rule]))
    size = width if width == "auto" else MAX_WIDTH
    assert lanes[:2] == (LaneSpec("plain", width="fastest"), LaneSpec("baseline", width=size))
    assert {(lane.width, lane.rule) for lane in lanes[2:]} == {(size, rule)}
    want = {name: (kind, 0 if kind == "none" else "auto" if k is None else k) for name, (kind, k) in asked.items()}
    assert {lane.name: (lane.drafter, lane.k) for lane in lanes[2:]} == want
    assert {lane.role for lane in lanes[2:]} == {"speculative"}


@given(st.text(max_size=12) | st.text("ab=@:0a ngrmo", max_size=12))
def test_any_text_is_a_lane_or_refused_in_words(text):
    """A traceback, or a race with other lanes than it seems."""
    try:
        lanes = lanes_from(_parser("race", RACE).parse(["--prompt", "x", f"--lane={text}"]))
    except UsageError as error:
        assert "internal" not in str(error) and len(str(error)) < 400
    else:
        (lane,) = lanes[2:]
        assert text in (f"{lane.name}={lane.drafter}", f"{lane.name}={lane.drafter}@{lane.k}") or lane.drafter == "none"


def printed(capsys, *arguments: str) -> dict:
    assert cli.main(list(arguments)) == 0
    return json.loads(capsys.readouterr().out)


# Races with tables


def test_a_saved_race_has_its_tables_and_says_so(tmp_path, capsys):
    """Nobody could ask of a recording what another k would have been; or it could not be opened again."""
    path = tmp_path / "race.json"
    lanes = ["--lane", "copy=ngram@auto", "--lane", f"small=draft_model:{DRAFT}@3"]
    more = ["--max-new-tokens", "20", "--tables", "--save", str(path)]
    assert cli.main(["race", *ON, "--audit", *lanes, *more]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "% of the oracle's speed" in out and "at every k, times as fast as plain, computed: 1: " in out
    recorded = recordings.read(path)
    rates = what_if_of(recorded).rates()
    forecast = what_if_of(recorded).steps(f"draft_model:{DRAFT}", 3)
    raced = steps(recorded.events, "small")
    assert [(step.drafted, step.token_ids) for step in forecast] == [(step.drafted, step.token_ids) for step in raced]
    assert set(recorded["tables"]) == {"ngram@tree", "ngram", f"draft_model:{DRAFT}"}
    assert set(recorded["costs"]["draft_s"]) == set(recorded["tables"])
    assert recordings.summary(recorded)["oracles"] == recorded["oracles"]
    assert set(recorded["oracles"]) == {"copy", "small"}
    played = printed(capsys, "replay", str(path), "--json")
    computed = {name: {int(k): rate for k, rate in by_k.items()} for name, by_k in played["at_every_k"].items()}
    assert computed == {name: pytest.approx(by_k) for name, by_k in rates.items()} and set(rates) >= {"ngram"}
    assert set(played["oracles"]) == set(played["verdicts"]) == {"copy", "small"} and played["verdict"] is None
    verified = printed(capsys, "verify", str(path), "--json")
    assert verified["same_tokens"] and not any(verified["lanes"][name]["rows_different"] for name in ("copy", "small"))


def test_giving_up_on_tables_keeps_the_race(tmp_path, monkeypatch, capsys):
    """Who does not want to wait for tables would lose a race of minutes."""

    def given_up(race, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(ask, "members", given_up)
    path = tmp_path / "race.json"
    assert cli.main(["race", *ON, "--max-new-tokens", "4", "--tables", "--save", str(path), "--json"]) == 0
    recorded = recordings.read(path)
    assert "tables" not in recorded and not recorded.get("stopped") and json.loads(capsys.readouterr().out)["speedup"]
