"""Pages with lanes on servers in a real browser: two that write, one that fails. (Streams: ../remote/test_wire.py.)"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.core.events import steps
from engine.recordings.recording import checked
from tests.helpers.dialogs import Dialog
from tests.helpers.loopback import LETTERS, Body, refusal, servers, writes
from tests.helpers.page_browser import UNREADABLE, choose, open_tab, run_race, saved, to_end
from tests.helpers.pageserver import served
from tests.helpers.race_pages import SETTLED, words
from tests.helpers.races import events_of

pytestmark = pytest.mark.browser
KEY = "sk-of-nobody-0123456789"
STATE = "window.photofinish.state"


async def busy(path: str, body: Body) -> AsyncIterator[bytes]:
    yield refusal(429, b'{"error": {"message": "busy, said %s"}}' % KEY.encode(), "Retry-After: 7\r\n")


def panel(tab: Any, name: str) -> str:
    """Open a tab of the page; what it shows."""
    choose(tab, name)
    button = tab.locator(f"#pf-tab-{name}")
    tab.evaluate(SETTLED)
    return str(tab.inner_text(f"#{button.get_attribute('aria-controls')}")).strip()


def test_a_race_of_two_servers(context: Any, page_cache: Any, monkeypatch: Any) -> None:
    """Servers said to be one device; text of drafts that nobody sent; a dead lane that takes the other down; a tab, a
    saved file or a log that says where the servers are."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with servers(writes(), writes(3)) as hosts:
        lanes = [f"{name}=openai:{host.url}" for name, host in zip(("baseline", "speculative"), hosts, strict=True)]
        with served(page_cache, *(part for lane in lanes for part in ("--lane", lane)), "--model", "a-model") as server:
            tab = open_tab(context, server.url, until="model")
            assert "a-model on 2 servers is ready" in tab.inner_text("#page-model")
            assert not tab.locator("#page-panel >> text=Guesses").count()
            yours = Dialog(tab)
            yours.open(question="load")
            assert tab.is_disabled(yours["start"]), "load that nobody allowed"
            assert "may not put servers under load" in yours.text("whyNot")
            tab.check("#page-yours [value=servers]")
            yours.fill(url="http://a:1/v1", model="it's mine")
            assert yours.text("command") == (
                "python app.py --lane baseline=openai:http://a:1/v1 --lane speculative=openai:http://localhost:8001/v1 "
                "--model 'it'\\''s mine'"
            )
            assert not tab.locator("#page-yours :is([type=password], [data-ref=check])").count()
            tab.check("#page-yours [value=model]")
            assert yours.text("command") == "python app.py --target owner/name --drafter ngram"
            assert tab.is_disabled(yours["start"]) and "owner" in yours.text("whyNot")
            tab.keyboard.press("Escape")
            tab.wait_for_selector(".page-count >> text=characters")
            run_race(tab)
            recording = checked(saved(tab))
            assert recording["verdicts"]["speculative"]["kind"] == "same_text"
            assert "The same text" in tab.inner_text("[data-ref=verdict]")
            own = steps(events_of(recording), "speculative")
            text = "".join(piece for step in own for piece in step.pieces)
            to_end(tab)
            assert words(tab, "rightText").strip() == text.strip() and "".join(LETTERS).startswith(text)
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
            tab.locator(".pf-step:has(.pf-together)").first.press("Enter")
            tab.locator(".pf-one-kept .pf-together").wait_for()  # one, or a step that kept nothing
            tab.click("#pf-tab-text")
            assert tab.evaluate(UNREADABLE) == []
            assert tab.is_visible(".pf-lanes") and tab.is_visible(".pf-legend")
            hosts[1].answer = busy
            run_race(tab)
            assert tab.is_hidden(".pf-legend"), "a legend of marks that no text has"
            shown = tab.inner_text("body")
            assert "answered 429" in shown and "ask again in 7 s" in shown, "which lane failed, and why"
            assert tab.evaluate(f"{STATE}.counts.left") > 0, "the other lane ran"
            text = tab.content() + tab.inner_text("body") + saved(tab).decode() + server.log.read_text()
        assert tab.problems == []
        for secret in (KEY, *(host.url for host in hosts), *(host.url.split("/")[2] for host in hosts)):
            assert secret not in text
        assert all(f"authorization: bearer {KEY}" in head.lower() for host in hosts for head in host.headers)
