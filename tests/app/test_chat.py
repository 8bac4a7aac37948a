"""Prompts that suit the model: texts to go on with for a base model, chat messages for one that was tuned to chat."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest

from app.backend import TorchBackend
from app.catalogue import Catalogue, load
from app.controls import controls, preset_values
from app.handlers import Handlers
from app.request import read_request
from engine.errors import UsageError
from tests.helpers import ROOT
from tests.helpers.machines import LARGE, SMALL

BASE = next(pair for pair in load(LARGE).runnable if pair.chat is False)
TUNED = next(pair for pair in load(LARGE).runnable if pair.chat)


def test_a_preset_suits_the_model() -> None:
    """A tuned model given half a file, or a base model given an order: both write nonsense."""
    catalogue = load(LARGE)
    for preset in catalogue.presets:
        for pair, text in ((BASE, preset.prompt), (TUNED, preset.message)):
            values = preset_values(catalogue, preset, pair)
            assert (values["prompt"], values["chat"]) == (text, pair.chat)
            asked = {control.name: control.default for control in controls(catalogue)} | values | {"pair": pair.id}
            wanted = read_request(catalogue, asked)
            assert (wanted.name, wanted.chat) == (preset.name, pair.chat), "the board names the preset either way"


def test_another_model_takes_the_prompt_along_in_its_own_form() -> None:
    """The model changes and the box still holds the other kind's prompt. What the visitor wrote stays."""
    handlers = Handlers(load(LARGE), TorchBackend())
    preset = handlers.catalogue.presets[1]
    to_tuned = handlers.pair(TUNED.id, preset.prompt, None)
    assert to_tuned["prompt"] == preset.message and to_tuned["chat"]["value"] and to_tuned["chat"]["interactive"]
    to_base = handlers.pair(BASE.id, preset.message, None)
    assert to_base["prompt"] == preset.prompt and not to_base["chat"]["value"] and not to_base["chat"]["interactive"]
    assert handlers.pair(TUNED.id, "my own", None)["prompt"] == gr.skip()


def test_the_box_says_why_it_cannot_be_ticked() -> None:
    """A box that is refused only after a click, with a sentence about another program's option."""
    (box,) = (control for control in controls(load(SMALL)) if control.name == "chat")
    assert not box.look["interactive"] and "base model" in str(box.help)
    asked = {control.name: control.default for control in controls(load(SMALL))}
    with pytest.raises(UsageError, match="base model") as refused:
        read_request(load(SMALL), {**asked, "chat": True})
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    "files, has",
    [
        ({"tokenizer_config.json": {"chat_template": "{{ x }}"}}, True),
        ({"tokenizer_config.json": {}, "chat_template.jinja": "{{ x }}"}, True),
        ({"tokenizer_config.json": {}}, False),
        ({"config.json": {}}, False),
    ],
)
def test_a_folder_tells_whether_it_has_a_template(tmp_path: Any, files: dict[str, Any], has: bool) -> None:
    """A model of one's own whose box is locked although it has a template, or the other way round."""
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    assert load(SMALL, target=str(tmp_path)).default.chat is has


def test_the_command_line_knows_a_target_that_ships() -> None:
    """`--target` with a name of the catalogue, or with a repository that nobody knows."""
    assert load(SMALL, target=TUNED.target).default.chat is True
    assert load(SMALL, drafter="ngram").default.chat is False
    unknown: Catalogue = load(SMALL, target="somebody/something")
    assert unknown.default.chat is None
    (box,) = (control for control in controls(unknown) if control.name == "chat")
    assert box.look["interactive"] and box.default is False
    assert load(SMALL, target=str(ROOT / "tests/fixtures/trained/target")).default.chat is True
