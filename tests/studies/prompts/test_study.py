"""study-prompts, with real races: its rows, a study that goes on, one that is interrupted, and what is refused."""

import json
import os
import re
import shlex
import signal
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.analysis.metrics import seconds_of
from engine.analysis.verdict_words import PAYS, capital
from engine.cli import main as cli
from engine.core.errors import RaceError, UsageError
from engine.core.spec import AUTO, SamplingParams, lanes_of
from engine.recordings.recording import checked
from engine.session import TorchRace
from engine.session.run_prompts import Entry, Raced
from engine.studies.prompts import race_prompts
from engine.studies.prompts.pays import of_speedups
from engine.studies.prompts.prompts import FilePrompt
from engine.studies.prompts.rows import Row
from engine.studies.prompts.study_file import open_study
from engine.what_if.ask import what_if
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, race_of, text_of, trained

HYBRID = f"hybrid:ngram+{text_of('eagle3')}"
DRAFTERS = ["ngram", HYBRID]
pytestmark = pytest.mark.usefixtures("quick_races")
ON = ["--target", str(TRAINED), "--dtype", "float32", "--threads", "1", "--drafter", ",".join(DRAFTERS)]
TEXTS = [*PROMPTS, "def f(x):\n    return x\n", "class A:\n"]
EXACT = ("prompt", "kind", "drafter", "k", "num_tokens", "identical")


@pytest.fixture
def file(tmp_path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": t, "kind": "code"[i % 3 :]}) + "\n" for i, t in enumerate(TEXTS)))
    return str(path)


def study(capsys, file: str, *more: str, status: int = 0) -> dict:
    arguments = ["study-prompts", "--prompts", file, *ON, "--max-new-tokens", "8", "--json", *more]
    assert cli.main(arguments) == status, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def exact(report: dict) -> list[list]:
    return [[row[key] for key in EXACT] for row in report["rows"]]


def test_every_prompt_has_a_row_of_each_drafter(file, capsys):
    """A key that a script looks for is gone, a prompt or a drafter is left out, or sampled lanes part."""
    report = study(capsys, file, "--temperature", "0.8", "--seed", "3")
    with pytest.raises(UsageError, match="saved study of prompts; open it"):
        checked(json.dumps(report).encode())
    assert set(report) == {"schema", "format", "target", "said", "rows", "summary", "best", "engine", "verdict",
                          "doubtful", "reason", "peers", "says"}  # fmt: skip
    assert all(list(row) == list(Row.__dataclass_fields__) for row in report["rows"])
    assert report["said"]["scope"].endswith("one user") and open_study(json.dumps(report))[1] == report["target"]
    assert [(row["kind"], row["drafter"]) for row in report["rows"]] == [
        ("code"[i % 3 :], drafter) for i in range(len(TEXTS)) for drafter in DRAFTERS
    ]
    assert all(row["identical"] and row["k"] == "auto" and row["speedup"] > 0 for row in report["rows"])
    assert list(report["summary"]) == DRAFTERS and report["best"]["drafter"] in DRAFTERS
    assert all("1" in report["summary"][drafter]["computed"] for drafter in DRAFTERS)
    assert set(report["summary"]["ngram"]["by_kind"]) == {"code", "ode", "de"}


def test_a_study_goes_on_where_it_ended(file, tmp_path, capsys, monkeypatch):
    """Hours would be raced again, rows be lost or doubled; or an interrupted write would make the file unusable."""
    path, whole = tmp_path / "study.jsonl", tmp_path / "whole.jsonl"
    first = study(capsys, file, "--save", str(whole))
    head, *lines = whole.read_text().splitlines(keepends=True)
    path.write_text("".join([head, *lines[:5]]) + lines[5][:40])  # two prompts, and half of the third
    second = study(capsys, file, "--save", str(path))
    assert second["rows"][:4] == first["rows"][:4] and exact(second) == exact(first)
    assert len(path.read_text().splitlines()) == 1 + len(TEXTS) * len(DRAFTERS)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert study(capsys, file, "--save", str(path)) == second, "a finished study needs no model"


def test_ctrl_c_prints_what_there_is_and_the_same_command_goes_on(file, tmp_path, capsys, monkeypatch):
    """An hour of races would be thrown away."""
    path, own, num = tmp_path / "study.jsonl", race_prompts.rows_of, iter(range(9))

    def interrupted(*arguments):
        if next(num) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return own(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(race_prompts, "rows_of", interrupted)
        part = study(capsys, file, "--save", str(path), status=130)
    assert len(part["rows"]) == 2 * len(DRAFTERS) and part["verdict"] == "unclear" and "there are 2." in part["reason"]
    assert study(capsys, file, "--save", str(path))["rows"][:4] == part["rows"]


def test_a_prompt_that_the_model_cannot_be_given_is_named_before_any_race():
    """The study would end after an hour, at that prompt."""
    prompts = [FilePrompt(1, "x", "a"), FilePrompt(7, "x", "a " * 5000)]
    with pytest.raises(UsageError, match=r"line 7: the prompt's \d+ tokens and 8 new ones exceed the model's"):
        race_prompts.Study(trained(), prompts, ["ngram"], SamplingParams(max_new_tokens=8))


def test_a_chat_that_the_template_refuses_costs_its_row(monkeypatch):
    """One system message, or one race that fails, would stop thousands of chats, and nobody name the way out."""
    refuses = "{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ m.content }}"
    monkeypatch.setattr(trained().tokenizer, "chat_template", f"{{% for m in messages %}}{refuses}{{% endfor %}}")
    chats = [FilePrompt(i, "x", "hi", ((role, "hi"), ("user", "hi"))) for i, role in enumerate(("user", "system"), 1)]
    study = race_prompts.Study(trained(), chats, ["ngram"], SamplingParams(max_new_tokens=4))
    assert {row.line: bool(row.speedup) for (row,) in study.races()} == {1: True, 2: False}
    (refused,) = next(study.races({1}))
    assert refused.fault.startswith("line 2: this model's chat template does not work")
    assert refused.fault.endswith("no system role; as plain text (--flatten) it can be raced")
    assert list(study.races({1, 2})) == []
    with pytest.raises(UsageError, match=r"^line 2: .*no system role"):
        race_prompts.Study(trained(), chats[1:], ["ngram"], SamplingParams(max_new_tokens=4))

    def no_luck(race):
        raise RaceError("no luck")

    monkeypatch.setattr(TorchRace, "events", no_luck)
    ((lost,),) = study.races({2})
    assert (lost.fault, lost.speedup) == ("line 1: no luck", None)


def test_a_lane_that_fails_stands_in_its_row_and_the_study_goes_on(file, capsys, monkeypatch):
    """One bad draft would cost the whole study; or the failure be hidden behind a verdict."""
    from engine.drafters.ngram import NgramDrafter

    def broken(self, token_ids, drafted, k):
        raise ValueError("a broken drafter")

    monkeypatch.setattr(NgramDrafter, "look", broken)
    few = shlex.split("ngram --limit 3 --max-new-tokens 4 --json")
    assert cli.main(["study-prompts", "--prompts", file, *ON[:-1], *few]) == 1
    said = capsys.readouterr()
    assert said.out, said.err
    report = json.loads(said.out)
    assert [(row["speedup"], row["identical"]) for row in report["rows"]] == [(None, None)] * 3
    assert "line 1: lane ngram failed" in said.err and report["verdict"] == "unclear"


def test_the_verdict_comes_first_then_the_reason_then_the_table(file, capsys):
    """A reader would search a table for the one word that was asked for."""
    assert cli.main(["study-prompts", "--prompts", file, *ON, "--max-new-tokens", "8"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    verdicts = "|".join(re.escape(capital(PAYS[kind].format(""))) for kind in ("ship", "do not ship", "unclear"))
    verdicts += "|" + capital(PAYS["uncertain"].format(""))
    assert re.match(rf"\S+ on a CPU \(.*\), one user ({verdicts}): .*, k = \d+, .*x at the median ", said)
    order = [
        said.index(words)
        for words in (" at the median ", "is computed at", "speed-up over plain", "quartiles", "threads: ")
    ]
    assert order == sorted(order) and not {"None", "nan"} & set(said.split())


@given(st.lists(st.integers(2, 5000), min_size=1, max_size=30))
def test_prompts_share_lengths_and_no_cache_is_much_too_long(needs):
    """Each length is probed for seconds; but one long prompt must not make every step of the others longer."""
    rooms = race_prompts.shared_rooms(needs)
    assert all(need <= room <= race_prompts.SPREAD * need for need, room in zip(needs, rooms, strict=True))
    distinct = sorted(set(rooms))
    assert set(distinct) <= set(needs) and all(b > race_prompts.SPREAD * a for a, b in pairwise(distinct))


def test_speedups_are_over_the_faster_of_both_lanes_without_drafts():
    """Measured and computed ratios would be against different plain decoding, or against the slower one."""
    race = race_of(lanes_of([("ngram", "ngram", AUTO)]), max_new_tokens=24)
    entry = Entry("line 1", "x", race.prompt, race.spec)
    (row,) = race_prompts.rows_of(Raced(entry, race, list(race.events())), FilePrompt(1, "x", PROMPTS[0]))
    seconds = {name: seconds_of(lane.steps) for name, lane in race.lanes.items()}
    plain_s, tables = min(seconds["plain"], seconds["baseline"]), what_if(race, [("ngram", 15)])
    assert row.speedup == pytest.approx(plain_s / seconds["ngram"])
    for k in range(1, len(tables.costs.verify_s)):
        assert row.computed[str(k)] == pytest.approx(plain_s / seconds_of(tables.steps("ngram", k)))


def test_races_can_be_closed_at_any_time():
    """A page whose visitor leaves would race on; or the next study on the same model would fail."""
    prompts = [FilePrompt(line, "x", text) for line, text in enumerate(TEXTS, 1)]
    study = race_prompts.Study(trained(), prompts, ["ngram"], SamplingParams(max_new_tokens=6))
    running = study.races()
    assert [row.line for row in next(running)] == [1]
    running.close()
    stages = []
    rest = list(study.races({1, 2}, lambda stage, share: stages.append((stage, share))))
    assert [rows[0].line for rows in rest] == [3, 4]
    assert stages[0] == ("prompt 3 of 4: timing a step of each width", 2 / 4)
    assert re.match(r"prompt 4 of 4, about \d+ s left: ", stages[-1][0])


def test_the_default_model_gains_on_text_that_copies(tmp_path, capsys):
    """Its head or its default drafters are not found; or a plain copy is not worth it, which nothing would be."""
    path = tmp_path / "prompts.txt"
    names = ("Anna Lindqvist", "Boris Talvik", "Chloe Marchetti")
    path.write_text("".join(f"List of members: {name}; {name}; {name};\n" for name in names))
    assert cli.main(["study-prompts", "--prompts", str(path), "--max-new-tokens", "16", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["summary"]) == ["ngram", "hybrid:ngram+eagle3"]
    assert all(row["identical"] for row in report["rows"]) and report["best"]["median_speedup"] > 1
    best = report["best"]["drafter"]
    assert best == "ngram", "no server runs the head that ships"
    k = str(report["best"]["k"])
    assert report["verdict"] == of_speedups([row["computed"][k] for row in report["rows"] if row["drafter"] == best])
    assert "texts repeat themselves" in report["reason"]
