"""What a hostile caller may send: recordings that take long to read, and calls of every wrong shape."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.helpers import ROOT

RECORDED = ROOT / "assets" / "races" / "csv_to_json.json"
FUNCTIONS = (*range(-1, 40), *range(34), "1", "race", 2**70, 1.5, True, None, [], {})
SESSIONS = (*"abcdefghijklmnopqrst", "", " ", "é", "x" * 101, "x" * 50_000, None, 7, [], "\0", "a b")
PATHS = (
    *("run/predict", "run/race", "run/stop", "run/no", "call/race", "call/v2/race", "call/v2/no", "api/predict"),
    *("cancel", "reset", "upload", "process_recording", "component_server", "stream/a/b", "proxy=x", "vibe-edit"),
)
READS = (
    *("/", "/config", "/assets/../app.py", "/assets/%2e%2e/x", "/static/%00", f"/assets/{'a' * 300}"),
    *("/recordings/x.json", "/recordings/recorded-story.html", "/recordings/%00.csv", "/recordings/a/b.json"),
    *("/gradio_api/info?page=x", "/gradio_api/info?all_endpoints=1", "/gradio_api/queue/data?session_hash=%00"),
    *("/gradio_api/queue/data", "/gradio_api/heartbeat/a", f"/gradio_api/call/race/{'0' * 32}", "/?deep_link=../x"),
    *("/gradio_api/file=/etc/passwd", "/gradio_api/deep_link?session_hash=a", "/monitoring", "/theme.css", "/x" * 40),
)
JSON, VALUES = "application/json", 13
"""VALUES: how many a race takes."""


def in_one_step(num: int) -> str:
    """Two lanes that write the same token `num` times in one step each."""
    recording = json.loads(RECORDED.read_text(encoding="utf-8"))
    lanes, events = recording["spec"]["lanes"], []
    recording["spec"].update(lanes=[lanes[0], lanes[2]], audit=False)
    recording["spec"]["params"]["max_new_tokens"] = max(1, num)
    for lane in (lanes[0]["name"], lanes[2]["name"]):
        events += _lane(lane, len(recording["prompt"]["token_ids"]), [_step(0, [7] * num, None)])
    return _packed(recording, events)


def copied(num_prompt: int, num_steps: int) -> str:
    """A lane whose every step says that its draft was copied from the beginning of a long prompt."""
    recording = json.loads(RECORDED.read_text(encoding="utf-8"))
    lane = {**recording["spec"]["lanes"][2], "drafter": "ngram", "k": 1}
    recording["spec"].update(lanes=[lane], audit=False)
    recording["spec"]["params"]["max_new_tokens"] = num_steps
    recording["prompt"]["token_ids"] = [7] * num_prompt
    steps = [
        {**_step(i, [7], 2), "drafted": [7], "drafted_pieces": [""], "num_accepted": 1, "copied": [0, 0]}
        for i in range(num_steps)
    ]
    return _packed(recording, _lane(lane["name"], num_prompt, steps))


def _lane(name: str, num_prompt: int, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    num = sum(len(step["token_ids"]) for step in steps)
    first = {"type": "started", "num_prompt_tokens": num_prompt, "prefill_s": 0.1}
    last = {"type": "finished", "reason": "length", "num_tokens": num, "decode_s": 0.0}
    return [{"lane": name, "clock_s": 0.0, **event} for event in (first, *steps, last)]


def _step(index: int, token_ids: list[int], width: int | None) -> dict[str, Any]:
    none: dict[str, Any] = {"drafted": [], "drafted_pieces": [], "pieces": [], "checksums": []}
    times = {"draft_s": 0.0, "verify_s": 0.0, "width": width}
    return {
        "type": "step",
        "index": index,
        "position": index,
        "num_accepted": 0,
        "token_ids": token_ids,
        **times,
        **none,
    }


def _packed(recording: dict[str, Any], events: list[dict[str, Any]]) -> str:
    known = ("schema", "format", "model", "device", "versions", "commit", "created", "widths", "prompt", "spec")
    kept = {name: recording[name] for name in known}
    return json.dumps({**kept, "events": events, "verdicts": {}}, separators=(",", ":"))


def odd(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value that no function expects."""
    leaves = (None, True, -1, 0, 10**30, 1e308, "", "<b>", "\ud800", "\0", "synthetic:0.5+" * 9, "ngram", "x" * 3000)
    if depth > 3 or rng.random() < 0.6:
        return rng.choice(leaves)
    inner = [odd(rng, depth + 1) for _ in range(rng.randrange(5))]
    return inner if rng.random() < 0.5 else {str(i): value for i, value in enumerate(inner)}


def damaged(rng: random.Random, recording: Any) -> Any:
    """The recording with one value replaced by an odd one."""
    place, value = recording, recording
    while isinstance(value, (dict, list)) and value and rng.random() < 0.9:
        place, key = value, rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        value = place[key]
    if place is not recording:
        place[key] = odd(rng)
    return recording


def mixed(rng: random.Random) -> tuple[str, str, dict[str, Any]]:
    """A call that the page would never make: its method, its path, and further arguments for httpx."""
    if rng.random() < 0.1:
        recording = json.dumps(damaged(rng, json.loads(RECORDED.read_text(encoding="utf-8"))))
        return "POST", "/recordings", {"content": recording[: rng.choice((10**7, rng.randrange(len(recording))))]}
    if rng.random() < 0.15:
        return rng.choice(("GET", "HEAD", "POST", "PUT", "DELETE")), rng.choice(READS), {}
    path = rng.choice(("queue/join", "run/predict")) if rng.random() < 0.7 else rng.choice(PATHS)
    body: dict[str, Any] = {"fn_index": rng.choice(FUNCTIONS), "session_hash": rng.choice(SESSIONS), "data": []}
    if rng.random() < 0.8:
        body["data"] = [odd(rng) for _ in range(rng.choice((1, 1, 2, 2, 6, VALUES, VALUES, 40)))]
    if rng.random() < 0.5:
        body["event_data"] = odd(rng)
    elif rng.random() < 0.1:
        key = rng.choice(("recorded-csv-to-json", "recorded-story", "0" * 32, odd(rng)))
        body["event_data"] = {"key": key, "request": "1", "lane": odd(rng), "text": "a\n" * 50, "limit": 1}
    body |= {name: odd(rng) for name in ("trigger_id", "event_id", "batched", "simple_format") if rng.random() < 0.1}
    content = json.dumps(body)
    if rng.random() < 0.1:
        content = content[: rng.randrange(len(content))]
    headers = {"content-type": JSON if rng.random() < 0.95 else "multipart/form-data; boundary=x"}
    return "POST", f"/gradio_api/{path}", {"content": content, "headers": headers}
