"""The page whose lanes are servers, in a real browser: a race of two streams that a real vLLM sent, and one that
fails."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.events import steps
from engine.recordings.recording import events_of, loads
from tests.helpers import ROOT
from tests.helpers.loopback import HEAD, Answer, http, refusal, says, servers
from tests.helpers.page_browser import RACE_MS, SEEN, UNREADABLE, run_race
from tests.helpers.pageserver import served

pytestmark = pytest.mark.browser
STREAMS = ROOT / "tests" / "fixtures" / "streams"
KEY = "sk-of-nobody-0123456789"
STATE = "window.photofinish.state"


def vllm(name: str, pause_s: float) -> Answer:
    """What a real vLLM sent, read by read."""
    stream = json.loads((STREAMS / f"{name}.json").read_text(encoding="utf-8"))
    return says([part.encode() for _, part in stream["reads"]], pause_s)


def text_of(name: str) -> str:
    reads = json.loads((STREAMS / f"{name}.json").read_text(encoding="utf-8"))["reads"]
    events = [json.loads(line[6:]) for _, part in reads for line in part.split("\n\n") if line.startswith("data: {")]
    return "".join(choice["text"] for event in events for choice in event["choices"])


def dies(after: int) -> Answer:
    """A server that is well at first, and gone in the middle of its second race."""
    good, num_asked = vllm("vllm_eagle3_words", 0.01), 0

    async def answer(path: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
        nonlocal num_asked
        num_asked += body["max_tokens"] > 1
        if num_asked < 2 or body["max_tokens"] == 1:
            async for part in good(path, body):
                yield part
            return
        if after == 0:
            yield refusal(429, b'{"error": {"message": "busy, said %s"}}' % KEY.encode(), "Retry-After: 7\r\n")
            return
        yield HEAD + http(b"data: {")
        raise ConnectionError

    return answer


def test_a_race_of_two_servers(browser: Any, page_cache: Any, monkeypatch: Any) -> None:
    """A page that says a race of servers was on one device, that shows text of drafts that nobody
    sent, takes the other lane down with a dead one, or tells a visitor where the servers are."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with servers(vllm("vllm_plain_words", 0.02), dies(0)) as found:
        lanes = [f"{name}=openai:{each.url}" for name, each in zip(("baseline", "speculative"), found, strict=True)]
        arguments = [part for lane in lanes for part in ("--lane", lane)]
        with served(page_cache, *arguments, "--model", "a-model") as server:
            tab = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
            problems: list[str] = []
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.add_init_script(SEEN)
            tab.goto(server.url)
            tab.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)
            assert "a-model on 2 servers is ready" in tab.inner_text("#page-model")
            assert not tab.locator("#page-panel >> text=Guesses").count()
            tab.wait_for_selector("#page-study-button")
            assert not tab.locator("#page-load-button, dialog.pl").count(), "load that nobody allowed"
            run_race(tab)
            tab.wait_for_function(f"{STATE}.duration > 0")
            with tab.expect_download() as download:
                tab.click("[data-ref=save]")
            recording = loads(Path(download.value.path()).read_bytes())
            assert recording["verdicts"]["speculative"]["kind"] == "same_text"
            assert "The same text" in tab.inner_text("[data-ref=verdict]")
            own = steps(events_of(recording), "speculative")
            assert "".join(piece for step in own for piece in step.pieces) == text_of("vllm_eagle3_words")
            assert [step.num_accepted for step in own if step.num_drafted][:8] == [0, 1, 0, 0, 0, 2, 0, 3]
            tab.focus("[data-ref=scrub]")
            tab.keyboard.press("End")
            tab.wait_for_timeout(300)
            assert tab.text_content("[data-ref=rightText]").strip() == text_of("vllm_eagle3_words").strip()
            assert not tab.locator("[data-ref=rightText] .pf-rejected").count()
            kept = sum(step.num_accepted > 0 for step in own)
            assert tab.locator("[data-ref=rightText] .pf-together").count() == kept > 3, "a highlight that is guessed"
            for name in ("steps", "onestep", "whatif", "why", "charts", "decide", "timing"):
                button = tab.locator(f".pf-tab[data-tab={name}]")
                button.click()
                tab.wait_for_timeout(400)
                assert tab.inner_text(f"#{button.get_attribute('aria-controls')}").strip(), name
            tab.click(".pf-tab[data-tab=text]")
            assert tab.evaluate(UNREADABLE) == []
            run_race(tab)
            shown = tab.inner_text("body")
            assert "answered 429" in shown and "ask again in 7 s" in shown, "which lane failed, and why"
            assert tab.evaluate(f"{STATE}.counts.left") > 0, "the other lane ran"
            page = tab.content() + shown
            log = server.log.read_text()
            tab.close()
    assert problems == []
    for secret in (KEY, *(each.url for each in found), *(each.url.split("/")[2] for each in found)):
        assert secret not in page and secret not in log and secret not in json.dumps(recording)
    assert all(f"authorization: bearer {KEY}" in head.lower() for each in found for head in each.headers)
    assert os.environ["OPENAI_API_KEY"] == KEY
