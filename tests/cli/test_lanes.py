"""Many lanes in one race (--lane), and many drafts of one race: sweep, and race --tables. (What is refused:
test_refusals.py.)"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli import main as cli
from engine.cli.commands import RACE
from engine.cli.lane_options import lanes_from
from engine.cli.main import _parser
from engine.core.errors import UsageError
from engine.core.events import steps
from engine.drafters import most_drafts
from engine.progress import silent
from engine.recordings import recording as recordings
from engine.what_if import ask
from engine.what_if.read import what_if_of
from tests.helpers.trained import DRAFT, PROMPTS, TRAINED, text_of, trained

ON = ["--prompt", PROMPTS[0], "--target", str(TRAINED), "--dtype", "float32", "--threads", "1"]
EAGLE3, HYBRID = text_of("eagle3"), f"hybrid:ngram+{text_of('eagle3')}"
names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=40).filter(
    lambda name: name.isprintable() and "=" not in name and name not in ("plain", "baseline")
)
drafters = st.sampled_from(["ngram", "none", "synthetic:0.5", "draft_model:owner/name", "draft_model:a@b=c/d@e"])
ks = st.none() | st.just("auto") | st.integers(1, 63)


@given(st.dictionaries(names, st.tuples(drafters, ks), min_size=1, max_size=14))
def test_every_lane_is_read_as_it_is_written(asked):
    """A name, an argument with an @ or an = in it, or a k would go to another lane, or be lost."""
    asked = {name: (each, "auto" if k is None and "@" in each else k) for name, (each, k) in asked.items()}
    words = [f"--lane={name}={each}" + ("" if k is None else f"@{k}") for name, (each, k) in asked.items()]
    lanes = lanes_from(_parser("race", RACE).parse(["--prompt", "x", *words]))
    assert [(lane.name, lane.role) for lane in lanes[:2]] == [("plain", "plain"), ("baseline", "baseline")]
    want = {name: (each, 0 if each == "none" else "auto" if k is None else k) for name, (each, k) in asked.items()}
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


# Sweeps, and races with tables


ROW = {
    "drafter", "k", "tokens_per_s", "speedup", "acceptance_rate", "mean_acceptance_length", "num_steps", "identical",
    "measured",
}  # fmt: skip


def swept(capsys, drafters: Sequence[str], ks: str, *more: str) -> dict[str, Any]:
    asked = ["--drafter", ",".join(drafters), "--k", ks, "--max-new-tokens", "24", "--json", *more]
    return printed(capsys, "sweep", *ON, *asked)


@pytest.mark.slow
def test_computed_rows_are_the_measured_ones_but_for_time(capsys):
    """A number of steps, or a share of accepted drafts, that no race has; or a key that a script looks for is gone."""
    more = ("--temperature", "0.8", "--seed", "3")
    drafters = ("ngram", EAGLE3, HYBRID)
    computed = swept(capsys, drafters, "auto", *more), swept(capsys, drafters, "2,5,tree:6", *more)
    measured = swept(capsys, drafters, "2,5,tree:6", "--measure", *more)
    for report in (*computed, measured):
        assert set(report) == {"schema", "rows", "best", "oracle"} and all(set(row) == ROW for row in report["rows"])
        best = max(report["rows"], key=lambda row: row["tokens_per_s"])
        assert report["best"] == {"drafter": best["drafter"], "k": best["k"]}
        assert all(row[key] > 0 for row in report["rows"] for key in ("tokens_per_s", "speedup"))
        if not best["measured"]:
            assert report["oracle"]["tokens_per_s"] >= best["tokens_per_s"] * (1 - 1e-9)
    exact = ("drafter", "k", "acceptance_rate", "mean_acceptance_length", "num_steps")
    told, real = ([[row[key] for key in exact] for row in each["rows"]] for each in (computed[1], measured))
    assert told == real and [row[:2] for row in real] == [
        [drafter, k] for drafter in drafters for k in (2, 5, "tree:6")
    ]
    for report in computed:
        assert {(row["measured"], row["identical"]) for row in report["rows"]} == {(False, None)}
    assert {(row["measured"], row["identical"]) for row in measured["rows"]} == {(True, True)}
    assert [row["num_steps"] for row in computed[0]["rows"]] == [None] * 3, "auto is a simulation"
    assert [row["drafter"] for row in computed[0]["rows"]] == [*drafters]


def test_a_hybrid_and_auto_are_measured(capsys):
    """What decides by time could only be simulated."""
    report = swept(capsys, [HYBRID], "3,auto", "--measure")
    assert [(row["k"], row["measured"], row["identical"]) for row in report["rows"]] == [
        (3, True, True),
        ("auto", True, True),
    ]
    assert all(type(row["num_steps"]) is int for row in report["rows"]) and report["oracle"]["tokens_per_s"] > 0


def test_what_is_best_comes_first(capsys):
    """A reader would search a table for the best drafter, or take a computed time for a measured one."""
    assert cli.main(["sweep", *ON, "--drafter", "ngram,synthetic:0.9", "--k", "1,4", "--max-new-tokens", "24"]) == 0
    said = capsys.readouterr().out
    first = said.split("what each drafter does")[0]
    assert first.startswith("best: ") and "as fast as plain (computed)" in " ".join(first.split())
    assert "the oracle" in first
    assert "Times are computed" in " ".join(said.split()) and "SYNTHETIC" in said and "identical" not in said


def test_a_block_is_asked_only_at_sizes_that_its_head_has(capsys):
    """A traceback from inside the head, a sweep without a table, or a row of a k that nobody raced."""
    drafters = f"{text_of('dflash')},synthetic:0.7+{text_of('dflash')}"
    assert cli.main(["sweep", *ON, "--drafter", drafters, "--k", "2,60,tree:6,auto", "--json"]) == 0
    out = capsys.readouterr()
    most = most_drafts(text_of("dflash"), trained(), silent)
    rows = [(row["drafter"].partition(":")[0], row["k"]) for row in json.loads(out.out)["rows"]]
    own, made_up = [2, most, "tree:6", "auto"], [2, most, min(6, most), "auto"]
    assert rows == [*(("dflash", k) for k in own), *(("synthetic", k) for k in dict.fromkeys(made_up))]
    assert f"k = {most} instead of 60: its head drafts at most {most}" in out.err


def test_a_saved_race_has_its_tables_and_says_so(tmp_path, capsys):
    """Nobody could ask of a recording what another k would have been; or it could not be opened again."""
    path = tmp_path / "race.json"
    lanes = ["--lane", "copy=ngram@auto", "--lane", f"small=draft_model:{DRAFT}@3"]
    more = ["--max-new-tokens", "20", "--tables", "--save", str(path)]
    assert cli.main(["race", *ON, "--audit", *lanes, *more]) == 0
    assert "% of the oracle's speed" in capsys.readouterr().out
    recorded = recordings.read(path)
    told = what_if_of(recorded).steps(f"draft_model:{DRAFT}", 3)
    raced = steps(recorded.events, "small")
    assert [(step.drafted, step.token_ids) for step in told] == [(step.drafted, step.token_ids) for step in raced]
    assert set(recorded["tables"]) == {"ngram@tree", "ngram", f"draft_model:{DRAFT}"}
    assert set(recorded["costs"]["draft_s"]) == set(recorded["tables"])
    assert recordings.summary(recorded)["oracles"] == recorded["oracles"]
    assert set(recorded["oracles"]) == {"copy", "small"}
    played = printed(capsys, "replay", str(path), "--json")
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
