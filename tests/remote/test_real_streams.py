"""What a real vLLM sent (tests/fixtures/streams; tools/real_servers.py holds races of it), cut anywhere: its steps are
its own lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import steps
from engine.recordings.recording import events_of, loads
from engine.remote.reply import Reader
from engine.remote.sse import Events
from engine.remote.steps import Written
from tests.helpers import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "streams"
STREAMS = sorted(FOLDER.glob("vllm_*.json"))
RACES = sorted(FOLDER.glob("race_*.json"))


def stream(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def read(found: dict[str, Any], cuts: list[int]) -> tuple[Any, Written]:
    """The answer, its bytes read in parts that end at these places."""
    data = "".join(part for _, part in found["reads"]).encode()
    limit = found["request"]["max_tokens"]
    reader, events, written = Reader(limit), Events(), Written(limit)
    places = sorted({cut % len(data) for cut in cuts} | {len(data)})
    for i, (start, end) in enumerate(zip([0, *places], places, strict=False)):
        for event in events.feed(data[start:end]):
            if (chunk := reader.take(event, 0.01 * i)) is not None:
                written.take(chunk)
    reply = reader.end(1.0)
    written.end(reply.num_tokens)
    return reply, written


@pytest.mark.parametrize("path", [path for path in STREAMS if "bare" not in path.stem], ids=lambda path: path.stem)
@given(st.lists(st.integers(0, 10**6), max_size=12))
def test_its_steps_are_the_servers_own(path: Path, cuts: list[int]) -> None:
    """Another count than the server's own, a token lost where a read ended within it, or other text."""
    found = stream(path)
    reply, written = read(found, cuts)
    events = [
        json.loads(part[6:]) for _, part in found["reads"] if part.startswith("data: {") for part in [part.strip()]
    ]
    usage = [event["usage"] for event in events if event.get("usage")][-1]
    assert (reply.num_tokens, reply.num_prompt_tokens) == (usage["completion_tokens"], usage["prompt_tokens"])
    assert len(written.token_ids) == reply.num_tokens and all(written.token_ids)
    assert "".join(written.pieces) == "".join(c["text"] for event in events for c in event["choices"])
    told = next((event["metrics"]["speculative_decoding"] for event in events if event.get("metrics")), None)
    if told is None:
        assert reply.drafted is None
        return
    own = [step for step in written.steps(reply.drafted) or [] if step.num_drafted]
    assert [step.num_drafted for step in own] == told["per_step_drafted"]
    accepted = [step.num_accepted for step in own]
    assert accepted[:-1] == told["per_step_accepted"][:-1] and accepted[-1] <= told["per_step_accepted"][-1]


@pytest.mark.parametrize("which", ["code", "words"])
def test_the_same_text_whoever_drafted(which: str) -> None:
    """Streams that were not of the same question."""
    texts = {"".join(read(stream(path), [])[1].pieces) for path in STREAMS if path.stem.endswith(which)}
    assert len(texts) == 1


def test_a_server_that_names_no_tokens_counts_them_at_the_end() -> None:
    reader, events = Reader(40), Events()
    for _, part in stream(FOLDER / "vllm_plain_words_bare.json")["reads"]:
        for event in events.feed(part.encode()):
            chunk = reader.take(event, 0.0)
            assert chunk is None or (chunk.num_tokens is None and not chunk.token_ids)
    assert reader.end(1.0).num_tokens == 40


@pytest.mark.parametrize("path", RACES, ids=lambda path: path.stem)
def test_a_recorded_race_of_real_servers_opens(path: Path) -> None:
    """A reader that refuses what this program wrote of a real server."""
    recording = loads(path.read_bytes())
    own = steps(events_of(recording), "speculative")
    assert recording["device"]["type"] == "server" and any(step.num_drafted for step in own)
    assert "http" not in path.read_text(encoding="utf-8").replace("httpx", "")
