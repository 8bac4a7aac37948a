"""If this breaks: recordings of real servers, which other tests rely on, are not replayed as they were recorded."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tests.helpers.wire import FOLDER, NOT_RECORDED, body_parts, recorded, replayed

NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


@pytest.mark.parametrize("name", NAMES)
def test_every_exchange_is_replayed_in_its_order(name: str) -> None:
    """Otherwise a test would see another answer than the server gave."""
    with replayed(name, speed=1e6) as server, httpx.Client() as client:
        for exchange in recorded(name)["exchanges"]:
            asked = exchange["asked"]
            url = server.url.removesuffix("/v1") + asked["path"]
            with client.stream(asked["method"], url, json=asked["body"]) as answer:
                assert answer.status_code == exchange["status"]
                assert b"".join(answer.iter_raw()) == b"".join(part for _, part in body_parts(exchange))
                assert answer.headers.get("content-type") == exchange["headers"].get("content-type")


def test_what_was_not_recorded_is_said() -> None:
    with replayed(NAMES[0]) as server:
        answer = httpx.post(f"{server.url}/completions", json={"prompt": "never asked"})
    assert answer.status_code == NOT_RECORDED
    assert "python -m tools.servers" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_has_nothing_of_the_machine_that_made_it(name: str) -> None:
    text = json.dumps(recorded(name))
    assert not re.search(r"/(home|root|work|tmp|opt|Users)/", text)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 400_000
