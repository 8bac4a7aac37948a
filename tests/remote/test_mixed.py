"""A race with lanes on this machine and a lane on a server: neither changes anything of the other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from engine.analysis.verdict_words import VERDICTS
from engine.cli import main as cli
from engine.core.events import LaneEvent, Step, steps
from engine.core.spec import RaceSpec, SamplingParams, lanes_of
from engine.recordings import recording as recordings
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint
from engine.remote.mixed import MixedRace
from engine.remote.request import Question
from engine.remote.server_race import RemoteRace
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers.loopback import Answer, Body, raw, refusal, says, servers, sse, stream_of
from tests.helpers.races import events_of
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import PROMPTS, trained

NUM_NEW = 32
PARAMS = SamplingParams(temperature=0.8, seed=5, max_new_tokens=NUM_NEW)
WORDS = ["\n", "def", " f", "("] * (NUM_NEW // 4)
EXACT = ("baseline", "ngram", "draft")  # the local lanes whose width is not measured anew in every race
ANSWER = says([sse(event) for event in stream_of([1] * NUM_NEW, WORDS)], 0.002)


def race_here(audit: bool = True, params: SamplingParams = PARAMS) -> TorchRace:
    drafting = [("ngram", "ngram:2", 4), ("draft", f"draft_model:{TRAINED.parent}/draft", 3)]
    loaded, lanes = trained(), lanes_of(drafting, width=8)
    prompt = encode_prompt(loaded.tokenizer, PROMPTS[0], False)
    return TorchRace(loaded, RaceSpec(lanes, params, audit), prompt)


def with_server(here: TorchRace, *urls: str, same_device: bool = False) -> MixedRace:
    endpoints = [Endpoint(f"there-{i}", "a-model", url, "key-of-there") for i, url in enumerate(urls)]
    remote = RemoteRace(endpoints, Question(PROMPTS[0]), here.spec.params, Patience(5.0, 10.0), same_device)
    return MixedRace(here, remote)


def recorded(race: TorchRace | MixedRace) -> recordings.Recording:
    """The recording of this race, as it comes back from its file."""
    recording = recordings.build(race.header(), list(race.events()), race.result())
    return recordings.loads(json.dumps(recording.fields).encode())


def of_lane(recording: recordings.Recording, lane: str) -> list[tuple[int, int]]:
    """Every token of the lane with the checksum of its row of logits."""
    done = steps(events_of(recording), lane)
    return [pair for step in done for pair in zip(step.token_ids, step.checksums, strict=True)]


def continued(recording: recordings.Recording) -> tuple[list[str], list[int]]:
    """(pieces, token ids) of what the local baseline wrote."""
    done = steps(events_of(recording), "baseline")
    return [piece for step in done for piece in step.pieces], [token for step in done for token in step.token_ids]


@pytest.fixture(scope="module")
def alone() -> recordings.Recording:
    """The race without a server, sampled and audited."""
    return recorded(race_here())


def test_no_bit_of_a_local_lane_depends_on_a_server(alone):
    """A server in the race would change a token here or slow a step down."""
    with servers(ANSWER, ANSWER) as found:
        race = with_server(race_here(), *(each.url for each in found))
        live: list[LaneEvent] = []
        for event in race.events():
            live.append(event)
            if not event.lane.startswith("there"):
                assert not any(each.num_connections for each in found)
        recording = recordings.loads(json.dumps(recordings.build(race.header(), live, race.result()).fields).encode())
    assert all(PROMPTS[0] in [body["prompt"] for body in each.asked] for each in found)
    for lane in EXACT:
        assert of_lane(recording, lane) == of_lane(alone, lane) != []
    for lane in EXACT[1:]:
        assert recording["verdicts"][lane] == alone["verdicts"][lane]
        assert recording["verdicts"][lane]["kind"] == "identical_bits"
    assert [lane["name"] for lane in recording["spec"]["lanes"]] == ["plain", *EXACT, "there-0", "there-1"]
    assert recording["device"] == alone["device"] and recording["model"] == alone["model"]
    places = recording["places"]
    assert {name for name, place in places["lanes"].items() if place == "a server"} == {"there-0", "there-1"}
    assert "two clocks" in places["sentence"] and "all at once" in places["sentence"]
    told = recordings.summary(recording)
    assert told["places"] == places and told["lanes"]["there-0"]["num_tokens"] == NUM_NEW
    assert all(told["lanes"]["there-1"][name] > 0 for name in ("tokens_per_s", "ttft_s"))


def test_a_server_after_the_other_where_they_share_a_device():
    """Two servers on one device would slow each other while the recording says that they did not."""
    with servers(ANSWER, ANSWER) as found:
        recording = recorded(with_server(race_here(False), *(each.url for each in found), same_device=True))
    at = {(e["lane"], e["type"]): e["wall_s"] for e in recording["events"] if "wall_s" in e}
    assert at["there-1", "started"] > at["there-0", "finished"]
    assert "one after the other" in recording["places"]["sentence"] and not recording["spec"]["solo"]


@pytest.mark.parametrize(
    ("answer", "is_judged"),
    [
        (raw(refusal(500, b'{"error": {"message": "no"}}')), False),
        (says([sse(*stream_of([1] * NUM_NEW, WORDS)[:3])], end=False), True),
    ],
    ids=["refuses", "breaks"],
)
def test_a_failed_server_fails_its_lane_alone(answer, is_judged, alone):
    """A server that is down would take the local lanes, their verdicts or the recording with it."""
    with servers(answer) as found:
        recording = recorded(with_server(race_here(), found[0].url))
    assert list(recordings.failures(recording)) == ["there-0"] and not recordings.faults(recording)
    assert all(of_lane(recording, lane) == of_lane(alone, lane) for lane in EXACT)
    assert all(recording["verdicts"][lane] == alone["verdicts"][lane] for lane in EXACT[1:])
    assert recording["verdicts"]["there-0"]["kind"] == "not_compared" or is_judged


def saying(pieces: Sequence[str], ids: Sequence[int] | None, prompt_ids: Sequence[int]) -> Answer:
    """A server that writes these pieces, one a chunk; ids None: it only counts them. It does not take tokens."""
    events = stream_of([1] * len(pieces), pieces)
    for i, event in enumerate(events[: len(pieces)]):
        (choice,) = event["choices"]
        choice.pop("token_ids")
        choice.pop("prompt_token_ids", None)
        if ids is not None:
            choice["token_ids"] = [ids[i]]
            choice["prompt_token_ids"] = list(prompt_ids)
    streamed = says([sse(*events)])

    async def answer(path: str, body: Body) -> AsyncIterator[bytes]:
        if not isinstance(body["prompt"], str):
            yield refusal(400, b"{}")
            return
        async for part in streamed(path, body):
            yield part

    return answer


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_server_is_graded_as_servers_are(temperature):
    """A server's precision would look like our fault, or another text or prompt pass for the same."""
    params = replace(PARAMS, temperature=temperature)
    alone = recorded(race_here(params=params))
    prompt_ids, (pieces, ids) = alone["prompt"]["token_ids"], continued(alone)
    other, other_ids = [*pieces[:9], " snake", *pieces[10:]], [*ids[:9], ids[9] + 1, *ids[10:]]
    answers = [
        saying(pieces, ids, prompt_ids),
        saying(pieces, None, ()),
        saying(other, other_ids, prompt_ids),
        saying(other, None, ()),
        saying(other, other_ids, [1, *prompt_ids]),
    ]
    with servers(*answers) as found:
        recording = recorded(with_server(race_here(params=params), *(each.url for each in found)))
    verdicts = [recording["verdicts"][f"there-{i}"] for i in range(len(answers))]
    assert [each["kind"] for each in verdicts] == ["same_text", "same_text", *["other_text"] * 3]
    assert [each["rows_different"] for each in verdicts] == [None] * 5 and not recordings.faults(recording)
    assert verdicts[0]["sentence"].endswith("in the same tokens") and "tokens" not in verdicts[1]["sentence"]
    for verdict in verdicts[2:]:
        assert f"character {len(''.join(pieces[:9]))}" in verdict["sentence"]
        assert ("if it is the same model, another precision" in verdict["sentence"]) == (temperature == 0)
        assert ("own dice" in verdict["sentence"]) == (temperature > 0)
        assert "no fault of either" in verdict["sentence"]
    first = verdicts[2]["first_difference"]
    assert (first["position"], first["tokens"]) == (9, [ids[9], ids[9] + 1])
    assert verdicts[3]["first_difference"] is None
    assert ["chat template" in each["sentence"] for each in verdicts] == [False] * 4 + [True]


def test_a_stopped_race_asks_no_server():
    """A visitor who stops the lanes here would still cost the server an answer; a file of it would not open."""
    with servers(ANSWER) as found:
        race = with_server(race_here(False), found[0].url)
        stream, live = race.events(), []
        for event in stream:
            live.append(event)
            if isinstance(event.event, Step):
                break
        stream.close()
        recording = recordings.build(race.header(), live, {**race.result(), "stopped": True})
        assert not found[0].num_connections
    recording = recordings.loads(json.dumps(recording.fields).encode())
    assert recording["verdicts"]["there-0"]["kind"] == "not_compared" and recording["verdicts"]["ngram"]


def test_the_command_races_both_and_its_file_can_be_used(tmp_path, capsys, monkeypatch):
    """The documented command would fail, leak the server's address, or write a useless file."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-operator")
    file, texts = tmp_path / "race.json", list[str]()
    asked = ["--prompt", PROMPTS[0], "--target", str(TRAINED), "--drafter", "ngram", "--k", "5", "--dtype", "float32"]
    asked += ["--max-new-tokens", str(NUM_NEW), "--threads", "1", "--audit", "--model", "m"]

    def run(*arguments: str) -> str:
        assert cli.main([*arguments]) == 0
        texts.extend(capsys.readouterr())
        return " ".join(texts[-2].split())

    with servers(ANSWER) as found:
        shown = run("race", *asked, f"--lane=there=openai:{found[0].url}", "--save", str(file))
        assert "Bearer sk-of-the-operator" in found[0].headers[-1]
    assert f"{VERDICTS['identical_bits'].head}: baseline and speculative" in shown
    assert f"{VERDICTS['other_text'].head}: baseline and there" in shown
    assert "x as fast as plain here, but on a server: another clock, as a rule another device" in shown
    assert "│ ran on │ this machine │ this machine │ this machine │" in shown and "│ ran on │ a server │" in shown
    assert "First the lanes on this machine, then lane there on its server" in shown
    assert "ran on" in run("replay", str(file), "--speed", "0")
    told = json.loads(run("replay", str(file), "--json"))
    assert told["verdict"]["kind"] == "identical_bits" and told["speedup"] == told["speedups"]["speculative"]
    assert told["speedups"]["there"] > 0
    verified = run("verify", str(file))
    assert "same tokens: this machine reproduces the recorded tokens" in verified and "cannot be run again" in verified
    for kind in ("csv", "html"):
        run("export", str(file), f"--{kind}", str(tmp_path / kind))
        texts.append((tmp_path / kind).read_text())
    texts.append(file.read_text())
    host = found[0].url.split("/")[2]
    assert not any(secret in text for secret in (host, "sk-of-the-operator", "127.0.0.1") for text in texts)
