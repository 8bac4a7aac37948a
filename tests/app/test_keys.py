"""A key typed on the page goes to its server, and is found nowhere else."""

from __future__ import annotations

import json
import random
import string
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.helpers.loopback import Answer, Body, refusal, servers, sse
from tests.helpers.loopback_models import WORDS, lists_models, writes
from tests.helpers.pageserver import NO_MODEL, ORDER, Visitor, served

NUM_KEYS, RACE_EVERY = 100, 25
SIGNS = string.ascii_letters + string.digits + "-_./+=\"'\\{}"
FORMS = ("json", "csv", "html")


def echoing(rng: random.Random) -> Answer:
    """A server that puts the key that it was sent into its answers, its errors and its redirects."""

    async def answer(path: str, body: Body) -> AsyncIterator[bytes]:
        key = keys[-1]
        said = json.dumps({"error": {"message": f"for {key}"}}).encode()
        refused = refusal(rng.choice([401, 404, 429, 500]), said)
        moved = refusal(302, b"", f"Location: http://127.0.0.1:1/{key}\r\n")
        broken = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        wrong = rng.choice([refused, moved, broken + sse({"error": key})])
        if refuses[0]:
            yield wrong
            return
        async for part in writes(3, words=[*WORDS[:4], f" {key}", *WORDS[5:]])(path, body):
            yield part

    return answer


keys: list[str] = []
refuses = [True]


def door(visitor: Visitor) -> int:
    """The function that chooses what was named."""
    config = visitor.client.get(f"{visitor.url}/config").json()
    (race,) = (each["id"] for each in config["components"] if each["props"].get("elem_id") == "race")
    return next(each["id"] for each in config["dependencies"] if [race, "apply"] in map(list, each["targets"]))


@pytest.mark.slow
def test_a_key_is_found_nowhere(page_cache: Path) -> None:
    """The owner's key would be in a recording that is shared, in the log, in an answer, or in the list of
    processes."""
    rng = random.Random(7)
    with served(page_cache, *NO_MODEL) as page, servers(echoing(rng), writes()) as found:
        found[0].pages, found[1].pages = lists_models("a/model"), lists_models("a/model")
        visitor, client, said = page.visitor("owner"), httpx.Client(base_url=page.url, timeout=60), 0
        opens = door(visitor)
        for number in range(NUM_KEYS):
            key = "sk-" + "".join(rng.choice(SIGNS) for _ in range(rng.randrange(12, 40)))
            keys.append(key)
            refuses[0] = not (races := number % RACE_EVERY == 0)
            urls = {"url": found[1].url, "url2": found[0].url} if races else {"url": found[0].url}
            texts = [client.post("/yours/servers", json={**urls, "key": key}).text]
            assert any(key in head for head in found[0].headers), "the key did not reach its server"
            found[0].headers.clear()
            if races:
                assert json.loads(texts[0])["can_race"], texts
                texts.append(client.post("/yours/servers", json={"use": True}).text)
                texts += raced(visitor, client, opens)
            said += sum("[hidden]" in text for text in texts)
            for text in texts:
                assert not any(form in text for form in (key, json.dumps(key)[1:-1])), text[:500]
        everywhere = "\n".join([page.log.read_text(), client.get("/").text, client.get("/config").text, *commands()])
        assert not any(key in everywhere or json.dumps(key)[1:-1] in everywhere for key in keys)
        assert said > NUM_KEYS / 4, "no server echoed its key"


def raced(visitor: Visitor, client: httpx.Client, opens: int) -> list[str]:
    """Choose the servers and race them: all that the page says of it, and the race as a file of each form."""
    body = {"data": ["gemma3-270m-ngram", "x"], "event_data": "your-servers", "fn_index": opens}
    body |= {"session_hash": visitor.tab, "trigger_id": None}
    chosen = visitor.client.post(f"{visitor.url}/gradio_api/run/predict", json=body).raise_for_status()
    events = list(visitor.events("race", {**ORDER, "pair": "your-servers", "max_new_tokens": 12}))
    texts, frames = [chosen.text, json.dumps(events)], [frame for name, frame in events if not name]
    assert frames[-1]["state"] == "finished" and "failed" not in frames[-1]["status"]["text"]
    files = [client.get(f"/recordings/{frames[-1]['race']}.{form}") for form in FORMS]
    return [*texts, *(file.raise_for_status().text for file in files)]


def commands() -> list[str]:
    """The command lines of all processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(process.read_bytes().decode("utf-8", "replace"))
    return found
