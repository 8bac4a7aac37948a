"""The controls of a race: described once, built from that description, and read by name all the way to the race."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest

from app.catalogue.catalogue import Catalogue, load
from app.catalogue.request import RaceRequest, read_request
from app.jobs.backend import TorchBackend
from app.page.controls import controls, pair_choices, preset_values
from app.page.handlers import Handlers
from app.page.texts import preset_line, safe
from app.page.ui import build
from engine.errors import UsageError
from tests.helpers import ROOT
from tests.helpers.machines import LARGE, SMALL
from tests.helpers.pageserver import ORDER

CATALOGUES = [load(SMALL), load(LARGE)]
BASE = next(pair for pair in load(LARGE).runnable if pair.chat is False)
TUNED = next(pair for pair in load(LARGE).runnable if pair.chat)


def defaults(catalogue: Catalogue) -> dict[str, Any]:
    return {control.name: control.default for control in controls(catalogue)}


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=["small", "large"])
def test_the_page_has_exactly_the_controls_that_are_described(catalogue) -> None:
    """A value that reaches the race under another control's name changes the race in silence. The API's names are a
    promise: ORDER has had them, in this order, since the first version."""
    page = build(catalogue, TorchBackend())
    race = next(function for function in page.fns.values() if function.api_name == "race")
    built = dict(zip(race.input_keyword_names, race.inputs, strict=True))
    assert list(built) == list(ORDER) == [control.name for control in controls(catalogue)]
    for control in controls(catalogue):
        component = built[control.name]
        shown = (type(component).__name__, component.label, component.value)
        assert shown == (control.kind, control.label, control.default)
    parameters = page.get_api_info()["named_endpoints"]["/race"]["parameters"]
    assert [each["parameter_name"] for each in parameters] == list(ORDER)


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=["small", "large"])
def test_what_the_page_opens_with_can_be_raced(catalogue) -> None:
    """A page whose first click is refused; or a value that is described and then ignored, or read and not described."""
    wanted = read_request(catalogue, defaults(catalogue))
    assert isinstance(wanted, RaceRequest)
    for name in ORDER:
        with pytest.raises(KeyError, match=name):
            read_request(catalogue, {key: value for key, value in defaults(catalogue).items() if key != name})
        with pytest.raises(UsageError):
            read_request(catalogue, {**defaults(catalogue), name: object()})


def test_model_and_guesses_never_contradict_each_other() -> None:
    """A pair named after one drafter would appear next to another: each target is listed once, and the line below the
    drafter is about that drafter."""
    for machine in (SMALL, LARGE):
        catalogue = load(machine)
        targets = [catalogue.pair(pair_id).target for _, pair_id in pair_choices(catalogue)]
        assert targets == list(dict.fromkeys(pair.target for pair in catalogue.runnable))
        assert catalogue.default.id in dict(map(reversed, pair_choices(catalogue)))
        handlers = Handlers(catalogue, TorchBackend())
        for pair in catalogue.runnable:
            assert safe(pair.note) in handlers.drafter_line(pair.id, pair.drafter)
        assert handlers.drafter_line(catalogue.default.id, "synthetic:0.8") == ""


# ---- prompts that suit the model: texts to go on with for a base model, chat messages for one that was tuned to chat


def test_a_preset_suits_the_model() -> None:
    """A tuned model given half a file, or a base model given an order: both write nonsense. A value for a control that
    was renamed would never arrive."""
    for catalogue, pair in ((CATALOGUES[0], CATALOGUES[0].default), (CATALOGUES[1], BASE), (CATALOGUES[1], TUNED)):
        for preset in catalogue.presets:
            values = preset_values(catalogue, preset, pair)
            assert set(values) < set(ORDER)
            assert (values["prompt"], values["chat"]) == (preset.message if pair.chat else preset.prompt, pair.chat)
            for name in ("temperature", "seed", "max_new_tokens"):
                assert values[name] == getattr(preset, name)
            wanted = read_request(catalogue, {**defaults(catalogue), **values, "pair": pair.id})
            assert (wanted.name, wanted.chat) == (preset.name, pair.chat), "the board names the preset either way"


def test_another_model_takes_the_prompt_along_in_its_own_form() -> None:
    """The model would change and the box keep the other kind's prompt, or the line what was seen of another model. What
    the visitor wrote stays."""
    handlers = Handlers(load(LARGE), TorchBackend())
    preset = handlers.catalogue.presets[1]
    to_tuned = handlers.pair(TUNED.id, preset.prompt, None)
    assert to_tuned["prompt"] == preset.message and to_tuned["chat"]["value"] and to_tuned["chat"]["interactive"]
    to_base = handlers.pair(BASE.id, preset.message, None)
    assert to_base["prompt"] == preset.prompt and not to_base["chat"]["value"] and not to_base["chat"]["interactive"]
    assert handlers.pair(TUNED.id, "my own", None)["prompt"] == gr.skip()
    assert to_tuned["expectation"] == "" and preset.expect not in preset_line(preset, TUNED)
    assert preset.expect in preset_line(preset, load(SMALL).default)


def test_an_opened_race_of_another_model_leaves_settings_that_can_be_raced() -> None:
    """A race of another model would leave its drafter in Settings, and the next race of an own prompt be refused."""
    catalogue = load(SMALL)
    fitted, pair = Handlers(catalogue, TorchBackend()).fitted, catalogue.default
    drafter, k, chat = fitted(pair.id, "eagle3:someone/head", True)
    assert (drafter, k, chat) == (pair.drafter, str(pair.k), False)
    read_request(catalogue, {**defaults(catalogue), "drafter": drafter, "k": k, "chat": chat})
    assert fitted(pair.id, "synthetic:0.8", False) == (gr.skip(),) * 3


def test_the_box_says_why_it_cannot_be_ticked() -> None:
    """A box that is refused only after a click, with a sentence about another program's option."""
    (box,) = (control for control in controls(load(SMALL)) if control.name == "chat")
    assert not box.options["interactive"] and "base model" in str(box.help)
    with pytest.raises(UsageError, match="has no chat template") as refused:
        read_request(load(SMALL), {**defaults(load(SMALL)), "chat": True})
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
    assert box.options["interactive"] and box.default is False
    assert load(SMALL, target=str(ROOT / "tests/fixtures/trained/target")).default.chat is True
