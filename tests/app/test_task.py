"""Which prompts ask for something that a base model does not do."""

from __future__ import annotations

from app.catalogue.catalogue import load_presets
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
