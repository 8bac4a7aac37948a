"""Prompts are read as they were meant, or the bad line is named; the verdict on speed-ups says what it rests on."""

import csv
import gzip
import io
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.analysis.verdict_words import THRESHOLD
from engine.cli.commands import read_prompts_file
from engine.core.errors import UsageError
from engine.studies.prompts.data_files import text_of
from engine.studies.prompts.pays import interval, of_speedups, report
from engine.studies.prompts.pays_words import LEAST
from engine.studies.prompts.prompts import MAX_PROMPTS, FilePrompt, choose, digest, flat, json_lines, read_prompts
from engine.studies.prompts.rows import Row
from engine.studies.prompts.study_file import open_study, result
from engine.text import encode_prompt
from tests.helpers.tokenizers_of import tokenizer_of

CHAT = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"})


def prompts_of(text, name, **how):
    return read_prompts(text, name, **how).prompts


def test_every_format_is_read_with_its_kind():
    """Spec-Bench's file, a log of conversations or a plain list of prompts could not be raced, or lost its kinds."""
    lines = [
        {"prompt": "a\nb", "kind": "code"},
        {"messages": CHAT, "task": "chat"},
        {"text": "x", "kind": "", "task": 1},
    ]
    prompts = prompts_of("\ufeff" + "\r\n\n".join(map(json.dumps, lines)), "mine.txt")
    assert [(p.line, p.kind, p.text) for p in prompts] == [(1, "code", "a\nb"), (3, "chat", "hi"), (5, "prompts", "x")]
    assert prompts[1].messages == (("system", "be brief"), ("user", "hi"))
    assert [p.text for p in prompts_of(' def f():\r\n\n{"a": 1', "mine.txt")] == [" def f():", '{"a": 1']
    assert prompts_of('{"instruction": "one", "context": "two"}', "")[0].text == "one\n\ntwo"
    assert prompts[0].label == "a b" and len(FilePrompt(1, "x", "word " * 99).label) == 80


def test_a_conversation_goes_through_the_template_and_a_turn_where_there_is_one(monkeypatch):
    """A chat model would be raced on bare text, or a base model refused Spec-Bench."""
    tokenizer = tokenizer_of("byte level")
    chat, turn = prompts_of(f"{json.dumps({'messages': CHAT})}\n{json.dumps({'turns': ['hi']})}", "x.jsonl")
    wanted = tokenizer.apply_chat_template(list(CHAT), add_generation_prompt=True, return_dict=True)["input_ids"]
    assert list(chat.encode(tokenizer).token_ids) == wanted
    assert turn.encode(tokenizer) == encode_prompt(tokenizer, "hi", chat=True)
    monkeypatch.setattr(tokenizer, "chat_template", None)
    assert turn.encode(tokenizer) == encode_prompt(tokenizer, "hi")
    with pytest.raises(UsageError, match="line 1: this model has no chat template"):
        chat.encode(tokenizer)


def test_chats_are_flattened_for_a_model_without_a_template():
    """A base model would be refused a log of chats, or be given one in a form that nobody can look up."""
    (chat,) = prompts_of(json.dumps({"messages": CHAT, "task": "t"}), "x.jsonl", flatten=True)
    assert chat == FilePrompt(1, "t", "system: be brief\n\nuser: hi\n\nassistant:")
    assert chat.text == flat([(message["role"], message["content"]) for message in CHAT])
    turn = json.dumps({"turns": ["hi"]})
    assert prompts_of(turn, "x.jsonl", flatten=True) == prompts_of(turn, "x.jsonl")


def test_one_text_is_one_prompt_unless_it_is_json_lines():
    """An e-mail would be cut into as many prompts as it has lines."""
    mail = "Dear all,\n\nplease read this.\r\n  Yours\n"
    assert prompts_of(mail, "pasted text", whole=True) == [FilePrompt(1, "prompts", mail)]
    assert [p.line for p in prompts_of(mail, "mail.txt")] == [1, 3, 4]
    assert [p.text for p in prompts_of("\ufeffa\n\ufeffb", "joined.txt")] == ["a", "b"]
    assert [p.text for p in prompts_of('{"prompt": "a"}\n{"prompt": "b"}', "", whole=True)] == ["a", "b"]


# a line of JSON -> what is wrong with it
LINES = {
    '{"prompt": "a"': "it is not JSON",
    "[1]": "not an object, a text or a list of messages, but a list",
    '{"answer": "a"}': "none of prompt, messages, .*, text, .*, but: 'answer'",
    '{"prompt": 3}': "must be text, not int",
    '{"prompt": ""}': "the prompt is empty",
    '{"prompt": "a\\u0000"}': "NUL character at position 1",
    '{"turns": []}': "turns has no turn of a user",
    '{"turns": "a"}': "turns must be a list of texts",
    '{"turns": [{"role": "assistant", "content": "a"}]}': "turns has no turn of a user",
    '{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"]}': "prepare_data.py",
    '{"messages": []}': "messages must be a list, not empty",
    '{"messages": [{"content": "a"}]}': "objects with role and content",
    '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}': "no text, but 'image_url'",
    '{"messages": [{"role": "assistant", "content": "a"}]}': "nothing but answers",
    '[{"role": "assistant", "tool_calls": [{}]}, {"role": "tool", "content": "b"}]': "calls tools",
    '{"prompt": "a", "prompt": "b"}': "duplicate key",
}


def in_cells(prompts, **how):
    rows = csv.writer(file := io.StringIO(), **how)
    rows.writerows([("Category", "prompt", "more"), *((kind, text, "") for text, kind in prompts)])
    return file.getvalue()


def in_lines(entry):
    return lambda prompts: "\n".join(json.dumps({"task": kind, **entry(text)}) for text, kind in prompts)


def said(text):
    return [{"role": "user", "content": text}, {"role": "assistant", "content": None, "tool_calls": [{}]}]


# name of the file -> the text that it has for (text, kind) pairs
FORMS = {
    "indented.json": lambda prompts: json.dumps([{"text": text, "kind": kind} for text, kind in prompts], indent=1),
    "array": lambda prompts: json.dumps([{"prompt": text, "kind": kind} for text, kind in prompts]),
    "sheet.csv": in_cells,
    "joined.csv": lambda prompts: "".join(f"\ufeff{in_cells([prompt])}" for prompt in prompts),
    "of_excel.CSV": lambda prompts: in_cells(prompts, delimiter=";"),
    "sheet.tsv": lambda prompts: in_cells(prompts, delimiter="\t"),
    "unicode_text.txt": lambda prompts: in_cells(prompts, delimiter="\t"),
    "with_a_hint.csv": lambda prompts: "SEP=|\r\n" + in_cells(prompts, delimiter="|"),
    "page_of_the_hub.json": lambda prompts: json.dumps(
        {"features": [{}], "rows": [{"row_idx": 1, "row": {"query": text, "kind": kind}} for text, kind in prompts]}
    ),
    "gsm8k": in_lines(lambda text: {"prompt": None, "question": text, "answer": "x"}),
    "humaneval.jsonl": in_lines(lambda text: {"task_id": "a/0", "prompt": text, "canonical_solution": "x"}),
    "alpaca.ndjson": in_lines(lambda text: {"Instruction": text, "Input": float("nan"), "Output": "x"}),
    "mt_bench": in_lines(lambda text: {"question_id": 81, "turns": [text, "two"]}),
    "mt_bench_of_the_hub": in_lines(lambda text: {"prompt": [text, "two"], "prompt_id": 1}),
    "aiperf": in_lines(lambda text: {"type": "multi_turn", "turns": [{"text": text, "delay": 0}, {"text": "two"}]}),
    "turns_with_roles": in_lines(lambda text: {"turns": [{"role": "system", "content": "s"}, *said(text)]}),
    "speed_bench": in_lines(lambda text: {"messages": [*said(text)[:1], *said("two")[:1]]}),
    "sharegpt": in_lines(
        lambda text: {"conversations": [{"from": "gpt", "value": "x"}, {"from": "human", "value": text}]}
    ),
    "lmsys.jsonl": in_lines(lambda text: {"conversation": said(text), "turn": 1}),
    "trl.jsonl": in_lines(lambda text: {"prompt": said(text)}),
    "parts.jsonl": in_lines(lambda text: {"input": said([{"type": "input_text", "text": text}])}),
    "batch.jsonl": in_lines(lambda text: {"custom_id": "a", "body": {"model": "m", "messages": said(text)}}),
    "texts": lambda prompts: json.dumps([text for text, _ in prompts], indent=1),
    "chats.json": lambda prompts: "\n".join(json.dumps(said(text)) for text, _ in prompts),
}
PACKED = {"utf-8": str.encode, "utf-8-sig": lambda text: text.encode("utf-8-sig"), "gz": lambda text: gzip.compress(
    text.encode()), "utf-16": lambda text: text.encode("utf-16")}  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from('\r\n",;\t{['), min_size=1)
PAIRS = st.lists(st.tuples(TEXT, st.sampled_from(["a", "b c"])), min_size=1, max_size=4)


def of_bytes(data, name):
    return read_prompts(text_of(data, name, 10_000), name)


@given(PAIRS)
@settings(max_examples=25)
def test_every_form_of_the_same_prompts_gives_the_same_prompts(pairs):
    """Halves of cells would be raced as prompts, or an answer as one; or the page race others than the command."""
    for name, form in FORMS.items():
        for pack in PACKED.values():
            file = of_bytes(pack(form(pairs)), name)
            wanted = [(text, "prompts" if name in ("texts", "chats.json") else kind) for text, kind in pairs]
            assert [(p.text, p.kind) for p in file.prompts] == wanted
            assert file.left_out == "" and prompts_of(json_lines(file.prompts), "") == file.prompts


@given(PAIRS, st.sampled_from(sorted(FORMS)), st.sampled_from(sorted(PACKED)), st.data())
@settings(max_examples=300)
def test_a_damaged_file_ends_in_prompts_or_a_sentence(pairs, name, pack, data):
    """A download that broke off would end in a traceback."""
    whole = PACKED[pack](FORMS[name](pairs))
    place, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.binary(max_size=2))
    damaged = whole[:place] + (byte + whole[place + 1 :] if byte else b"")
    try:
        file = of_bytes(damaged, name)
    except UsageError:
        return
    assert prompts_of(json_lines(file.prompts), "") == file.prompts != []


def test_a_few_odd_entries_are_left_out_and_counted(tmp_path, capsys):
    """One chat with tool calls among a thousand would stop everything, or all those of ShareGPT without a person."""
    lines = ['{"prompt": "a"}'] * 21
    lines[16], lines[3] = '{"answer": 1}', '{"conversations": []}'
    file = read_prompts("\n".join(lines), "x.jsonl")
    assert len(file.prompts) == 19 and file.says == "19 prompts (JSON lines)"
    assert file.left_out == "2 of 21 entries were left out: line 4: nobody says anything in it but the assistant"
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert read_prompts_file(str(tmp_path / "x.jsonl")) == file.prompts
    assert capsys.readouterr().err.endswith(f"x.jsonl': {file.left_out}\n")
    with pytest.raises(UsageError, match=r"^line 6: .*; 3 of 21 entries cannot be read"):
        prompts_of("\n".join(['{"prompt": 1}' if i in (5, 6) else line for i, line in enumerate(lines)]), "")


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        *(
            (b'{"prompt": "a"}\n%s\n' % line.encode(), "a.jsonl", f"^line 2: .*{words}")
            for line, words in LINES.items()
        ),
        (b"\n \n", "x", "it holds no prompt"),
        (b'[{"conversations": []}]', "sharegpt.json", "it holds no prompt; entry 1: nobody says anything in it"),
        (b"a: b\n", "a.yaml", r"\(.yaml\) is not read; what is: JSON, JSON lines, CSV"),
        (b"PK\3\4\xff", "a.xlsx", r"\(.xlsx\) is not read"),
        (b"a\nb", "a.conf", r"\(.conf\) is not read"),
        (b"id,answer\n1,2\n", "a.csv", "its columns are 'id', 'answer'; there must be one of prompt, "),
        (b'prompt\n"a"b\n', "a.csv", "line 2: it is no row of CSV"),
        (b"prompt,kind\na\n", "a.csv", "line 2: its cells are 1, not 2 as in the header"),
        ("é".encode("latin-1"), "a.txt", r"is not UTF-8 text: byte 0 is b'\\xe9'; save it as UTF-8"),
        ("ab".encode("utf-16-le"), "a.txt", "UTF-16 without its mark"),
        ("ab".encode("utf-16")[:-1], "a.txt", "not UTF-16 text"),
        (gzip.compress(b"a" * 10_001, mtime=0), "a.txt.gz", "more than 10,000 bytes"),
        (gzip.compress(b"abc", mtime=0)[:-9], "a.txt", "damaged gzip"),
        (b"PAR1", "a", "it is Parquet: pip install pyarrow"),
        (b'[\n "a",\n "b"\n', "a.json", "it is not JSON: Expecting ',' delimiter: line 4"),
    ],
)
def test_what_cannot_be_read_is_named(monkeypatch, data, name, words):
    """A spreadsheet would be raced line by line; or the wrong line among 200 have to be looked for."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=words):
        of_bytes(data, name)


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
    one = '{"prompt": "a"}'
    texts = [one, f"\n{one}", '{"prompt": "b"}', '{"prompt": "a", "kind": "k"}', '{"turns": ["a"]}']
    assert len({digest(prompts_of(text, "x.jsonl")) for text in texts}) == len(texts)


# The verdict

SPEEDUPS = st.lists(st.floats(0.5, 4), min_size=LEAST, max_size=12)
RANK = {"do not ship": 0, "unclear": 1, "ship": 2}
TARGET = "gemma-3-270m"


def rows(values: Sequence[float | None], drafter: str = "ngram", **more) -> list[Row]:
    """Rows of this speed-up, at auto as at a fixed k of 5."""
    common = {"noise": 0.02, "acceptance_rate": 0.5, "mean_acceptance_length": 1.5, "num_tokens": 9, "identical": True}
    table = []
    for line, value in enumerate(values, 1):
        fields = {**common, "computed": {"auto": value, "5": value} if value else {}, **more}
        table.append(Row(line, f"p{line}", "ab"[line % 2], drafter, "auto", value, **fields))
    return table


@given(SPEEDUPS, st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_of_the_rows_does_not_matter(values, rng):
    """A file sorted in another way, or a study that was interrupted, would have another verdict."""
    two = rows(values) + rows([value * 0.9 for value in values], "eagle3")
    assert report(rng.sample(two, len(two)), TARGET) == report(two, TARGET)


@given(SPEEDUPS, st.floats(1.01, 2))
@settings(max_examples=15)
def test_faster_is_never_judged_worse(values, factor):
    """Speed-ups that all grow could turn a yes into a no."""
    faster = [value * factor for value in values]
    assert RANK[of_speedups(faster)] >= RANK[of_speedups(values)]
    assert interval(faster) == pytest.approx([factor * bound for bound in interval(values)])
    assert min(values) <= interval(values)[0] <= interval(values)[1] <= max(values)


@given(st.lists(st.floats(THRESHOLD + 0.01, 9), min_size=LEAST, max_size=12), st.booleans())
@settings(max_examples=15)
def test_all_above_ships_and_all_below_does_not(values, above):
    """The plainest cases would be called unclear, or the wrong way round."""
    values = values if above else [1.69 / value for value in values]
    study = report(rows(values), TARGET)
    assert study["verdict"] == ("ship" if above else "do not ship") and "computed" in study["reason"]
    assert study["best"]["saving"] == pytest.approx(1 - 1 / study["best"]["median_speedup"])


def test_one_slow_prompt_of_many_does_not_decide_and_a_split_is_unclear():
    """A median is asked for; but half above and half below says nothing."""
    assert report(rows([2.0] * 19 + [0.5]), TARGET)["verdict"] == "ship"
    assert report(rows([2.0] * 10 + [0.9] * 10), TARGET)["verdict"] == "unclear"


@pytest.mark.parametrize("num", range(LEAST))
def test_few_prompts_are_no_verdict(num):
    """Two lucky prompts would decide; and what could not be measured would count as a prompt."""
    study = report(rows([9.0] * num + [None]), TARGET)
    assert study["verdict"] == "unclear"
    assert (f"at least {LEAST} measured prompts; there are {num}." if num else "No prompt's race") in study["reason"]


def test_it_is_said_where_texts_that_repeat_themselves_carry_the_verdict():
    """Loops are easy to guess: a model that only loops would be shipped for it, and nobody would be told."""
    plain, loops = rows([1.1] * 6), rows([3.0] * 14, loops=True)
    study = report([*plain, *(replace(row, line=row.line + 9) for row in loops)], TARGET)
    assert study["verdict"] == "ship" and study["doubtful"]
    assert study["best"]["without"] == {"num_prompts": 6, "median_speedup": 1.1, "verdict": "do not ship"}
    assert "without them: 1.10x" in study["reason"]
    assert "14 of 20 texts repeat themselves" in study["reason"] and "would be: do not ship" in study["reason"]
    mixed = report([*rows([2.0] * 6), *(replace(row, line=row.line + 9) for row in loops)], TARGET)
    assert mixed["verdict"] == "ship" and "14 of 20 texts repeat themselves" in mixed["reason"]
    assert not mixed["doubtful"]


def test_it_is_said_where_disturbed_races_carry_the_verdict():
    """A busy machine would ship a drafter, in green."""
    calm, busy = rows([1.2] * 6), rows([2.0] * 14, disturbed=True)
    study = report([*calm, *(replace(row, line=row.line + 9) for row in busy)], TARGET)
    assert study["verdict"] == "ship" and study["doubtful"] and "14 of 20 races were disturbed" in study["reason"]


def test_texts_that_differ_are_part_of_the_verdict():
    """A server that writes something else would be shipped for its speed."""
    same, other = rows([2.0] * 9, "spec"), rows([2.0] * 3, "spec", identical=False)
    study = report([*same, *(replace(row, line=row.line + 9) for row in other)], TARGET)
    assert study["best"]["num_other_texts"] == 3 and "3 of 12 texts differ from plain decoding's" in study["reason"]
    assert report(same, TARGET)["best"]["num_other_texts"] == 0
    assert not study["best"]["by_time_only"] and "by time only" not in study["reason"]
    silent = report([replace(row, mean_acceptance_length=None) for row in same], TARGET)
    assert silent["best"]["by_time_only"] and "by time only since its server reports no drafts" in silent["reason"]


@pytest.mark.parametrize("hub", [False, True])
def test_the_verdict_is_about_the_best_that_a_server_can_run(hub):
    """ "Ship" for a drafter that no server has; or for automatic lengths, which none has either."""
    hybrid = "hybrid:ngram+eagle3" + ":owner/head" * hub
    slow, fast = rows([1.4] * 6, computed={"auto": 1.9, "3": 1.5, "7": 1.6}), rows([1.9] * 5 + [0.95], hybrid)
    study = report([row for pair in zip(slow, fast, strict=True) for row in pair], TARGET)
    best, engine = study["best"], study["engine"]
    if hub:
        assert (best["drafter"], best["k"], best["median_speedup"], engine) == (hybrid, 5, 1.9, None)
        assert "5 faster, 0 within the noise, 1 slower" in study["reason"]
    else:
        assert (best["drafter"], best["k"], best["median_speedup"]) == ("ngram", 7, 1.6) and not best["measured"]
        assert engine == {"drafter": hybrid, "k": "auto", "median_speedup": 1.9, "measured": True}
        assert study["reason"].startswith("At k = 7, n-gram (copies earlier text) is computed at 1.60x")
    assert study["verdict"] == "ship" and list(study["summary"]) == ["ngram", hybrid]
    alone = report(fast, TARGET)
    assert (alone["best"] is None) != hub and (alone["verdict"] == "unclear") != hub
    assert ("No server runs what was raced here" in alone["reason"]) != hub
    assert report(slow, "random:x")["best"] is None


def test_a_saved_study_opens_again():
    """Results that nobody can look at again; or a stranger's file that is shown with a verdict of its own making."""
    mine, said = rows([2.0] * 4, fault="x", loops=True, disturbed=True), {"scope": "here", "ribbons": []}
    saved = json.dumps({**result(mine, TARGET, said), "verdict": "do not ship"})
    study = open_study(saved)
    assert study == (mine, TARGET, said)
    head = {"format": "photofinish-study", "target": TARGET, "about": {"said": said}}
    assert open_study("\n".join(json.dumps(record) for record in [head, *(row.to_json() for row in mine)])) == study
    assert open_study(json.dumps({**head, "about": {}}) + "\n" + json.dumps(mine[0].to_json()))[2] == {}
    broken = [row.to_json() for row in mine]
    for change in ({"computed": {"x": 1}}, {"computed": {"5": -1}}, {"speedup": -1.0}, {"drafter": "medusa"}):
        with pytest.raises(UsageError):
            open_study(json.dumps({**json.loads(saved), "rows": [{**broken[0], **change}]}))
    changed = (json.dumps({**json.loads(saved), **change}) for change in ({"format": "other"}, {"rows": []}))
    alone = json.dumps(head)
    for text in ("", "[]", "{}", "null", saved[:99], *changed, alone, f"{alone}\n3", "\udc80"):
        with pytest.raises(UsageError):
            open_study(text)


def test_within_the_noise_is_neither_gain_nor_loss():
    """A drafter that drafts nothing would be said to lose on half of the prompts."""
    summary = report(rows([1.01, 0.99, 1.5, 0.7, 1.0], disturbed=True), TARGET)["summary"]["ngram"]
    assert (summary["num_gain"], summary["num_lose"], summary["num_prompts"]) == (1, 1, 5)
