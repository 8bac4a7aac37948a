"""Text over real tokenizers of the three kinds there are (byte-level, sentencepiece with byte tokens, the default
model's): prompts, pieces and endings."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import TemplateError, UsageError
from engine.core.events import LaneEvent, Prompt, text_of
from engine.core.spec import SamplingParams, paths
from engine.doctor.checkup import Checkup
from engine.hardware.environment import circumstances
from engine.text import (
    MAX_PROMPT_CHARS,
    THINKING,
    Pieces,
    StopAt,
    check_prompt_text,
    encode_messages,
    encode_prompt,
    end_token_ids,
)
from tests.helpers.races import a_step
from tests.helpers.tiny import TRAINED, prepared
from tests.helpers.tokenizers_of import EVERY_KIND, encode, sentencepiece, tokenizer_of

# Prompts


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
    chat = [{"role": "user", "content": " hi\n"}]
    wanted = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
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


FILTERS = ("trim", "upper", "lower", "title", "e", "tojson", "replace('a', 'b')", "replace('<image>', '')", "wordwrap")


def chat(template: str, *messages: tuple[str, str]) -> tuple[int, ...]:
    """The ids of (role, content) pairs, each written by that template; `content` and `role` are names in it."""
    tokenizer = sentencepiece(strip=False)
    loop = "{% for m in messages %}{% set role, content = m.role, m.content %}"
    tokenizer.chat_template = {"rag": "", "default": f"{loop}{template}{{% endfor %}}"}
    return encode_messages(tokenizer, [{"role": role, "content": text} for role, text in messages]).token_ids


@given(st.text(st.sampled_from('aB <>&"\n\tßé') | st.characters(codec="utf-8"), min_size=1), st.permutations(FILTERS))
@settings(max_examples=60)
def test_a_template_may_strip_escape_and_change_the_case_of_what_it_is_given(text, filters):
    """Most published templates would be refused for a prompt that ends in a line break."""
    assert chat(f"<{{{{ content | {' | '.join(filters[: len(text) % 5 + 1])} }}}}>", ("system", text), ("user", text))


@pytest.mark.parametrize(
    "template", ["{{ content[0].text }}", "{% for part in content %}{{ part['text'] | trim }}{% endfor %}"]
)
def test_a_template_that_reads_parts_alone_is_given_parts(template):
    """A picture model's template would drop the whole message, and an empty conversation be raced."""
    assert chat(template, ("user", "and")) == tuple(encode(sentencepiece(strip=False), "and"))


@pytest.mark.parametrize(
    ("template", "role"),
    [
        ("<|{{ role }}|>user", "system"),
        ("{% if role == 'user' %}{{ content }}{% endif %}", "system"),
        ("{{ messages[0].content }}", "user"),
        ("{{ content[:9] }}", "system"),
        ("{{ content.split()[-1] }}", "system"),
    ],
)
def test_a_template_that_leaves_something_out_is_refused(template, role):
    """The model would read another prompt than the page shows."""
    with pytest.raises(TemplateError, match=f"template 'default' leaves out what the message of role '{role}' says"):
        chat(template, ("system", "user"), ("user", "user"))


def test_what_the_model_said_itself_may_be_shortened():
    """A template that drops earlier thoughts, as those of reasoning models do, would be refused."""
    ids = chat("{{ content.split('</think>')[-1] }}", ("user", "a"), ("assistant", "b</think>c"), ("user", "d"))
    assert ids == tuple(encode(sentencepiece(strip=False), "acd"))


@pytest.mark.parametrize("name", THINKING)
def test_a_template_is_told_not_to_think_by_its_own_name(name):
    """A model would think all the same, without a word, and its drafter be judged by thoughts."""
    tokenizer = sentencepiece(strip=False)
    tokenizer.chat_template = f"{{{{ messages[0].content }}}}{{% if {name} %}}and{{% endif %}}"
    on, off = (encode_prompt(tokenizer, "a", chat=True, thinking=thinking).token_ids for thinking in (True, False))
    assert on[: len(off)] == off != on
    tokenizer.chat_template = "{{ messages[0].content }}"
    with pytest.raises(UsageError, match=name):
        encode_prompt(tokenizer, "a", chat=True, thinking=False)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_text_is_a_prompt(text):
    """A visitor's language or control characters would be refused."""
    check_prompt_text(text)


UNUSABLE = [
    ("", "empty"), ("a\0b", "NUL character at position 1"), ("ab\ud83d", r"U\+D83D, at position 2"),
    ("x" * (MAX_PROMPT_CHARS + 1), str(MAX_PROMPT_CHARS)), (b"x", "bytes"), (None, "NoneType"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), UNUSABLE)
def test_an_unusable_prompt_is_named(text, says):
    """Instead of one clear line the tokenizer would crash."""
    with pytest.raises(UsageError, match=says):
        encode_prompt(tokenizer_of("byte level"), text)


def test_every_end_token_is_known():
    """A model with several end tokens would write on after one of them."""
    config = SimpleNamespace(eos_token_id=1, text_config=SimpleNamespace(eos_token_id=[4]))
    ids = end_token_ids(config, SimpleNamespace(eos_token_id=[2, 106]), SimpleNamespace(eos_token_id=3))
    assert ids == {1, 2, 3, 4, 106}
    assert end_token_ids(SimpleNamespace(eos_token_id=None), None, SimpleNamespace(eos_token_id=None)) == frozenset()


def test_penalties_that_no_lane_applies_are_said_once(tmp_path):
    """A server applies them by default: what it accepts would be blamed on the server, or on the drafter."""
    model, given = prepared("llama"), {"repetition_penalty": 1.3, "no_repeat_ngram_size": 0, "suppress_tokens": [10]}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setattr(model.model.generation_config, name, value)
        says = "generation_config.json (repetition_penalty 1.3, suppress_tokens) are not applied here"
        assert circumstances(model)["runs"]["sentence"].count(says) == 1
    folder = shutil.copytree(TRAINED, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(given))
    assert [says in finding.says for finding in Checkup(str(folder), "ngram").before_weights()] == [True]
    assert "generation_config" not in circumstances(model)["runs"]["sentence"]


# Pieces and endings

TEXT = st.text(
    st.sampled_from("aabe nt ,\n\t\"'<>é€😀🏳\u200d\ufe0f한▁\ufffd\x01") | st.characters(exclude_categories=["Cs"]),
    max_size=30,
)


def completion_text(tokenizer, prompt_ids, token_ids) -> str:
    """What the tokenizer itself says that `token_ids` add to the prompt."""
    before = tokenizer.decode(prompt_ids)
    both = tokenizer.decode([*prompt_ids, *token_ids])
    assert both.startswith(before)
    return both[len(before) :]


def cut_up(data, items) -> list[list]:
    """The same items in consecutive groups, some of them empty."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=6)))
    return [list(items[a:b]) for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True)]


def completion(data, tokenizer) -> tuple[list[int], list[int]]:
    """A prompt, and token ids after it: of a text, or any at all where the decoder takes nothing back."""
    prompt_ids = tokenizer(data.draw(st.sampled_from(["a", "and 😀", "an <eos>", "▁", "x\n"])))["input_ids"]
    if data.draw(st.booleans()):
        return prompt_ids, encode(tokenizer, data.draw(TEXT))
    if tokenizer is tokenizer_of("byte level"):
        return prompt_ids, data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=20))
    first_byte, whole = tokenizer.convert_tokens_to_ids("<0x00>"), encode(tokenizer, "a")[-1:]
    ids: list[int] = [*whole]
    for chunk in data.draw(
        st.lists(
            st.integers(0, len(tokenizer) - 1) | st.sampled_from("é€😀\U000e0001") | st.binary(min_size=1, max_size=3),
            max_size=8,
        )
    ):
        if isinstance(chunk, int):
            ids += [] if first_byte <= chunk < first_byte + 256 else [chunk]
        elif isinstance(chunk, str):
            ids += [first_byte + byte for byte in chunk.encode()]
        elif not _has_whole_characters(chunk):  # broken bytes, apart from whole ones: decode would take those back
            ids += [*whole, *(first_byte + byte for byte in chunk), *whole]
    return prompt_ids, ids


def _has_whole_characters(data: bytes) -> bool:
    return data.decode(errors="ignore") != ""


@EVERY_KIND
@given(data=st.data())
def test_pieces_join_to_what_the_tokenizer_decodes(kind, data):
    """Lost spaces, emoji split into U+FFFD, text that depends on how steps are cut, or bytes of a rejected draft."""
    tokenizer = tokenizer_of(kind)
    prompt_ids, ids = completion(data, tokenizer)
    _, draft = completion(data, tokenizer)
    follows = [data.draw(st.integers(0, i)) for i in range(len(draft))]
    plain, peeking, flat = Pieces(tokenizer, prompt_ids), Pieces(tokenizer, prompt_ids), list[str]()
    for group in cut_up(data, ids):
        branches = [peeking.peek([draft[i] for i in path])[-1] for path in paths(follows)[1:]]
        assert [*peeking.peek(draft, follows)] == branches
        flat += plain.push(group)
        assert [*peeking.peek(group)] == [*peeking.push(group)] == flat[len(flat) - len(group) :]
    assert "".join(flat) + plain.flush() == completion_text(tokenizer, prompt_ids, ids)
    assert "".join(flat) + peeking.flush() == completion_text(tokenizer, prompt_ids, ids)
    assert tuple(flat) == Pieces(tokenizer, prompt_ids).push(ids)


@EVERY_KIND
@pytest.mark.parametrize("character", ["é", "한", "😀"])
def test_a_split_character_appears_with_its_last_token(kind, character):
    """Half an emoji would flash as U+FFFD, or a whole one would wait for the next word."""
    tokenizer = tokenizer_of(kind)
    pieces = Pieces(tokenizer, tokenizer("an")["input_ids"]).push(encode(tokenizer, character))
    assert "".join(pieces).strip() == pieces[-1].strip() == character and not any(p.strip() for p in pieces[:-1])


@EVERY_KIND
def test_what_is_left_incomplete_comes_out_in_the_end(kind):
    """A text cut inside a character would be shorter than its tokens, or hidden tokens show."""
    tokenizer = tokenizer_of(kind)
    prompt_ids = tokenizer("an")["input_ids"]
    split = next(ids for c in "\U000e0001\U0001f9ff😀" if len(ids := encode(tokenizer, f"a{c}")) > 2)[:-1]
    pieces = Pieces(tokenizer, prompt_ids, frozenset({tokenizer.eos_token_id}))
    shown = pieces.push([*split, tokenizer.eos_token_id])
    assert shown[-1] == "" and "\ufffd" not in "".join(shown)
    assert "".join(shown) + pieces.flush() == completion_text(tokenizer, prompt_ids, split)
    assert pieces.flush() == ""


def test_a_long_completion_costs_no_more_per_token_than_a_short_one(monkeypatch):
    """Decoding everything again at each token would make 10,000 tokens take minutes."""
    tokenizer = tokenizer_of("sentencepiece")
    ids = encode(tokenizer, "and an 😀, " * 2000)
    decoded = []
    decode = type(tokenizer).decode
    monkeypatch.setattr(
        type(tokenizer), "decode", lambda self, ids, **options: decoded.append(len(ids)) or decode(self, ids, **options)
    )
    Pieces(tokenizer, [2]).push(ids)
    assert len(ids) > 10_000 and sum(decoded) <= 2 * len(set(ids)) + 1


def test_ids_beyond_the_vocabulary_give_no_text():
    """A model whose matrix is padded beyond its tokenizer would crash the display when it samples such a row."""
    tokenizer = tokenizer_of("byte level")
    assert Pieces(tokenizer, [5]).push([len(tokenizer) + 7]) == ("",)


@EVERY_KIND
@given(data=st.data())
def test_a_completion_ends_at_the_same_token_however_steps_are_cut(kind, data):
    """Lanes would end at different tokens; a stop string across two steps would be missed."""
    tokenizer = tokenizer_of(kind)
    prompt_ids, ids = completion(data, tokenizer)
    full = "".join(Pieces(tokenizer, prompt_ids).push(ids))
    spans = [full[start : start + num] for start in range(len(full)) for num in range(1, 6)]
    stop = tuple(data.draw(st.lists(st.sampled_from([*spans, "zz", " a", "😀"]), max_size=2)))
    end_ids = frozenset(data.draw(st.lists(st.sampled_from(ids), max_size=1)) if ids else ())
    params = SamplingParams(stop=stop, max_new_tokens=data.draw(st.integers(1, len(ids) + 1)))

    expected = None, len(ids)
    reference, text = Pieces(tokenizer, prompt_ids, end_ids), ""
    for count, token in enumerate(ids, 1):
        text += "".join(reference.push([token]))
        ends = {"stop": token in end_ids, "stop_string": any(s in text for s in stop)}
        ends["length"] = count == params.max_new_tokens
        if reasons := [reason for reason, is_so in ends.items() if is_so]:
            expected = reasons[0], count
            break

    ending = StopAt(params, end_ids, Pieces(tokenizer, prompt_ids, end_ids) if stop else None)
    kept, reason = 0, None
    for group in cut_up(data, ids):
        was_over = ending.reason is not None
        num_kept, reason = ending.cut(group)
        assert num_kept <= len(group) and (not was_over or num_kept == 0) and reason == ending.reason
        kept += num_kept
    assert (reason, kept) == expected


@given(TEXT, st.lists(st.text("ab, ", min_size=1, max_size=3), max_size=3))
def test_a_lanes_text_is_what_stands_before_every_stop_string(text, stop):
    """The stop string, or text after it, would be shown."""
    lane = [LaneEvent("a", 0.0, replace(a_step(1.0), pieces=tuple(text)))]
    shown = text_of(lane, "a", tuple(stop))
    assert text.startswith(shown) and not any(s in shown for s in stop)
    assert shown == text or any(text.startswith(s, len(shown)) for s in stop)
