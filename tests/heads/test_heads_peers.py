"""Heads beside the packages of those who train them, on the same weights: a development-time check, skipped where a
package is not installed.

They are no requirements (heavy pins); to run it, an environment of its own with torch, transformers, pytest,
hypothesis, then `speculators` and `dflash` without their dependencies, and what these import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from tests.helpers.head_files import config_of, published, save, tensors_of
from tests.helpers.head_fixtures import (
    HEADS,
    VOCAB,
    features,
    formats_target,
    made,
    raced,
    stock_target,
    trained_target,
    written,
)
from tests.helpers.random_heads import DFLASH, EAGLE3, LAYERS, SLIDING, ZLAB_CONFIG, dflash_tensors, eagle3_tensors
from tests.helpers.tiny import TRAINED, random_ids

K = 4


def ours(text: str, tokens: list[int], aux: torch.Tensor, k: int) -> tuple[int, ...]:
    """What this engine drafts after `tokens`."""
    drafter = made(text, formats_target(), k)
    drafter.prefill(tokens, aux[: len(tokens) - 1])
    return drafter.propose(tokens, None, k).token_ids


def filled(model: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """A speculators model with a head's tensors, and the target's embedding and output layer where it has none; the
    verifier's are not used."""
    target = stock_target()
    whole = {
        "embed_tokens.weight": target.get_input_embeddings().weight,
        "lm_head.weight": target.lm_head.weight,
        **tensors,
    }
    missing, unexpected = model.load_state_dict(whole, strict=False)
    assert not [name for name in missing if not name.startswith("verifier_")] and not unexpected
    for name in ("verifier_lm_head", "verifier_norm"):
        torch.nn.init.ones_(getattr(model, name).weight)
    return model.eval()


@pytest.mark.parametrize("form", ["eagle3", "yuhuili_spec", "normed", "two layers"])
@torch.no_grad()
def test_speculators_eagle3_agrees(form, tmp_path):
    """A head trained by that package would be drafted with otherwise than it was trained."""
    pytest.importorskip("speculators", reason="the speculators package is not installed")
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    folder: Path
    if form in ("normed", "two layers"):
        layers, config = (
            {**LAYERS, "num_hidden_layers": 1 + (form == "two layers")},
            {**EAGLE3, **({"fc_norm": True, "norm_output": True} if form == "normed" else {})},
        )
        folder = save(tmp_path / "head", {**config, "transformer_layer_config": layers}, eagle3_tensors(layers, config))
    else:
        folder = published(form, tmp_path)
    config = Eagle3SpeculatorConfig(
        **{key: value for key, value in config_of(folder).items() if key not in ("auto_map", "speculators_config")}
    )
    config.transformer_layer_config._attn_implementation = "eager"
    theirs = filled(Eagle3DraftModel(config), tensors_of(folder))
    for seed in range(3):
        tokens = random_ids(24, VOCAB, seed)
        aux = features(tokens, [2, 3, 4])
        drafted = ours(f"eagle3:{folder}", tokens, aux, K)
        text = [*tokens, *drafted]
        pairs = torch.tensor([text[1:]])  # row i: the states of token i, the embedding of token i + 1
        steps = theirs(features(text, [2, 3, 4])[None, :-1], pairs, torch.zeros_like(pairs), ttt_steps=K)
        row = [int(step[0, len(tokens) - 2]) for step in steps]
        assert tuple(i + int(theirs.d2t[i]) for i in row) == drafted


@pytest.mark.parametrize("form", ["dflash", "swa", "zlab_spec", "reduced", "sliding, bidirectional"])
@torch.no_grad()
def test_speculators_dflash_agrees(form, tmp_path):
    """A head trained by that package would be drafted with under another mask than it was trained."""
    pytest.importorskip("speculators", reason="the speculators package is not installed")
    from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig

    if form in ("reduced", "sliding, bidirectional"):
        layers = {**LAYERS, "model_type": "qwen3", **(SLIDING if form != "reduced" else {})}
        values = {**DFLASH, **({"draft_vocab_size": 96} if form == "reduced" else {"sliding_window_non_causal": True})}
        folder = save(tmp_path / "head", {**values, "transformer_layer_config": layers}, dflash_tensors(layers, values))
    else:
        folder = published(form, tmp_path)
    config = DFlashSpeculatorConfig(
        **{key: value for key, value in config_of(folder).items() if key not in ("auto_map", "speculators_config")}
    )
    config.transformer_layer_config._attn_implementation = "eager"
    theirs = filled(DFlashDraftModel(config), tensors_of(folder))
    tokens = random_ids(40, VOCAB, 1)
    aux, ids = features(tokens, [2, 3, 4]), torch.tensor([tokens])
    mask, documents, last = (
        torch.ones_like(ids),
        torch.zeros_like(ids),
        torch.ones(1, len(tokens), LAYERS["hidden_size"]),
    )
    _, logits, _, _, places = theirs._backbone_forward(aux[None], ids, mask, last, documents, max_anchors=12)
    for anchor, block in zip(places.view(12, 8)[:, 0].tolist(), logits.view(12, 8, -1), strict=True):
        row = [int(i) for i in block[1:].argmax(-1)]
        drafted = ours(f"dflash:{folder}", tokens[: anchor + 1], aux, 7)
        assert tuple(i + int(theirs.d2t[i]) if theirs.d2t is not None else i for i in row) == drafted


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"sliding": True},
        {"sliding": True, "is_causal": False},
        {"is_causal": True},
        {"input_embedding_scale": 8.0, "final_logit_softcapping": 2.0},
    ],
)
@torch.no_grad()
def test_zlabs_dflash_agrees(form, tmp_path):
    """Heads of DFlash's authors would be drafted with under another mask, or from other embeddings."""
    module = pytest.importorskip("dflash.model", reason="the dflash package is not installed")
    from transformers import Qwen3Config

    layers = {**LAYERS, "model_type": "qwen3", **(SLIDING if form.get("sliding") else {})}
    config = {**ZLAB_CONFIG, "num_target_layers": 6, **{key: value for key, value in form.items() if key != "sliding"}}
    tensors = dflash_tensors(layers, config)
    folder = save(tmp_path / "head", {**layers, **config}, tensors)
    theirs = module.DFlashDraftModel(Qwen3Config(**{**layers, **config})).eval()
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert not missing and not unexpected
    for length in (2, 9, 20):
        tokens = random_ids(length, VOCAB, length)
        aux = features(tokens, [2, 3, 4])
        block = torch.tensor([[tokens[-1], *[511] * 7]])
        scale = form.get("input_embedding_scale", 1.0)
        out = theirs(
            target_hidden=aux[None, :-1],
            noise_embedding=module._raw_input_embeddings(stock_target(), block, scale),
            position_ids=torch.arange(length + 7)[None],
            past_key_values=DynamicCache(),
        )
        logits = theirs.compute_logits(out[:, 1:], stock_target().lm_head)
        assert tuple(logits[0].argmax(-1).tolist()) == ours(f"dflash:{folder}", tokens, aux, 7)


def test_zlabs_generation_accepts_as_we_do(tmp_path, monkeypatch):
    """A whole run of their loop, on the trained head in their format, would keep other numbers of tokens than ours."""
    module = pytest.importorskip("dflash.model", reason="the dflash package is not installed")
    from transformers import Qwen3Config

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)  # its clock knows no CPU

    tensors, config = tensors_of(HEADS["dflash"]), config_of(HEADS["dflash"])
    layers = {**config["transformer_layer_config"], "num_target_layers": 6}
    values = {
        "architectures": ["DFlashDraftModel"],
        "block_size": 8,
        "dflash_config": {"mask_token_id": config["mask_token_id"], "target_layer_ids": [0, 2, 4]},
    }
    folder = save(tmp_path / "head", {**layers, **values}, tensors)
    theirs = module.DFlashDraftModel(Qwen3Config(**{**layers, **values})).eval()
    theirs.load_state_dict(tensors)
    target = AutoModelForCausalLM.from_pretrained(TRAINED, dtype=torch.float32).eval()
    prompt = trained_target().tokenizer(
        "class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def "
    )["input_ids"]
    found = module.dflash_generate(theirs, target, torch.tensor([prompt]), 60, None, return_stats=True)
    steps = raced(trained_target(), made(f"dflash:{folder}", trained_target(), 7), prompt, 7, num_new=61)
    assert written(steps)[0][:60] == found.output_ids[0, len(prompt) :].tolist()
    kept = [len(s.token_ids) for s in steps][1:]  # their first token comes from the prefill
    assert kept[: len(found.acceptance_lengths) - 2] == found.acceptance_lengths[:-2] and max(kept) > 1
