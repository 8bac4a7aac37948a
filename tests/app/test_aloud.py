"""The stage's line to read aloud, and which prompts ask for something that a base model does not do, without a page."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.catalogue.catalogue import load_presets
from tests.helpers import ROOT

MODULES = ("shows/aloud.js", "base/task.js")


@given(
    moment=st.sampled_from(["before", "waiting", "running", "over"]),
    sense=st.sampled_from(["faster", "slower", "even", "none"]),
    kind=st.sampled_from(["identical_bits", "near_tie", "same_text", "different", "not_compared", ""]),
    tokens=st.tuples(st.integers(0, 400), st.integers(0, 400)),
    ratio=st.floats(0.1, 20),
    per_step=st.floats(1, 16) | st.just(0),
    kept=st.none() | st.floats(0, 1),
    caution=st.sampled_from(["loop", "copies", "whole", ""]),
)
def test_the_line_says_what_the_board_says(pure: Any, moment, sense, kind, tokens, ratio, per_step, kept, caution):
    """A speaker reads "undefined", the result before bets, a gain that is none, or "the same" of other texts."""
    shown = f"{ratio:.2f}×"
    race = {"moment": moment, "sense": sense, "kind": kind, "tokens": tokens, "ratio": shown, "perStep": per_step,
            "cost": per_step / ratio, "kept": kept, "cautions": {caution: "So.", "says": "Do not quote."}}  # fmt: skip
    said = pure("aloud", race)
    assert said.endswith(".") and not re.search("undefined|NaN|null", said)
    over = moment == "over" and kind != ""
    none = over and (kind in ("different", "not_compared") or (caution == "loop" and sense != "none"))
    assert ("no result" in said.lower()) == none
    if none:
        assert "as fast" not in said
        return
    assert ("slower" in said) == (moment in ("before", "waiting") or (over and sense == "slower"))
    if moment in ("before", "waiting"):
        assert said.endswith("Raise hands: slower, no gain, 1.5×, 2×, 3× or more.") and len(said) < 120
    if over:
        assert said.startswith("Not the same text") == (kind == "near_tie")
        disturbed = caution == "whole" and sense != "none"
        assert (f"{shown} as fast" in said) == (sense in ("faster", "slower") or disturbed)
        assert ("Do not quote." in said) == disturbed
        assert ("copies the prompt" in said) == (caution == "copies" and sense == "faster")
        tells = per_step > 0 and (sense == "slower" or (sense == "faster" and not caution))
        assert ("cost as much as" in said) == tells
        assert (f"{100 * (kept or 0):.0f} % were right" in said) == (tells and sense == "slower" and kept is not None)
    numbers = {f"{float(figure):g}" for figure in re.findall(r"\d+(?:\.\d+)?", said)}
    own = float(shown[:-1]), round(100 * (kept or 0)), round(per_step, 2), round(per_step / ratio, 2)
    known = [*tokens, *own, 1.5, 2, 3]
    assert all(any(abs(float(number) - other) < 0.011 for other in known) for number in numbers), said


def test_a_text_to_continue_is_no_task(pure: Any) -> None:
    """A hint over code, over the examples, or once the answer is begun; none where a base model will only loop."""
    tasks = ("Write a friendly mail to Ms Smith", "please be brief", "What is the capital of France", "Is it?",
             "Notes.\nSummarise them in two lines.", "Can you help me with my tax", "tell me a joke ")  # fmt: skip
    texts = ("def write(a):", "list = [1, 2]", "Write a mail to her.\n\nDear Ms Smith,", "What a day it was, she said",
             "", "The Roman Empire began when", "Translate to French:", "help(x)", "Q: Is it?\nA:")  # fmt: skip
    texts += tuple(preset.prompt for preset in load_presets())
    assert [text for text in tasks if not pure("asks", text)] == []
    assert [text for text in texts if pure("asks", text)] == []


def test_an_answer_begins_in_the_form_that_is_asked_for(pure: Any) -> None:
    """SQL that begins as prose or code as a letter, a second beginning after the first, or one that cannot be removed.
    These are the half in the repository of the prompts by which first races are judged."""
    prompts = json.loads((ROOT / "tests/fixtures/first_prompts.json").read_text(encoding="utf-8"))
    for prompt, start in prompts.items():
        whole = f"{prompt}\n\n{start}" if start else prompt
        assert pure("withStart", prompt) == pure("withStart", whole) == whole
        assert pure("withoutStart", whole) == (prompt if start else None)
    task_above_its_text = pure("withStart", "Translate to French:\n\nGood morning.")
    assert task_above_its_text.endswith(".\n\nFrench:")
