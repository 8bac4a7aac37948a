"""Which prompts ask for something that a base model does not do."""

from __future__ import annotations

import json

from app.catalogue.catalogue import load_presets
from tests.helpers import ROOT
from tests.helpers.pure_js import pure_js


def test_a_text_to_continue_is_no_task() -> None:
    """A hint over code, over the examples, or once the answer is begun; none where a base model will only loop."""
    tasks = ("Write a friendly mail to Ms Smith", "please be brief", "What is the capital of France", "Is it?",
             "Notes.\nSummarise them in two lines.", "Can you help me with my tax", "tell me a joke ")  # fmt: skip
    texts = ("def write(a):", "list = [1, 2]", "Write a mail to her.\n\nDear Ms Smith,", "What a day it was, she said",
             "", "The Roman Empire began when", "Translate to French:", "help(x)", "Q: Is it?\nA:")  # fmt: skip
    texts += tuple(preset.prompt for preset in load_presets())
    with pure_js("base/task.js") as pure:
        assert [text for text in tasks if not pure("asks", text)] == []
        assert [text for text in texts if pure("asks", text)] == []


def test_an_answer_begins_in_the_form_that_is_asked_for() -> None:
    """SQL that begins as prose or code as a letter, a second beginning after the first, or one that cannot be removed.
    These are the half in the repository of the prompts by which first races are judged."""
    prompts = json.loads((ROOT / "tests/fixtures/first_prompts.json").read_text(encoding="utf-8"))
    with pure_js("base/task.js") as pure:
        for prompt, start in prompts.items():
            whole = f"{prompt}\n\n{start}" if start else prompt
            assert pure("withStart", prompt) == pure("withStart", whole) == whole
            assert pure("withoutStart", whole) == (prompt if start else None)
        task_above_its_text = pure("withStart", "Translate to French:\n\nGood morning.")
        assert task_above_its_text.endswith(".\n\nFrench:")
