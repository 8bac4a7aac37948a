"""The page as a whole, over HTTP: races end right, visitors share one device, and nothing they send breaks it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from app.catalogue.limits import PER_ADDRESS
from engine.recordings.recording import checked
from tests.helpers import ROOT
from tests.helpers.pageserver import LONG, ORDER, Refused, Visitor, Watched


def test_a_race_through_the_server(server) -> None:
    """All the way: order, frames, verdict, and a recording that the engine itself accepts."""
    frames = server.visitor("race").race()
    states = [frame["state"] for frame in frames]
    assert states[-1] == "finished" and "running" in states
    over, last = frames[states.index("finished")], frames[-1]
    assert not over["complete"] and last["complete"] and checked(last["recording"].encode())["tables"]
    recording = checked(over["recording"].encode())
    assert [event for frame in frames for event in frame["events"]] == recording["events"]
    assert recording["verdicts"]["speculative"]["kind"] == "identical_bits"
    assert recording["spec"]["params"]["max_new_tokens"] == ORDER["max_new_tokens"]
    assert set(over["metrics"]) == {"plain", "baseline", "speculative"} and over["speedup"] > 0


def test_made_up_names_do_not_fill_the_line(server) -> None:
    """A session's name is whatever the client says; the address is not. A proxy on this machine is believed."""
    crowd = [server.visitor(f"made-up-{i}") for i in range(20)]
    watched = [Watched(visitor, **LONG) for visitor in crowd[:PER_ADDRESS]]
    for each in watched[1:]:
        each.until("waiting")
    for visitor in crowd[PER_ADDRESS:]:
        with pytest.raises(Refused, match="your address already has"):
            visitor.race()
    elsewhere = server.visitor("elsewhere")
    elsewhere.client.headers["X-Forwarded-For"] = "203.0.113.7"
    other = Watched(elsewhere)
    other.until("waiting")
    for visitor in crowd:
        visitor.stop()
    other.until("finished")


@pytest.fixture(scope="module")
def caller(server) -> Iterator[Visitor]:
    """Who sends what nobody can race; afterwards nothing of it may have kept the device."""
    yield server.visitor("hostile")
    assert server.visitor("last").race()[-1]["state"] == "finished"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": None}, "prompt must be text"),
        ({"prompt": ["a"]}, "prompt must be text"),
        ({"prompt": "a\0b"}, "NUL"),
        ({"prompt": "x" * 20_001}, "20000"),
        ({"prompt": "word " * 3_990, "max_new_tokens": 1000}, "positions"),
        ({"pair": "/etc"}, "unknown pair"),
        ({"pair": None}, "unknown pair"),
        ({"pair": "gpt-oss-120b-eagle3"}, "cannot run here"),
        ({"drafter": "draft_model:/etc"}, "unknown drafter"),
        ({"drafter": "draft_model:owner/name"}, "unknown drafter"),
        ({"drafter": 7}, "drafter"),
        ({"drafter": "synthetic:7"}, "synthetic"),
        ({"k": 0}, "k"), ({"k": 64}, "63"), ({"k": 2.5}, "2.5"), ({"k": True}, "True"), ({"k": "many"}, "many"),
        ({"temperature": -1}, "temperature"), ({"temperature": 1e308}, "temperature"),
        ({"temperature": "hot"}, "hot"), ({"top_p": 0}, "top_p"), ({"top_p": None}, "top_p is empty"),
        ({"seed": None}, "seed is empty"), ({"seed": -1}, "seed"), ({"seed": 2**63}, "seed"),
        ({"seed": 2**70}, "20 digits"), ({"max_new_tokens": 0}, "max_new_tokens"), ({"max_new_tokens": 1001}, "1000"),
        ({"width": 3}, "at least 5"), ({"width": "<b>wide</b>"}, "auto"), ({"width": {}}, "width"),
        ({"audit": "yes"}, "audit"), ({"chat": 1}, "chat"), ({"rule": "greedy"}, "coupled, rejection"),
        ({"rule": None}, "unknown rule"), ({"rule": ["coupled"]}, "unknown rule"),
        ({"more": "ngram"}, "more must be a list of at most 3"),
        ({"more": ["ngram"] * 4}, "more must be a list of at most 3"),
        ({"more": ["draft_model:/etc"]}, "unknown drafter"),
        ({"more": [["ngram"]]}, "drafter"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_every_value_is_checked_on_the_server(caller, changes, words) -> None:
    """Whoever calls the API reads one sentence that names the value or the limit, and never a traceback."""
    try:
        last = caller.race(**changes)[-1]
        assert last["state"] == "failed"
        text = last["status"]["text"]
    except Refused as refused:
        text = str(refused)
    assert words in text and "Traceback" not in text


def test_the_page_is_built_without_torch() -> None:
    """Six seconds to the page leave no room for torch."""
    code = (
        "import runpy, sys; space = runpy.run_path('app.py'); from app.page.ui import build; "
        "c = space['load'](space['machine'].probe()); build(c, space['EitherBackend']('auto', 'auto', True)); "
        "print([m for m in ('torch', 'transformers', 'plotly') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
