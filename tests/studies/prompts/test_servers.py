"""What a study of prompts on servers says of their texts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from engine.cli.main import main
from engine.errors import UsageError
from engine.progress import silent
from engine.recordings.recording import build, loads
from engine.recordings.words import CAUSES, TELL_APART
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint, Question
from engine.remote.race import RemoteRace
from engine.spec import SamplingParams
from engine.studies.prompts.prompts import FilePrompt
from engine.studies.prompts.rows import row_of
from engine.studies.prompts.servers import rows_on_servers
from engine.studies.prompts.study_file import open_study
from engine.studies.prompts.verdict import THRESHOLD
from tests.helpers.loopback import HEAD, Answer, Body, http, servers, sse, stream_of
from tests.helpers.pure_js import pure_js

WORDS = ["The", " cat", " sat", " on", " it", "."]
SAID = {"THRESHOLD": THRESHOLD, "CAUSES": CAUSES, "TELL_APART": TELL_APART}
TEXTS = {"one": WORDS, "two": [*WORDS[:3], " in", *WORDS[4:]], "three": ["A", *WORDS[1:]], "four": WORDS[:4]}
"""What the speculative server writes after each prompt; the plain one always writes WORDS."""


def writes(speculative: bool) -> Answer:
    async def answer(path: str, body: Body) -> AsyncIterator[bytes]:
        words = (TEXTS.get(str(body["prompt"]), WORDS) if speculative else WORDS)[: body["max_tokens"]]
        yield HEAD + http(sse(*stream_of([1] * len(words), words))) + b"0\r\n\r\n"

    return answer


@pytest.mark.parametrize("plain", ["plain", "baseline"])
def test_rows_say_where_two_texts_differ(plain: str) -> None:
    """A drafter that changes the text would look like one that does not; or lanes called as the user likes, plain and
    spec, would have no verdict, and a recording that no one can open."""
    rows, verdicts = [], []
    params = SamplingParams(max_new_tokens=len(WORDS))
    with servers(writes(False), writes(True)) as found:
        endpoints = [Endpoint(name, "m", each.url) for name, each in zip((plain, "spec"), found, strict=True)]
        for line, text in enumerate(TEXTS, 1):
            race = RemoteRace(endpoints, Question(text), params, Patience(5.0, 10.0))
            (row,) = rows_on_servers(race, {"spec": "server"}, FilePrompt(line, "prompts", text), silent)
            rows.append(row.to_json())
            recording = build(race.header(), (), race.result())
            assert recording["device"]["name"] == f"both servers, {plain} and spec"
            verdicts.append(loads(json.dumps(recording.fields).encode())["verdicts"]["spec"]["kind"])
    assert [(row["identical"], row["differs_at"]) for row in rows] == [
        (True, None),
        (False, len("The cat sat ")),
        (False, 0),
        (False, len("The cat sat on")),
    ]
    assert verdicts == ["same_text", "other_text", "other_text", "other_text"]
    assert row_of(rows[1]).differs_at == 12 and rows[1]["ways"] == ["The cat sat ", "on it.", "in it."]
    assert rows[3]["ways"] == ["The cat sat on", " it.", ""] and rows[0]["ways"] is None
    old = {name: value for name, value in rows[0].items() if name not in ("differs_at", "ways", "plain_repeats")}
    assert row_of(old).differs_at is None
    with pytest.raises(UsageError, match="ways must be three texts"):
        row_of({**rows[1], "ways": ["a", "b"]})
    local = {**rows[1], "drafter": "ngram"}
    with pure_js("dialogs/results.js", **SAID) as call:
        said = [call("textsWords", its) for its in (rows, rows[:1], [*rows[:1], {**rows[1], "fault": "dead"}], [local])]
        once = call("textsWords", [*rows[:1], {**rows[1], "plain_repeats": False}])
    control = "Asked once more, the plain server wrote its own text again in 3 of 3: it repeats itself"
    assert said[0].startswith(f"Same text: 1 of 4 answers. {control}")
    assert said[0].endswith(f"within a few words: here most do. {TELL_APART}.")
    assert [row["plain_repeats"] for row in rows] == [None, True, True, True]
    assert "in 0 of 1: it does not repeat itself, so the differences say nothing of speculation" in once
    assert said[1:] == ["Same text: 1 of 1 answer.", "Same text: 1 of 1 answer.", ""]


def test_the_answer_on_servers_is_of_one_user_and_names_the_load() -> None:
    """ "Yes, it pays" would be forwarded of servers on which many users lose, or a load of other servers be named."""
    with pure_js("dialogs/results.js", **SAID) as call:
        best = {"k": None, "drafter": "server", "median_speedup": 1.99, "measured": True, "num_other_texts": 0}
        headline = call("verdictWords", {"verdict": "ship", "doubtful": False, "best": best})
        other = call("verdictWords", {"verdict": "ship", "doubtful": False, "best": {**best, "num_other_texts": 2}})
        without = {"num_prompts": 1, "median_speedup": 1.994, "verdict": "unclear"}
        doubtful = call("verdictWords", {"verdict": "ship", "doubtful": True, "best": {**best, "without": without}})
        about, there = {"target": "m", "lanes": ["a", "b"]}, {"urls": ["u", "v"]}
        load = {"model": "m", "lanes": ["a", "b"], "urls": ["u", "v"], "words": "off with 16", "loses": True}
        found = [call("loadFor", load, *its) for its in ((about, there), (about, {"urls": ["u", "w"]}), (about, None),
                 ({**about, "target": "n"}, there), ({**about, "lanes": ["a"]}, there))]  # fmt: skip
        said = [call("loadWords", each) for each in found[:2]]
        verdicts = ("ship", "do not ship")
        colours = [call("colourOf", {"verdict": its, "doubtful": False, "best": best}, load) for its in verdicts]
        colours.append(call("colourOf", {"verdict": "ship", "doubtful": False, "best": best}, {**load, "loses": False}))
    assert colours == ["unclear", "do not ship", "ship"]
    assert headline == "Yes, it pays with one user (\u201cship\u201d): speculation, 1.99\u00d7 at the median (measured)"
    assert other.startswith("Faster with one user: ") and other.endswith(", but 2 texts differ") and "ship" not in other
    assert "(measured), and 1.99\u00d7 on only 1 prompt whose text" in doubtful, "no but between equal numbers"
    assert found == [load, None, None, None, None], "a load of other servers"
    assert said[0] == "Under load: off with 16." and said[1].startswith("With more users it may lose")


def test_the_command_studies_servers_and_never_says_where_they_are(tmp_path, capfd) -> None:
    """The page would copy a command that does something else; or its file name a server."""
    (tmp_path / "mine.txt").write_text("\n".join(TEXTS))
    with servers(writes(False), writes(True)) as found:
        lanes = [part for name, each in zip(("plain", "spec"), found, strict=True)
                 for part in ("--lane", f"{name}=openai:{each.url}")]  # fmt: skip
        more = ["--max-new-tokens", str(len(WORDS)), "--save", str(tmp_path / "study.jsonl"), "--json"]
        asked = ["study-prompts", "--prompts", str(tmp_path / "mine.txt"), *lanes, "--model", "m", *more]
        assert main(asked) == main(asked) == 0, "the second one goes on where nothing is left"
        num_asked = [sum(body["max_tokens"] > 1 for body in each.asked) for each in found]
    out, err = capfd.readouterr()
    said, saved = json.loads(out[: len(out) // 2]), open_study((tmp_path / "study.jsonl").read_text())
    assert num_asked == [len(TEXTS) + 3, len(TEXTS)], "where texts differ, the plain one is asked once more"
    assert [row["identical"] for row in said["rows"]] == [True, False, False, False]
    assert [row.to_json() for row in saved.rows] == said["rows"] and saved.said == said["said"]
    assert "plain and spec do not say what they are; 4 prompts (mine.txt), 20" in said["said"]["circumstances"]
    assert "127.0.0.1" not in out + err + (tmp_path / "study.jsonl").read_text()
