"""The owner of a page names servers and a model in a real browser, and sends the results of those servers to others."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from engine.recordings.recording import checked
from tests.helpers.dialogs import Dialog
from tests.helpers.loopback import LETTERS, lists_models, servers, writes
from tests.helpers.page_browser import UNREADABLE, loaded, new_race, open_tab, pasted, saved, settings, watched
from tests.helpers.pageserver import TARGET, served

pytestmark = pytest.mark.browser
KEY = "sk-of-nobody-0123456789"
MAX_CLICKS, MAX_S = 3, 30.0  # from an empty page to a race of two servers of one's own
STORED = "JSON.stringify([{...localStorage}, {...sessionStorage}, location.href, history.state])"
OTHER = [*LETTERS[:5], " <b>x</b>", *LETTERS[6:]]
# What the page's button says as soon as a load begins, which may be over a moment later.
STARTED = """() => { const button = document.querySelector('#page-yours-button');
    document.querySelector('#page-yours [data-ref=start]').click();
    return new Promise(done => new MutationObserver(() => done(button.textContent))
        .observe(button, { childList: true, subtree: true })); }"""


def can_be_sent(context: Any, page: str, verdicts: list[str], parting: str) -> None:
    """A page with both results: a boss sees what the dialog showed, on any device, and nothing runs."""
    tab = watched(context.new_page())
    tab.emulate_media(color_scheme="dark", reduced_motion="reduce")
    tab.set_content(page)
    assert tab.locator("h4").all_inner_texts() == verdicts
    short = "In short: a/model on both servers, plain and speculative, 1 to 2 users at once"
    heads = [short, "Does it pay on your prompts?", "Under load: how many users at once?"]
    assert tab.locator("h1").all_inner_texts() == heads
    assert tab.inner_text("article p >> nth=0") == "To do: find out why texts differ, with the check-up."
    assert f"Under load: {verdicts[1][0].lower()}" in tab.inner_text("article >> nth=1"), "the study knows the load"
    shown = "\n".join(tab.locator(".ps-parting").all_inner_texts())
    assert shown.split() == parting.split() and tab.locator(".ps-parting b, .ps-parting img").count() == 0
    assert tab.locator(".ps-way strong").all_inner_texts() == [LETTERS[5].strip(), "<b>x</b>"]
    assert tab.locator("svg").count() == 6 and tab.locator("tbody tr").count() > 6
    assert tab.locator("button, script, a, input, [id], [hidden], [data-ref]").count() == 0
    assert "default-src 'none'" in tab.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    for width in (1280, 390):
        tab.set_viewport_size({"width": width, "height": 844})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(UNREADABLE) == []
    assert tab.problems == []
    tab.close()


def saved_as(tab: Any, name: str) -> tuple[str, str]:
    """What that button saves: the file's name, its text."""
    with tab.expect_download() as download:
        tab.click(f"#page-yours [data-ref={name}]")
    return download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8")


def test_an_owner_names_servers_and_a_model_in_the_browser(context: Any, page_cache: Any) -> None:
    """The owner would have to restart the page, look for the door, or find the key in the browser afterwards; a race,
    a study or a load would go elsewhere; or there would be no way back to this machine."""
    drafting = writes(3, words=lambda prompt: OTHER if prompt == "two" else LETTERS)
    with servers(writes(), drafting) as two, served(page_cache) as server:
        for loopback in two:
            loopback.pages |= lists_models("a/model")
        tab = watched(context.new_page(), server.url)
        study, load = Dialog(tab, "study"), Dialog(tab, "load")
        posted: list[str] = []
        tab.on("request", lambda request: posted.append(f"{request.url} {request.post_data or ''}"))
        began, clicks = time.monotonic(), 0

        def click(selector: str) -> None:
            nonlocal clicks
            clicks += 1
            tab.click(selector)

        tab.goto(server.url)
        loaded(tab, "page")
        click("#page-yours-button")
        click("#page-yours [value=servers]")
        for address in (two[0].url, two[1].url):
            tab.keyboard.press("Tab")
            tab.keyboard.type(address)
        tab.fill(study["key"], KEY)
        before = tab.evaluate("window.photofinish.state.race")
        click(study["start"])
        new_race(tab, before, "running", missed=True)
        took_s = time.monotonic() - began
        print(f"own servers: {clicks} clicks, {took_s:.1f} s")
        assert clicks <= MAX_CLICKS and took_s <= MAX_S
        tab.wait_for_selector('.pf[data-state="finished"]')
        recording = checked(saved(tab))
        assert [lane["name"] for lane in recording["spec"]["lanes"]] == ["plain", "speculative"]
        assert recording["verdicts"]["speculative"]["kind"] == "same_text"
        tab.wait_for_selector('#page-model >> text="a/model on 2 servers is ready."')
        tab.wait_for_selector("#page-panel >> text=Draft length (k)", state="hidden")

        study.open(prompts="own", question="study")
        assert "speculation is on" in study.text("says") and tab.input_value(study["key"]) == ""
        num_named = sum("/yours/" in request for request in posted)
        tab.fill(study["paste"], "one\ntwo\nthree")
        tab.check(study["perLine"])
        tab.click(study["start"])
        study.says("goesSays", "3 of 3 prompts finished")
        study.says("heads", "speculation")
        assert sum("/yours/" in request for request in posted) == num_named, "chosen servers are not tried again"
        assert tab.is_hidden(study["others"])
        assert study.text("texts").startswith("Same text: 2 of 3 answers. ")
        parting = study.text("partings")
        where = "Line 2, from character 11 on: two"
        assert where in parting and f"{OTHER[4]}{OTHER[5]}" in parting and LETTERS[5] in parting
        command = pasted(tab, study["copy"])
        assert f"study-prompts --lane plain=openai:{two[0].url} --lane speculative=openai:{two[1].url}" in command
        assert "With more users it may lose" in study.text("load")
        name, alone = saved_as(tab, "save")
        assert re.fullmatch(r"study_model_\d{4}(-\d\d){4}\.json", name)
        assert "plain says that it is vLLM, speculative says that it is vLLM; 3 prompts (pasted text), 20" in alone
        assert study.text("scope") == "a/model on both servers, plain and speculative, one user"
        tab.keyboard.press("Escape")

        tab.click("#page-yours-button")
        tab.click(study["measureLoad"])
        assert load.text("found") == "pasted text: 3 prompts, one a line." and tab.is_hidden(load["words"])
        load.fill(users="1,2", requests="4", loadLength="8", dollars="3.6")
        need = "10 requests to each server, 2 of them to warm up, and 3 different prompts"
        load.says("need", need)
        assert tab.evaluate(STARTED) == "Try it on yours: 0 %"
        tab.wait_for_selector(load["save"])
        assert "speculative" in load.text("levels") and "3 different ones for 10 requests" in load.text("details")
        commands = pasted(tab, load["copy"])
        assert commands.startswith(command) and (
            f'OPENAI_API_KEY="$OPENAI_API_KEY" python -m engine study --lane plain=openai:{two[0].url} '
            f"--lane speculative=openai:{two[1].url} --model a/model --concurrency 1,2"
        ) in commands.removeprefix(command)
        verdicts, short = [study.text("verdict"), load.text("verdict")], study.text("short")
        name, both = saved_as(tab, "save")
        measured = json.loads(both)["results"][1]
        cells = tab.locator(f"{load['levels']} tr").all_inner_texts()
        for line, gain in ((cells.pop(2), "1"), (cells.pop(4), "2")):
            assert f"{abs(measured['improvement_by_users'][gain]['output_tokens_per_s']):.1f} %" in line
        for level, line in zip(measured["levels"], cells, strict=True):
            assert f"{level['output_tokens_per_s']:.1f}" in line and f"{level['dollars_per_million']:.2f}" in line
            assert f"{1000 * level['itl_p95_s']:.2f}" in line
        assert f"{verdicts[1]}." == measured["says"][0].replace("x", "\u00d7") and "is rough" in load.text("rough")
        answer = pasted(tab, load["copyAnswer"])
        assert measured["says"][0].replace("x", "\u00d7")[:-1] in answer and "temperature 0, seed" in answer
        assert answer.count(" per million output tokens.") == 2 and "With 2 users: " in answer
        load.can_be_read()
        tab.set_viewport_size({"width": 1280, "height": 800})
        assert re.fullmatch(r"results_model_\d{4}(-\d\d){4}\.json", name) and two[0].url not in alone + both
        name, page = saved_as(tab, "savePage")
        assert re.fullmatch(r"results_model_\d{4}(-\d\d){4}\.html", name)
        can_be_sent(context, page, verdicts, parting)
        tab.keyboard.press("Escape")
        assert tab.inner_text("#page-yours-button") == "Try it on yours"

        def opens(reader: Any, text: str, by: str) -> None:
            """A page that has measured nothing shows what was saved, all of it and nothing else."""
            chosen = {"name": "results.json", "mimeType": "text/plain", "buffer": text.encode()}
            reader.set_input_files(by, chosen)
            reader.wait_for_selector("#page-yours [data-ref=opened] >> text=Opened from a file")

        other = open_tab(context, server.url, until="page")
        opens(other, both, "#race .pf:not(dialog) [data-ref=file]")
        theirs = Dialog(other, "study"), Dialog(other, "load")
        theirs[1].says("verdict", verdicts[1])  # the last of the file
        assert [dialog.text("verdict") for dialog in theirs] == verdicts and theirs[0].text("short") == short
        assert theirs[0].text("partings") == parting
        assert json.loads(saved_as(other, "save")[1]) == json.loads(both)
        assert saved_as(other, "savePage")[1] == page
        opens(other, alone, theirs[0]["file"])
        other.wait_for_selector(theirs[1]["result"], state="hidden")
        assert other.is_hidden(theirs[0]["short"]), "a file's servers may be others of the same names"
        other.check("#page-yours [value=servers]")
        theirs[0].says("says", "speculation is on")  # those that were tried before the page was loaded
        other.fill(theirs[0]["url"], "http://127.0.0.1:1")
        assert theirs[0].text("says") == "", "said of other servers than those in the boxes"
        assert other.is_disabled(theirs[0]["start"]) and "needs two servers" in theirs[0].text("whyNot")
        other.check("#page-yours [value=checkup]")
        other.click(theirs[0]["start"])
        theirs[0].says("says", "cannot be reached")
        assert other.is_enabled(theirs[0]["start"]) and other.problems == []
        other.close()

        settings(tab, Maximum_length="16")
        tab.click("#page-yours-button")
        tab.check("#page-yours [value=model]")
        tab.fill(study["target"], TARGET)
        tab.fill(study["drafter"], f"draft_model:{TARGET.replace('target', 'draft')}")
        tab.click(study["check"])
        study.says("says", "nothing to download")
        tab.check("#page-yours [name=prompts][value=here]")
        tab.check("#page-yours [value=race]")
        num_asked = sum(len(loopback.asked) for loopback in two)
        before = tab.evaluate("window.photofinish.state.race")
        tab.click(study["start"])
        new_race(tab, before, "finished")
        recording = checked(saved(tab))
        assert recording["model"]["name"] == TARGET and "draft_model" in recording["spec"]["lanes"][2]["drafter"]
        assert sum(len(loopback.asked) for loopback in two) == num_asked, "asked for a race of this machine"
        assert tab.evaluate(UNREADABLE) == []

        trace = tab.evaluate(STORED) + server.log.read_text() + saved(tab).decode() + page + both
        trace += "".join(request for request in posted if "/yours/servers" not in request)
        assert not any(secret in trace for secret in (KEY, *(loopback.url for loopback in two)))
        assert KEY not in tab.content()
        assert sum(KEY in request for request in posted) == 1
        assert tab.problems == []
