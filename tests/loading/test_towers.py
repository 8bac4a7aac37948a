"""Text towers of composite models: the whole model's logits for text from its decoder's weights alone, or a refusal."""

from __future__ import annotations

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
from engine.layers.published import num_parameters, refusal
from engine.loading.loading import load
from engine.loading.random_targets import build as random_weights
from engine.runner.prepare import prepare
from tests.helpers.tiny import BASE, TRAINED, build, random_ids

VISION = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "depth": 1, "embed_dim": 32, "num_heads": 2, "out_hidden_size": BASE["hidden_size"],
}  # fmt: skip
THREE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2]}}
OLD = "language_model.model.", "language_model.lm_head."
# A composite's class, its text part, and where its published checkpoints have the decoder and the output layer.
COMPOSITES: dict[str, tuple[str, dict[str, Any], tuple[str, str]]] = {
    "mistral3": ("Mistral3ForConditionalGeneration", {"model_type": "mistral"}, OLD),
    "llava": ("LlavaForConditionalGeneration", {"model_type": "llama"}, OLD),
    "llava_onevision": ("LlavaOnevisionForConditionalGeneration", {"model_type": "qwen2"}, OLD),
    "idefics3": ("Idefics3ForConditionalGeneration", {"model_type": "llama"}, ("model.text_model.", "lm_head.")),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", THREE, ("model.", "lm_head.")),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", THREE, ("model.language_model.", "lm_head.")),
}
WEIGHTS, IDS = "model.safetensors", torch.tensor([random_ids(40, 2048)])


def composite(kind: str, folder: Path, **settings: Any) -> PreTrainedModel:
    """A tiny random one, saved in that folder as models of its kind are published."""
    name, text, prefixes = COMPOSITES[kind]
    given = {"vision_config": VISION, "tie_word_embeddings": False, **settings, "image_token_id": 2000}
    given["text_config"] = {**BASE, "vocab_size": 2048, "tie_word_embeddings": False, **text}
    model = build(getattr(transformers, name), CONFIG_MAPPING[kind].from_dict(given))
    model.config.save_pretrained(folder)
    if kind == "qwen2_vl":  # published flat
        config = model.config.to_dict()
        (folder / "config.json").write_text(json.dumps({**config.pop("text_config"), **config}))
    places = {"model.text_model.": prefixes[0], "model.language_model.": prefixes[0], "lm_head.": prefixes[1]}
    weights = {}
    for key, value in model.state_dict().items():
        own = next((own for own in places if key.startswith(own)), "")
        weights[places.get(own, "") + key.removeprefix(own)] = value.clone()
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TRAINED / file, folder)
    return model


@torch.inference_mode()
def logits(model: PreTrainedModel) -> torch.Tensor:
    return model(input_ids=IDS, use_cache=False).logits


@pytest.mark.parametrize("kind", COMPOSITES)
def test_a_tower_is_the_whole_model_for_text(kind: str, tmp_path: Path) -> None:
    """A model of images could not be raced, or be raced as another; its vision tower would take memory for nothing."""
    whole = composite(kind, tmp_path)
    model = load(str(tmp_path), "float32", "cpu").model
    assert torch.equal(logits(model), logits(whole))
    drawn = random_weights(tmp_path / "config.json", torch.float32, torch.device("cpu"))
    of_text = {k: v.shape for k, v in whole.get_decoder().named_parameters()}
    for each in (model, drawn):
        assert {k: v.shape for k, v in each.get_decoder().named_parameters()} == of_text
        assert sum(v.numel() for v in each.parameters()) == sum(map(torch.Size.numel, of_text.values())) + 2048 * 64
    prepare(model)


@pytest.mark.parametrize(("tied", "has_head"), [(True, True), (True, False), (False, True), (False, False)])
def test_the_whole_model_decides_what_the_output_layer_is(tied: bool, has_head: bool, tmp_path: Path) -> None:
    """Mistral 3's configurations say tied by default and not tied in the text's part, and have an output layer."""
    whole = composite("mistral3", tmp_path)
    config, weights = json.loads((tmp_path / "config.json").read_text()), load_file(tmp_path / WEIGHTS)
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
    if not has_head:
        del weights[OLD[1] + "weight"]
    save_file(weights, tmp_path / WEIGHTS, {"format": "pt"})
    if not tied and not has_head:
        with pytest.raises(UsageError, match=r"1 parameters are missing, such as lm_head\.weight"):
            load(str(tmp_path), "float32", "cpu")
        return
    stock = type(whole).from_pretrained(tmp_path).eval()
    assert torch.equal(logits(load(str(tmp_path), "float32", "cpu").model), logits(stock))


def test_what_the_decoder_would_not_use_is_refused(tmp_path: Path) -> None:
    """A norm that the whole model has in its decoder would be left out without a word."""
    composite("llava", tmp_path)
    more = {"language_model.model.layers.0.self_attn.q_norm.weight": torch.ones(16), "audio.weight": torch.ones(1)}
    save_file(load_file(tmp_path / WEIGHTS) | more, tmp_path / WEIGHTS, {"format": "pt"})
    with pytest.raises(UsageError, match=r"LlamaForCausalLM: 1 parameters are too many, such as model\.layers\.0\."):
        load(str(tmp_path), "float32", "cpu")


def test_what_a_part_leaves_out_is_as_in_its_type() -> None:
    """LLaVA 1.5 states four fields of its decoder: it would have no attention, and take no memory."""
    config = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32_064}}
    assert refusal(config) == "" and num_parameters(config) == pytest.approx(6_738_939_904, rel=1e-3)
