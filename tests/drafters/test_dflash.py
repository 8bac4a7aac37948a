"""DFlash drafts: the recorded accepted lists under both masks, and every form of head against the same head computed
the long way."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given

from tests.helpers.dense_heads import Dense, dflash
from tests.helpers.head_files import config_of, published, save, tensors_of
from tests.helpers.head_fixtures import (
    FIXTURES,
    HEADS,
    formats_target,
    made,
    raced,
    stock_target,
    trained_target,
    written,
)
from tests.helpers.head_steps import RACES, K, drafts, few
from tests.helpers.random_heads import DFLASH, DFLASH_FORMS, LAYERS, ZLAB_CONFIG, dflash_tensors
from tests.helpers.tiny import threads


@pytest.mark.parametrize(
    ("option", "name"), [("", "dflash"), ("#bidirectional", "dflash"), ("#causal", "dflash_causal_in_block")]
)
def test_the_accepted_lists(option, name):
    """The mask that the head was trained with would not be followed, or vLLM's not be had."""
    golden = json.loads((FIXTURES / "golden.json").read_text())
    with threads(1):
        steps = raced(
            trained_target(),
            made(f"dflash:{HEADS['dflash']}{option}", trained_target(), 7),
            golden["prompt_token_ids"],
            7,
            num_new=61,
        )
    assert written(steps)[0][:60] == golden["greedy_token_ids"]
    accepted = [0, *golden[name]["per_step_accepted"]]
    assert [step.num_accepted for step in steps][: len(accepted)] == accepted


@pytest.mark.parametrize("form", DFLASH_FORMS)
@given(race=RACES)
@few
def test_every_form_drafts_what_the_long_way_does(tmp_path_factory, form, race):
    """A mask or flag misread, or a context row left behind, would only cost speed, and never be seen."""
    case = DFLASH_FORMS[form]
    zlab = case.get("zlab")
    layers = {**LAYERS, "model_type": "qwen3", **case.get("layers", {})}
    config = {**ZLAB_CONFIG, **zlab} if zlab is not None else {**DFLASH, **case.get("config", {})}
    tensors = dflash_tensors(layers, {"aux_hidden_state_layer_ids": [2, 3, 4], **config}, own=case.get("own", 0))
    folder = tmp_path_factory.getbasetemp() / f"dflash-{form.replace(' ', '-')}"
    if not folder.exists():
        save(
            folder,
            {**config, **layers} if zlab is not None else {**config, "transformer_layer_config": layers},
            tensors,
        )
    scale, softcap = config.get("input_embedding_scale", 1.0), config.get("final_logit_softcapping")
    drafter = made(f"dflash:{folder}{case.get('option', '')}", formats_target(), K, keep_logits=True)
    masks = {
        "anchored": zlab is None,
        "causal": case.get("causal", (False,) * 3),
        "from_anchor": config.get("sample_from_anchor", False),
    }
    check(
        drafter,
        Dense(tensors, layers),
        race,
        case.get("aux", [2, 3, 4]),
        masks,
        scale,
        config.get("output_multiplier", 1.0),
        softcap,
    )


@pytest.mark.parametrize("name", ["dflash", "swa", "zlab", "zlab_spec"])
@given(race=RACES)
@few
def test_every_format_drafts_what_the_long_way_does(tmp_path_factory, name, race):
    """A published head would draft nonsense."""
    folder = published(name, tmp_path_factory.getbasetemp())
    config = config_of(folder)
    layers = config.get("transformer_layer_config", config)
    masks = {"anchored": name != "zlab", "causal": (name == "swa", False)}
    check(
        made(f"dflash:{folder}", formats_target(), K, keep_logits=True),
        Dense(tensors_of(folder), layers),
        race,
        [2, 3, 4],
        masks,
    )


def check(drafter, dense, race, layers, masks, scale=1.0, multiplier=1.0, softcap=None) -> None:
    """Every draft of a race is the long way's, whatever steps without a draft lie between; its logits too."""
    embedding, output = stock_target().get_input_embeddings().weight * scale, stock_target().lm_head.weight
    size = K + (not masks.get("from_anchor"))
    for draft, k, committed, states in drafts(drafter, race, layers):
        assert len(draft.token_ids) == k
        if k:
            ids, logits = dflash(dense, embedding, output, states, committed, size, 511, **masks)
            logits = logits * multiplier
            logits = logits if softcap is None else torch.tanh(logits / softcap) * softcap
            assert draft.token_ids == tuple(ids[:k])
            finite = draft.logits[:, draft.logits[0].isfinite()]
            torch.testing.assert_close(finite.double(), logits[:k], rtol=1e-3, atol=1e-3)
            assert [int(i) for i in draft.logits.argmax(-1)] == ids[:k]


def test_zlabs_and_its_conversion_are_one_head(tmp_path):
    """One head would draft differently by the format it comes in."""
    prompt = list(range(7, 40))
    both = [
        [
            s.drafted
            for s in raced(
                formats_target(), made(f"dflash:{published(name, tmp_path)}", formats_target(), 7), prompt, 7
            )
        ]
        for name in ("zlab", "zlab_spec")
    ]
    assert both[0] == both[1] and any(both[0])
