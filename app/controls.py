"""The controls of a race, each described once: the page builds its components from this, and a request is read by these
names. No Gradio here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from engine.spec import MAX_AUTO_K, MAX_WIDTH

from .catalogue import Catalogue, Pair, Preset
from .limits import MAX_MORE_LANES, MAX_NEW_TOKENS, MAX_PROMPT_CHARS
from .texts import drafter_choices

LENGTHS = ["auto", *map(str, range(1, MAX_AUTO_K + 1))]
WIDTHS = ["auto", "2", "4", "8", "16", "32", str(MAX_WIDTH)]
CHAT = "Send the prompt as one message, for models that were tuned to chat."
RULES = [("same tokens (coupled)", "coupled"), ("same odds (rejection)", "rejection")]
OF_THE_ENGINE = ("drafter", "k", "width", "audit", "rule", "more")
"""What only lanes of this engine have."""
STUDY = "synthetic:0.8 drafts right 80 times in 100, to study the hardware."


@dataclass(frozen=True)
class Control:
    """One control. `name`: of its value in a request and in the API. `kind`: Gradio's class. `limits`: that class's
    arguments for what can be chosen. `look`: its other arguments. `advanced`: for those who know why they ask."""

    name: str
    kind: Literal["Checkbox", "CheckboxGroup", "Dropdown", "Number", "Radio", "Slider", "Textbox"]
    default: Any
    label: str
    help: str | None
    limits: Mapping[str, Any] = field(default_factory=dict)
    look: Mapping[str, Any] = field(default_factory=dict)
    advanced: bool = False


def preset_values(catalogue: Catalogue, preset: Preset, pair: Pair) -> dict[str, Any]:
    """What a preset sets, by the names of controls, where this pair is chosen."""
    drafter, k = catalogue.drafting(preset, pair)
    return {
        "prompt": text_for(preset, pair),
        "chat": bool(pair.chat),
        "drafter": drafter,
        "k": str(k),
        "temperature": preset.temperature,
        "top_p": 1,
        "seed": preset.seed,
        "max_new_tokens": preset.max_new_tokens,
        "rule": "coupled",
    }


def text_for(preset: Preset, pair: Pair) -> str:
    """A preset's text for this pair's target."""
    return preset.message if pair.chat else preset.prompt


def chat_help(pair: Pair) -> str:
    """What the box of the chat template says: why it cannot be ticked, where it cannot."""
    return f"{pair.target} is a base model: it has no chat template." if pair.chat is False else CHAT


def pair_choices(catalogue: Catalogue) -> list[tuple[str, str]]:
    """(what to show, id) for each target on offer, by its first pair: what guesses for it is chosen by itself."""
    first = {pair.target: pair for pair in reversed(catalogue.runnable)}
    return [(pair.title.partition(" + ")[0], pair.id) for pair in catalogue.runnable if first[pair.target] is pair]


def more_choices(catalogue: Catalogue, pair: Pair) -> list[tuple[str, str]]:
    """What can have a lane of its own beside the first."""
    return drafter_choices([each for each in catalogue.drafters(pair) if each != "none"])


def controls(catalogue: Catalogue) -> tuple[Control, ...]:
    """All controls in their order on the page and in the API, set to the first preset and the default pair. What does
    nothing on servers is not shown there."""
    found = _controls(catalogue)
    if not catalogue.on_servers:
        return found
    hidden = {"visible": False}
    return tuple(replace(each, look={**each.look, **hidden}) if each.name in OF_THE_ENGINE else each for each in found)


def _controls(catalogue: Catalogue) -> tuple[Control, ...]:
    pair = catalogue.default
    first = preset_values(catalogue, catalogue.presets[0], pair)
    return (
        Control(
            "prompt",
            "Textbox",
            first["prompt"],
            label="Prompt",
            help=None,
            limits={"max_length": MAX_PROMPT_CHARS},
            look={
                "lines": 2,
                "max_lines": 2,
                "show_label": False,
                "placeholder": "A prompt, used byte for byte",
                "elem_id": "page-prompt",
            },
        ),
        Control(
            "pair",
            "Radio",
            pair.id,
            label="Model",
            help="What is raced: the model that decides (target). The same one in both lanes.",
            limits={"choices": pair_choices(catalogue)},
        ),
        Control(
            "drafter",
            "Dropdown",
            first["drafter"],
            label="Guesses",
            help=f"What guesses tokens (drafter). It changes speed, never tokens. {STUDY}",
            limits={"choices": drafter_choices(catalogue.drafters(pair)), "allow_custom_value": True},
        ),
        Control(
            "k",
            "Dropdown",
            first["k"],
            label="Length of a guess",
            help="Tokens guessed at once (k). More can win more, and waste more. auto: as many as pay, step by step.",
            limits={"choices": LENGTHS},
        ),
        Control(
            "temperature",
            "Slider",
            first["temperature"],
            label="Temperature",
            help="0 is greedy. Above, tokens are sampled: the same ones in both lanes, for the same seed.",
            limits={"minimum": 0, "maximum": 2, "step": 0.05},
        ),
        Control(
            "top_p",
            "Slider",
            first["top_p"],
            label="Top-p",
            help="Sample within the likeliest tokens that hold this share; 1 is off.",
            limits={"minimum": 0.05, "maximum": 1, "step": 0.05},
            advanced=True,
        ),
        Control(
            "seed",
            "Number",
            first["seed"],
            label="Seed",
            help="Decides all noise. The same seed gives the same text.",
            limits={"minimum": 0, "precision": 0},
        ),
        Control(
            "max_new_tokens",
            "Slider",
            first["max_new_tokens"],
            label="Length",
            help="Tokens after which every lane ends at the latest.",
            limits={"minimum": 16, "maximum": MAX_NEW_TOKENS, "step": 16},
        ),
        Control(
            "width",
            "Dropdown",
            "auto",
            label="Room for guesses",
            help="Tokens checked in one run of the model (width), above the guess's length. auto: the narrowest that "
            "gives the same bits.",
            limits={"choices": WIDTHS},
            advanced=True,
        ),
        Control(
            "audit",
            "Checkbox",
            True,
            label="Audit",
            help="Compare the scores behind every token (logits) to the last bit, not the tokens alone.",
            advanced=True,
        ),
        Control(
            "chat",
            "Checkbox",
            first["chat"],
            label="Chat template",
            help=chat_help(pair),
            look={"interactive": pair.chat is not False},
            advanced=True,
        ),
        Control(
            "rule",
            "Radio",
            "coupled",
            label="A guess is kept for",
            help="Same tokens: if it is the token that the model picks itself. Same odds: by a draw that keeps each "
            "token as likely as without guesses; the texts part. At temperature 0 nothing is drawn: both are the same.",
            limits={"choices": RULES},
            advanced=True,
        ),
        Control(
            "more",
            "CheckboxGroup",
            [],
            label="More lanes",
            help=f"Race these beside it, each in a lane of its own: up to {MAX_MORE_LANES}.",
            limits={"choices": more_choices(catalogue, pair)},
        ),
    )
