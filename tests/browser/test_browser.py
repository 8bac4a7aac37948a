"""The page in a real Chromium: a live race with its figures, the controls, and what is copied."""

import re
import shlex
from hashlib import sha256
from typing import Any

import pytest

from app.catalogue.catalogue import load_presets
from app.jobs.recorded import RACES
from engine.analysis.metrics import lane_metrics
from engine.cli.commands import RACE
from engine.cli.main import _parser
from engine.core.events import steps
from engine.recordings.recording import checked, read
from engine.what_if.judged import what_if_of
from tests.helpers.dialogs import Dialog
from tests.helpers.page_browser import (
    close_settings,
    copied,
    example,
    figures,
    loaded,
    new_race,
    open_settings,
    run_race,
    saved,
    settings,
    watched,
)
from tests.helpers.race_pages import TOKENS, words
from tests.helpers.races import events_of
from tests.helpers.tokenizers_of import tokenizer_of

pytestmark = pytest.mark.browser
ODDS = "same probabilities (rejection)"
PROMPT = "#page-prompt textarea"
END = "document.querySelector('#page-prompt {}').getBoundingClientRect().right"
HOLDS = "([box, text]) => document.querySelector(box).value === text"
BESIDE_BAR = f"{END.format('.page-count')} <= {END.format('textarea')} - 11 - 15"  # border, scrollbar


def choose_odds(tab: Any) -> None:
    """Choose the rule "rejection", with whatever panels must be opened for it."""
    open_settings(tab)
    if not tab.get_by_label(ODDS).is_visible():
        tab.click("#page-advanced button")
    tab.get_by_label(ODDS).check()


def test_a_live_race_to_its_verdict_and_its_figures(tab: Any) -> None:
    """A race without a verdict, its tables or steps in detail, or with figures of the race before or of a file."""
    tab.click('text="CSV to JSON"')
    settings(tab, Maximum_length="48")
    run_race(tab)
    tab.wait_for_selector(".pf-verdict[data-kind=identical_bits]")
    tab.click("[role=tab][data-tab=whatif]")
    tab.wait_for_selector("[data-ref=whatIfK]:enabled")
    tab.click("[role=tab][data-tab=onestep]")
    tab.wait_for_selector(".pf-one-answer")
    assert "equal in both lanes" in tab.text_content(".pf-dice-says")
    live = checked(saved(tab))
    assert what_if_of(live)
    seen = []
    for name in ("", "sql.json"):
        if name:
            tab.set_input_files("[data-ref=file]", RACES / name)
            tab.wait_for_function("name => window.photofinish.state.race === `file:${name}`", arg=name)
        recording = read(RACES / name) if name else live
        figures(tab, "charts")
        assert tab.locator("#page-charts .js-plotly-plot").count() >= 3
        assert all(text.strip() for text in tab.locator("#page-charts .page-chart-sentence").all_inner_texts())
        seen.append(tab.evaluate("document.querySelectorAll('#page-charts .js-plotly-plot')[1].data[0].x.length"))
        assert seen[-1] == lane_metrics(events_of(recording), "speculative").num_steps
    assert seen[0] != seen[1]


def test_a_preset_plays_at_once_sets_its_race_and_says_no_more_than_its_own(tab: Any) -> None:
    """A click shows that prompt's own recorded race, and races it with its settings; its sentence goes when the prompt
    is edited, and the board goes on naming the prompt that was raced. Undo brings back the prompt that it replaced."""
    presets = {preset.name: preset for preset in load_presets()}
    tab.emulate_media(reduced_motion="no-preference")
    for name in ("SQL", "Story"):
        example(tab, name)
        tab.wait_for_function(
            "id => window.photofinish.state.race === id && window.photofinish.state.playing",
            arg=f"recorded-{presets[name].id}",
        )
        assert words(tab, "titleName") == name
    tab.emulate_media(reduced_motion="reduce")
    tab.wait_for_selector(".page-expect:text-is('Temperature 0.9.')")  # and not of the model that the recording is of
    settings(tab, Maximum_length="16")
    run_race(tab)
    race, story = checked(saved(tab)), presets["Story"]
    params = race["spec"]["params"]
    assert race["prompt"]["text"] == story.message and race["prompt"]["chat"]
    assert (params["temperature"], params["seed"]) == (story.temperature, story.seed)
    for edit in (lambda: tab.locator(PROMPT).press("x"), lambda: tab.locator(PROMPT).fill("pasted, not typed")):
        example(tab, "Hungarian")
        tab.wait_for_selector(".page-expect", state="visible")
        tab.wait_for_function("window.photofinish.state.race === 'recorded-hungarian'")
        assert words(tab, "titleFacts").startswith("always 11 guesses a step, ")
        edit()
        tab.wait_for_selector(".page-expect", state="hidden")
    assert words(tab, "titleName") == "Hungarian"
    example(tab, "Hungarian")
    tab.wait_for_function(HOLDS, arg=[PROMPT, presets["Hungarian"].message])
    tab.locator(PROMPT).press("Control+z")
    tab.wait_for_function("box => document.querySelector(box).value === 'pasted, not typed'", arg=PROMPT)


def test_what_is_typed_outlives_late_settings(tab: Any) -> None:
    """On a slow way to the page the example's prompt took the place of one pasted after its click, and so did the
    example's other form after a change of model; and "Run it here" raced what was in the box before."""
    asked: list[Any] = []
    tab.route("**/gradio_api/run/**", lambda route: asked.append(route))
    for event in ("chosen", "paired"):
        tab.evaluate("name => document.addEventListener(`photofinish:${name}`, () => { window[name] = 1; })", event)
    settings(tab, Maximum_length="16")
    example(tab, "Hungarian")
    open_settings(tab)
    (length := tab.get_by_label("number input for Maximum length")).focus()
    tab.keyboard.press("ArrowUp")
    close_settings(tab)
    tab.locator(PROMPT).fill("pasted, not typed")
    tab.wait_for_function("window.photofinish.state.race === 'recorded-hungarian'")
    asked.pop().continue_()
    tab.wait_for_function("window.chosen")
    tab.wait_for_function("box => document.querySelector(box).value === 'pasted, not typed'", arg=PROMPT)
    assert length.input_value() == "32", "a step more than 16"
    tab.click("[data-ref=liveHere]")
    tab.wait_for_timeout(1500)
    assert tab.is_disabled("#page-stop-button")
    before = tab.evaluate("window.photofinish.state.race")
    asked.pop().continue_()
    new_race(tab, before)
    assert checked(saved(tab))["prompt"]["text"].startswith("Folytasd")
    for model, typed in (("gemma3-270m-hybrid", "typed meanwhile"), ("command-line", "and once more")):
        open_settings(tab)
        tab.check(f"#page-panel [value={model}]")
        close_settings(tab)
        tab.locator(PROMPT).fill(typed)
        asked.pop().continue_()
        tab.wait_for_function("window.paired")
        tab.wait_for_function(HOLDS, arg=[PROMPT, typed])
    tab.unroute("**/gradio_api/run/**")


def test_a_mistake_is_answered_in_a_sentence(tab: Any) -> None:
    """An empty prompt or seed gets words ("not None" is none), and the page goes on; words that cover the buttons; a
    prompt that is cut without a word; a count that is not the tokenizer's."""
    seed = tab.get_by_label("Seed", exact=True)
    open_settings(tab)
    seed.fill("")
    tab.click("#page-race-button")
    tab.wait_for_selector("text=seed is empty; enter a number")
    tab.click("[data-ref=alertClose]")
    seed.fill("0")
    tab.keyboard.press("Escape")
    tab.locator(PROMPT).fill("")
    tab.click("#page-race-button")
    tab.wait_for_selector(".page-count[data-wrong]:has-text('Type something first.')")
    assert tab.is_enabled("#page-race-button") and tab.is_hidden("[data-ref=alert]")
    long = "word " * 5_000
    tab.evaluate("text => navigator.clipboard.writeText(text)", long)
    tab.locator(PROMPT).press("Control+v")
    tab.wait_for_selector(".page-count:has-text('20,000 of 25,000 characters used.')")
    assert tab.input_value(PROMPT) == long[:20_000] and tab.evaluate(BESIDE_BAR)
    tab.locator(PROMPT).fill("def add(a, b):")
    num = len(tokenizer_of("byte level")("def add(a, b):")["input_ids"])
    tab.wait_for_selector(f".page-count:not([data-wrong]):has-text('{num} tokens')")


def test_an_own_question_is_sampled_and_its_answer_begun(visit: Any) -> None:
    """A first question that loops at temperature 0 on a model that only continues texts; words in the race that were
    not seen in the box, or cannot be removed; a choice that is forgotten; any of it for a chat model or an example."""
    tab, question = visit(), "Write a friendly mail to Mr Smith."
    temperature, note = "input[aria-label='number input for Temperature']", tab.locator(".page-continues")
    settings(tab, Maximum_length="16")
    with tab.expect_response("**/tokens") as answer:
        tab.locator(PROMPT).fill("Write a friendly mail.")
    assert answer.value.json()["chat"] is True and note.inner_text() == "" and tab.input_value(temperature) == "0"
    tab.route("**/tokens", lambda route: route.fulfill(headers={"Photofinish": "1"}, json={"count": 9, "chat": False}))
    tab.locator(PROMPT).fill(question)
    tab.wait_for_selector(".page-continues:has-text('temperature 0.8'):has-text('Race adds “Dear Mr Smith,”')")
    for width in (390, 1280):
        tab.set_viewport_size({"width": width, "height": 800})
        box = note.bounding_box()
        assert box["height"] < 25 and box["x"] + box["width"] <= width, "one line"
        race = tab.locator("#page-race-button").bounding_box()
        assert race["x"] > box["x"] + box["width"] or race["y"] + race["height"] <= box["y"], "it covers Race"
    for prompt in (f"{question}\n\nDear Mr Smith,", question):
        run_race(tab)
        race = checked(saved(tab))
        assert race["prompt"]["text"] == tab.input_value(PROMPT) == prompt
        assert (race["spec"]["params"]["temperature"], race["spec"]["params"]["seed"]) == (0.8, 0)
        if prompt != question:
            tab.click(".page-continues button:has-text('Remove')")
    assert "Race adds" not in (note.text_content() or ""), "asked again after it was removed"
    yours = Dialog(tab)
    yours.open(prompts="own")
    yours.fill(paste="Write a friendly mail to Ms Jones.")
    run_race(tab, button=yours["start"])
    assert tab.input_value(PROMPT).endswith("Dear Ms Jones,"), "another race than in the page's own box"
    race = checked(saved(tab))
    tab.evaluate("""() => { window.chosen = 0;      // as where the hub has one
        const box = document.body.appendChild(document.createElement("input"));
        Object.assign(box, { type: "radio", value: "qwen3-0.6b-ngram", onclick: () => { window.chosen += 1; } }); }""")
    tab.locator(PROMPT).fill("What is a heron?")
    pace = tab.evaluate("photofinish.state.metrics.plain.tokens_per_s") * race["roofline"]["bytes_per_step"] / 1.19e9
    is_known = all(caution["lane"] for caution in race["cautions"])  # the machine was not disturbed
    offer, near = note.locator("text=Qwen3-0.6B"), (f", about {pace + by:.1f} tok/s here" for by in (-0.01, 0.01))
    assert offer.inner_text() in {"Qwen3-0.6B, 1.5 GB" + is_known * words for words in near}
    offer.click()
    assert tab.evaluate("window.chosen") == 1 and note.bounding_box()["height"] < 25, "a model that answers is offered"
    tab.click(".page-continues button:has-text('Use 0')")
    tab.wait_for_selector(".page-continues:has-text('Use 0.8')")
    tab.click('text="Python class"')
    tab.wait_for_function("!document.querySelector('#page-prompt textarea').value.startsWith('Write')")
    tab.wait_for_function("document.querySelector('.page-continues').textContent === ''")
    tab.locator(PROMPT).fill("def add(a, b):")
    tab.wait_for_selector(".page-continues:has-text('Use 0.8')")
    assert tab.input_value(temperature) == "0" and note.inner_text().count(".") == 2, "one hint, not about an answer"


def test_a_race_is_copied_and_run_again(visit: Any) -> None:
    """A command, a program or a link that asks for another prompt, other settings or another rule; a preset that keeps
    the rule; a verdict of equal odds that looks like one of identity."""
    tab = visit()
    prompt = '--it\'s_"here"\n\\n\t$HOME`x`\nend'
    tab.locator(PROMPT).fill(prompt)
    settings(tab, Maximum_length="16", Temperature="0.8")
    choose_odds(tab)
    run_race(tab)
    tab.wait_for_selector('.pf-verdict[data-kind="same_distribution"]')
    for said in ("verdictWord", "announce"):
        assert "Same probabilities, different text" in words(tab, said)
    assert "as likely as without guesses" in words(tab, "verdictMeans") and words(tab, "verdictRows") == ""
    assert words(tab, "titleFacts").endswith(f"temperature 0.8, seed 0, {ODDS}")
    of_identity, *shown = tab.evaluate("""() => {
        const colour = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
        const probe = document.querySelector(".pf").appendChild(document.createElement("i"));
        probe.style.color = "var(--bonus)";
        return [getComputedStyle(probe).color, colour(".pf-verdict", "borderLeftColor"),
          colour(".pf-verdict-icon", "color")]; }""")
    assert of_identity not in shown
    tab.click("[data-tab=whatif]")
    assert ODDS in words(tab, "whatIfWords") and tab.is_disabled("[data-ref=whatIfK]")
    copies, recording = copied(tab, "command", "link", "proof"), checked(saved(tab))
    lane = recording["spec"]["lanes"][-1]
    assert recording["prompt"]["text"] == prompt and lane["rule"] == "rejection"
    for name in ("baseline", "speculative"):
        ids = (str(token) for step in steps(recording.events, name) for token in step.token_ids)
        assert sha256(",".join(ids).encode()).hexdigest() in copies["proof"], "a hash of something else"
    assert "python -m engine verify photofinish_" in copies["proof"]
    command = shlex.split(copies["command"])
    assert command[:4] == ["python", "-m", "engine", "race"]
    asked = _parser("race", RACE).parse_args(command[4:])
    assert (asked.prompt, asked.temperature, asked.max_new_tokens, asked.chat) == ([prompt], 0.8, 16, True)
    assert (asked.rule, asked.drafter) == ("rejection", lane["drafter"])

    other = watched(tab.context.new_page())
    other.goto(copies["link"].replace("+", "%2B"))  # as Slack does
    loaded(other, "model")
    other.wait_for_function(HOLDS, arg=[PROMPT, prompt])
    run_race(other)
    assert checked(saved(other))["spec"]["lanes"][-1]["rule"] == "rejection"
    first, second = ([step[2] for step in page.evaluate(TOKENS) if step[0] == "baseline"] for page in (tab, other))
    assert first == second
    other.goto(re.sub("prompt=[^&]*", "prompt=Twice", copies["link"]))
    other.wait_for_function("box => document.querySelector(box)?.value === 'Twice'", arg=PROMPT)
    loaded(other, "model")
    choose_odds(other)
    other.click('text="SQL"')
    other.wait_for_function("document.querySelector('input[value=coupled]').checked")
