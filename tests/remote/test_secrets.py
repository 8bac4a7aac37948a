"""Keys and URLs stay with the operator."""

import io
import json
import logging
import random
import shlex
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from engine.cli import main as cli
from engine.cli.report import print_report
from engine.core.errors import UsageError
from engine.core.spec import SamplingParams
from engine.recordings import recording as recordings
from engine.remote.client import Patience
from engine.remote.endpoint import HIDDEN, Endpoint, Hiding, endpoint_of, endpoints_of, hide
from engine.remote.request import Question
from engine.remote.server_race import RemoteRace
from tests.helpers.loopback import HEAD, WORDS, Answer, Loopback, http, lists, refusal, says, servers, sse, stream_of

NUM_CALLS = 1000
KEYS = string.ascii_letters + string.digits + "-_./+=\"'\\{}"


@given(st.text("abAB", min_size=0, max_size=60), st.sets(st.text("ab", min_size=1, max_size=5), max_size=3), st.data())
def test_a_secret_is_found_wherever_the_text_is_cut(text, secrets, data):
    """A key that comes in two chunks would be shown in two parts; a text without one would be changed."""
    hiding, out, rest = Hiding(secrets), "", text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out, rest = out + hiding.feed(rest[:size]), rest[size:]
    out += hiding.flush()
    left = out.lower().split(HIDDEN)
    assert not any(secret in part for secret in secrets for part in left)
    assert (out == text) == (not any(secret in text.lower() for secret in secrets))
    assert (hide(text, secrets) == text) == (out == text)


def test_no_answer_brings_a_key_or_a_url_into_anything(caplog):
    """A server, or a proxy, that echoes its request would put the operator's key in a recording, a log or an error."""
    rng = random.Random(5)
    caplog.set_level(logging.DEBUG)
    shown = io.StringIO()
    where: list[Loopback] = []

    async def fuzzed(path, body):
        url = where[0].url
        echo = [key, url, key.upper(), url.upper(), url.removeprefix("http://"), "x", " ", "\n", "é"]
        noise = "".join(rng.choice(echo) for _ in range(rng.randrange(1, 30)))
        noise = "y" * rng.choice([0, rng.randrange(150, 250)]) + noise + key + url
        if body["max_tokens"] == 1 and rng.random() < 0.8:
            answer = says([])
        else:
            answer = rng.choice([refused, redirected, no_json, odd, answered, answered, answered])(noise, url)
        async for part in answer(path, body):
            yield part

    def refused(noise: str, url: str) -> Answer:
        said = json.dumps(rng.choice([{"error": {"message": noise}}, {"error": noise}, {"detail": [noise]}, noise]))
        return plainly(refusal(rng.choice([401, 404, 429, 500]), said.encode(), f"Retry-After: {key}\r\n"))

    def redirected(noise: str, url: str) -> Answer:
        return plainly(refusal(rng.choice([302, 500]), noise.encode(), f"Location: {url}\r\n"))

    def no_json(noise: str, url: str) -> Answer:
        line = noise.replace("\n", " ").encode()
        return streamed(rng.choice([b"data: " + line + b"\n\n", sse({"error": {"message": noise}})]))

    def odd(noise: str, url: str) -> Answer:
        usage = {"prompt_tokens": noise, noise: noise}
        return streamed(sse({"choices": [{"text": noise, "finish_reason": noise}], "usage": usage}, "[DONE]"))

    def answered(noise: str, url: str) -> Answer:
        sizes = [rng.randrange(1, 4) for _ in range(3)]
        at = sorted(rng.randrange(len(noise)) for _ in range(sum(sizes) - 1))
        words = [noise[a:b] for a, b in zip([0, *at], [*at, len(noise)], strict=True)]
        return streamed(sse(*stream_of(sizes, words, rng.choice([None, lists([0], [1]), {noise: noise}]))))

    num_failed = num_races = num_hidden = 0
    with servers(fuzzed) as hosts:
        where += hosts
        url, url_begins = hosts[0].url, hosts[0].url[:16]
        while len(hosts[0].asked) < NUM_CALLS:
            key = "sk-" + "".join(rng.choice(KEYS) for _ in range(rng.randrange(8, 40)))
            endpoints = [Endpoint(lane, "a-model", hosts[0].url, key) for lane in ("baseline", "speculative")]
            params = SamplingParams(max_new_tokens=12)
            race = RemoteRace(endpoints, Question("Once"), params, Patience(2.0, 4.0))
            live = list(race.events())
            recording = recordings.build(race.header(), live, race.result())
            recordings.checked(json.dumps(recording.fields).encode())
            num_races += 1
            num_hidden += HIDDEN in json.dumps(recording["events"])
            num_failed += len(recordings.failures(recording))
            shown.seek(shown.truncate(0))
            if num_races % 10 == 0:
                print_report(Console(file=shown, width=200, markup=False, emoji=False), recording)
            texts = [json.dumps(value) for value in (race.header(), recording.fields)]
            texts += [repr(live), shown.getvalue(), *caplog.messages, repr(endpoints)]
            texts += ["".join(race.lanes[lane].written.pieces) for lane in race.lanes]
            secrets = [written(part)[1:-1] for part in (key, key[:10]) for written in (json.dumps, repr)]
            secrets += [key, key[:10], url_begins, url.split("/v1")[0]]
            for text in texts:
                assert not any(secret.lower() in text.lower() for secret in secrets), text[:500]
            caplog.clear()
    assert 100 < num_failed < 1.5 * num_races and num_hidden > 100


def plainly(said: bytes) -> Answer:
    async def answer(path, body):
        yield said

    return answer


def streamed(said: bytes) -> Answer:
    return plainly(HEAD + http(said) + b"0\r\n\r\n")


def test_keys_come_from_the_environment_and_go_to_their_own_lane():
    """One server would be given the other's key, or none."""
    environ = {"OPENAI_API_KEY": "all", "PHOTOFINISH_KEY_MY_LANE_2": "own"}
    lanes = [("my lane-2", "openai:http://a:1/v1"), ("b", "openai:https://u@c:2/v1/")]
    first, second = endpoints_of(lanes, ["b=other", "usual"], environ)
    assert (first.key, first.model, second.key, second.model) == ("own", "usual", "all", "other")
    assert second.url == "https://u@c:2/v1" and "http" not in repr([first, second]) and "own" not in repr(first)
    assert endpoint_of("b", "openai:http://a", "m", {}).headers() == {"Accept-Encoding": "identity"}
    for models, words in (([], "give --model"), (["a", "b"], "twice"), (["b=x", "b=y"], "twice")):
        with pytest.raises(UsageError, match=words):
            endpoints_of(lanes, models, environ)


def test_the_command_races_servers_and_its_file_can_be_read(tmp_path, capsys, monkeypatch):
    """The command of the README would not work, show where the servers are, or write a file that nothing opens."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-operator")
    words, file = list(WORDS), tmp_path / "race.json"
    whole = sse(*stream_of([1] * 10, words))
    with servers(says([whole]), says([whole])) as (a, b):
        lanes = [f"--lane={name}=openai:{host.url}" for name, host in (("plain", a), ("baseline", b))]
        asked = shlex.split("--model m --chat --stop END --top-k 5 --max-new-tokens 10 --temperature 0.5")
        assert cli.main(["race", "--prompt", "Once", *lanes, *asked, "--save", str(file), "--timeout", "5"]) == 0
        texts = [*capsys.readouterr(), file.read_text()]
        question = a.asked[-1]
        assert question["messages"] == [{"role": "user", "content": "Once"}] and question["stop"] == ["END"]
        assert (question["top_k"], question["temperature"], question["max_tokens"]) == (5, 0.5, 10)
        assert all("Bearer sk-of-the-operator" in head for host in (a, b) for head in host.headers)
        assert cli.main(["race", "--prompt", "Once", *lanes, *asked, "--json"]) == 0
        texts += [*capsys.readouterr()]
        assert json.loads(texts[-2])["lanes"]["plain"]["text"] == "".join(words)
        assert all(secret not in text for secret in (a.url[7:-3], b.url, "sk-of", "127.0.0.1") for text in texts)
    assert cli.main(["replay", str(file)]) == 0 and "m in a precision" in capsys.readouterr().out
    assert cli.main(["verify", str(file)]) == 2 and "servers" in capsys.readouterr().err
    for kind in ("csv", "html"):
        assert cli.main(["export", str(file), f"--{kind}", str(tmp_path / kind)]) == 0
        assert "sk-of" not in (tmp_path / kind).read_text()
