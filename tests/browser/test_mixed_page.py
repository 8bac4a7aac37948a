"""The page with lanes of this machine and a lane on a server, in a real browser: one race of both."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from engine.errors import UsageError
from engine.events import steps
from engine.recordings.recording import events_of, loads
from tests.helpers.loopback import lists, says, servers, sse, stream_of
from tests.helpers.page_browser import RACE_MS, SEEN, UNREADABLE, run_race
from tests.helpers.pageserver import TARGET, served
from tests.helpers.race_pages import TEXT, race_over, words_of
from tests.helpers.races import beside_a_server

pytestmark = pytest.mark.browser
KEY = "sk-of-nobody-0123456789"
WORDS = [f" word{i}" if i % 2 else "\n" for i in range(40)]
ACCEPTED = [3] * 9 + [2]
ROWS = """() => [...document.querySelectorAll('.pf-track-right, .pf-track-more')].map(row =>
    [row.querySelector('.pf-track-name').textContent, row.querySelector('.pf-track-count').textContent])"""


@pytest.mark.parametrize("what", ["good", "checksums there", "no checksums here", "places", "sentence"])
def test_a_file_is_read_as_the_engine_reads_it(page: Any, what: str) -> None:
    """The page would refuse a race that the command line opens, or open what that refuses."""
    recording = beside_a_server(race_over(words_of(TEXT)[:20]))
    first = {e["lane"]: e for e in reversed(recording["events"]) if e["type"] == "step"}
    if what == "checksums there":
        first["there"]["checksums"] = [1] * len(first["there"]["token_ids"])
    if what == "no checksums here":
        first["plain"]["checksums"] = []
    if what == "places":
        recording["places"]["lanes"] = ["there"]
    if what == "sentence":
        recording["places"]["sentence"] = 1
    source = json.dumps(recording)
    with nullcontext() if what == "good" else pytest.raises(UsageError):
        loads(source.encode())
    assert page.evaluate("text => window.photofinish.open(text)", source) is (what == "good")


def test_a_lane_on_a_server_stands_beside_those_of_this_machine(
    browser: Any, page_cache: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    """A page that ranks two devices as one, gives their ratio without a word, shows guesses that nobody sent, says of
    money or causes what two devices cannot tell, puts a server into a copied command, or tells where it is."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    stream = stream_of([1, *(n + 1 for n in ACCEPTED)], WORDS, lists(ACCEPTED, [4] * 10))
    with servers(says([sse(event) for event in stream], 0.01)) as found:
        url = found[0].url
        with served(page_cache, "--target", TARGET, "--lane", f"there=openai:{url}", "--model", "a-model") as server:
            context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
            context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
            tab = context.new_page()
            problems: list[str] = []
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.add_init_script(SEEN)
            tab.goto(f"{server.url}?max_new_tokens=40&temperature=0&drafter=ngram")
            tab.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)
            run_race(tab)
            tab.wait_for_function("window.photofinish.state.duration > 0")
            tab.focus("[data-ref=scrub]")
            tab.keyboard.press("End")
            with tab.expect_download() as download:
                tab.click("[data-ref=save]")
            recording = loads(Path(download.value.path()).read_bytes())
            assert [lane["name"] for lane in recording["spec"]["lanes"]][2:] == ["speculative", "there"]
            assert recording["verdicts"]["speculative"]["kind"].startswith("identical")
            assert [step.num_accepted for step in steps(events_of(recording), "there")] == [0, *ACCEPTED]
            assert "Identical" in tab.inner_text("[data-ref=verdict]")
            (own, _), (other, count) = tab.evaluate(ROWS)
            assert own.startswith("1. ngram") and other == "there, on a server" and "×" not in count
            tab.wait_for_timeout(300)
            tab.screenshot(path=tmp_path / "here.png", full_page=True)
            tab.click(".pf-tab[data-tab=text]")
            tab.locator(".pf-track-more").click()
            tab.wait_for_timeout(300)
            assert "by a server's clock" in tab.inner_text("[data-ref=ratioWords]")
            assert "Two texts" in tab.inner_text("[data-ref=verdict]")
            assert tab.text_content("[data-ref=rightText]").replace("\n", "") == "".join(WORDS).replace("\n", "")
            assert tab.locator("[data-ref=rightText] .pf-together").count() == 10
            assert tab.evaluate(UNREADABLE) == []
            tab.click(".pf-tab[data-tab=decide]")
            assert "of one program on one device" in tab.inner_text("[data-ref=decideWaits]")
            tab.click(".pf-tab[data-tab=onestep]")
            tab.wait_for_selector("text=Step 1 of 11")
            assert "Saved" not in tab.inner_text("#" + tab.get_attribute(".pf-tab[data-tab=onestep]", "aria-controls"))
            tab.click(".pf-tab[data-tab=timing]")
            timing = tab.inner_text("#" + tab.get_attribute(".pf-tab[data-tab=timing]", "aria-controls"))
            assert "First the lanes on this machine, then lane there on its server" in timing
            tab.click(".pf-tab[data-tab=why]")
            tab.wait_for_selector("#page-why >> text=no two lanes to compare >> nth=4", timeout=30_000)
            page = tab.content()
            tab.locator(".pf-track-more").click()
            tab.evaluate("document.querySelector('[data-copy=command]').click()")
            tab.wait_for_timeout(300)
            command = tab.evaluate("navigator.clipboard.readText()")
            assert "--drafter ngram" in command and "there" not in command and "server" not in command
            log = server.log.read_text()
            context.close()
    assert problems == []
    for secret in (KEY, url, url.split("/")[2]):
        assert secret not in page and secret not in log and secret not in json.dumps(recording)
