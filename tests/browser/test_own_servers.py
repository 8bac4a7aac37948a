"""The owner of a page names servers and a model in a real browser, and sends the results of those servers to others."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.recordings.recording import loads
from tests.helpers.loopback import Answer, servers
from tests.helpers.loopback_models import WORDS as WRITTEN
from tests.helpers.loopback_models import lists_models, writes
from tests.helpers.page_browser import (
    UNREADABLE,
    close_settings,
    loaded,
    new_race,
    open_settings,
    run_race,
    saved,
    settings,
    watched,
)
from tests.helpers.pageserver import TARGET, served
from tests.helpers.race_pages import words

pytestmark = pytest.mark.browser
KEY = "sk-of-nobody-0123456789"
MAX_CLICKS, MAX_S = 5, 30.0  # from an empty page to a race against a server of one's own
STORED = "JSON.stringify([{...localStorage}, {...sessionStorage}, location.href, history.state])"
OTHER = [*WRITTEN[:5], " <b>x</b>", *WRITTEN[6:]]
# What the page's button says as soon as a load begins, which may be over a moment later.
STARTED = """() => { document.querySelector('#page-load [data-ref=start]').click();
    return document.querySelector('#page-servers-button').textContent; }"""


def differs_at_two() -> Answer:
    """Writes with drafts, and something else in the middle after the prompt "two"."""
    same, other = writes(3), writes(3, words=OTHER)

    async def answer(path: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
        async for part in (other if body.get("prompt") == "two" else same)(path, body):
            yield part

    return answer


def can_be_sent(context: Any, page: str, said: str, verdict: str, parting: str) -> None:
    """A page with both results: a boss sees what the dialogs showed, on any device, and nothing runs."""
    tab = watched(context.new_page())
    tab.emulate_media(color_scheme="dark", reduced_motion="reduce")
    tab.set_content(page)
    assert tab.locator("h3").all_inner_texts() == [verdict, said]
    short = "In short: a/model on both servers, plain and speculative, 1 to 2 users at once"
    heads = [short, "Does it pay on your prompts?", "Under load: how many users at once?"]
    assert tab.locator("h1").all_inner_texts() == heads
    assert tab.inner_text("article p >> nth=0") == "To do: find out why texts differ, with the check-up."
    assert f"Under load: {said[0].lower()}" in tab.inner_text("article >> nth=1"), "the study knows the load"
    shown = "\n".join(tab.locator(".ps-parting").all_inner_texts())
    assert shown.split() == parting.split() and tab.locator(".ps-parting b, .ps-parting img").count() == 0
    assert tab.locator(".ps-way strong").all_inner_texts() == [WRITTEN[5].strip(), "<b>x</b>"]
    assert tab.locator("svg").count() == 6 and tab.locator("tbody tr").count() > 6
    assert tab.locator("button, script, a, input, [id], [hidden], [data-ref]").count() == 0
    assert "default-src 'none'" in tab.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    for width in (1280, 390):
        tab.set_viewport_size({"width": width, "height": 844})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(UNREADABLE) == []
    assert tab.problems == []
    tab.close()


def test_an_owner_names_servers_and_a_model_in_the_browser(browser: Any, page_cache: Any) -> None:
    """The owner would have to restart the page, look for the door, or find the key in the browser afterwards; a race,
    a study or a load would go elsewhere; or there would be no way back to this machine."""
    with (
        servers(writes(), differs_at_two()) as found,
        served(page_cache, "--target", TARGET, "--dtype", "float32") as server,
    ):
        for each in found:
            each.pages |= lists_models("a/model")
        allowed = ["clipboard-read", "clipboard-write"]
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, reduced_motion="reduce", permissions=allowed
        )
        tab = watched(context.new_page(), server.url)
        posted: list[str] = []
        tab.on("request", lambda request: posted.append(f"{request.url} {request.post_data or ''}"))
        began, clicks = time.monotonic(), 0

        def click(selector: str) -> None:
            nonlocal clicks
            clicks += 1
            tab.click(selector)

        tab.goto(server.url)
        click("#page-servers-button")
        form = "#page-your-servers"
        tab.keyboard.type(found[0].url)  # the dialog opens in its first field
        tab.keyboard.press("Tab")
        tab.keyboard.type(found[1].url)
        tab.fill(f"{form} [data-ref=key]", KEY)
        click(f"{form} [data-ref=check]")
        tab.wait_for_selector(f"{form} [data-ref=use]:enabled")
        assert "speculation is on" in tab.inner_text(f"{form} [data-ref=says]")
        assert tab.input_value(f"{form} [data-ref=key]") == ""
        tab.press(f"{form} [data-ref=model]", "x")
        assert tab.inner_text(f"{form} [data-ref=says]") == "", "said of other servers than those in the boxes"
        tab.fill(f"{form} [data-ref=model]", "")
        tab.click(f"{form} [data-ref=check]")
        tab.wait_for_selector(f"{form} [data-ref=use]:enabled")
        before = tab.evaluate("window.photofinish.state.race")
        click(f"{form} [data-ref=use]")
        new_race(tab, before, "running", missed=True)
        took_s = time.monotonic() - began
        print(f"own servers: {clicks} clicks, {took_s:.1f} s")
        assert clicks <= MAX_CLICKS and took_s <= MAX_S
        tab.wait_for_selector('.pf[data-state="finished"]')
        recording = loads(saved(tab))
        assert [lane["name"] for lane in recording["spec"]["lanes"]] == ["plain", "speculative"]
        assert recording["verdicts"]["speculative"]["kind"] == "same_text"
        tab.wait_for_selector('#page-model >> text="a/model on 2 servers is ready."')
        tab.wait_for_selector("#page-panel >> text=Draft length (k)", state="hidden")

        tab.click("#page-study-button")
        tab.fill("#page-study [data-ref=paste]", "one\ntwo\nthree")
        tab.check("#page-study [data-ref=perLine]")
        tab.click("#page-study [data-ref=start]")
        tab.wait_for_selector("#page-study [data-ref=says] >> text=3 of 3 prompts finished")
        tab.wait_for_selector("#page-study [data-ref=heads] >> text=speculation")
        assert tab.is_hidden("#page-study [data-ref=opened]")
        assert tab.inner_text("#page-study [data-ref=texts]").startswith("Same text: 2 of 3 answers. Asked once more")
        parting = tab.inner_text("#page-study [data-ref=partings]")
        assert (
            "Line 2, from character 11 on: two" in parting
            and f"{OTHER[4]}{OTHER[5]}" in parting
            and WRITTEN[5] in parting
        )
        tab.click("#page-study [data-ref=copy]")
        command = tab.evaluate("navigator.clipboard.readText()")
        assert f"study-prompts --lane plain=openai:{found[0].url} --lane speculative=openai:{found[1].url}" in command
        assert "With more users it may lose" in tab.inner_text("#page-study [data-ref=load]")
        with tab.expect_download() as download:
            tab.click("#page-study [data-ref=save]")
        assert re.fullmatch(r"study_model_\d{4}(-\d\d){4}\.json", download.value.suggested_filename)
        file = Path(download.value.path()).read_text(encoding="utf-8")
        says = "plain and speculative say that they are vLLM; 3 prompts (pasted text), 20"
        assert says in file and found[0].url not in file
        scope = "a/model on both servers, plain and speculative, one user"
        assert tab.inner_text("#page-study [data-ref=scope]") == scope
        verdict = tab.inner_text("#page-study [data-ref=verdict]")
        tab.keyboard.press("Escape")
        tab.click("[role=tab][data-tab=decide]")
        assert "In this tab 1 of 3 other answers of servers of this model differ" in words(tab, "decideCaution")
        tab.click("[role=tab][data-tab=text]")

        tab.click("#page-servers-button")
        tab.click("#page-load-button")
        assert tab.inner_text("#page-load [data-ref=found]") == "pasted text: 3 prompts, one a line."
        tab.click("#page-load [data-ref=forget]")
        tab.keyboard.press("Escape")
        tab.click("#page-servers-button")
        tab.click("#page-load-button")
        assert tab.inner_text("#page-load [data-ref=found]") == "" and tab.is_enabled("#page-load [data-ref=words]")
        tab.fill("#page-load [data-ref=users]", "1,2")
        tab.fill("#page-load [data-ref=requests]", "4")
        tab.fill("#page-load [data-ref=length]", "8")
        chosen = {"name": "three.txt", "mimeType": "text/plain", "buffer": b"one\ntwo\nthree"}
        tab.set_input_files("#page-load [data-ref=file]", chosen)
        need = "10 requests to each server, 2 of them to warm up, and 3 different prompts"
        tab.wait_for_selector(f"#page-load [data-ref=need] >> text={need}")
        assert tab.evaluate(STARTED) == "Your servers: load 0 %"
        tab.wait_for_selector("#page-load [data-ref=save]:enabled")
        assert "speculative" in tab.inner_text("#page-load [data-ref=levels]")
        assert "3 different ones for 10 requests" in tab.inner_text("#page-load [data-ref=details]")
        tab.click("#page-load [data-ref=copy]")
        assert tab.evaluate("navigator.clipboard.readText()").startswith(
            f'OPENAI_API_KEY="$OPENAI_API_KEY" python -m engine study --lane plain=openai:{found[0].url} '
            f"--lane speculative=openai:{found[1].url} --model a/model --concurrency 1,2"
        )
        with tab.expect_download() as download:
            tab.click("#page-load [data-ref=save]")
        result = Path(download.value.path()).read_bytes()
        said = tab.inner_text("#page-load [data-ref=said]")
        with tab.expect_download() as download:
            tab.click("#page-load [data-ref=savePage]")
        assert re.fullmatch(r"load_model_\d{4}(-\d\d){4}\.html", download.value.suggested_filename)
        page = Path(download.value.path()).read_text(encoding="utf-8")
        can_be_sent(context, page, said, verdict, parting)
        tab.keyboard.press("Escape")
        assert tab.inner_text("#page-servers-button") == "Your servers"
        tab.click("#page-study-button")
        load_file = {"name": "load.json", "mimeType": "text/plain", "buffer": result}
        study_file = {"name": "study.json", "mimeType": "text/plain", "buffer": file.encode()}
        tab.set_input_files("#page-study [data-ref=file]", load_file)
        tab.wait_for_selector("#page-load [data-ref=opened] >> text=Opened from a file")
        assert not tab.is_visible("#page-study dialog") and tab.inner_text("#page-load [data-ref=said]") == said
        tab.set_input_files("#page-load [data-ref=file]", study_file)
        tab.wait_for_selector("#page-study [data-ref=opened] >> text=Opened from a file")
        assert tab.inner_text("#page-study [data-ref=partings]") == parting
        with tab.expect_download() as download:
            tab.click("#page-study [data-ref=savePage]")
        opened = Path(download.value.path()).read_text(encoding="utf-8")
        assert opened.count("<article") == 1, "a file's servers may be others of the same names"
        tab.keyboard.press("Escape")
        other = watched(context.new_page(), server.url)
        other.goto(server.url)
        other.click("#page-servers-button")
        other.wait_for_selector(f"{form} [data-ref=use]:enabled")  # those that were tried before the page was loaded
        assert "speculation is on" in other.inner_text(f"{form} [data-ref=says]")
        other.fill(f"{form} [data-ref=url]", "http://127.0.0.1:1")
        other.click("#page-load-button")
        assert other.is_disabled("#page-load [data-ref=start]") and other.is_visible("#page-load [data-ref=untried]")
        other.set_input_files("#page-load [data-ref=file]", chosen)
        other.wait_for_selector("#page-load [data-ref=forget]:visible")
        other.keyboard.press("Escape")
        other.keyboard.press("Escape")
        other.click("#page-study-button")
        assert other.inner_text("#page-study [data-ref=found]") == "three.txt: 3 prompts, one a line."
        assert other.is_enabled("#page-study [data-ref=start]")
        other.keyboard.press("Escape")
        other.set_input_files("#race [data-ref=file]", load_file)
        other.wait_for_selector("#page-load [data-ref=opened] >> text=Opened from a file")
        assert other.inner_text("#page-load [data-ref=said]") == said and other.problems == []
        other.close()

        tab.click("#page-servers-button")
        assert tab.is_enabled(f"{form} [data-ref=use]") and "vLLM" in tab.inner_text(f"{form} [data-ref=says]")
        tab.keyboard.press("Escape")
        assert "a/model on 2 servers is ready" in tab.inner_text("#page-model"), "the line of the first model"
        tab.click("#page-model-button")
        tab.keyboard.type(TARGET)
        tab.fill("#page-your-model [data-ref=drafter]", f"draft_model:{TARGET.replace('target', 'draft')}")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#page-your-model [data-ref=use]:enabled")
        assert "nothing to download" in tab.inner_text("#page-your-model [data-ref=says]")
        tab.click("#page-your-model [data-ref=use]")
        tab.wait_for_selector(f"#page-model >> text={TARGET} is ready")
        num_asked = sum(len(each.asked) for each in found)
        run_race(tab)
        recording = loads(saved(tab))
        assert recording["model"]["name"] == TARGET and "draft_model" in recording["spec"]["lanes"][2]["drafter"]
        assert sum(len(each.asked) for each in found) == num_asked, "a server was asked for a race of this machine"
        assert tab.evaluate(UNREADABLE) == []

        told = tab.evaluate(STORED) + server.log.read_text() + saved(tab).decode() + page
        told += "".join(each for each in posted if "/yours/servers" not in each)
        assert not any(secret in told for secret in (KEY, *(each.url for each in found)))
        assert KEY not in tab.content()
        assert sum(KEY in each for each in posted) == 1
        assert tab.problems == []
        context.close()


def test_back_from_servers_nothing_of_them_is_left(browser: Any, page_cache: Any) -> None:
    """The model that races again would keep another drafter and the count of characters, a race in a recording's place
    differ without a word, and a new session call servers ready that have ended, or race them in silence."""
    drafter = f"hybrid:ngram+draft_model:{TARGET.replace('target', 'draft')}"
    arguments = "--target", TARGET, "--drafter", drafter, "--dtype", "float32"
    field = "#page-panel [aria-label='{}']"

    def choose(tab: Any, model: str) -> None:
        open_settings(tab)
        tab.click(f"#page-panel label:has-text('{model}')")
        close_settings(tab)

    with served(page_cache, *arguments) as server:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        tab = watched(context.new_page(), server.url)
        tab.goto(server.url)
        loaded(tab, "ready")
        tab.click("#page-example-sql")
        tab.wait_for_function("window.photofinish.state.race === 'recorded-sql'")
        assert tab.input_value(field.format("Draft length (k)")) == "7"
        tab.wait_for_selector(".page-count >> text=tokens")
        with servers(writes(), writes(3)) as found:
            for each in found:
                each.pages |= lists_models("a/model")
            tab.click("#page-servers-button")
            for name, each in zip(("url", "url2"), found, strict=True):
                tab.fill(f"#page-your-servers [data-ref={name}]", each.url)
            tab.click("#page-your-servers [data-ref=check]")
            tab.wait_for_selector("#page-your-servers [data-ref=use]:enabled")
            before = tab.evaluate("window.photofinish.state.race")
            tab.click("#page-your-servers [data-ref=use]")
            new_race(tab, before, "finished")
            tab.wait_for_selector("[data-ref=statusText] >> text=Unlike the recording: a/model.")
            tab.wait_for_selector("#page-model >> text=a/model on 2 servers is ready.")
            tab.wait_for_selector(".page-count >> text=characters")
        choose(tab, TARGET)
        tab.wait_for_selector(f"#page-model >> text={TARGET} is ready")
        tab.wait_for_selector(".page-count >> text=tokens")
        values = [tab.input_value(field.format(name)) for name in ("Drafter", "Draft length (k)")]
        assert values == ["n-gram, else draft model tests/fixtures/trained/draft", "7"]
        tab.click("#page-example-sql")
        tab.wait_for_function("window.photofinish.state.race === 'recorded-sql'")
        settings(tab, Maximum_length="16")
        run_race(tab, button="[data-ref=liveHere]")
        tab.wait_for_selector(f"[data-ref=statusText] >> text=Unlike the recording: {TARGET}.")
        whole = tab.text_content("[data-ref=paceNote]")
        assert (
            "k = 7, at most 16 tokens, as a chat message; the recording: gemma-3-270m, n-gram, else EAGLE-3 head, auto"
            in whole
        )

        other = watched(context.new_page(), server.url)
        other.goto(server.url)
        loaded(other, "ready")
        assert TARGET in other.inner_text("#page-model"), "what was chosen last"
        choose(other, "a/model on 2 servers")
        gone = "a/model on 2 servers cannot be raced now: the server of lane plain cannot be reached"
        other.wait_for_selector(f"#page-model >> text={gone}")
        before = other.evaluate("window.photofinish.state.race")
        other.click("#page-race-button")
        new_race(other, before, "finished")
        assert "This lane failed: the server of lane plain cannot be reached" in other.inner_text("#race")
        assert tab.problems == other.problems == []
        context.close()
