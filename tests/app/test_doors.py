"""What the page's owner names: models, known by their configuration alone, and servers, whose keys go nowhere else."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from app.catalogue.catalogue import load
from app.catalogue.machine import GIB, Machine
from app.catalogue.own_model import OWN, Room, check_own
from app.catalogue.request import read_check_up, read_request, read_study
from app.jobs.backend import TorchBackend
from app.jobs.server_races import NO_SERVERS, ONE_SERVER
from app.page.controls import controls, pair_choices
from app.page.doors import SERVERS, Doors, read_asked
from app.page.stream import NO_OBJECT
from engine.core.errors import UsageError
from engine.progress import silent
from engine.remote.server_race import RemoteRace
from tests.helpers import FIXTURES
from tests.helpers.hub import ask_at, config_hub
from tests.helpers.loopback import Loopback, lists_models, refusal, servers, sse, writes

ROOM = Room(64 * GIB, "bfloat16", graphs=False)
KEY = "sk-of-nobody-0123456789"
PUBLISHED = FIXTURES / "published"


def config(name: str) -> Any:
    return json.loads((PUBLISHED / f"{name.replace('/', '--')}.json").read_text())


# ---- Your model


def test_a_model_of_the_hub_is_known_by_its_configuration_alone(monkeypatch: Any, tmp_path: Path) -> None:
    """Looking at a model would download it, or say something else of it than the engine does."""
    one = config("google/gemma-3-1b-it")
    with config_hub(monkeypatch, {"a/target": one, "a/draft": {**one, "torch_dtype": "float32"}}) as hub:
        ask_at(monkeypatch, hub.address, tmp_path)
        pair, lines = check_own("a/target", "draft_model:a/draft", ROOM)
        text = " ".join(lines)
        assert {path for _, path in hub.asked} - {""} == {"resolve/main/config.json"}, hub.asked
        assert (pair.id, pair.target, pair.drafter, pair.chat) == (OWN, "a/target", "draft_model:a/draft", None)
        assert "a/target: Gemma3ForCausalLM, 999.8 million parameters. About 2.0 GB to download." in text
        assert "a/draft: Gemma3ForCausalLM, 999.8 million parameters. About 4.0 GB to download." in text
        assert "of weights" in text and "for the drafter" in text and "64.0 GiB is free." in text
        (snapshot,) = tmp_path.glob("models--a--target/snapshots/*")
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
        for number, words in ((1, "2.0 GB to download"), (2, "nothing to download")):
            save_file({}, snapshot / f"model-{number}.safetensors")
            assert words in check_own("a/target", "ngram", ROOM)[1][0]
        assert "only shorter races fit" in check_own("a/target", "ngram", Room(2 * GIB, "bfloat16", False))[1][-1]


@pytest.mark.parametrize(
    ("target", "drafter", "words"),
    [
        ("a/gptq", "ngram", "it has quantised weights"),
        ("a/large", "ngram", "takes .* GiB of memory .*, and 4.0 GiB is free"),
        ("a/small", "eagle3", "only gemma-3-270m comes with a head; name one"),
        ("a/small", "hybrid:ngram+dflash", "only gemma-3-270m comes with a head; name one"),
        ("a/small", "eagle3:a/bert", "this engine does not read the head a/bert"),
        ("a/odd", "ngram", "a/odd, or its drafter, has a config.json that cannot be read"),
    ],
)
def test_what_cannot_run_here_is_refused_with_the_reason(
    target: str, drafter: str, words: str, monkeypatch: Any, tmp_path: Path
) -> None:
    """Gigabytes would be downloaded first, and then refused."""
    known = {"a/bert": "google-bert/bert-base-uncased", "a/gptq": "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4",
             "a/large": "google/gemma-3-27b-it", "a/small": "google/gemma-3-1b-it"}  # fmt: skip
    odd = {"num_attention_heads": [], "layer_types": 5, "hidden_size": {}, "n_heads": "x"}
    with config_hub(monkeypatch, {"a/odd": odd, **{name: config(of) for name, of in known.items()}}) as hub:
        ask_at(monkeypatch, hub.address, tmp_path)
        with pytest.raises(UsageError, match=words):
            check_own(target, drafter, Room(4 * GIB, "bfloat16", graphs=False))
        assert {path for _, path in hub.asked} <= {"resolve/main/config.json", ""}, hub.asked


def test_a_silent_hub_ends_in_a_sentence_or_the_cache(monkeypatch: Any, tmp_path: Path) -> None:
    """ "One moment." without an end where there is no network; or what is downloaded cannot be named there."""
    with config_hub(monkeypatch, {"a/target": config("google/gemma-3-1b-it")}) as hub:
        ask_at(monkeypatch, hub.address, tmp_path)
        assert check_own("a/target", "ngram", ROOM)[0].target == "a/target"
    monkeypatch.setattr("app.catalogue.own_model.SILENT_S", 0.2)
    monkeypatch.setattr("app.catalogue.own_model.config_of", lambda _: time.sleep(1))
    assert "999.8 million" in check_own("a/target", "ngram", ROOM)[1][0]
    with pytest.raises(UsageError, match="the hub has not answered within"):
        check_own("another/target", "ngram", ROOM)


def test_a_folder_is_a_model_like_those_of_the_catalogue() -> None:
    """The owner's model is named and not raced, with its drafter or another; or the catalogue loses its own."""
    folder = str(FIXTURES / "trained" / "target")
    backend = TorchBackend("auto", "cpu", False)
    doors, before = Doors(backend), load(Machine())
    draft = f"draft_model:{FIXTURES / 'trained' / 'draft'}"
    asked = {"target": folder, "drafter": draft}
    assert "nothing to download" in asyncio.run(doors.model(asked))["sentences"][0]
    with pytest.raises(UsageError, match="name a model first"):
        doors.choose(OWN)
    asyncio.run(doors.model({**asked, "use": True}))
    assert doors.added_to(before).default == before.default
    pair = doors.choose(OWN)
    catalogue = doors.added_to(before)
    assert catalogue.default == pair and pair.chat is True and set(before.offers) < set(catalogue.offers)
    values = {control.name: control.default for control in controls(catalogue)}
    for drafter in (draft, "ngram"):
        request = read_request(catalogue, {**values, "pair": OWN, "drafter": drafter})
        assert request.pair.target == folder and request.spec.lanes[-1].drafter == drafter
    with pytest.raises(UsageError, match="unknown drafter"):
        read_request(catalogue, {**values, "pair": OWN, "drafter": "draft_model:an/other"})


# ---- Your servers


@pytest.fixture
def two() -> Iterator[list[Loopback]]:
    with servers(writes(), writes(3)) as hosts:
        for host in hosts:
            host.pages |= lists_models("a/model")
        yield hosts


def tried(doors: Doors, *urls: str, **more: Any) -> dict[str, Any]:
    asked = {**dict(zip(("url", "url2"), urls, strict=False)), "key": KEY, **more}
    return asyncio.run(doors.servers(asked))


def test_a_key_stays_with_its_server(two: list[Loopback]) -> None:
    """A form without a key sends the last one to the next server; or asks for it again at every correction."""
    doors = Doors(TorchBackend("auto", "cpu", False))
    tried(doors, two[0].url)
    for host in two:
        host.headers.clear()
    tried(doors, two[0].url, two[1].url, key="", model="other")
    assert all(f"Bearer {KEY}" in head for head in two[0].headers) and two[0].headers
    assert not any("uthorization" in head for head in two[1].headers) and two[1].headers


@pytest.mark.parametrize("status", [200, 302, 401, 404, 500])
def test_a_key_that_a_server_echoes_is_not_shown(status: int, two: list[Loopback]) -> None:
    """The owner's key in the dialog, and in a picture of it, since a server or a proxy before it quotes requests."""

    async def echoing(path: str, body: Any) -> Any:
        said = json.dumps({"error": {"message": f"for {KEY}"}}).encode()
        if status == 200:
            yield b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + sse({"error": KEY})
        else:
            yield refusal(status, said, f"Location: http://127.0.0.1:1/{KEY}\r\n")

    two[0].answer, two[0].pages = echoing, {}
    reply = tried(Doors(TorchBackend("auto", "cpu", False)), two[0].url, model="m")
    assert any(KEY in head for head in two[0].headers), "the key did not reach its server"
    assert KEY not in json.dumps(reply) and (status == 302 or "[hidden]" in json.dumps(reply)), reply


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "give the URL of a server"),
        ({"url": "ftp://secret/v1"}, "the first server needs http://HOST:PORT/v1"),
        ({"url": "http://a/v1", "url2": "http://secret/v1?key=1"}, "the URL of the second server must end in its path"),
        ({"url": "http://a/v1", "key": "secret\n2"}, "the key in its field must be"),
        ({"url": "http://a/v1", "model": ["secret"]}, "model must be a text"),
        ({"use": True}, "give the URL of a server"),
        *(
            (body, NO_OBJECT)
            for body in (b"", b'["secret"]', b'{"key": "secret"', b'{"url": "%s"}' % (b"secret" * 3000))
        ),
    ],
)
def test_what_cannot_be_tried_is_refused_without_it(asked: Any, words: str) -> None:
    """What an owner types may be a key."""
    body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    with pytest.raises(UsageError, match=words) as error:
        asyncio.run(Doors(TorchBackend("auto", "cpu", False)).servers(read_asked(body)))
    assert "secret" not in str(error.value)


def test_two_servers_race_and_are_studied(two: list[Loopback]) -> None:
    """Choosing servers races something else; or a study asks others, or says where they are."""
    backend, base = TorchBackend("auto", "cpu", False), load(Machine())
    doors = Doors(backend)
    with pytest.raises(UsageError, match=NO_SERVERS):
        doors.choose(SERVERS)
    tried(doors, *(host.url for host in two), use=True)
    doors.choose(SERVERS)
    catalogue = doors.added_to(base)
    assert pair_choices(catalogue)[0] == ("a/model on 2 servers", SERVERS) and pair_choices(base)[0][1] != SERVERS
    # as they stand in the page
    values = {control.name: control.default for control in controls(base)} | {"pair": SERVERS}
    named = backend.of(catalogue.default)
    race = named.prepare(read_request(catalogue, values), silent)
    assert isinstance(race, RemoteRace) and list(race.lanes) == ["plain", "speculative"]
    assert named.extras(race, silent) == {} and backend.of(base.default) is backend

    chat = {"messages": [{"role": "user", "content": "two"}]}
    text = f'{{"prompt": "one"}}\n{json.dumps(chat)}'
    asked = {"name": "a.jsonl", "text": text, "limit": 2, "max_new_tokens": 41, "kept": None}
    request = read_study(catalogue, values, asked)
    two[0].answer = two[1].answer = writes(3, "/v1/chat/completions")
    (row,), ran_on, about = named.study(request, {1}, silent)
    assert (row.line, row.drafter) == (2, "server") and two[1].asked[-1]["messages"] == chat["messages"]
    assert ran_on["machine"] == backend.servers.id and about["device"]["type"] == "server"
    report = json.dumps([about, ran_on, row.to_json()])
    assert KEY not in report and "127.0.0.1" not in report


def test_one_server_has_none_to_race(two: list[Loopback]) -> None:
    """A ratio of one server to nothing; or it could not be checked up and put under load, for which one is enough."""
    backend, base = TorchBackend("auto", "cpu", False), load(Machine())
    doors = Doors(backend)
    assert tried(doors, two[0].url, use=True)["can_race"] == 1
    pair = doors.choose(SERVERS)
    catalogue = doors.added_to(base)
    assert pair_choices(catalogue)[0] == ("a/model on a server", SERVERS) and catalogue.default == pair
    values = {control.name: control.default for control in controls(base)} | {"pair": SERVERS}
    asked = {"name": "a.txt", "text": "one", "limit": 1, "max_new_tokens": 4, "kept": None}
    with pytest.raises(UsageError, match=ONE_SERVER):
        backend.of(pair).prepare(read_request(catalogue, values), silent)
    with pytest.raises(UsageError, match=ONE_SERVER):
        backend.of(pair).study(read_study(catalogue, values, asked), (), silent)
    request = read_check_up(catalogue, values, {})
    named = backend.of(pair)
    assert named.examined(request)["lanes"] == ["server"] and next(iter(named.check_up(request, silent)))
