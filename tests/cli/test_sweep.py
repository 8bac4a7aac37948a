"""sweep: rows computed from one race, or measured; and race --tables."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from engine.cli import main as cli
from engine.events import steps
from engine.recordings import recording as recordings
from engine.what_if import ask
from engine.what_if.read import what_if_of
from tests.helpers.trained import DRAFT, PROMPTS, TRAINED, text_of

EAGLE3, HYBRID = text_of("eagle3"), f"hybrid:ngram+{text_of('eagle3')}"
ON = ["--prompt", PROMPTS[0], "--target", str(TRAINED), "--dtype", "float32", "--threads", "1"]
ROW = {
    "drafter", "k", "tokens_per_s", "speedup", "acceptance_rate", "mean_acceptance_length", "num_steps", "identical",
    "measured",
}  # fmt: skip


def swept(capsys, drafters: Sequence[str], ks: str, *more: str) -> dict[str, Any]:
    arguments = ["sweep", *ON, "--drafter", ",".join(drafters), "--k", ks, "--max-new-tokens", "24", "--json", *more]
    assert cli.main(arguments) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_computed_rows_are_the_measured_ones_but_for_time(capsys, temperature):
    """A number of steps, or a share of accepted drafts, that no race has; or a key that a script looks for is gone."""
    drafters, more = ("ngram", EAGLE3), ("--temperature", temperature, "--seed", "3")
    computed = swept(capsys, [*drafters, HYBRID], "auto", *more), swept(capsys, drafters, "2,5", *more)
    measured = swept(capsys, drafters, "2,5", "--measure", *more)
    for report in (*computed, measured):
        assert set(report) == {"schema", "rows", "best", "oracle"} and all(set(row) == ROW for row in report["rows"])
        best = max(report["rows"], key=lambda row: row["tokens_per_s"])
        assert report["best"] == {"drafter": best["drafter"], "k": best["k"]}
        assert all(row[key] > 0 for row in report["rows"] for key in ("tokens_per_s", "speedup"))
        if not best["measured"]:
            assert report["oracle"]["tokens_per_s"] >= best["tokens_per_s"] * (1 - 1e-9)
    exact = ("drafter", "k", "acceptance_rate", "mean_acceptance_length", "num_steps")
    told, real = ([[row[key] for key in exact] for row in each["rows"]] for each in (computed[1], measured))
    assert told == real and [row[:2] for row in real] == [[drafter, k] for drafter in drafters for k in (2, 5)]
    for report in computed:
        assert {(row["measured"], row["identical"]) for row in report["rows"]} == {(False, None)}
    assert {(row["measured"], row["identical"]) for row in measured["rows"]} == {(True, True)}
    assert [row["num_steps"] for row in computed[0]["rows"]] == [None] * 3, "auto is a simulation"
    assert [row["drafter"] for row in computed[0]["rows"]] == [*drafters, HYBRID]


def test_a_hybrid_and_auto_are_measured(capsys):
    """What decides by time could not be swept at all."""
    report = swept(capsys, [HYBRID], "3,auto", "--measure")
    assert [(row["k"], row["measured"], row["identical"]) for row in report["rows"]] == [
        (3, True, True),
        ("auto", True, True),
    ]
    assert all(type(row["num_steps"]) is int for row in report["rows"]) and report["oracle"]["tokens_per_s"] > 0


def test_what_is_best_comes_first(capsys):
    """A reader would search a table for the one figure that was asked for; or take a computed time for a measured
    one."""
    assert cli.main(["sweep", *ON, "--drafter", "ngram,synthetic:0.9", "--k", "1,4", "--max-new-tokens", "24"]) == 0
    said = capsys.readouterr().out
    first = said.split("what each drafter does")[0]
    assert (
        first.startswith("best: ")
        and "as fast as plain (computed)" in " ".join(first.split())
        and "the oracle" in first
    )
    assert "Times are computed" in " ".join(said.split()) and "SYNTHETIC" in said and "identical" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--k", "0"], "must be auto or an integer from 1 to 63, not '0'"),
        (["--k", "1,64"], "must be auto or an integer from 1 to 63, not '64'"),
        (["--k", "1,,3"], "a list with commas, each thing in it once, not '1,,3'"),
        (["--k", "3,3"], "each thing in it once"),
        (["--drafter", "ngram,"], "a list with commas"),
        (["--drafter", "nonsense"], "unknown drafter 'nonsense'; choose one of: dflash, draft_model"),
        (["--drafter", "ngram,none"], "drafter 'none' has no table of drafts by position; choose one of: ngram,"),
        (["--drafter", HYBRID, "--k", "auto,3"], "at k=3 has no table .* race it with --measure, ask for k auto"),
        (["--measure", "--k", ",".join(map(str, range(1, 16)))], "at most 14, not 15"),
        (["--temperature", "-1"], "must be a number from 0 to 100"),
        (["--prompt-file", "x"], "give exactly one prompt"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_one_line_without_torch(arguments, words, capsys, monkeypatch):
    """Seconds would go into loading before a typo is told."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["sweep", "--prompt", "x", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    assert re.search(words, said), said


def test_a_block_is_asked_only_at_sizes_that_its_head_has(capsys):
    """A traceback from inside the head."""
    assert cli.main(["sweep", *ON, "--drafter", text_of("dflash"), "--k", "60"]) == 2
    assert "drafts at most" in capsys.readouterr().err


def test_a_saved_race_has_its_tables_and_says_so(tmp_path, capsys):
    """Nobody could ask of a recording what another k would have been; or it could not be opened again."""
    path = tmp_path / "race.json"
    lanes = ["--lane", "copy=ngram@auto", "--lane", f"small=draft_model:{DRAFT}@3"]
    more = ["--max-new-tokens", "20", "--tables", "--save", str(path)]
    assert cli.main(["race", *ON, *lanes, *more]) == 0
    assert "% of the oracle's speed" in capsys.readouterr().out
    recorded = recordings.read(path)
    told = what_if_of(recorded).steps(f"draft_model:{DRAFT}", 3)
    raced = steps(recordings.events_of(recorded), "small")
    assert [(step.drafted, step.token_ids) for step in told] == [(step.drafted, step.token_ids) for step in raced]
    assert set(recorded["tables"]) == {"ngram", "ngram@auto", f"draft_model:{DRAFT}"}
    assert set(recorded["costs"]["draft_s"]) == set(recorded["tables"])
    assert recordings.summary(recorded)["oracles"] == recorded["oracles"] and set(recorded["oracles"]) == {
        "copy",
        "small",
    }
    assert cli.main(["replay", str(path), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["oracles"]) == {"copy", "small"}


def test_giving_up_on_tables_keeps_the_race(tmp_path, monkeypatch, capsys):
    """Who does not want to wait for tables would lose a race of minutes."""

    def given_up(race, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(ask, "members", given_up)
    path = tmp_path / "race.json"
    assert cli.main(["race", *ON, "--max-new-tokens", "4", "--tables", "--save", str(path), "--json"]) == 0
    recorded = recordings.read(path)
    assert "tables" not in recorded and not recorded.get("stopped") and json.loads(capsys.readouterr().out)["speedup"]


def test_tables_of_what_has_none_are_refused_before_the_race(capsys, monkeypatch):
    """The race would be over before one hears of it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["race", "--prompt", "x", "--tables", "--rule", "rejection"]) == 2
    assert "rule 'rejection' of lane 'speculative' has no table" in capsys.readouterr().err
    assert cli.main(["race", "--prompt", "x", "--tables", "--drafter", "none"]) == 2
    assert "drafter 'none' has no table" in capsys.readouterr().err
