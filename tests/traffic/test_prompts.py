"""A file of prompts is read as it was meant, or the line that cannot be read is named."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.text import encode_prompt
from engine.traffic.prompts import MAX_PROMPTS, FilePrompt, choose, digest, read_prompts
from tests.helpers.tokenizers_of import tokenizer_of

CHAT = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"})


def test_every_format_is_read_with_its_kind():
    """Spec-Bench's file, a log of conversations or a plain list of prompts could not be raced, or lost its kinds."""
    lines = [
        {"prompt": "a\nb", "kind": "code"},
        {"messages": CHAT, "task": "chat"},
        {"question_id": 81, "category": "writing", "turns": ["one", "two"]},
        {"prompt": "x", "kind": "", "task": None},
    ]
    text = "\ufeff" + "\r\n\n".join(map(json.dumps, lines))
    found = read_prompts(text, "mine.txt")
    assert [(p.line, p.kind, p.text) for p in found] == [
        (1, "code", "a\nb"),
        (3, "chat", "hi"),
        (5, "writing", "one"),
        (7, "prompts", "x"),
    ]
    assert found[1].messages == (("system", "be brief"), ("user", "hi"))
    assert [p.text for p in read_prompts(' def f():\r\n\n{"a": 1', "mine.txt")] == [" def f():", '{"a": 1']
    assert found[0].label == "a b" and len(FilePrompt(1, "x", "word " * 99).label) == 80


def test_a_conversation_goes_through_the_template_and_a_turn_where_there_is_one(monkeypatch):
    """A chat model would be raced on bare text, or a base model refused Spec-Bench."""
    tokenizer = tokenizer_of("byte level")
    chat, turn = read_prompts(f"{json.dumps({'messages': CHAT})}\n{json.dumps({'turns': ['hi']})}", "x.jsonl")
    wanted = tokenizer.apply_chat_template(list(CHAT), add_generation_prompt=True, return_dict=True)["input_ids"]
    assert list(chat.encode(tokenizer).token_ids) == wanted
    assert turn.encode(tokenizer) == encode_prompt(tokenizer, "hi", chat=True)
    monkeypatch.setattr(tokenizer, "chat_template", None)
    assert turn.encode(tokenizer) == encode_prompt(tokenizer, "hi")
    with pytest.raises(UsageError, match="line 1: this model has no chat template"):
        chat.encode(tokenizer)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "a"', "it is not JSON"),
        ("hello", "it is not JSON"),
        ("[1]", "not an object with prompt, messages or turns, but a list"),
        ('{"text": "a"}', "neither prompt, messages nor turns, but: 'text'"),
        ('{"prompt": 3}', "must be text, not int"),
        ('{"prompt": ""}', "the prompt is empty"),
        ('{"prompt": "a\\u0000"}', "NUL character at position 1"),
        ('{"turns": []}', "turns must be a list of strings"),
        ('{"turns": "a"}', "turns must be a list of strings"),
        ('{"messages": []}', "messages must be a list, not empty"),
        ('{"messages": [{"content": "a"}]}', "objects with role and content"),
        ('{"messages": [{"role": "user", "content": [1]}]}', "must be text, not list"),
        ('{"prompt": "a", "prompt": "b"}', "stands twice"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line, words):
    """Among 200 lines the wrong one would have to be looked for; or it would be left out in silence."""
    with pytest.raises(UsageError, match=f"^line 2: .*{words}"):
        read_prompts(f'{{"prompt": "a"}}\n{line}\n', "mine.jsonl")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_a_prompt_is_refused(text):
    """A study of nothing would end in a traceback."""
    with pytest.raises(UsageError, match="holds no prompt"):
        read_prompts(text, "x")


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.integers(1, 50))
def test_a_limit_takes_as_many_of_each_kind_in_the_files_order(kinds, limit):
    """480 prompts of Spec-Bench come sorted: the first 50 are of one kind, and the verdict would be of that alone."""
    prompts = [FilePrompt(line, kind, "x") for line, kind in enumerate(kinds, 1)]
    taken = choose(prompts, limit)
    assert len(taken) == min(limit, len(prompts)) and [p.line for p in taken] == sorted({p.line for p in taken})
    of_file, here = Counter(kinds), Counter(p.kind for p in taken)
    least = min((here[kind] for kind in of_file if here[kind] < of_file[kind]), default=limit)
    assert max(here.values()) <= least + 1, "no kind has two more than one that has some left"


def test_more_than_a_study_takes_needs_a_limit():
    """Hours of racing that nobody asked for."""
    prompts = [FilePrompt(line, "x", "x") for line in range(1, MAX_PROMPTS + 2)]
    assert len(choose(prompts[:-1], None)) == MAX_PROMPTS == len(choose(prompts, MAX_PROMPTS))
    with pytest.raises(UsageError, match=r"has 201 prompts; a study takes at most 200\. --limit 200"):
        choose(prompts, None)


def test_the_digest_sees_every_part_of_a_prompt():
    """A study would go on with other prompts than it began with."""
    texts = [
        '{"prompt": "a"}',
        '{"prompt": "b"}',
        '{"prompt": "a", "kind": "k"}',
        '{"turns": ["a"]}',
        '\n{"prompt": "a"}',
    ]
    assert len({digest(read_prompts(text, "x.jsonl")) for text in texts}) == len(texts)
