"""What a recording was made on, and its labels, in words for terminal and page. Standard library only."""

import time
import unicodedata
from collections.abc import Mapping
from typing import Any

from ..core.spec import RANDOM, SERVER

JOINERS = "\u200c\u200d"
PACKAGES = ("torch", "transformers")
CAUSES = (
    "Possible causes: near ties between two tokens, which a server may round otherwise with drafts{} or after a "
    "restart; {}or a wrong setup of speculation, which is likely where most texts part, or within a few words. The "
    "check-up of the page, or doctor in a terminal, tells them apart, if the servers name their tokens, as vLLM does."
)  # Why the texts of two servers may differ. The same words in a study and a load: see `causes`.
IN_BATCHES, BY_CHANCE = ", in a batch", "each server's own random numbers; "


# What a check-up says about differing texts if all are near ties.
ROUNDING = "Rounding decides such places, so this is no fault of speculation."


def causes(temperature: float | None, in_batches: bool) -> str:
    """Why texts may differ at this temperature, which may be unknown."""
    return CAUSES.format(IN_BATCHES * in_batches, BY_CHANCE * (temperature != 0))


def sent_as(chat: bool, max_new_tokens: int) -> str:
    """How servers are asked."""
    return f"sent as {'chat messages' if chat else 'plain text'}, up to {max_new_tokens} tokens"


def clean(text: str) -> str:
    """Text made safe for a terminal: control, direction and other invisible characters are escaped; newlines stay."""
    if text.isprintable():
        return text
    return "".join(
        c if c == "\n" or c.isprintable() or c in JOINERS else "    " if c == "\t" else _escape(c) for c in text
    )


def _escape(character: str) -> str:
    if unicodedata.category(character) == "Zs":
        return " "
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def scope(model: str, device: Mapping[str, Any]) -> str:
    """What a verdict holds for: `gemma-3-270m on a CPU (AMD EPYC, 2 cores), one user`. Twin of scopeOf in
    app/web/tabs/answer.js."""
    name = device["name"]
    where = {"cpu": f"a CPU ({name})", "cuda": f"one {name}"}.get(device["type"], name)
    return clean(f"{model} on {where}, one user")


def circumstances(recording: Mapping[str, Any]) -> str:
    """The model, the machine and the settings, in one line."""
    model, device, params = recording["model"], recording["device"], recording["spec"]["params"]
    local = f"{device['type']}: {device['name']}, threads: {device['threads']}"
    versions = [f"{name} {version}" for name, version in recording["versions"].items() if name in PACKAGES]
    parts = [
        f"{model['name']} in {model['dtype']}" + (f" (licence: {model['licence']})" if model["licence"] else ""),
        device["name"] if device["type"] == SERVER else local,
        ", ".join(versions),
        recording.get("runs", {}).get("sentence", ""),
        f"temperature {params['temperature']:g}, seed {params['seed']}"
        + (", audited" if recording["spec"]["audit"] else ""),
    ]
    return clean("; ".join(part for part in parts if part))


def ribbons(recording: Mapping[str, Any], recorded: bool) -> list[str]:
    """Labels that no reader may miss. recorded: whether to show when the race was recorded."""
    ribbons = [f" RECORDED {clean(recording['created'])} " if recorded else ""]
    if recording.get("synthetic"):
        ribbons.append(" SYNTHETIC drafts: a test of the hardware, not of a drafter ")
    if recording["model"]["name"].startswith(RANDOM):
        ribbons.append(" RANDOM WEIGHTS: step times fit this shape; text and acceptance mean nothing ")
    return [ribbon for ribbon in ribbons if ribbon]


def prompts_words(num: int, name: str) -> tuple[str, str]:
    """Now, as ISO 8601 has it; and `12 prompts (mine.jsonl), 2026-11-27 03:10 UTC`."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return created, f"{num} prompt{'s' * (num != 1)} ({name}), {created[:10]} {created[11:16]} UTC"


def said(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a study says about itself next to its figures. about: its model, machine and settings, as in a recording."""
    return {
        "scope": scope(about["model"]["name"], about["device"]),
        "circumstances": circumstances(about),
        "ribbons": [ribbon.strip() for ribbon in ribbons(about, False)],
    }
