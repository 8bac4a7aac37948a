"""Text towers of composite models: the whole model's logits for text from its decoder's weights alone, or a refusal."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, PreTrainedModel

from engine.core.errors import UsageError
from engine.loading.loading import load
from engine.loading.random_targets import build as random_weights
from engine.runner.prepare import prepare
from tests.helpers.tiny import BASE, TRAINED, build, random_ids

VISION = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "depth": 1, "embed_dim": 32, "num_heads": 2, "out_hidden_size": BASE["hidden_size"],
}  # fmt: skip
TEXT = {**BASE, "vocab_size": 2048, "tie_word_embeddings": False}
SECTIONS = {"mrope_section": [4, 2, 2]}
THREE = {"rope_theta": 1e6, "rope_scaling": {**SECTIONS, "type": "mrope"}}
THREE_MIXED = {"rope_theta": 1e6, "rope_scaling": {**SECTIONS, "rope_type": "default", "mrope_interleaved": True}}
OLD = "language_model.model.", "language_model.lm_head."
# A composite's class, its text part, and where its published checkpoints have the decoder and the output layer.
COMPOSITES: dict[str, tuple[str, dict[str, Any], tuple[str, str]]] = {
    "mistral3": ("Mistral3ForConditionalGeneration", {"model_type": "mistral"}, OLD),
    "llava": ("LlavaForConditionalGeneration", {"model_type": "llama"}, OLD),
    "idefics3": ("Idefics3ForConditionalGeneration", {"model_type": "llama"}, ("model.text_model.", "lm_head.")),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", THREE, ("model.", "lm_head.")),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", THREE_MIXED, ("model.language_model.", "lm_head.")),
}


def composite(kind: str, folder: Path, tied: bool = False) -> PreTrainedModel:
    """A tiny random one, saved in that folder as models of its kind are published."""
    name, text, (decoder, head) = COMPOSITES[kind]
    given = {"vision_config": VISION, "text_config": TEXT | text, "tie_word_embeddings": False, "image_token_id": 2000}
    model = build(getattr(transformers, name), CONFIG_MAPPING[kind].from_dict(given))
    config = model.config.to_dict() | {"tie_word_embeddings": tied}
    if kind == "qwen2_vl":  # published flat
        config = {**config.pop("text_config"), **config}
    (folder / "config.json").write_text(json.dumps(config))
    places, weights = {"model.text_model.": decoder, "model.language_model.": decoder, "lm_head.": head}, {}
    for key, value in model.state_dict().items():
        own = next((own for own in places if key.startswith(own)), "")
        weights[places.get(own, "") + key.removeprefix(own)] = value.clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TRAINED / file, folder)
    return model


@torch.inference_mode()
def logits(model: PreTrainedModel) -> torch.Tensor:
    return model(input_ids=torch.tensor([random_ids(40, 2048)]), use_cache=False).logits


@pytest.mark.parametrize("kind", COMPOSITES)
def test_a_tower_is_the_whole_model_for_text(kind: str, tmp_path: Path) -> None:
    """A model of images could not be raced, or be raced as another; its vision tower would take memory for nothing."""
    whole = composite(kind, tmp_path)
    model = load(str(tmp_path), "float32").model
    assert torch.equal(logits(model), logits(whole))
    drawn = random_weights(tmp_path / "config.json", torch.float32, torch.device("cpu"))
    num_of_text = sum(weight.numel() for weight in whole.get_decoder().parameters()) + whole.lm_head.weight.numel()
    assert model.num_parameters() == drawn.num_parameters() == num_of_text
    prepare(model)


@pytest.mark.parametrize("tied", [False, True])
def test_the_whole_model_decides_what_the_output_layer_is(tied: bool, tmp_path: Path) -> None:
    """Mistral 3's configurations say tied by default and not tied in the text's part, and have an output layer. A norm
    that the decoder alone does not know would be left out without a word."""
    whole = type(composite("mistral3", tmp_path, tied))
    weights = load_file(file := tmp_path / "model.safetensors")
    assert torch.equal(logits(load(str(tmp_path), "float32").model), logits(whole.from_pretrained(tmp_path).eval()))
    save_file({**weights, "language_model.model.layers.0.q_norm.weight": torch.ones(1)}, file, {"format": "pt"})
    with pytest.raises(UsageError, match=r"MistralForCausalLM: 1 parameters are too many, such as model\.layers\.0\."):
        load(str(tmp_path), "float32")
    del weights[OLD[1] + "weight"]
    save_file(weights, file, {"format": "pt"})
    if tied:
        assert torch.equal(logits(load(str(tmp_path), "float32").model), logits(whole.from_pretrained(tmp_path).eval()))
        return
    with pytest.raises(UsageError, match=r"1 parameters are missing, such as lm_head\.weight"):
        load(str(tmp_path), "float32")
