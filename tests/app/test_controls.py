"""The controls of a race: described once, built from that description, and read by name all the way to the race."""

import asyncio
import json
import re
from typing import Any

import gradio as gr
import pytest

from app.catalogue.catalogue import Catalogue, Pair, load
from app.catalogue.own_model import OWN
from app.catalogue.request import RaceRequest, read_request
from app.jobs.backend import TorchBackend
from app.jobs.loader import ModelStatus
from app.jobs.server_races import ServersBackend
from app.page.controls import controls, pair_choices, preset_values, settings_of
from app.page.doors import SERVERS
from app.page.handlers import Handlers
from app.page.sentences import preset_line, safe
from app.page.ui import build
from engine.core.errors import UsageError
from engine.remote.endpoint import endpoints_of
from tests.helpers import ROOT
from tests.helpers.machines import LARGE, SMALL
from tests.helpers.pageserver import ORDER, TARGET

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
    assert [parameter["parameter_name"] for parameter in parameters] == list(ORDER)


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": None}, "prompt must be text"),
        ({"prompt": "a\0b"}, "NUL"),
        ({"prompt": "x" * 20_001}, "20000"),
        ({"pair": "/etc"}, "unknown pair"),
        ({"pair": "gpt-oss-120b-eagle3"}, "cannot run here"),
        ({"drafter": "draft_model:/etc"}, "unknown drafter"),
        ({"drafter": "draft_model:owner/name"}, "unknown drafter"),
        ({"drafter": "synthetic:7"}, "synthetic"),
        ({"temperature": "hot"}, "hot"), ({"top_p": None}, "top_p is empty"), ({"seed": None}, "seed is empty"),
        ({"k": "many"}, "many"), ({"max_new_tokens": 1001}, "1000"), ({"width": {}}, "width"),
        ({"audit": "yes"}, "audit"), ({"chat": 1}, "chat"), ({"rule": ["coupled"]}, "unknown rule"),
        ({"more": "ngram"}, "more must be a list of at most 3"),
        ({"more": ["ngram"] * 4}, "more must be a list of at most 3"),
        ({"more": ["draft_model:/etc"]}, "unknown drafter"),
        ({"more": [["ngram"]]}, "drafter"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_every_value_is_checked_on_the_server(changes, words) -> None:
    """Whoever calls the API reads one sentence that names the value or the limit, and never a traceback."""
    with pytest.raises(UsageError, match=re.escape(words)):
        read_request(load(SMALL, TARGET), {**ORDER, **changes})


def test_model_and_guesses_never_contradict_each_other() -> None:
    """A pair's name next to another drafter: each target is listed once, the line below is about its drafter."""
    for catalogue in CATALOGUES:
        targets = [catalogue.pair(pair_id).target for _, pair_id in pair_choices(catalogue)]
        assert targets == list(dict.fromkeys(pair.target for pair in catalogue.runnable))
        assert catalogue.default.id in dict(map(reversed, pair_choices(catalogue)))
        handlers = Handlers(catalogue, TorchBackend())
        for pair in catalogue.runnable:
            assert safe(pair.note) in handlers.drafter_line(pair.id, pair.drafter)
        assert handlers.drafter_line(catalogue.default.id, "synthetic:0.8") == ""


# ---- prompts that suit the model: texts to go on with for a base model, chat messages for one that was tuned to chat


def test_a_preset_suits_the_model() -> None:
    """A tuned model with half a file, a base model with an order; a value for a control that was renamed."""
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
    """The model changes and the box keeps the other kind's prompt, or the line another model's; own texts stay."""
    handlers = Handlers(load(LARGE), TorchBackend())
    preset = handlers.catalogue.presets[1]
    to_tuned = handlers.pair(TUNED.id, preset.prompt)
    assert to_tuned["prompt"] == preset.message and to_tuned["chat"]["value"] and to_tuned["chat"]["interactive"]
    to_base = handlers.pair(BASE.id, preset.message)
    assert to_base["prompt"] == preset.prompt and not to_base["chat"]["value"] and not to_base["chat"]["interactive"]
    assert handlers.pair(TUNED.id, "my own")["prompt"] == gr.skip()
    assert to_tuned["expectation"] == "" and preset.expect not in preset_line(preset, TUNED)
    assert preset.expect in preset_line(preset, load(SMALL).default)


def test_an_opened_race_of_another_model_leaves_settings_that_can_be_raced() -> None:
    """A race of another model would leave its drafter in Settings, and the next race of an own prompt be refused; or
    what a link asks for would give way to something else without a word."""
    catalogue = load(SMALL)
    fitted, pair = Handlers(catalogue, TorchBackend()).fitted, catalogue.default
    names = ("drafter", "k", "chat", "width", "audit", "more")
    *values, line = fitted(pair.id, "eagle3:someone/<head>", True)
    own = dict(zip(names, values, strict=True))
    assert "eagle3:someone" in line and "<head>" not in line
    assert own == {name: settings_of(catalogue, pair, None)[name] for name in names}
    read_request(catalogue, {**defaults(catalogue), **own})
    assert fitted(pair.id, "synthetic:0.8", False) == (*(gr.skip(),) * 3, "auto", True, [], gr.skip())


# ---- whatever was chosen before: settings, labels and the counter are those of the last choice alone


class Shown:
    """An owner's page without a browser: what each control and line shows, as its handlers say."""

    def __init__(self) -> None:
        gone = ServersBackend(endpoints_of([("plain", "openai:http://127.0.0.1:1/v1")] * 2, ["m"], {}), False)
        backend = TorchBackend("float32", "cpu", False)
        backend.named = gone
        backend.loader._status = ModelStatus("gemma-3-270m", "ready", "")
        self.handlers = Handlers(load(LARGE), backend, own=True)
        assert self.handlers.doors is not None
        self.handlers.doors._pairs[OWN] = Pair(OWN, "x", "gemma-3-270m", "eagle3", "auto", "Named.", False, named=True)
        self.now: dict[str, Any] = {name: {"value": value} for name, value in defaults(self.handlers.catalogue).items()}

    def take(self, answers: dict[str, Any]) -> None:
        for name, answer in answers.items():
            changes = answer if isinstance(answer, dict) else {"value": answer}
            properties = {key: value for key, value in changes.items() if key != "__type__"}
            self.now[name] = {**self.now.get(name, {}), **properties}

    def choose(self, what: str) -> None:
        """A model, or what the owner has named."""
        text = self.now["prompt"]["value"]
        if what in (OWN, SERVERS):
            self.take(self.handlers.door(self.now["pair"]["value"], text, gr.EventData(None, what)))
        else:
            self.take({"pair": what, **self.handlers.pair(what, text)})

    def said(self, *besides: str) -> dict[str, Any]:
        """Without the sentence that a change of settings hides, and what else is on offer."""
        shown = {name: properties for name, properties in self.now.items() if name not in ("expectation", *besides)}
        return {**shown, "pair": self.now["pair"]["value"]}


CHOICES = [*(pair for _, pair in pair_choices(load(LARGE))[:4]), OWN, SERVERS]
OF_THE_TEXT = {"temperature": 0.4, "top_p": 0.5, "seed": 5, "max_new_tokens": 32}
OF_THE_LANES = {"drafter": "none", "k": "3", "width": "64", "audit": False, "rule": "rejection", "more": ["ngram"]}


@pytest.mark.parametrize("text", ["mine", load(LARGE).presets[2].prompt])
@pytest.mark.parametrize("last", CHOICES)
def test_nothing_of_an_earlier_choice_is_left(last: str, text: str) -> None:
    """Back from servers the page raced n-gram, k = 7 instead of the model's own drafter, next to a recording of that;
    any setting, offer or line of a model, servers or an example chosen before would do the same."""
    shown, fresh = Shown(), Shown()
    for choice in CHOICES:
        shown.choose(choice)
        shown.take(shown.handlers.preset(shown.handlers.catalogue.presets[1].id, choice))
        shown.take(OF_THE_TEXT | OF_THE_LANES | {"chat": False})
    for page in (shown, fresh):
        page.take({"prompt": text})
        page.choose(last)
    assert shown.said(*OF_THE_TEXT) == fresh.said(*OF_THE_TEXT)
    for page in (shown, fresh):
        page.take(page.handlers.preset(page.handlers.catalogue.presets[3].id, last))
    assert shown.said() == fresh.said()


def test_the_model_that_ships_drafts_as_in_its_examples() -> None:
    """The first model chosen again would have the drafter that comes first in the list, not its own."""
    shown = Shown()
    shown.choose(SERVERS)
    assert "cannot be raced now: the server of lane plain cannot be reached" in shown.now["model"]["value"]
    assert shown.now["k"]["visible"] is False and 'data-target=""' in shown.now["model"]["value"]
    assert shown.handlers.catalogue.default.id == SERVERS
    for text in ("mine", shown.handlers.catalogue.presets[0].prompt):
        shown.take({"prompt": text})
        shown.choose(load(SMALL).default.id)
        values = {name: shown.now[name]["value"] for name in ("drafter", "k", "more", "width", "audit", "rule")}
        assert tuple(values.values()) == ("hybrid:ngram+eagle3", "auto", [], "auto", True, "coupled")
        assert 'data-target="gemma-3-270m"' in shown.now["model"]["value"] and shown.now["k"]["visible"]
        assert shown.handlers.catalogue.default.id == load(SMALL).default.id, "a page loaded now opens with it"
    shown.choose(TUNED.id)
    assert "is loaded for its next race" in shown.now["model"]["value"]
    assert asyncio.run(shown.handlers.count("", TUNED.target, "x")) == {"count": None}


TEMPLATE = {"chat_template": "{{ x }}"}
# What the command line names, or the files of the folder that it names -> whether its model has a chat template.
TEMPLATES: list[Any] = [
    ({}, False),
    ({"drafter": "ngram"}, False),
    ({"target": TUNED.target}, True),
    ({"target": "somebody/something"}, None),
    ({"target": str(ROOT / "tests/fixtures/trained/target")}, True),
    ({"tokenizer_config.json": TEMPLATE}, True),
    ({"tokenizer_config.json": {}, "chat_template.jinja": "{{ x }}"}, True),
    ({"tokenizer_config.json": {}, "chat_template.json": TEMPLATE}, True),
    ({"tokenizer_config.json": {}}, False),
    ({"config.json": {}}, False),
]


@pytest.mark.parametrize(("named", "chat"), TEMPLATES)
def test_the_box_is_locked_only_if_there_is_no_template_and_says_so(tmp_path: Any, named: Any, chat: Any) -> None:
    """A box that is refused only after a click, in another program's words; or one that is locked for no reason."""
    if any("." in name for name in named):
        for name, content in named.items():
            (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        named = {"target": str(tmp_path)}
    catalogue = load(SMALL, **named)
    (box,) = (control for control in controls(catalogue) if control.name == "chat")
    assert (catalogue.default.chat, box.default) == (chat, bool(chat))
    assert box.options["interactive"] == (chat is not False) == ("base model" not in str(box.help))
    if chat is False:
        with pytest.raises(UsageError, match="has no chat template") as refused:
            read_request(catalogue, {**defaults(catalogue), "chat": True})
        assert "--" not in str(refused.value)
