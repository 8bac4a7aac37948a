"""An exported race: one file that plays in a browser without a network, gives its recording back, and runs nothing of a
stranger's; the page's own button makes the same file."""

import gzip
import json
import random
import re
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from app.figures.why import FIGURES
from app.jobs.recorded import RACES
from app.page.exported import exported as page_of
from app.web.player.player import describe
from engine.core.events import steps
from engine.recordings.recording import checked, read
from engine.recordings.steps_csv import steps_csv
from tests.helpers.page_browser import UNREADABLE, to_end, watched
from tests.helpers.race_pages import HOSTILE, SAME, SETTLED, STATE, TOKENS, expected, race_over, words
from tests.helpers.races import with_tables

pytestmark = pytest.mark.browser
RACE = RACES / "story.json"
ODD = "café → 猫 🚀"
PACKED = re.compile(r'(?<=id="recording">)[^<]*(?=</script>)')
# Where an exported page may stand: the headers of its host, options of the browser, what is not there when its program
# begins, and whether it plays.
PLACES = {
    "sandbox": ({"Content-Security-Policy": "sandbox allow-scripts"}, {}, "", True),
    "latin 1": ({"Content-Type": "text/html; charset=iso-8859-1"}, {}, "", True),
    "no script": ({}, {"java_script_enabled": False}, "", False),
    "own scripts alone": ({"Content-Security-Policy": "default-src 'self'; script-src 'self'"}, {}, "", False),
    "nor style": ({"Content-Security-Policy": "script-src 'self'; style-src 'self'"}, {}, "", False),
    "an old browser": ({}, {}, "DecompressionStream", False),
    "a fault": ({}, {}, "CustomEvent", False),
}


@pytest.fixture
def exported(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens pages from file:// in a browser without a network."""
    opened: list[Any] = []

    def make(recording: bytes, **options: Any) -> Any:
        file = tmp_path / "race.html"
        file.write_text(page_of(checked(recording)), encoding="utf-8")
        context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800}, **options)
        opened.append(watched(context.new_page(), "file:"))
        opened[-1].goto(file.as_uri())
        opened[-1].wait_for_selector("#about:not([hidden])")
        return opened[-1]

    yield make
    for page in opened:
        assert page.problems == [] and page.evaluate("window.ran") is None
        page.context.close()


def download(page: Any, button: str) -> Any:
    with page.expect_download() as got:
        page.click(button)
    return got.value


def test_an_exported_race_does_offline_what_the_page_does(exported: Any) -> None:
    """A part that needs the server after all: a replay that does not move, a dead slider or tab, a file that is not the
    recording's. A verdict before both texts are there; a hash of something else."""
    recording = checked(RACE.read_bytes())
    page = exported(RACE.read_bytes())
    assert page.title() == describe(recording)[0] and words(page, "ribbon").startswith("RECORDED")
    page.wait_for_selector('.pf[data-mode="replay"]')  # by itself
    before = page.evaluate(STATE)["t"]
    page.wait_for_timeout(300)
    assert page.evaluate(STATE)["t"] > before and page.is_disabled("[data-ref=proofOpen]")
    to_end(page)
    assert page.evaluate(TOKENS) == expected(recording)
    assert words(page, "verdictWord") == SAME
    page.click("[data-ref=proofOpen]")
    page.wait_for_selector("[data-ref=proof][open]")
    ids = (str(token) for step in steps(recording.events, "speculative") for token in step.token_ids)
    said = page.inner_text("[data-ref=proof]")
    assert said.count(sha256(",".join(ids).encode()).hexdigest()) == 2 and recording["model"]["digest"] in said
    page.keyboard.press("Escape")
    page.click("#pf-tab-why")
    assert words(page, "whySays").endswith(f" plain ones: {words(page, 'ratio')}.")
    assert [head.text_content() for head in page.locator(".player-why h3").all()] == list(FIGURES)
    page.click(".player-why summary >> nth=0")
    assert page.is_visible(".player-why table >> nth=0")
    page.click("#pf-tab-decide")
    assert page.is_visible("[data-ref=decideSays]")
    page.click("#pf-tab-whatif")
    page.focus("[data-ref=whatIfK]")
    page.keyboard.press("Home")
    page.evaluate(SETTLED)
    assert words(page, "whatIfShown").startswith("1: ") and "COMPUTED" in words(page, "ribbon")
    page.keyboard.press("ArrowRight")
    assert words(page, "whatIfShown").startswith("2: ")
    page.click("#pf-tab-onestep")
    page.click("[data-ref=stepNext]")
    page.evaluate(SETTLED)
    assert words(page, "stepHead").startswith("Step 2 of ") and page.locator(".pf-one-place").count() > 0
    assert "COMPUTED" not in words(page, "ribbon")
    page.click("#page-story-button")
    assert words(page, "storyPlace") == "Card 1 of 9"
    page.keyboard.press("Escape")
    page.click("#page-stage-button")
    page.keyboard.press("?")
    assert page.locator("[data-ref=stageList] kbd:text-is('V')").count(), "its keys"
    assert not page.locator("[data-ref=stageList] kbd:text-is('Enter')").count(), "nothing is raced here"
    page.keyboard.press("Space")
    page.wait_for_selector('.pf[data-stage="verdict"]')
    assert words(page, "stageSays").startswith("The same ")
    page.go_back()
    page.wait_for_selector(".pf[data-stage]", state="detached")

    page.click("[data-ref=share] summary")
    race = download(page, "[data-ref=save]")
    assert race.path().read_text() == read(RACE).text
    assert page.inner_text("#about code") == f"python -m engine verify {race.suggested_filename}"
    about = page.inner_text("#about")
    assert all(fact in about for fact in (recording["commit"], recording["device"]["name"], recording["created"]))
    assert download(page, "[data-ref=picture]").path().read_bytes().startswith(b"\x89PNG")
    names = ("[data-copy=link]", *(f"[data-ref={name}]" for name in ("savePage", "saveSteps", "open", "liveHere")))
    needs_server = page.locator(", ".join(names))
    assert needs_server.count() == 5 and not any(control.is_visible() for control in needs_server.all())


def test_an_exported_page_says_its_result_wherever_it_stands(browser: Any) -> None:
    """A Jenkins, a bucket or a mail program would show a heading with dead buttons, or a device's name as Ã©."""
    race = checked(RACE.read_bytes().replace(b"gemma-3-270m", ODD.encode()))
    (title, said), file, pages = describe(race), page_of(race), {}
    assert file.isascii() and ODD in title

    def put(page: Any, **headers: str) -> None:
        page.route("**", lambda route: route.fulfill(body=file, headers={"Content-Type": "text/html", **headers}))
        page.goto("http://host.test/")

    for place, (headers, options, missing, _) in PLACES.items():
        pages[place] = page = browser.new_context(offline=True, **options).new_page()
        page.add_init_script(f"delete window.{missing}" if missing else "")
        put(page, **headers)
    page.wait_for_timeout(1500)
    for place, page in pages.items():
        if plays := PLACES[place][-1]:
            page.wait_for_selector("#about:not([hidden])")
            assert f": {ODD} in bfloat16" in page.inner_text("#about") and page.is_visible(".pf"), place
        else:
            assert page.inner_text("body").strip() == said, place
        assert page.is_visible("#says") is not plays and page.title() == title, place
        page.context.close()


def test_a_page_that_a_browser_has_saved_plays_again(exported: Any, tmp_path: Path) -> None:
    """Ctrl+S saves what the program has made of the page: the race would be there twice, on a stage, or not at all."""
    race = RACE.read_bytes().replace(b"gemma-3-270m", ODD.encode())
    page = exported(race)
    page.click("#page-stage-button")
    page.keyboard.press("Space")
    (tmp_path / "saved.html").write_text(page.evaluate("document.documentElement.outerHTML"), encoding="utf-8")
    assert checked((tmp_path / "saved.html").read_bytes()).text == checked(race).text
    page.goto((tmp_path / "saved.html").as_uri())
    page.wait_for_selector("#about:not([hidden])")
    page.evaluate(SETTLED)
    page.problems.clear()  # styles of the old drawing, refused
    to_end(page)
    assert page.evaluate(TOKENS) == expected(checked(race)) and page.locator(".pf, h1, footer").count() == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_is_reached_by_keyboard_and_can_be_read(exported: Any, scheme: str) -> None:
    """A hidden tab that takes the focus; text without contrast; a page that scrolls sideways on a phone."""
    page = exported(RACE.read_bytes(), color_scheme=scheme, reduced_motion="reduce")
    assert page.evaluate("document.documentElement.scrollHeight") <= 800
    for first, num in (("text", 6), ("steps", 2)):
        page.focus(f"#pf-tab-{first}")
        seen = []
        row = page.locator(f"[role=tablist]:has(#pf-tab-{first}) > [role=tab]:visible")
        names = row.evaluate_all("tabs => tabs.map(tab => tab.dataset.tab)")
        for _ in names:
            seen.append(page.evaluate("document.activeElement.dataset.tab"))
            page.evaluate(SETTLED)
            assert page.evaluate(UNREADABLE) == [], seen
            page.keyboard.press("ArrowRight")
        assert seen == names and len(names) == num
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate(SETTLED)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.querySelector('{name}')).color") for name in (".pf", "body")
    )
    assert ink == paper


def test_a_strangers_race_runs_nothing(exported: Any) -> None:
    """Any text that a model or a file may hold; and the page's policy, which would stop what slips through."""
    race = with_tables(race_over(HOSTILE * 2, seed=3, hit=0.6), random.Random(1))
    race["prompt"]["text"] = "\n".join(HOSTILE)
    for part, key in ((race["model"], "name"), (race["device"], "name"), (race, "created"), (race, "commit")):
        part[key] = "".join(text for text in HOSTILE if len(text) < 100) + "@@race@@ <!-- </title> </noscript>"
    page = exported(json.dumps(race, ensure_ascii=False).encode(), reduced_motion="reduce")
    assert page.evaluate(TOKENS) == expected(race)
    for tab in page.locator("[role=tab]:visible").all():
        tab.click()
    assert page.evaluate("document.querySelectorAll('.pf script, #about script, img:not([data-ref]), b').length") == 0
    assert page.problems == []
    refused = page.evaluate("""async () => {
        const script = document.createElement("script"), image = new Image();
        script.textContent = "window.ran = 1";
        document.body.append(script);
        const why = new Promise(done => {
            image.onload = () => done("loaded");
            image.onerror = () => done("refused"); });
        image.src = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=";
        return [await why, await fetch("data:,x").then(() => "fetched", () => "refused")]; }""")
    assert refused == ["refused", "refused"]
    assert len(page.problems) >= 3
    page.problems.clear()  # what the policy said of these three


def test_the_page_gives_the_files_that_the_command_makes(tab: Any) -> None:
    """A button whose file has another title, or not the recording; a race that the server has forgotten, or a lane at a
    length that was not raced; a server that does not answer."""
    race = json.loads(RACE.read_bytes())
    made_up = {**race, "synthetic": ["speculative"], "model": {**race["model"], "name": "a <b> & 'c' \"d\""}}
    for recording in (race, made_up):
        text = checked(json.dumps(recording).encode()).text
        tab.evaluate("text => window.photofinish.open(text, 'a.json')", text)  # the server has not seen it
        tab.click("#pf-tab-whatif")
        tab.press("[data-ref=whatIfK]", "Home")
        tab.evaluate("document.querySelector('[data-ref=share]').open = true")
        page = download(tab, "[data-ref=savePage]").path().read_bytes().decode()
        assert page == page_of(checked(text.encode()))
        assert gzip.decompress(b64decode(PACKED.findall(page)[0])) == text.encode()
        tab.evaluate("document.querySelector('[data-ref=share]').open = true")
        assert download(tab, "[data-ref=saveSteps]").path().read_bytes().decode() == steps_csv(checked(text.encode()))
    tab.route("**/recordings/**", lambda route: route.abort())
    tab.evaluate("document.querySelector('[data-ref=share]').open = true")
    tab.click("[data-ref=savePage]")
    tab.wait_for_selector("[data-ref=alert]:not([hidden])")
    assert "python -m engine export" in words(tab, "alertText")
    tab.problems.clear()  # what the browser says of the request that was aborted
