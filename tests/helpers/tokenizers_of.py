"""Real tokenizers of the three kinds there are: byte-level, sentencepiece with byte tokens, and the default model's."""

from functools import cache

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.helpers.tiny import TRAINED

KINDS = ("byte level", "sentencepiece", "sentencepiece, leading space stripped")
EVERY_KIND = pytest.mark.parametrize("kind", [*KINDS, pytest.param("default model", marks=pytest.mark.slow)])


def sentencepiece(strip: bool):
    """A small vocabulary of sentencepiece's kind: byte tokens for what it lacks, BOS in front, spaces as U+2581."""
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdent,.\n"]
    words += ["▁▁", "▁a", "an", "▁and", "▁an", "de", "€"]
    merges = [("▁", "▁"), ("▁", "a"), ("a", "n"), ("▁a", "n"), ("▁an", "d"), ("d", "e")]
    ids = {word: i for i, word in enumerate(words)}
    inner = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    inner.normalizer = normalizers.Replace(" ", "▁")
    inner.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if strip else [])])
    inner.add_tokens([AddedToken("<tool é>", normalized=False)])
    special = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "pad", "unk")}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **special)


@cache
def tokenizer_of(kind: str):
    if kind == "byte level":
        return AutoTokenizer.from_pretrained(TRAINED)
    if kind == "default model":
        from engine.loading.default_model import converted, load_tokenizer

        return load_tokenizer(converted())
    return sentencepiece(strip="strip" in kind)


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]
