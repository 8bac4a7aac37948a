"""The live component against strangers: text that wants to run, files that are not what they say, and what gradio does
to a page."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.race_view import FOLDER, RACE_VIEW_CSS, RACE_VIEW_JS, RACE_VIEW_TEMPLATE, SCRIPTS, frame_json
from engine.errors import UsageError
from engine.recordings.recording import loads
from tests.helpers.race_pages import (
    HOSTILE,
    SETTLED,
    STATE,
    TEXT,
    TOKENS,
    expected,
    feed,
    frames,
    race_over,
    show,
    words,
    words_of,
)
from tests.helpers.races import candidates_of, in_schema_1, known_in_part, on_servers

RACE = race_over(words_of(TEXT, 3), hit=0.82)
SHORT = race_over(words_of(TEXT)[:60], seed=5)


# ---- what gr.HTML would evaluate, and what gradio would drop


def test_the_template_holds_nothing_that_gradio_evaluates() -> None:
    """gr.HTML runs the template through Handlebars and a template literal: any of these would execute or break it."""
    assert [mark for mark in ("${", "{{", "`", "\\") if mark in RACE_VIEW_TEMPLATE] == []


def test_the_program_writes_text_only_as_text() -> None:
    """innerHTML and its kin would run what a model writes."""
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", RACE_VIEW_JS) == []
    assert {path.name for path in FOLDER.glob("*.js")} == set(SCRIPTS)


def test_the_style_survives_gradio() -> None:
    """gradio drops @container, @supports and @layer rules of launch(css=...) and splits selectors at every comma, also
    inside :is()."""
    assert re.findall(r"@(?:container|supports|layer|import)|url\(", RACE_VIEW_CSS) == []
    assert re.findall(r":(?:is|not|where|has)\([^)]*,", RACE_VIEW_CSS) == []


@pytest.mark.browser
def test_no_declaration_is_lost_when_gradio_writes_the_style_anew(page: Any) -> None:
    """A shorthand with a variable that is overridden in part serialises to nothing: in gradio, borders and fonts would
    be gone."""
    lost = page.evaluate(
        """css => {
            const sheet = new CSSStyleSheet();
            sheet.replaceSync(css);
            const texts = rule =>
                rule.cssRules && !rule.selectorText ? [...rule.cssRules].flatMap(texts) : [rule.cssText];
            return [...sheet.cssRules].flatMap(texts).filter(text => /:\\s*;/.test(text));
        }""",
        RACE_VIEW_CSS,
    )
    assert lost == []


def test_a_frame_has_no_script_tag_and_no_nan() -> None:
    """gr.HTML warns at script tags in a value; NaN is no JSON and would stop the page."""
    assert "<" not in frame_json({"text": "<script>"})
    assert json.loads(frame_json({"text": "<script>\u2028"})) == {"text": "<script>\u2028"}
    with pytest.raises(ValueError):
        frame_json({"speedup": float("nan")})


# ---- hostile text


@pytest.mark.browser
def test_hostile_text_is_exact_and_runs_nothing(page: Any) -> None:
    """A model may write anything; all of it is shown as it is."""
    recorded = race_over(HOSTILE * 3, seed=3, hit=0.6)
    feed(page, recorded)
    assert page.evaluate(TOKENS) == expected(recorded)
    for button in ("[data-tab=steps]", "[role=tab][data-tab=text]", "[data-ref=marks]", "[data-ref=marks]"):
        page.click(f"button{button}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for node in page.query_selector_all("[data-ref=rightText] .pf-step")[:12]:
        node.focus()
    page.wait_for_timeout(100)
    assert page.evaluate("document.querySelectorAll('.pf script, .pf img').length") == 0
    marks = page.evaluate("[...document.querySelectorAll('.pf-text .pf-unseen')].map(n => n.dataset.mark)")
    assert {"RLO", "ZWSP", "BOM", "NUL", "ESC", "CR", "U+2028", "U+E0041"} <= set(marks)


@pytest.mark.browser
def test_hostile_labels_run_nothing(page: Any) -> None:
    """Names, sentences and status texts come from strangers' files too."""
    recorded = json.loads(json.dumps(SHORT))
    for where, key in (
        (recorded["model"], "name"),
        (recorded["device"], "name"),
        (recorded["verdicts"]["speculative"], "sentence"),
        (recorded["verdicts"]["plain"], "sentence"),
    ):
        where[key] = "<img src=x onerror=window.ran=1>${window.ran=1}\u202e" + "W" * 900
    sent = frames(recorded, ribbon="<b>RECORDED", status="</p><script>window.ran=1</script>")
    show(page, sent)
    page.wait_for_timeout(100)
    assert page.evaluate("document.querySelectorAll('.pf img, .pf script, .pf b').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# ---- files


@pytest.mark.browser
def test_save_and_open_give_the_same_file(page: Any, tmp_path: Path) -> None:
    """Checksums have 64 bits: a file that went through JavaScript's numbers would no longer verify."""
    feed(page, SHORT)
    with page.expect_download() as download:
        page.click("[data-ref=save]")
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert loads(saved.read_bytes()) == SHORT
    feed(page, RACE, race_id="another")
    page.set_input_files("[data-ref=file]", saved)
    page.wait_for_function("window.photofinish.state.fromFile")
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(SHORT)
    assert "RECORDED" in words(page, "ribbon")
    with page.expect_download() as download:
        page.click("[data-ref=save]")
    assert Path(download.value.path()).read_bytes() == saved.read_bytes()


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(recorded: dict[str, Any]) -> None:
        *way, last = [int(part) if part.lstrip("-").isdigit() else part for part in path.split("/")]
        for part in way:
            recorded = recorded[part]
        if value is change:
            del recorded[last]  # type: ignore[arg-type]
        else:
            recorded[last] = value  # type: ignore[index]

    return apply


CHANGES = [
    change("format", "x"), change("schema", 3), change("schema", 0), change("schema", True), change("schema", [1]),
    change("model", []), change("model/name", "n" * 10_001), change("spec/lanes", []), change("spec/lanes/2/k", -1),
    change("spec/audit", 1),
    change("events", {}), change("events/0", "x"), change("events/0/type", "__proto__"),
    change("events/0/type", "constructor"), change("events/3/lane", "toString"), change("events/3/extra", 1),
    change("events/3", {}),
    change("events/4/token_ids/0", 1.5), change("events/4/token_ids/0", -1), change("events/4/token_ids/0", 2**31),
    change("events/4/pieces", "abc"), change("events/4/pieces", [1]), change("events/4/verify_s", -1),
    change("events/4/verify_s", 1e9), change("events/4/clock_s", 5.0), change("events/4/num_accepted", 2),
    change("events/4/index", 7), change("events/4/width", 0), change("events/4/checksums", []),
    change("events/4/pieces", change),
    change("events/-1", change), change("events/0/num_prompt_tokens", 9), change("events/0/prefill_s", "0.1"),
    change("spec/lanes/1/name", "plain"), change("spec/lanes/2/rule", 3),
    change("events/4/num_drafted", 1), change("events/4/num_drafted", 0), change("events/4/num_drafted", None),
    change("events/4/wall_s", -1), change("events/4/wall_s", None), change("events/4/wall_s", "1"),
    change("events/4/width", "8"), change("events/4/width", 65),
    change("widths/exact", "yes"), change("widths", None), change("prompt/token_ids", ["1"]),
    change("versions", {"a": 1}), change("synthetic", "x"),
]  # fmt: skip
CANDIDATES = candidates_of(SHORT, random.Random(3))
BYTES = {"weights": 1, "cache_per_token": 1}


def row(**broken: Any) -> Callable[[dict[str, Any]], object]:
    """The candidates of the first row, with something broken."""
    first, *rest = CANDIDATES["lanes"]["baseline"]
    lanes = {**CANDIDATES["lanes"], "baseline": [[{**first[0], **broken}, *first[1:]], *rest]}
    return change("candidates", {**CANDIDATES, "lanes": lanes})


def call_two_texts_one(recorded: dict[str, Any]) -> None:
    recorded.update(on_servers(recorded))
    next(e for e in recorded["events"] if e["type"] == "step" and e["lane"] == "speculative")["pieces"][0] += "!"


def commit_two_at_once(recorded: dict[str, Any]) -> None:
    recorded.update(on_servers(recorded))
    next(e for e in recorded["events"] if e["type"] == "step" and len(e["token_ids"]) > 1)["width"] = 1


OF_SCHEMA = {
    1: [
        change("verdict/kind", "perfect"), change("verdict/rows_compared", None), change("verdict/sentence", {}),
        change("plain_verdict", change), change("verdict", change), change("verdict", []),
    ],
    2: [
        call_two_texts_one, commit_two_at_once,
        change("verdicts", change), change("verdicts", []), change("verdicts", None),
        change("verdicts/speculative", None), change("verdicts/speculative/kind", "perfect"),
        change("verdicts/plain/rows_compared", None),
        change("verdicts/speculative/sentence", {}), change("verdicts/plain/first_difference", {}),
        change("verdicts/nobody", SHORT["verdicts"]["plain"]), change("verdicts/baseline", SHORT["verdicts"]["plain"]),
        change("verdicts/__proto__", {}), change("spec/lanes/2/role", change), change("spec/lanes/2/role", "judge"),
        change("spec/lanes/2/role", ["plain"]), change("spec/lanes/2/role", "baseline"),
        change("spec/lanes/2/role", "plain"), change("spec/lanes/0/role", "speculative"),
        change("spec/lanes/1/role", "speculative"), change("spec/lanes/1/role", None),
        change("spec/lanes/2", {**SHORT["spec"]["lanes"][2], "k": "auto", "width": 5}),
        change("tables", None), change("tables", []), change("tables", {"ngram": {}}), change("tables", {"ngram": [1]}),
        change("tables", {"ngram": [[-1]]}), change("tables", {"ngram": [[1] * 64]}),
        change("tables", {"__proto__": [[]] * 61}),
        change("costs", None), change("costs", []), change("costs", {"verify_s": [1]}),
        change("costs", {"verify_s": [], "draft_s": {}}), change("costs", {"verify_s": [2, 1], "draft_s": {}}),
        change("costs", {"verify_s": [-1], "draft_s": {}}), change("costs", {"verify_s": [1] * 65, "draft_s": {}}),
        change("costs", {"verify_s": ["1"], "draft_s": {}}), change("costs", {"verify_s": [1e8], "draft_s": {}}),
        change("costs", {"verify_s": [1], "draft_s": {"toString": [1]}}),
        change("oracles", None), change("oracles", {"toString": {"seconds": 0, "share": 0}}),
        change("oracles", {"plain": {"seconds": 0}}), change("oracles", {"plain": {"seconds": 9, "share": 0.5}}),
        change("oracles", {"plain": {"seconds": 0, "share": None}}),
        change("candidates", None), change("candidates", []), change("candidates", {}),
        change("candidates", {**CANDIDATES, "seeds": [-1]}), change("candidates", {**CANDIDATES, "pieces": [1]}),
        change("candidates", {**CANDIDATES, "seeds": [0] * 9}), change("candidates", {**CANDIDATES, "lanes": []}),
        *(change("candidates", {**CANDIDATES, "lanes": lanes}) for lanes in ({"toString": []}, {"baseline": []})),
        *(row(**broken) for broken in (
            {"ids": []}, {"ids": [1] * 2}, {"ids": [*range(17)], "logits": [0] * 17}, {"ids": [1.5]}, {"logits": [1]},
            {"logits": [None]}, {"logits": [1e300]}, {"log_z": "1"}, {"log_z": -99}, {"noise": [[0, 0, 0, 0]]},
            {"ids": [1], "logits": [0]}, {"ids": [1, 2], "logits": [0, 1]},
        )),
        change("table_margins", []), change("table_margins", {"toString": []}),
        change("events/4/copied", [0]), change("events/4/copied", [99, 0]), change("events/4/copied", [0, -1]),
        change("promises", []), change("promises", {"plain": 1}), change("promises", {"toString": "x"}),
        change("promises", {"plain": "x" * 10_001}),
        *(change("drafter_bytes", broken) for broken in (
            [], {"toString": BYTES}, {"plain": {"weights": 1}}, {"plain": {**BYTES, "weights": -1}}, {"plain": None},
        )),
    ],
}  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize("schema", OF_SCHEMA)
def test_a_broken_file_gives_one_sentence_and_changes_nothing(page: Any, schema: int) -> None:
    """Whatever the engine's own reader refuses, the page refuses, in words; what stood on the screen stays."""
    feed(page, SHORT)
    before = page.evaluate(TOKENS)
    for apply in [*CHANGES, *OF_SCHEMA[schema]]:
        broken = copy.deepcopy(SHORT) if schema == 2 else in_schema_1(SHORT)
        apply(broken)
        with pytest.raises(UsageError):
            loads(json.dumps(broken).encode())
        assert page.evaluate("text => window.photofinish.open(text, 'bad.json')", json.dumps(broken)) is False, broken
        sentence = words(page, "alertText")
        assert sentence.startswith("bad.json cannot be opened: ") and sentence.endswith(".") and len(sentence) < 500
    for text in (
        "",
        "null",
        "[]",
        '{"a":',
        "1" * 1000,
        "[" * 200_000,
        '{"__proto__":{"x":1}}',
        "<script>window.ran=1</script>",
    ):
        assert page.evaluate("text => window.photofinish.open(text)", text) is False
    assert page.evaluate(TOKENS) == before
    assert page.evaluate("({}).x") is None


@pytest.mark.browser
def test_every_good_recording_opens(page: Any) -> None:
    """A check that is stricter than the engine's would lock people out of their own races."""
    races = (RACE, SHORT, race_over(HOSTILE, seed=9), race_over(words_of(TEXT)[:9], audit=False))
    in_part = known_in_part(SHORT, random.Random(4))
    in_part["costs"] = {
        "verify_s": [1] * 64, "draft_s": {name: [0, *range(63)] for name in (*in_part["tables"], "speculative")}
    }  # fmt: skip
    in_part["tables"]["speculative"], in_part["candidates"] = [[1] * 63] * 60, CANDIDATES
    assert loads(json.dumps(in_part).encode()) == in_part
    for recorded in (*races, in_schema_1(SHORT), in_part, in_schema_1(in_part)):
        assert page.evaluate("text => window.photofinish.open(text)", json.dumps(recorded, ensure_ascii=False)) is True
        page.evaluate(SETTLED)
        assert page.evaluate(TOKENS) == expected(recorded)
        assert words(page, "verdictWord").startswith("Identical") and words(page, "plainVerdict")
    assert page.evaluate("text => window.photofinish.open(text)", json.dumps(on_servers(SHORT))) is True
    page.evaluate(SETTLED)
    assert page.evaluate(TOKENS) == expected(on_servers(SHORT)) and words(page, "verdictWord") == "The same text"


@pytest.mark.browser
def test_a_file_on_screen_stays_until_the_next_race(page: Any) -> None:
    """Late frames of the race before must not write into an opened file."""
    sent = frames(RACE, race_id="served")
    show(page, sent[:-1])
    assert page.is_disabled("[data-ref=open]")
    page.evaluate("text => window.photofinish.open(text)", json.dumps(SHORT))
    show(page, sent[-1:])
    assert page.evaluate(TOKENS) == expected(SHORT)
    show(page, frames(RACE, race_id="next")[:3])
    assert page.evaluate(STATE)["race"] == "next"
