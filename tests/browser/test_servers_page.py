"""Pages with lanes on servers, in a real browser: two streams that a real vLLM sent, one that fails, and a race of
lanes here and there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.core.events import steps
from engine.recordings.recording import loads
from tests.helpers import ROOT
from tests.helpers.dialogs import Dialog
from tests.helpers.loopback import Answer, lists, refusal, says, servers, sse, stream_of
from tests.helpers.page_browser import SEEN, UNREADABLE, copied, loaded, run_race, saved, to_end, watched
from tests.helpers.pageserver import TARGET, served
from tests.helpers.race_pages import SETTLED, words
from tests.helpers.races import events_of

pytestmark = pytest.mark.browser
STREAMS = ROOT / "tests" / "fixtures" / "streams"
KEY = "sk-of-nobody-0123456789"
STATE = "window.photofinish.state"
WORDS = [f" word{i}" if i % 2 else "\n" for i in range(40)]
ACCEPTED = [3] * 9 + [2]
ROWS = """() => [...document.querySelectorAll('.pf-track-right, .pf-track-more')].map(row =>
    [row.querySelector('.pf-track-name').textContent, row.querySelector('.pf-track-count').textContent])"""


def reads(name: str) -> list[str]:
    return [part for _, part in json.loads((STREAMS / f"{name}.json").read_text(encoding="utf-8"))["reads"]]


def vllm(name: str, pause_s: float) -> Answer:
    """What a real vLLM sent, read by read."""
    return says([part.encode() for part in reads(name)], pause_s)


def text_of(name: str) -> str:
    events = [json.loads(line[6:]) for part in reads(name) for line in part.split("\n\n") if line.startswith("data: {")]
    return "".join(choice["text"] for event in events for choice in event["choices"])


def busy_at_its_second_race() -> Answer:
    good, num_asked = vllm("vllm_eagle3_words", 0.003), 0

    async def answer(path: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
        nonlocal num_asked
        num_asked += body["max_tokens"] > 1
        if num_asked < 2 or body["max_tokens"] == 1:
            async for part in good(path, body):
                yield part
        else:
            yield refusal(429, b'{"error": {"message": "busy, said %s"}}' % KEY.encode(), "Retry-After: 7\r\n")

    return answer


@contextmanager
def visited(browser: Any, cache: Path, found: Sequence[Any], *arguments: str, address: str = "") -> Iterator[Any]:
    """A page of these servers in a tab. Afterwards: nothing went wrong, and neither the tab, nor a saved file, nor the
    log says where the servers are."""
    with served(cache, *arguments, "--model", "a-model") as server:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        tab = watched(context.new_page(), server.url)
        tab.add_init_script(SEEN)
        tab.goto(server.url + address)
        loaded(tab, "model")
        yield tab
        told = tab.content() + tab.inner_text("body") + saved(tab).decode() + server.log.read_text()
        context.close()
    assert tab.problems == []
    for secret in (KEY, *(each.url for each in found), *(each.url.split("/")[2] for each in found)):
        assert secret not in told


def panel(tab: Any, name: str) -> str:
    """Open a tab of the page; what it shows."""
    button = tab.locator(f".pf-tab[data-tab={name}]")
    button.click()
    tab.evaluate(SETTLED)
    return str(tab.inner_text(f"#{button.get_attribute('aria-controls')}")).strip()


def test_a_race_of_two_servers(browser: Any, page_cache: Any, monkeypatch: Any) -> None:
    """A page that says a race of servers was on one device, that shows text of drafts that nobody sent, or takes the
    other lane down with a dead one."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with servers(vllm("vllm_plain_words", 0.005), busy_at_its_second_race()) as found:
        lanes = [f"{name}=openai:{each.url}" for name, each in zip(("baseline", "speculative"), found, strict=True)]
        with visited(browser, page_cache, found, *(part for lane in lanes for part in ("--lane", lane))) as tab:
            assert "a-model on 2 servers is ready" in tab.inner_text("#page-model")
            assert not tab.locator("#page-panel >> text=Guesses").count()
            yours = Dialog(tab)
            yours.open(question="load")
            assert tab.is_disabled(yours["start"]), "load that nobody allowed"
            assert "--under-load" in yours.text("whyNot")
            tab.check("#page-yours [value=servers]")
            yours.fill(url="http://a:1/v1", model="it's mine")
            assert yours.text("command") == "python app.py --lane there=openai:http://a:1/v1 --model 'it'\\''s mine'"
            assert not tab.locator("#page-yours :is([type=password], [data-ref=check])").count()
            tab.check("#page-yours [value=model]")
            assert yours.text("command") == "python app.py --target owner/name --drafter ngram"
            assert tab.is_disabled(yours["start"]) and "owner" in yours.text("whyNot")
            tab.keyboard.press("Escape")
            run_race(tab)
            recording = loads(saved(tab))
            assert recording["verdicts"]["speculative"]["kind"] == "same_text"
            assert "The same text" in tab.inner_text("[data-ref=verdict]")
            own = steps(events_of(recording), "speculative")
            assert "".join(piece for step in own for piece in step.pieces) == text_of("vllm_eagle3_words")
            assert [step.num_accepted for step in own if step.num_drafted][:8] == [0, 1, 0, 0, 0, 2, 0, 3]
            to_end(tab)
            assert words(tab, "rightText").strip() == text_of("vllm_eagle3_words").strip()
            assert not tab.locator("[data-ref=rightText] .pf-rejected").count()
            kept = sum(step.num_accepted > 0 for step in own)
            assert tab.locator("[data-ref=rightText] .pf-together").count() == kept > 3, "a highlight that is guessed"
            tab.click(".pf-share summary")
            tab.wait_for_selector("[data-copy=command]", state="hidden")
            assert tab.is_hidden("[data-copy=link]") and tab.is_visible("[data-copy=sentence]")
            tab.keyboard.press("Escape")
            sent = tab.locator(".pf-text [data-sent]").evaluate_all("all => [...new Set(all.map(e => e.dataset.kept))]")
            assert sent and all(words_.endswith("at once") for words_ in sent), "a guess that nobody knows of"
            assert not tab.locator(".pf-differs").count()
            panels = {name: panel(tab, name) for name in ("steps", "onestep", "whatif", "decide", "timing", "text")}
            assert all(panels.values()) and "0.0 ms" not in panels["onestep"], "times within a server"
            assert tab.evaluate(UNREADABLE) == []
            assert tab.is_visible(".pf-lanes") and tab.is_visible(".pf-legend")
            run_race(tab)
            assert tab.is_hidden(".pf-legend"), "a legend of marks that no text has"
            shown = tab.inner_text("body")
            assert "answered 429" in shown and "ask again in 7 s" in shown, "which lane failed, and why"
            assert tab.evaluate(f"{STATE}.counts.left") > 0, "the other lane ran"
        assert all(f"authorization: bearer {KEY}" in head.lower() for each in found for head in each.headers)


def test_a_lane_on_a_server_beside_those_of_this_machine(browser: Any, page_cache: Any, monkeypatch: Any) -> None:
    """A page that ranks two devices as one, gives their ratio without a word, shows guesses that nobody sent, says of
    money or causes what two devices cannot tell, or puts a server into a copied command."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    stream = stream_of([1, *(n + 1 for n in ACCEPTED)], WORDS, lists(ACCEPTED, [4] * 10))
    settings = "?max_new_tokens=40&temperature=0&drafter=ngram"
    with servers(says([sse(event) for event in stream], 0.01)) as found:
        lane = f"there=openai:{found[0].url}"
        with visited(browser, page_cache, found, "--target", TARGET, "--lane", lane, address=settings) as tab:
            run_race(tab)
            to_end(tab)
            recording = loads(saved(tab))
            assert [lane["name"] for lane in recording["spec"]["lanes"]][2:] == ["speculative", "there"]
            assert recording["verdicts"]["speculative"]["kind"].startswith("identical")
            assert [step.num_accepted for step in steps(events_of(recording), "there")] == [0, *ACCEPTED]
            assert "Identical" in tab.inner_text("[data-ref=verdict]")
            (own, _), (other, count) = tab.evaluate(ROWS)
            assert own.startswith("1. n-gram") and other == "there, on a server" and "×" not in count
            command = copied(tab, "command")["command"]
            assert "--drafter ngram" in command and "there" not in command and "server" not in command
            tab.locator(".pf-track-more").click()
            tab.evaluate(SETTLED)
            assert "(server's clock)" in tab.inner_text("[data-ref=ratioWords]")
            assert "Different texts" in tab.inner_text("[data-ref=verdict]")
            assert tab.locator(".pf-differs").count() == 2, "the place is to be looked for"
            assert words(tab, "rightText").replace("\n", "") == "".join(WORDS).replace("\n", "")
            assert tab.locator("[data-ref=rightText] .pf-together").count() == 10
            assert tab.evaluate(UNREADABLE) == []
            assert "for one program on one device" in panel(tab, "decide")
            one_step = panel(tab, "onestep")
            assert "Step 1 of 11" in one_step and "Saved" not in one_step
            assert "First the lanes on this machine, then lane there on its server" in panel(tab, "timing")
            panel(tab, "why")
            tab.wait_for_selector("#page-why >> text=There is nothing to compare >> nth=4", timeout=30_000)
