"""A folder's tokenizer gives the ids of its tokenizer.json, and has every chat template of the folder."""

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from engine.loading.sources import find
from engine.loading.tokenizer_files import read_tokenizer
from engine.text import encode_prompt
from tests.helpers.hub import ask_at, config_hub
from tests.helpers.tiny import TRAINED

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
WORDS = [*SPECIAL, *map(chr, range(33, 127)), *"▁éß ", "ab", "12", "1a", "▁a"]
TEXTS = ("ab 12 12ab", "z12  abz é", "<s>ab</s> x", "  a", "A\nb", "ﬁ Äb")


def write(folder: Path, **config: object) -> Tokenizer:
    """A tokenizer.json like no class's own, beside a configuration that says otherwise."""
    ids = {word: i for i, word in enumerate(WORDS)}
    made = Tokenizer(models.BPE(ids, [("a", "b"), ("1", "2"), ("1", "a"), ("▁", "a")], unk_token="<unk>"))
    made.add_special_tokens(SPECIAL)
    made.normalizer = normalizers.Sequence([normalizers.Replace("z", "a"), normalizers.Prepend("▁")])
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"\d|[a-z]+|[^a-z\d]"), "isolated")
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    made.decoder = decoders.Replace("▁", " ")
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"unk_token": "<unk>", "add_bos_token": False, **config}))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return made


def test_the_ids_are_those_of_the_file_whatever_its_class(tmp_path):
    """A model that borrowed a class would be raced on other tokens than it was trained on, called identical."""
    rebuilt = {"GPT2Tokenizer", "LlamaTokenizer", "Qwen2Tokenizer", "GemmaTokenizer", "CohereTokenizer"}
    for name in rebuilt | {*filter(None, TOKENIZER_MAPPING_NAMES.values())}:
        alone = write(tmp_path, tokenizer_class=name, eos_token="</s>")
        wanted = [alone.encode(text).ids for text in TEXTS]
        tokenizer = read_tokenizer(tmp_path)
        assert [list(tokenizer(text)["input_ids"]) for text in TEXTS] == wanted, name
        assert [tokenizer.decode(ids) for ids in wanted] == [alone.decode(ids, False) for ids in wanted], name
        if name in rebuilt:
            assert AutoTokenizer.from_pretrained(tmp_path)(list(TEXTS))["input_ids"] != wanted, "as transformers has it"


def test_what_other_files_and_the_class_say_is_kept(tmp_path):
    """A template would write no BOS, or a text go on after its end."""
    write(tmp_path, tokenizer_class="LlamaTokenizer", pad_token="<pad>", chat_template="{{ x }}")
    by_class = read_tokenizer(tmp_path)
    assert (by_class.bos_token, by_class.eos_token, by_class.pad_token) == ("<s>", "</s>", "<pad>")
    assert by_class.chat_template == "{{ x }}" and by_class.eos_token_id == 2
    write(
        tmp_path, tokenizer_class="GPT2Tokenizer", bos_token="</s>", added_tokens_decoder={"500": {"content": "<new>"}}
    )
    stated = read_tokenizer(tmp_path)
    assert (stated.bos_token, stated.eos_token) == ("</s>", None), "the class's own is in no vocabulary"
    assert "<new>" in stated.get_added_vocab() and stated.convert_tokens_to_ids("</s>") == 2


DEFAULT, RAG = "{{ messages[0]['content'] }}", "{{ documents }}"
NAMED = [{"name": "rag", "template": RAG}, {"name": "default", "template": DEFAULT}]


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template.json": json.dumps({"chat_template": DEFAULT})},
        {"chat_template.jinja": DEFAULT},
        {"chat_template.jinja": DEFAULT, "additional_chat_templates/rag.jinja": RAG},
        {"tokenizer_config.json": json.dumps({"chat_template": NAMED, "unk_token": "<unk>"})},
    ],
    ids=lambda files: " ".join(files),
)
def test_chat_templates_are_found_wherever_they_are_published(files, tmp_path):
    """A chat model would be refused a chat, or sent it as another template writes it."""
    alone = write(tmp_path, tokenizer_class="GPT2Tokenizer")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    tokenizer = read_tokenizer(tmp_path)
    assert ("rag" in tokenizer.chat_template) == (RAG in str(files))
    assert list(encode_prompt(tokenizer, "ab", chat=True).token_ids) == alone.encode("ab", add_special_tokens=False).ids


def test_templates_in_a_subfolder_are_fetched_and_other_subfolders_are_not(monkeypatch, tmp_path):
    """A repository's named templates would be missing, or its copies in other formats be fetched, GBs of them."""
    folder = Path(shutil.copytree(TRAINED, tmp_path / "model"))
    others = (f"onnx/{name}" for name in ("config.json", "model.safetensors", "model-1.safetensors"))
    names = ("additional_chat_templates/rag.jinja", *others)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(RAG)
    with config_hub(monkeypatch, {"owner/tiny": folder}) as hub:
        ask_at(monkeypatch, hub.address, tmp_path / "hub")
        fetched = find("owner/tiny").folder
    assert [(fetched / name).is_file() for name in names] == [True, False, False, False]
    assert read_tokenizer(fetched).chat_template["rag"] == RAG
