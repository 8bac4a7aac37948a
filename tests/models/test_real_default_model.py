"""The default model itself: converted in time, it speaks; and its tokenizer."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from engine.cache import ENVIRONMENT_VARIABLE
from engine.models.default_model import NAME, converted, load_tokenizer
from engine.models.loading import load


def contents(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {f"{NAME}.lock"}


@pytest.mark.slow
def test_the_real_model_converts_in_time_and_speaks(tmp_path, monkeypatch):
    """The first start would take minutes, the next ones too, or the weights be another model's."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    started = time.perf_counter()
    folder = converted()
    assert time.perf_counter() - started < 150
    assert contents(tmp_path) == {NAME} and not list(tmp_path.rglob("*.gguf"))
    loaded = load(dtype="bfloat16")
    assert loaded.info.digest == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert {p.dtype for p in loaded.model.parameters()} == {torch.bfloat16}
    assert {type(m).__name__ for m in loaded.model.modules() if hasattr(m, "weight")} == {
        "Linear",
        "Gemma3RMSNorm",
        "Gemma3TextScaledWordEmbedding",
    }
    ids = loaded.tokenizer(
        "The sun rises in the east and sets in the west. Water is made of hydrogen and oxygen.", return_tensors="pt"
    )["input_ids"]
    with torch.inference_mode():
        nats_per_token = float(loaded.model(input_ids=ids, labels=ids).loss)
    assert nats_per_token < 3, "chance is 12.5"


@pytest.mark.slow
def test_the_fast_tokenizer_is_the_one_of_autotokenizer():
    """Loaded the quick way, the default model would see other tokens than the same model elsewhere."""
    folder = converted()
    quick, full = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    assert quick.backend_tokenizer.to_str() == full.backend_tokenizer.to_str()
    assert (
        quick.all_special_ids == full.all_special_ids
        and quick.eos_token_id == full.eos_token_id == 1
        and quick.bos_token_id == full.bos_token_id == 2
    )
    texts = [
        "",
        " ",
        "  a",
        "a ",
        "\n\n\tx\r\n",
        "<bos>a<eos>",
        'id,name\n1,"a b"\n',
        "def f(x):\n    return x  # é\n",
        "👩‍👩‍👧 한글 €\x01\x7f",
        "▁a <0x41> <unk>[multimodal]",
    ]
    for text in texts:
        ids = full(text)["input_ids"]
        assert quick(text)["input_ids"] == ids and ids[0] == 2
        assert quick(text, add_special_tokens=False)["input_ids"] == full(text, add_special_tokens=False)["input_ids"]
        assert quick.decode(ids) == full.decode(ids) and quick.decode(ids[1:], skip_special_tokens=True) == full.decode(
            ids[1:], skip_special_tokens=True
        )
