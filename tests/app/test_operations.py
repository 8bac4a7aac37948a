"""What the operator of a public page decides, watches and reads: limits, health, the log."""

import json
import platform
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.catalogue.limits import Limits, read_limits
from app.jobs.loader import ModelStatus
from app.jobs.queue import RaceQueue
from app.jobs.races import Stage
from app.page.routes import health
from engine.core.errors import UsageError
from tests.helpers.pageserver import TARGET, Refused, Server, served
from tests.helpers.races import fixed_race
from tests.helpers.staged import StagedBackend, in_loop, watch

MARKER = "zq7-heron-lantern"
FILE = """
max_new_tokens = 64
studies = false
"""


@pytest.fixture(scope="module")
def page(page_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page with narrow limits."""
    folder = tmp_path_factory.mktemp("operated")
    (folder / "limits.toml").write_text(FILE, encoding="utf-8")
    options = "--target", TARGET, "--dtype", "float32", "--limits", str(folder / "limits.toml")
    with served(page_cache, *options, log=folder / "log") as running:
        yield running


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pairs = 3", 'pairs must be a text: "all", "loaded" or ids of pairs with commas, not 3'),
        ("max_new_tokens = 1001", "max_new_tokens must be an integer from 16 to 1000, not 1001"),
        ("max_new_tokens = true", "max_new_tokens must be an integer from 16 to 1000, not True"),
        ("races_per_address = '2'", "races_per_address must be an integer from 1 to 40, not '2'"),
        ("race_s = nan", "race_s must be a number from 1 to 86400, not nan"),
        ("studies = 0", "studies must be true or false, not 0"),
        ("max_tokens = 5", "unknown key 'max_tokens'; choose one of: max_new_tokens, pairs,"),
        ("studies", "is not TOML"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """A page would be open although its operator believes that it is limited."""
    (tmp_path / "limits.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_limits(str(tmp_path / "limits.toml"))
    assert words in str(refused.value)


# What a visitor of the page with narrow limits may not ask for -> what is said.
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"max_new_tokens": 65}, "max_new_tokens must be an integer from 1 to 64 on this page, not 65"),
    ({"pair": "gemma3-270m-ngram"}, "has not allowed"),
)


def test_what_is_not_allowed_is_not_shown_and_cannot_be_called(page: Server) -> None:
    """A visitor fills in a dialog and is refused; or a program is given what the page's operator forbade."""
    config = httpx.get(f"{page.url}/config").json()
    props = [component["props"] for component in config["components"]]
    parts = {part.get("label") or part.get("elem_id"): part for part in props}
    assert parts["Maximum length"]["maximum"] == 64 and parts["Maximum length"]["value"] <= 64
    assert [value for _, value in parts["Model"]["choices"]] == ["command-line"]
    assert '"studies": false' in re.search(r"const ALLOWED = .*", parts["race"]["js_on_load"])[0]
    for run in ("study", "checkup"):
        with pytest.raises(Refused, match="unknown run"):
            next(page.visitor("refused").frames(run))
    for changes, words in REFUSED:
        with pytest.raises(Refused, match=words):
            page.visitor("refused").race(**changes)


def test_a_race_is_logged_without_its_prompt(page: Server) -> None:
    """An operator would see nothing of a race; or, in a log that others can read, what a visitor wrote."""
    before = page.log.read_text(encoding="utf-8")
    frames = page.visitor(MARKER).race(prompt=f"{MARKER} = {MARKER} + ", drafter="synthetic:0.8134", max_new_tokens=16)
    assert frames[-1]["state"] == "finished"
    num = sum(len(event["token_ids"]) for frame in frames for event in frame["events"] if event["type"] == "step")
    text = page.log.read_text(encoding="utf-8").removeprefix(before)
    (line,) = (entry for entry in text.splitlines() if " race " in entry)
    form = rf" INFO race [0-9a-f]{{8}} finished: command-line, synthetic; waited [\d.]+ s, took [\d.]+ s, {num} tokens$"
    assert re.search(form, line) and frames[-1]["race"] not in text
    assert MARKER not in text and "127.0.0.1" not in text and "://" not in text


def test_health_is_for_everybody(page: Server) -> None:
    """A balancer behind a proxy could not look after the page."""
    proxied = {"X-Forwarded-For": "203.0.113.7"}
    for _ in range(100):
        answer = httpx.get(f"{page.url}/healthz", headers=proxied)
        if answer.status_code == 200:
            break
        assert answer.status_code == 503 and answer.json()["reason"].endswith(".")
        time.sleep(0.1)
    body = {"ready": True, "model": TARGET, "state": "ready", "reason": "", "queue_length": 0}
    assert answer.json() == body | {"device_busy": answer.json()["device_busy"]}


def test_an_audience_gets_the_pages_address(page: Server) -> None:
    """A code on the stage that no phone reads, or that sends phones to anything but a web page."""
    drawn, *refused = (
        httpx.get(f"{page.url}/code.svg", params={"of": address})
        for address in ("https://pf.example/page/", "javascript:alert(1)", "", "https://a" + "a" * 300)
    )
    assert drawn.headers["content-type"] == "image/svg+xml" and drawn.text.startswith("<svg")
    assert drawn.text.count("path") >= 2 and 'fill="#fff"' in drawn.text, "no light ground: unreadable on a dark page"
    assert [(answer.status_code, "300" in answer.json()["detail"]) for answer in refused] == [(400, True)] * 3


def test_a_page_is_ready_if_its_default_can_be_raced() -> None:
    """A balancer sends visitors to a page without a model, or none to one where somebody tried another model."""
    for status, ready, reason in (
        (None, False, "Finding out what this machine can run."),
        (ModelStatus("the default", "loading", "reading the weights"), False, "Reading the weights."),
        (ModelStatus("the default", "failed", "it has no weights. Try another"), False, "It has no weights."),
        (ModelStatus("another", "failed", "it has no weights"), True, ""),
        (ModelStatus("another", "loading", "reading the weights"), True, ""),
        (ModelStatus("another", "failed", "it hangs", hangs=True), False, "It hangs."),
    ):
        body = health(RaceQueue(), "the default", status)
        assert (body["ready"], body["reason"]) == (ready, reason), status


@in_loop
async def test_a_race_that_takes_too_long_is_ended() -> None:
    """One visitor's race would keep the device from all others."""
    stage = Stage(StagedBackend(fixed_race(), step_s=0.05), limits=Limits(race_s=0.3))
    last = (await watch(stage, "a"))[-1]
    assert (last["state"], last["status"]["text"]) == ("stopped", "Ended after 0.3 seconds, the limit on this page.")
    assert json.loads(last["recording"])["stopped"] is True


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such arenas")
def test_threads_share_their_freed_memory(page: Server) -> None:
    """With an arena of malloc for each thread, a page kept what races freed: 428 MB in ten minutes of 50 visitors."""
    assert page.visitor("of-memory").race(pair="command-line")[-1]["state"] == "finished"
    maps = [line.split()[:2] for line in Path(f"/proc/{page.process.pid}/maps").read_text().splitlines()]
    rooms = [(*(int(end, 16) for end in room.split("-")), access) for room, access in maps]
    heap = 64 << 20
    for (begin, end, access), (rest, last, kept) in pairwise(rooms):
        is_heap = (access, kept) == ("rw-p", "---p") and end == rest and begin % heap == 0
        assert not is_heap or last != begin + heap
