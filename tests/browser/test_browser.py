"""The page in a real Chromium: what a visitor sees, from first paint to a screenshot of every look."""

from __future__ import annotations

import ast
import json
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.recorded import RACES
from engine.cli.commands import RACE
from engine.cli.main import _parser
from engine.metrics import lane_metrics
from engine.recordings.recording import events_of, loads, read
from tests.helpers import ROOT
from tests.helpers.page_browser import RACE_MS, open_tab, run_race, set_number
from tests.helpers.race_pages import TOKENS

ARTEFACTS = ROOT / "artefacts"


def look(width: int, height: int, color_scheme: str) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": height}, "color_scheme": color_scheme}


LOOKS = {
    "desk": {
        "light": look(1440, 1000, "light"),
        "dark": look(1440, 1000, "dark"),
        "wide": look(3840, 2160, "light"),
    },
    "phone": {"narrow": look(360, 760, "light"), "narrow-dark": look(360, 760, "dark")},
}
"""By tab: a phone's page is loaded as one."""

pytestmark = pytest.mark.browser
MOVING = pytest.mark.parametrize("page", ["no-preference"], indirect=True)


@pytest.fixture
def page(browser, server, request) -> Iterator[Any]:
    """A tab with the page ready, in which no script may fail; without motion, but where a test asks for it."""
    motion = getattr(request, "param", "reduce")
    tab = browser.new_page(viewport={"width": 1440, "height": 1000}, reduced_motion=motion)
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    open_tab(tab, server)
    yield tab
    tab.close()
    assert errors == []


def test_first_paint_needs_no_model_and_no_network(browser, server) -> None:
    """A visitor sees prompt, buttons and lanes at once; nothing is fetched from anywhere else."""
    tab = browser.new_page()
    foreign: list[str] = []
    tab.on(
        "request",
        lambda request: (
            foreign.append(request.url) if not request.url.startswith((server.url, "data:", "blob:")) else None
        ),
    )
    tab.goto(server.url)
    for selector in ("#page-race-button", "#page-stop-button", "#page-prompt textarea", ".pf"):
        tab.wait_for_selector(selector, timeout=10_000)
    tab.close()
    assert foreign == []


def charts(page) -> None:
    """Open the tab of charts, and wait for the figures of the race that is on the screen."""
    page.click("[role=tab][data-tab=charts]")
    page.wait_for_function(
        "document.querySelector('[data-charts-of]')?.dataset.chartsOf.endsWith(` ${window.photofinish.state.race}`) "
        "&& document.querySelectorAll('#page-charts .js-plotly-plot').length >= 3",
        timeout=30_000,
    )


@MOVING
def test_a_live_race_to_its_verdict(page) -> None:
    """Race, and what belongs to it when it is over: verdict, three charts with their sentences."""
    page.click("text=CSV to JSON")
    run_race(page)
    page.wait_for_selector(".pf-verdict[data-kind=identical_bits]", timeout=10_000)
    charts(page)
    assert all(text.strip() for text in page.locator(".page-chart-sentence").all_inner_texts())


def test_charts_are_of_the_race_on_the_screen(page) -> None:
    """Another race's numbers under this one: of the preset before, of the recorded race, of a file that was opened."""
    charts(page)
    steps = "document.querySelector('#page-charts .js-plotly-plot').data[0].x.length"
    seen = [page.evaluate(steps)]
    for file in (RACES / "story.json", RACES / "sql.json"):
        page.set_input_files("[data-ref=file]", file)
        page.wait_for_function("name => window.photofinish.state.race === `file:${name}`", arg=file.name)
        charts(page)
        seen.append(page.evaluate(steps))
        recording = read(file)
        assert seen[-1] == lane_metrics(events_of(recording), "speculative").num_steps
    assert len(set(seen)) == 3


def test_stop_is_stop_and_buttons_look_as_they_are(page) -> None:
    """Race while racing and Stop while idle do nothing, so they must look it. Stop ends the race; the next one runs."""

    def only(can: str, cannot: str) -> None:
        for state, name in (("enabled", can), ("disabled", cannot)):
            page.wait_for_selector(f"#page-{name}-button:{state}", timeout=5_000)

    assert page.locator("#page-stop-button").is_disabled(), "from its first moment"
    only("race", "stop")
    set_number(page, "Length", "900")
    run_race(page, "running")
    only("stop", "race")
    page.click("#page-stop-button")
    page.wait_for_selector('.pf[data-state="stopped"]', timeout=3_000)
    only("race", "stop")
    set_number(page, "Length", "32")
    page.keyboard.press("Escape")
    page.wait_for_selector(".sidebar.open", state="detached", timeout=5_000)
    before = page.evaluate("window.photofinish.state.race")
    page.locator("#page-prompt textarea").focus()
    page.keyboard.press("Control+Enter")
    page.wait_for_function("before => window.photofinish.state.race !== before", arg=before, timeout=RACE_MS)
    page.wait_for_selector('.pf[data-state="finished"]', timeout=RACE_MS)


@MOVING
def test_a_preset_plays_at_once_and_says_no_more_than_its_own(page) -> None:
    """A click shows that prompt's own recorded race; its sentence goes when the prompt is edited, and
    the board goes on naming the prompt that was raced."""
    for name, file in (("Story", "story"), ("SQL", "sql")):
        began = time.monotonic()
        page.click(f"text={name}")
        page.wait_for_function(
            "id => window.photofinish.state.race === id && window.photofinish.state.t > 0", arg=f"recorded-{file}"
        )
        assert time.monotonic() - began < 3, "0.2 s on a quiet machine"
        assert page.inner_text("[data-ref=titleName]") == name
    assert page.locator(".page-expect").count() == 1
    page.locator("#page-prompt textarea").press("End")
    page.keyboard.type(" more")
    page.wait_for_selector(".page-expect", state="hidden", timeout=5_000)
    page.click("text=Story")
    page.wait_for_selector(".page-expect", state="visible", timeout=5_000)
    page.click("text=SQL")
    page.wait_for_function("window.photofinish.state.race === 'recorded-sql'")
    page.locator("#page-prompt textarea").fill("pasted, not typed")
    page.wait_for_selector(".page-expect", state="hidden", timeout=5_000)
    assert page.inner_text("[data-ref=titleName]") == "SQL"
    set_number(page, "Length", "16")
    run_race(page)
    assert page.inner_text("[data-ref=titleName]") == "Your prompt"


def test_a_mistake_is_answered_in_a_sentence(page) -> None:
    """An empty prompt gets words, and the page goes on."""
    page.locator("#page-prompt textarea").fill("")
    page.click("#page-race-button")
    page.wait_for_selector("text=the prompt is empty", timeout=10_000)
    page.locator("#page-prompt textarea").fill("def f(x):")
    set_number(page, "Length", "16")
    run_race(page)


def test_the_python_of_the_api_page_is_python(page) -> None:
    """A default with line breaks stands in quotes as it is: whoever copies it gets a syntax error."""
    page.click("text=Use via API")
    page.wait_for_selector("code:has-text('api_name=\"/race\"')", timeout=10_000, state="attached")
    codes = [text for text in page.locator("code").all_inner_texts() if text.lstrip().startswith("from gradio_client")]
    assert len(codes) >= 2
    for code in codes:
        ast.parse(code.strip())


def test_a_race_is_copied_and_held_again(browser, server, tmp_path) -> None:
    """A command with another prompt, Python that does not run, a link with other settings: each would be another race.
    The prompt is the one with line breaks, quotes and a backslash."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",
    )
    tab = context.new_page()
    open_tab(tab, server)
    prompt = 'it\'s "here"\n\\n $HOME `x`\nend'
    tab.locator("#page-prompt textarea").fill(prompt)
    set_number(tab, "Length", "16")
    set_number(tab, "Temperature", "0.8")
    run_race(tab)
    copied = {}
    for name in ("command", "python", "link", "json"):
        tab.click(".pf-share summary")
        tab.click(f"[data-copy={name}]")
        tab.wait_for_selector(f"[data-copy={name}]:has-text('Copied')")
        copied[name] = tab.evaluate("navigator.clipboard.readText()")
        tab.keyboard.press("Escape")
    assert loads(copied["json"].encode())["prompt"]["text"] == prompt
    words = shlex.split(copied["command"])
    assert words[:4] == ["python", "-m", "engine", "race"] and words[words.index("--prompt") + 1] == prompt
    asked = _parser("race", RACE).parse_args(words[4:])
    assert (asked.prompt, asked.temperature, asked.max_new_tokens, asked.chat) == ([prompt], 0.8, 16, True)
    tree = ast.parse(copied["python"])
    assert prompt in [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    other = context.new_page()
    other.goto(copied["link"])
    other.wait_for_function(
        "prompt => document.querySelector('#page-prompt textarea')?.value === prompt", arg=prompt, timeout=15_000
    )
    other.wait_for_selector('.page-model[data-state="ready"]', timeout=RACE_MS)
    run_race(other)
    first, second = (each.evaluate(TOKENS) for each in (tab, other))
    assert [step[2] for step in first if step[0] == "baseline"] == [step[2] for step in second if step[0] == "baseline"]
    third = context.new_page()
    third.goto(server.url)
    third.wait_for_function(
        "prompt => document.querySelector('#page-prompt textarea')?.value === prompt", arg=prompt, timeout=15_000
    )
    context.close()


def test_hostile_prompts_run_nothing(page) -> None:
    """Text from a visitor is text wherever it is shown."""
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    hostile = (
        "${alert(1)} {{alert(2)}} `x` </script><script>alert(3)</script><img src=x onerror=alert(4)> \u202e\u200b "
        "👩\u200d💻 " + "w" * 10_000
    )
    page.locator("#page-prompt textarea").fill(hostile)
    set_number(page, "Length", "32")
    page.click("#page-race-button")
    page.wait_for_selector('.pf[data-state="finished"], .pf[data-state="failed"]', timeout=RACE_MS)
    assert page.evaluate("document.querySelectorAll('img[src=\"x\"]').length") == 0


@pytest.mark.parametrize("looks", LOOKS)
def test_every_look(browser, server, looks) -> None:
    """Screenshots to be looked at, of a race that was just run; and nothing may stick out of the window at any
    width."""
    first, *_ = LOOKS[looks].values()
    tab = browser.new_page(**first, reduced_motion="reduce")
    open_tab(tab, server)
    set_number(tab, "Length", "64")
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".sidebar.open", state="detached", timeout=5_000)
    run_race(tab)
    ARTEFACTS.mkdir(exist_ok=True)
    for look, options in LOOKS[looks].items():
        tab.set_viewport_size(options["viewport"])
        tab.emulate_media(color_scheme=options["color_scheme"])
        tab.wait_for_selector("body.dark", state="attached" if options["color_scheme"] == "dark" else "detached")
        tab.click("[role=tab][data-tab=text]")
        tab.screenshot(path=ARTEFACTS / f"page-{look}.png", full_page=True)
        charts(tab)
        tab.screenshot(path=ARTEFACTS / f"charts-{look}.png", full_page=True)
        tab.click("#page-settings-button")
        tab.wait_for_timeout(700)
        tab.screenshot(path=ARTEFACTS / f"settings-{look}.png")
        overflow = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, json.dumps({"look": look, "overflow": overflow})
        tab.keyboard.press("Escape")
        tab.wait_for_selector(".sidebar.open", state="detached", timeout=5_000)
    tab.close()
