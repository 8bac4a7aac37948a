"""--lane: any number of named lanes in one race, and one line for what cannot be one."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli import main as cli
from engine.cli.commands import RACE
from engine.cli.lanes import lanes_asked
from engine.cli.main import _parser
from engine.errors import UsageError
from engine.recordings import recording as recordings
from tests.helpers import ROOT
from tests.helpers.trained import DRAFT, TRAINED, text_of

ASKED = ["race", "--prompt", "import os\n", "--target", str(TRAINED), "--dtype", "float32", "--threads", "1"]
HEAD = ROOT / "tests/fixtures/trained/eagle3"
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
    lanes = lanes_asked(_parser("race", RACE).parse(["--prompt", "x", *words]))
    assert [(lane.name, lane.role) for lane in lanes[:2]] == [("plain", "plain"), ("baseline", "baseline")]
    want = {name: (each, 0 if each == "none" else "auto" if k is None else k) for name, (each, k) in asked.items()}
    assert {lane.name: (lane.drafter, lane.k) for lane in lanes[2:]} == want
    assert {lane.role for lane in lanes[2:]} == {"speculative"}


@given(st.text(max_size=12) | st.text("ab=@:0a ngrmo", max_size=12))
def test_any_text_is_a_lane_or_refused_in_words(text):
    """A traceback, or a race with other lanes than it seems."""
    try:
        lanes = lanes_asked(_parser("race", RACE).parse(["--prompt", "x", f"--lane={text}"]))
    except UsageError as error:
        assert "internal" not in str(error) and len(str(error)) < 400
    else:
        (lane,) = lanes[2:]
        assert text in (f"{lane.name}={lane.drafter}", f"{lane.name}={lane.drafter}@{lane.k}") or lane.drafter == "none"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--lane", "ngram"], "--lane: must be NAME=DRAFTER or NAME=DRAFTER@K, not 'ngram'"),
        (["--lane", "=ngram"], "must be NAME=DRAFTER"),
        (["--lane", "a="], "must be NAME=DRAFTER"),
        (["--lane", "a=@7"], "must be NAME=DRAFTER"),
        (["--lane", "a=ngram@"], "K, after the last @ of 'a=ngram@', must be auto or an integer from 0 to 63, not ''"),
        (["--lane", "a=ngram@64"], "from 0 to 63, not '64'"),
        (["--lane", "a=draft_model:owner/name@main"], "must be auto or an integer from 0 to 63, not 'main'"),
        (["--lane", "a=ngram@0"], "needs k of 1 to 63 or auto, not 0"),
        (["--lane", "plain=ngram"], "NAME must not be plain or baseline"),
        (["--lane", "baseline=ngram@7"], "NAME must not be plain or baseline"),
        (["--lane", f"{'n' * 41}=ngram"], "at most 40 characters"),
        (["--lane", "a\x1b[2J=ngram"], "all visible"),
        (["--lane", "a=ngram", "--lane", "a=none"], "lanes with different names, not 4: plain, baseline, a, a"),
        (["--lane", "a=nonsense@3"], "unknown drafter 'nonsense'; choose one of: dflash, draft_model"),
        (["--lane", "a=openai:localhost:8000/v1@7", "--model", "m"], "lane 'a' needs openai:http://HOST:PORT/v1"),
        (["--lane", "a=ngram", "--drafter", "ngram"], "give it without --drafter and --k"),
        (["--k", "7", "--lane", "a=ngram"], "give it without --drafter and --k"),
        ([f"--lane={i}=ngram" for i in range(15)], "a race needs from 1 to 16 lanes with different names, not 17"),
    ],
)
def test_what_is_no_lane_is_refused_in_one_line_without_torch(arguments, words, capsys, monkeypatch):
    """The value and the choices, before seconds go into loading; a backend's prefix is no drafter."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["race", "--prompt", "x", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err


def printed(capsys, *arguments: str, status: int = 0) -> dict:
    assert cli.main(list(arguments)) == status
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_five_lanes_are_one_race(capsys, tmp_path):
    """The bar: every lane's tokens and rows are the baseline's; saved, replayed and verified lane by lane."""
    five = [
        "ngram=ngram@3",
        "auto=ngram",
        f"two=hybrid:ngram+eagle3:{HEAD}@5",
        f"draft=draft_model:{DRAFT}@4",
        "made up=synthetic:0.6@7",
    ]
    path = str(tmp_path / "race.json")
    asked = [*ASKED, "--audit", "--temperature", "0.8", "--max-new-tokens", "32", "--save", path, "--json"]
    summary = printed(capsys, *asked, *(f"--lane={lane}" for lane in five))
    names = [lane.partition("=")[0] for lane in five]
    lanes = summary["lanes"]
    assert list(lanes) == ["plain", "baseline", *names]
    assert list(summary["verdicts"]) == list(summary["speedups"]) == names
    for name in names:
        assert lanes[name]["token_ids"] == lanes["baseline"]["token_ids"], name
        verdict = summary["verdicts"][name]
        assert (verdict["kind"], verdict["rows_different"]) == ("identical_bits", 0), name
        assert verdict["rows_compared"] == lanes["baseline"]["num_tokens"], name
        assert summary["speedups"][name] > 0, name
    assert (summary["verdict"], summary["speedup"]) == (None, None)
    assert sum(lanes["two"]["per_step_drafted"]) > 0 and recordings.read(path)["synthetic"] == ["made up"]
    assert printed(capsys, "replay", path, "--json") == summary
    told = printed(capsys, "verify", path, "--json")
    assert told["same_tokens"] and all(told["lanes"][name]["rows_different"] == 0 for name in names)


def test_one_lane_that_fails_leaves_the_others(capsys, monkeypatch):
    """Status 1 with its message, and every other lane has its tokens, its verdict and its ratio."""
    monkeypatch.setitem(sys.modules["engine.drafters"].DRAFTERS, "broken", "tests.cli.test_cli_race:BROKEN")
    lanes = ["--lane=a=ngram@3", "--lane=b=broken@3", f"--lane=c={text_of('synthetic')}@3"]
    summary = printed(capsys, *ASKED, "--max-new-tokens", "16", "--json", *lanes, status=1)
    assert [name for name, lane in summary["lanes"].items() if "error" in lane] == ["b"]
    whole = summary["lanes"]["baseline"]["token_ids"]
    assert summary["lanes"]["a"]["token_ids"] == summary["lanes"]["c"]["token_ids"] == whole
    assert summary["lanes"]["b"]["token_ids"] == whole[:2] and summary["verdicts"]["b"]["rows_compared"] == 2
    assert {verdict["kind"] for verdict in summary["verdicts"].values()} == {"identical_tokens"}
