"""The controls of a race, each described once: the page builds its components from them, and requests use their names.
No Gradio here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from engine.core.spec import MAX_AUTO_K, MAX_WIDTH, TREE

from ..catalogue.catalogue import Catalogue, Pair, Preset
from ..catalogue.limits import MAX_MORE_LANES, MAX_PROMPT_CHARS
from ..catalogue.request import CHAINS
from .sentences import drafter_choices

TREES = (3, 5, 7, 11, 15)
LENGTHS = ["auto", *map(str, range(1, MAX_AUTO_K + 1)), *(f"{TREE}{size}" for size in TREES)]
WIDTHS = ["auto", "2", "4", "8", "16", "32", str(MAX_WIDTH)]
CHAT = "Send the prompt as one chat message. For chat-tuned models."
RULES = [("same tokens (coupled)", "coupled"), ("same probabilities (rejection)", "rejection")]
OF_THE_ENGINE = ("drafter", "k", "width", "audit", "rule", "more")  # controls that only lanes of this engine have
MODEL = "The model that writes the text (target), the same in both lanes."
DRAFTER = (
    "What guesses ahead. It changes the speed, never the text. Type synthetic:0.8 for made-up guesses that are right "
    "80 % of the time."
)
DRAFT_LENGTH = (
    "Tokens guessed at once. Longer drafts can gain more or waste more. auto decides at every step. tree:7 guesses 7 "
    "tokens, several for one place where that is worth more."
)
TEMPERATURE = "0: always the likeliest token. Above 0: sampled; the seed fixes the random numbers."
TOP_P = "Sample only from the likeliest tokens that add up to this probability. 1: off."
SEED = "The same seed gives the same text."
LENGTH = "Every lane stops after this many tokens."
WIDTH = "Tokens checked in one pass; more than the draft length. auto: the smallest width that gives the same bits."
AUDIT = "Compare not only the tokens but also the scores behind them (logits), bit by bit."
RULE = (
    "Same tokens: keep a guess if the model picks that very token. Same probabilities: keep it by a random draw that "
    "leaves every token as likely as without guesses; the texts then differ. No difference at temperature 0."
)
MORE = f"Race up to {MAX_MORE_LANES} more drafters, each in its own lane, or the same drafter without trees."


@dataclass(frozen=True)
class Control:
    """One control.

    name: the name of its value in a request and in the API.
    kind: Gradio's class.
    options: that class's other arguments.
    advanced: shown under "Advanced"."""

    name: str
    kind: Literal["Checkbox", "CheckboxGroup", "Dropdown", "Number", "Radio", "Slider", "Textbox"]
    default: Any
    label: str
    help: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    advanced: bool = False


def settings_of(catalogue: Catalogue, pair: Pair, preset: Preset | None) -> dict[str, Any]:
    """The values that follow from what is chosen, by name of control: how this model's lanes draft and read the prompt.
    Whatever was chosen before leaves nothing behind, and no other function sets them.

    preset: whose text is in the prompt box; None: the visitor's own."""
    drafter, k = catalogue.drafting(preset, pair)
    offered = [value for _, value in more_choices(catalogue, pair)]
    more = [value for value in (preset.more if preset else ()) if value in offered and pair.lanes is None]
    values = {
        "chat": bool(pair.chat),
        "drafter": drafter,
        "k": str(k),
        "width": "auto",
        "audit": True,
        "rule": "coupled",
        "more": more[:MAX_MORE_LANES],
    }
    return values if preset is None else {"prompt": preset.message if pair.chat else preset.prompt, **values}


def preset_values(catalogue: Catalogue, preset: Preset, pair: Pair) -> dict[str, Any]:
    """The same once a preset is chosen, which also says how its text is written."""
    return {
        **settings_of(catalogue, pair, preset),
        "temperature": preset.temperature,
        "top_p": 1,
        "seed": preset.seed,
        "max_new_tokens": min(preset.max_new_tokens, catalogue.limits.max_new_tokens),
    }


def chat_help(pair: Pair) -> str:
    """Help of the checkbox "Chat template"; if it cannot be ticked, the reason."""
    if pair.chat is False:
        return f"{pair.target} is a base model without a chat template."
    return CHAT if pair.thinking is None else f"{CHAT} {pair.target} answers without thinking here."


def pair_choices(catalogue: Catalogue) -> list[tuple[str, str]]:
    """(label, id of its first pair, or of the default) for each target on offer, here or on servers. The drafter has a
    control of its own."""
    firsts: dict[Any, Pair] = {}
    for pair in catalogue.runnable:
        firsts.setdefault((pair.target, pair.lanes), pair)
    firsts[catalogue.default.target, catalogue.default.lanes] = catalogue.default
    return [(pair.title.partition(" + ")[0], pair.id) for pair in firsts.values()]


def more_choices(catalogue: Catalogue, pair: Pair) -> list[tuple[str, str]]:
    """(label, value) of each additional lane: another drafter, or the same one with drafts of a fixed length."""
    drafters = drafter_choices([drafter for drafter in catalogue.drafters(pair) if drafter != "none"])
    return [*drafters, (f"same drafter, {CHAINS}", CHAINS)]


def controls(catalogue: Catalogue) -> tuple[Control, ...]:
    """All controls in their order on the page and in the API, set to the first preset and the default pair. If all
    lanes are on servers, controls without effect there are hidden."""
    pair = catalogue.default
    first = preset_values(catalogue, catalogue.presets[0], pair)
    prompt = {
        "max_length": MAX_PROMPT_CHARS,
        "lines": 3,
        "max_lines": 10,
        "show_label": False,
        "placeholder": "Type a prompt; what is in this box is sent.",
        "elem_id": "page-prompt",
    }
    drafters = {"choices": drafter_choices(catalogue.drafters(pair)), "allow_custom_value": True}
    chat = {"interactive": pair.chat is not False}
    length = _range(16, catalogue.limits.max_new_tokens, 16)
    more = {"choices": more_choices(catalogue, pair)}
    described = (
        Control("prompt", "Textbox", first["prompt"], "Prompt", None, prompt),
        Control("pair", "Radio", pair.id, "Model", MODEL, {"choices": pair_choices(catalogue)}),
        Control("drafter", "Dropdown", first["drafter"], "Drafter", DRAFTER, drafters),
        Control("k", "Dropdown", first["k"], "Draft length (k)", DRAFT_LENGTH, {"choices": LENGTHS}),
        Control("temperature", "Slider", first["temperature"], "Temperature", TEMPERATURE, _range(0, 2, 0.05)),
        Control("top_p", "Slider", first["top_p"], "Top-p", TOP_P, _range(0.05, 1, 0.05), True),
        Control("seed", "Number", first["seed"], "Seed", SEED, {"minimum": 0, "precision": 0}),
        Control("max_new_tokens", "Slider", first["max_new_tokens"], "Maximum length", LENGTH, length),
        Control("width", "Dropdown", "auto", "Width", WIDTH, {"choices": WIDTHS}, True),
        Control("audit", "Checkbox", True, "Audit", AUDIT, advanced=True),
        Control("chat", "Checkbox", first["chat"], "Chat template", chat_help(pair), chat, True),
        Control("rule", "Radio", "coupled", "Keep a guess if", RULE, {"choices": RULES}, True),
        Control("more", "CheckboxGroup", [], "More lanes", MORE, more),
    )
    if pair.lanes is None:
        return described
    return tuple(
        replace(control, options={**control.options, "visible": False}) if control.name in OF_THE_ENGINE else control
        for control in described
    )


def _range(minimum: float, maximum: float, step: float) -> dict[str, float]:
    return {"minimum": minimum, "maximum": maximum, "step": step}
