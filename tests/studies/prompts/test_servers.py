"""What a study of prompts on servers says of their texts."""

import json
from typing import Any

import pytest

from engine.analysis.verdict_words import NOT_AS_IT_IS, PAYS, capital
from engine.cli.main import main
from engine.core.errors import UsageError
from engine.core.spec import SamplingParams
from engine.progress import silent
from engine.recordings.recording import build, checked
from engine.recordings.words import causes
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint
from engine.remote.request import Question
from engine.remote.server_race import RemoteRace
from engine.studies.prompts import pays_words
from engine.studies.prompts.pays import report
from engine.studies.prompts.prompts import FilePrompt
from engine.studies.prompts.race_servers import rows_on_servers
from engine.studies.prompts.rows import Row, row_of
from engine.studies.prompts.study_file import open_study
from tests.helpers.loopback import as_chat, says, servers, sse, stream_of, writes
from tests.helpers.pure_js import pure_js

WORDS = ["The", " cat", " sat", " on", " it", "."]
# What the speculative server writes after each prompt; the plain one always writes WORDS.
TEXTS = {"one": WORDS, "two": [*WORDS[:3], " in", *WORDS[4:]], "three": ["A", *WORDS[1:]], "four": WORDS[:4]}
PLAIN, SPECULATIVE = writes(words=lambda prompt: WORDS), writes(words=lambda prompt: TEXTS.get(prompt, WORDS))


def textless(plain: str) -> tuple[Row, ...]:
    """The rows of two servers whose tokens are named, and whose text is in a field that nobody reads."""
    events = [sse(event) for event in as_chat(stream_of([1] * len(WORDS), WORDS), "musing")]
    with servers(says(events, 0.002), says(events, 0.001)) as pair:
        endpoints = [Endpoint(name, "m", server.url) for name, server in zip((plain, "spec"), pair, strict=True)]
        params, question = SamplingParams(max_new_tokens=len(WORDS)), Question(messages=(("user", "x"),))
        race = RemoteRace(endpoints, question, params, Patience(5.0, 10.0))
        return rows_on_servers(race, {"spec": "server"}, FilePrompt(1, "prompts", "x"), silent)


@pytest.mark.parametrize("plain", ["plain", "baseline"])
def test_rows_say_where_two_texts_differ(plain: str) -> None:
    """A drafter that changes the text would look like one that does not; or lanes called as the user likes, plain and
    spec, would have no verdict, and a recording that no one can open."""
    rows, verdicts = [], []
    params = SamplingParams(max_new_tokens=len(WORDS))
    with servers(PLAIN, SPECULATIVE) as pair:
        endpoints = [Endpoint(name, "m", server.url) for name, server in zip((plain, "spec"), pair, strict=True)]
        for line, text in enumerate(TEXTS, 1):
            race = RemoteRace(endpoints, Question(text), params, Patience(5.0, 10.0))
            (row,) = rows_on_servers(race, {"spec": "server"}, FilePrompt(line, "prompts", text), silent)
            rows.append(row.to_json())
            recording = build(race.header(), (), race.result())
            assert recording["device"]["name"] == f"both servers, {plain} and spec"
            verdicts.append(checked(json.dumps(recording.fields).encode())["verdicts"]["spec"]["kind"])
    differs = [None, len("The cat sat "), 0, len("The cat sat on")]
    assert [(row["identical"], row["differs_at"]) for row in rows] == [(at is None, at) for at in differs]
    assert verdicts == ["same_text", "other_text", "other_text", "other_text"]
    assert row_of(rows[1]).differs_at == 12 and rows[1]["ways"] == ["The cat sat ", "on it.", "in it."]
    assert rows[3]["ways"] == ["The cat sat on", " it.", ""] and rows[0]["ways"] is None
    (row,) = textless(plain)
    assert not row.identical and f"not compared: {plain} and spec wrote nothing; it counts 6 tokens" in row.fault
    best = report([row], "m")["best"]
    assert best["num_other_texts"] == best["num_compared"] == 0 and row.speedup, "not compared is not different"
    old = {name: value for name, value in rows[0].items() if name not in ("differs_at", "ways")}
    assert row_of(old).differs_at is None
    with pytest.raises(UsageError, match="ways must be three texts"):
        row_of({**rows[1], "ways": ["a", "b"]})
    speedups = 0.3377471928732536, 0.4973893180825205, 2.6660993764884178, 2.7267734123572604
    unequal = [{**rows[0], "speedup": speedup} for speedup in speedups]
    assert report(list(map(row_of, unequal)), "m")["engine"] is None, "two ways to a median part in their last digit"
    local = {**rows[1], "drafter": "ngram"}
    sides = (rows, rows[:1], [*rows[:1], {**rows[1], "fault": "dead"}], [local])
    said, *others = (report(list(map(row_of, some)), "m", 0)["says"] for some in sides)
    assert said["texts"] == "Same text: 1 of 4 answers." and said["causes"] == causes(0, in_batches=False)
    assert report(list(map(row_of, rows)), "m", 0.8)["says"]["causes"] == causes(0.8, in_batches=False)
    unknown = {**rows[1], "identical": None, "differs_at": None, "ways": None}
    assert report(list(map(row_of, [rows[0], unknown])), "m", 0)["says"]["texts"] == "Same text: 1 of 1 answer."
    assert report([row_of(unknown)], "m", 0)["says"]["texts"] == "", "what was not compared does not differ"
    assert [words["texts"] for words in others] == ["Same text: 1 of 1 answer.", "Same text: 1 of 1 answer.", ""]
    assert [words["causes"] for words in others] == [""] * 3
    with pure_js("yours/prompt_results.js") as call:
        study = {"says": said, "best": {"num_other_texts": 3}}
        known, unexplained = (call("textsWords", study, 0, {"level": "fault", "check": name, "says": "1 real fault."})
                                for name in ("texts", "sampling"))  # fmt: skip
    assert known.endswith("of 4 answers. The check-up: 1 real fault.") and "Possible" in unexplained


def test_the_answer_on_servers_is_of_one_user_and_heeds_load_and_check_up() -> None:
    """ "Yes, it pays" would be forwarded of servers on which many users lose, or which write something else."""
    best = {"k": None, "drafter": "server", "median_speedup": 1.99, "measured": True, "num_other_texts": 0,
            "by_time_only": False, "saving": 0.5}  # fmt: skip
    wrong, unsure = {"level": "fault"}, {"level": "doubt"}
    rounding, others = ({"level": "ok", "numDiffering": num, "numRounding": 2} for num in (2, 0))
    load = {"says": "faster with 1 user, slower with 16", "recommends": "speculation on with 1 user, off with 16"}
    without = {"num_prompts": 1, "median_speedup": 1.994, "verdict": "unclear"}

    def judged(verdict: str = "ship", doubtful: bool = False, **more: Any) -> dict[str, Any]:
        study = {"verdict": verdict, "doubtful": doubtful, "best": {**best, **more}, "engine": None}
        return {**study, "says": pays_words.says(study, [], 0)}

    ship, other = judged(), judged(num_other_texts=2)
    with pure_js("yours/prompt_results.js") as call:
        headline, not_safe = call("studyVerdict", ship), call("studyVerdict", other, unsure)
        no, safe = call("studyVerdict", other, wrong, 0), call("studyVerdict", other, rounding, 0)
        not_those, not_cold = call("studyVerdict", other, others, 0), call("studyVerdict", other, rounding, 0.8)
        doubtful = call("studyVerdict", judged(doubtful=True, without=without))
        said = [call("loadWords", *arguments) for arguments in ((load, None), (load, wrong), (None, None))]
        colours = [call("colourOf", *arguments) for arguments in (
            (ship, {"loses": False}), (ship, {"loses": True}), (other, None), (other, None, rounding, 0),
            (ship, None, wrong), (judged("do not ship"), {"loses": True}))]  # fmt: skip
    pays, faster = (capital(PAYS[word].format(" with one user")) for word in ("ship", "faster"))
    assert headline == f"{pays}: speculation, 1.99\u00d7 at the median (measured)"
    assert not_safe.startswith(f"{faster}: ") and not_safe.endswith(", but 2 texts differ")
    assert no.startswith(NOT_AS_IT_IS.format("speculation, 1.99")) and pays not in no
    assert safe == f"{headline}; 2 texts differ, by rounding, as far as the check-up saw"
    assert not_those == not_cold == not_safe, "a check-up of other prompts, or at another temperature, explains nothing"
    assert "(measured), and 1.99\u00d7 on only 1 prompt whose text" in doubtful, "no but between equal numbers"
    assert said[:2] == [f"Under load: {load['says']}.", f"Under load: {load['recommends']}."]
    assert said[2].startswith("With more users it may lose")
    assert colours == ["ship", "unclear", "unclear", "ship", "do not ship", "do not ship"]


SHOWN = """(of, latestKind, runs) => {
    for (const kind of KINDS) Object.assign(results[kind],
        { frame: kind in of ? {} : null, is: of[kind] ?? null, state: kind === runs ? "racing" : "finished" });
    latest.current = latestKind;
    const said = saidOfServers(Object.fromEntries(KINDS.map((kind) => [kind, { summary: () => "said" }])));
    return [shownKinds(), KINDS.filter((kind) => said[kind])];
}"""


def test_only_results_of_the_same_servers_are_put_together() -> None:
    """A load of other servers would decide on these, or half a load of the same ones."""
    with pure_js("yours/results.js") as call:
        both, one = ["study", "load"], ["load"]
        for study, load, latest, runs, shown in (
            ("s", "s", "study", None, [both, both]), ("s", "s", "load", "load", [both, ["study"]]),
            ("s", "t", "load", None, [one, one]), (None, None, "load", None, [one, one]),
            ("s", "s", "checkup", None, [[], []]),
        ):  # fmt: skip
            assert call(SHOWN, {"study": study, "load": load}, latest, runs) == shown
        here, there = {"target": "m", "said": {}}, {"target": "m", "said": {"on_servers": True}}
        lanes, ran_on = ["plain", "ngram"], {"machine": "x"}
        for kind, frame, subject in (
            ("study", {"report": here, "lanes": lanes, "ran_on": ran_on}, "m"), ("checkup", {"report": here}, "m"),
            ("study", {"report": there, "lanes": lanes, "ran_on": ran_on}, "x"), ("load", {"servers": "x"}, "x"),
            ("checkup", {"servers": "x", "report": {}}, "x"), ("study", {"lanes": lanes, "ran_on": ran_on}, None),
        ):  # fmt: skip
            assert call("subjectOf", kind, frame) == subject


def test_results_of_the_same_servers_give_one_recommendation() -> None:
    """A load would say "on" and the check-up "off"."""
    study = {"verdict": "ship", "median": 2.15, "interval": [1.98, 2.24], "num": 14, "compared": 12, "others": 2,
             "length": 64, "temperature": 0}  # fmt: skip
    load = {"recommends": "speculation on with 1 user, off with 16", "ratios": "1.86x with 1 user",
            "compared": 144, "length": 32, "others": 24}  # fmt: skip
    wrong = {"level": "fault", "check": "texts", "change": "Turn it off"}
    rounding, unseen = ({"level": "ok", "numDiffering": num, "numRounding": num} for num in (2, 0))
    same = {**load, "others": 0}
    with pure_js("yours/results.js") as call:

        def short(study: Any = study, load: Any = load, checkup: Any = None) -> list[str]:
            return call("shortly", {"study": study, "load": load, "checkup": checkup})

        assert short(None, None) == short(load=None) == short(None) == short(None, None, wrong) == []
        advice, texts, speed, under = short()
        assert speed.startswith("With one user: 2.15\u00d7 while") and speed.endswith("14 prompts, up to 64 tokens).")
        assert under.endswith("included: 1.86x with 1 user.")
        assert texts.startswith("Texts: 2 of 12 answers differ, and nobody knows why")
        assert advice == "To do: find out why texts differ, with the check-up."
        advice, texts, *_ = short(checkup=wrong)
        assert texts == "Texts: wrong. 2 of 12 answers differ, and the check-up found a fault."
        assert advice == f"To do: turn it off. Once that is fixed: {load['recommends']}."
        advice, texts, *_ = short(checkup={**wrong, "check": "sampling"})
        assert advice.startswith("To do: turn it off.") and texts.endswith("does not say why."), "a fault of any kind"
        advice, texts, *_ = short(checkup=rounding)
        assert texts.endswith("and the check-up does not say why.") and "before you switch" in advice, "of the load"
        advice, texts, *_ = short(load=same, checkup=rounding)
        assert advice == f"To do: {load['recommends']}."
        assert texts == "Texts: 2 of 12 answers differ, by rounding, as far as the check-up saw."
        assert short(load=None, checkup=rounding)[0] == "To do: measure it under load."
        assert "before you switch" in short(load=None, checkup=unseen)[0], "the check-up examined other prompts"
        for num, words in ((12, "the same in all 12 answers"), (0, "not compared")):
            _, texts, *_ = short({**study, "others": 0, "compared": num}, None, {"level": "doubt"})
            assert texts == f"Texts: {words}; the check-up has a doubt about them."


def test_the_command_studies_servers_and_never_says_where_they_are(tmp_path, capfd) -> None:
    """The page would copy a command that does something else; or its file name a server."""
    (tmp_path / "mine.txt").write_text("\n".join(TEXTS))
    with servers(PLAIN, SPECULATIVE) as pair:
        lanes = [part for name, server in zip(("plain", "spec"), pair, strict=True)
                 for part in ("--lane", f"{name}=openai:{server.url}")]  # fmt: skip
        more = ["--max-new-tokens", str(len(WORDS)), "--save", str(tmp_path / "study.jsonl"), "--json"]
        asked = ["study-prompts", "--prompts", str(tmp_path / "mine.txt"), *lanes, "--model", "m", *more]
        assert main(asked) == main(asked) == 0, "the second one goes on where nothing is left"
        num_asked = [sum(body["max_tokens"] > 1 for body in server.asked) for server in pair]
    out, err = capfd.readouterr()
    said, (rows, _, kept) = json.loads(out[: len(out) // 2]), open_study((tmp_path / "study.jsonl").read_text())
    assert num_asked == [len(TEXTS)] * 2
    assert [row["identical"] for row in said["rows"]] == [True, False, False, False]
    assert [row.to_json() for row in rows] == said["rows"] and kept == said["said"]
    assert "spec does not say what it is; 4 prompts (mine.txt), 20" in said["said"]["circumstances"]
    assert "127.0.0.1" not in out + err + (tmp_path / "study.jsonl").read_text()
