"""Prompts as text: byte for byte, through a chat template, or refused; and which tokens end a text."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UsageError
from engine.events import Prompt
from engine.text import MAX_PROMPT_CHARS, check_prompt_text, encode_prompt, end_token_ids
from tests.helpers.tokenizers_of import EVERY_KIND, encode, sentencepiece, tokenizer_of


@EVERY_KIND
@given(text=st.text(st.sampled_from("ab \n\t,<>{}%é😀\r\x01"), min_size=1))
@settings(max_examples=40)
def test_a_prompt_reaches_the_model_byte_for_byte(kind, text):
    """A stripped newline or a doubled BOS changes what the model is asked."""
    tokenizer = tokenizer_of(kind)
    prompt = encode_prompt(tokenizer, text)
    assert prompt == Prompt(text, tuple(tokenizer(text)["input_ids"]))
    bos = [] if tokenizer(text)["input_ids"] == encode(tokenizer, text) else [tokenizer.bos_token_id]
    assert list(prompt.token_ids) == bos + encode(tokenizer, text)
    if "strip" not in kind:
        assert tokenizer.decode(prompt.token_ids[len(bos) :]) == text


def test_chat_is_the_template_and_nothing_else():
    """The prompt would be seen as plain text, or the special tokens twice."""
    tokenizer = tokenizer_of("byte level")
    wanted = tokenizer.apply_chat_template(
        [{"role": "user", "content": " hi\n"}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert encode_prompt(tokenizer, " hi\n", chat=True) == Prompt(" hi\n", tuple(wanted), chat=True)
    assert len(wanted) > len(encode_prompt(tokenizer, " hi\n").token_ids)
    with_bos = sentencepiece(strip=False)
    with_bos.chat_template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    assert encode_prompt(with_bos, "and", chat=True).token_ids.count(with_bos.bos_token_id) == 1


@pytest.mark.parametrize("template", [None, "{{ raise_exception('system only') }}", "{% if %}"])
def test_chat_without_a_usable_template_is_refused(template):
    """A base model would be shown an empty or broken template, or a traceback."""
    tokenizer = sentencepiece(strip=False)
    tokenizer.chat_template = template
    with pytest.raises(UsageError, match="chat template"):
        encode_prompt(tokenizer, "hi", chat=True)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_text_is_a_prompt(text):
    """A visitor's language or control characters would be refused."""
    check_prompt_text(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a\0b", "NUL character at position 1"),
        ("ab\ud83d", r"U\+D83D, at position 2"),
        ("x" * (MAX_PROMPT_CHARS + 1), str(MAX_PROMPT_CHARS)),
        (b"x", "bytes"),
        (None, "NoneType"),
    ],
)
def test_an_unusable_prompt_is_named(text, says):
    """Instead of one clear line the tokenizer would crash."""
    with pytest.raises(UsageError, match=says):
        check_prompt_text(text)
    with pytest.raises(UsageError, match=says):
        encode_prompt(tokenizer_of("byte level"), text)


def test_every_end_token_is_known():
    """A model with several end tokens would write on after one of them."""
    config = SimpleNamespace(eos_token_id=1, text_config=SimpleNamespace(eos_token_id=[4]))
    assert end_token_ids(config, SimpleNamespace(eos_token_id=[2, 106]), SimpleNamespace(eos_token_id=3)) == {
        1,
        2,
        3,
        4,
        106,
    }
    assert end_token_ids(SimpleNamespace(eos_token_id=None), None, SimpleNamespace(eos_token_id=None)) == frozenset()


def test_text_needs_no_torch():
    """Replay, which needs this module, would take seconds to start."""
    code = (
        "import sys, engine.text, engine.cache, engine.progress; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
