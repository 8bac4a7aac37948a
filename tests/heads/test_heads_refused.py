"""Heads that do not fit, are broken, or compute what this engine does not: each refused in a sentence that says why."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.heads.build_head import build
from engine.heads.compact import with_output
from engine.loading.load_head import read_tensors
from engine.training.new_head import save_head
from tests.helpers.heads import (
    DFLASH_CONFIG,
    FORMAT_FIELDS,
    FORMATS,
    HEADS,
    SIZE,
    VOCAB,
    changed,
    config_for,
    formats_target,
    made,
    random_head,
    read,
    save,
    spec_in,
)


def refused(folder: Path, kind: str, match: str) -> None:
    with pytest.raises(UsageError, match=match) as caught:
        made(f"{kind}:{folder}", formats_target(), 3)
    assert "\n" not in str(caught.value)


# --- heads that do not fit


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_for_another_target_or_of_another_kind_is_refused(kind, tmp_path):
    """Shapes of other models would meet in a product, ids in a short table; or a DFlash head miss half its tensors."""
    refused(HEADS[kind], kind, "2048 words and the target has 512")
    (other,) = HEADS.keys() - {kind}
    refused(HEADS[kind], other, f"is of kind {kind}; ask for it as {kind}:")
    unsized = read(HEADS[kind])
    del unsized.layers["vocab_size"], unsized.config["draft_vocab_size"]
    words = "fc reads 384 features; 3 hidden states of this target have 192.*another target.*#aux="
    refused(save(tmp_path / "sizes", *unsized), kind, words)


def put(**values: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda t: t.update({name.replace("__", "."): value for name, value in values.items()})


def without(*names: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda t: [t.pop(name) for name in names] and None


NAN, FP8 = torch.full((SIZE,), torch.nan), torch.float8_e4m3fn
MISFITS = [
    ("eagle3", lambda t: t.update({"_orig_mod.fc.weight": t.pop("fc.weight")}), "lacks fc.weight; it has _orig_mod.fc"),
    ("eagle3", without("lm_head.weight"), "lacks lm_head.weight"),
    ("eagle3", without("layers.0.hidden_norm.weight"), "lacks 1 of its tensors, such as layers.0.hidden_norm.weight"),
    ("eagle3", put(mask_hidden=torch.ones(3)), "no use for, such as mask_hidden"),
    ("eagle3", put(layers__1__mlp__up_proj__weight=torch.ones(3)), "such as layers.1.mlp.up_proj.weight"),
    ("eagle3", put(norm__weight=torch.ones(7)), r"norm.weight has shape \[7\].*\[64\]"),
    ("eagle3", put(fc__weight=torch.ones(7)), r"fc.weight has shape \[7\]"),
    ("eagle3", put(norm__weight=NAN), "norm.weight holds values that are not finite"),
    ("eagle3", lambda t: t.update({"fc.weight": t["fc.weight"].to(torch.int8)}), "in 8 bits, and fc.weight_scale"),
    ("eagle3", lambda t: t.update({"fc.weight": t["fc.weight"].to(FP8)}), "fc.weight is float8_e4m3fn"),
    ("eagle3", lambda t: t["d2t"].__setitem__(95, 9999), "d2t leads to token 10094, outside .* vocabulary of 512"),
    ("eagle3", lambda t: t["d2t"].__setitem__(0, -1), "d2t leads to token -1"),
    ("eagle3", lambda t: t["d2t"].__setitem__(1, t["d2t"][0] - 1), "two draft words to one token"),
    ("eagle3", lambda t: t.update({"d2t": t["d2t"][:50]}), r"d2t has shape \[50\]"),
    ("eagle3", lambda t: t.update({"d2t": t["d2t"].float()}), "d2t has shape .* whole number"),
    ("eagle3", without("d2t", "t2d"), "no d2t table"),
    ("eagle3", lambda t: (t.pop("d2t"), t["t2d"].fill_(True)), "t2d marks 512 words, but it drafts among 96"),
    ("eagle3", put(lm_head__weight=torch.ones(50, SIZE)), "draft vocabulary of 96 words, and its lm_head has 50"),
    ("eagle3", put(embed_tokens__weight=torch.ones(400, SIZE)), "embeds 400 words and the target has 512"),
    ("dflash", without("layers.0.self_attn.q_norm.weight"), "layers.0.self_attn.q_norm.weight"),
    ("dflash", put(mask_embedding=torch.ones(SIZE)), "such as mask_embedding"),
    ("dflash", put(layers__0__self_attn__attention_sink_bias=torch.ones(4)), "attention_sink_bias"),
]


@pytest.mark.parametrize(("kind", "edit", "match"), MISFITS)
def test_tensors_that_do_not_fit_are_named(kind, edit, match, tmp_path):
    """A torch traceback would be shown, or a head would draft nonsense at full price."""
    head = random_head(kind)
    edit(head.tensors)
    refused(save(tmp_path / "head", *head), kind, match)


CONFIGS = [
    ("eagle3", {"speculators_model_type": "peagle"}, {}, "'peagle' is not supported.*eagle3, dflash"),
    ("eagle3", {"eagle_aux_hidden_state_layer_ids": [2, 3, 7]}, {}, "hidden state 7 .* 0 to 6.*#aux="),
    ("eagle3", {"eagle_aux_hidden_state_layer_ids": [-1, 3, 4]}, {}, "hidden state -1 "),
    ("eagle3", {"eagle_aux_hidden_state_layer_ids": [2, "x"]}, {}, "not whole numbers"),
    ("eagle3", {"eagle_aux_hidden_state_layer_ids": [2, 3]}, {}, "fc reads 192 features; 2 hidden states of this "
                                                                 "target have 128"),
    ("eagle3", {"parallel_drafting": True}, {}, "sets parallel_drafting to True"),
    ("eagle3", {"norm_before_fc": True}, {}, "input_norm.weight"),
    ("eagle3", {}, {"model_type": "gpt_oss"}, "'gpt_oss'; this engine does llama and qwen3"),
    ("eagle3", {}, {"logit_scale": 0.5}, "logit_scale to 0.5"),
    ("eagle3", {}, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping to 50"),
    ("eagle3", {}, {"num_local_experts": 8}, "num_local_experts to 8"),
    ("eagle3", {}, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ("eagle3", {}, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic RoPE"),
    ("eagle3", {}, {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "spiral RoPE; this engine does "
                                                                             "default, linear, llama3, yarn"),
    ("eagle3", {}, {"partial_rotary_factor": 0.25}, "partial_rotary_factor to 0.25"),
    ("eagle3", {}, {"hidden_size": "x"}, "hidden_size is 'x'; it must be a whole number"),
    ("eagle3", {}, {"hidden_act": "spline"}, "hidden_act is 'spline'"),
    ("eagle3", {}, {"num_key_value_heads": 3}, "make no sense|not understood"),
    ("eagle3", {}, {"num_hidden_layers": 0}, "make no sense|not understood"),
    ("eagle3", {"transformer_layer_config": [1]}, {}, "not understood"),
    ("dflash", {"mask_token_id": 512}, {}, "mask token 512 is outside the target's vocabulary of 512"),
    ("dflash", {"mask_token_id": None}, {}, "mask_token_id is None"),
    ("dflash", {"block_size": 1}, {}, "block of 1 drafts nothing"),
    ("dflash", {"block_size": "8"}, {}, "block_size is '8'"),
    ("dflash", {"draft_vocab_size": 96}, {}, "lacks lm_head.weight.*96 words"),
    ("dflash", {}, {"layer_types": ["sliding_attention"], "sliding_window": None}, "their sliding_window is None"),
    ("dflash", {}, {"sliding_window": 16}, "sliding_window is 16, but none of its 1 layers slides.*layer_types"),
    ("dflash", {}, {"sliding_window": 16, "use_sliding_window": True}, "none of its 1 layers slides"),
    ("dflash", {}, {"is_neox_style": False}, "is_neox_style to False"),
    ("dflash", {}, {"layer_types": ["linear_attention"]}, "linear_attention|not understood"),
    ("dflash", {}, {"layer_types": ["full_attention"] * 2}, "layer_types has 2 entries|not understood"),
    ("dflash", {}, {"hidden_size": 48}, "hidden size 48"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "top", "layers", "match"), CONFIGS)
def test_a_configuration_that_makes_no_sense_here_is_refused_by_name(kind, top, layers, match, tmp_path):
    """A field that changes the arithmetic would be ignored; a typo would be a traceback."""
    config = {**config_for(kind, layers=layers), **top}
    refused(save(tmp_path / "head", config, random_head(kind).tensors), kind, match)


KIN = [
    ("a model", {}, "describes no draft head"),
    ("original", {"architectures": ["PEagleDraftModel"]}, "describes no draft head"),
    ("original", {"eagle_config": {"use_mtp_layernorm": True}}, "sets use_mtp_layernorm to True.*it does False"),
    ("original", {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state to False.*it does True"),
    ("original", {"eagle_config": {"a_new_flag": 1}}, "a_new_flag"),
    ("zlab", {"dflash_config": {"mask_token_id": 3}}, "names no target_layer_ids.*#aux="),
    ("zlab", {"architectures": ["DFlash2DraftModel"]}, "DFlash2DraftModel is not supported.*DFlashDraftModel"),
    ("zlab", {"dflash_config": {**DFLASH_CONFIG, "projector_type": "domino"}}, "projector_type to 'domino'"),
    ("zlab", {"dflash_config": {**DFLASH_CONFIG, "attention_sink_bias": True}}, "attention_sink_bias"),
    ("zlab", {"dflash_config": {**DFLASH_CONFIG, "use_swa": True}}, "their sliding_window is None"),
    ("zlab", {"conv_kernel_size": 4}, "conv_kernel_size"),
]


@pytest.mark.parametrize(("format", "more", "match"), KIN)
def test_kin_that_compute_otherwise_are_refused(format, more, match, tmp_path):
    """DFlash 2, Domino, MTP or parallel EAGLE heads would be run as what they are not."""
    (tmp_path / "config.json").write_text(json.dumps(config_for(format, more)))
    for kind in HEADS:
        with pytest.raises(UsageError, match=match):
            spec_in(tmp_path, kind)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    ),
    st.data(),
)
@settings(max_examples=80)
def test_no_configuration_is_a_traceback(tmp_path_factory, value, data):
    """One odd value in a published file would end a race with a stack of calls."""
    config = json.loads(json.dumps(config_for(data.draw(st.sampled_from(list(FORMAT_FIELDS))))))
    places = [config, *(v for v in config.values() if isinstance(v, dict))]
    place = data.draw(st.sampled_from(places))
    place[data.draw(st.sampled_from(sorted(place)))] = value
    folder = tmp_path_factory.getbasetemp() / "odd"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for kind in HEADS:
        try:
            spec = spec_in(folder, kind)
        except UsageError:
            continue
        assert spec.kind == kind


class Harm:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_pickle_that_holds_more_than_tensors_is_refused_and_not_run(tmp_path):
    """A head from anywhere would run its code here."""
    mark, (config, weights) = tmp_path / "mark", read(FORMATS / "yuhuili")
    values = [{**weights, "x": Harm(mark)}, {**weights, "epoch": 3}, [1, 2], {"state_dict": weights}]
    for i, value in enumerate([*values, {3: torch.ones(1)}]):
        folder = save(tmp_path / str(i), config, {})
        (folder / "model.safetensors").unlink()
        torch.save(value, folder / "pytorch_model.bin")
        refused(folder, "eagle3", "holds more than named tensors" if i else "damaged or holds more than tensors")
        assert not mark.exists()
    (folder / "pytorch_model.bin").write_bytes(b"\x80nonsense")
    refused(folder, "eagle3", "not loaded|cannot read")


def scale_is(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda t: t.update({"fc.weight_scale": change(t["fc.weight_scale"])})


def in_four_bits(config: dict[str, Any]) -> None:
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 4


@pytest.mark.parametrize(
    ("config", "tensors", "num_words", "match"),
    [
        (None, scale_is(lambda scale: scale[:-1].clone()), VOCAB, r"fc\.weight is in 8 bits"),
        (None, scale_is(lambda scale: scale.to(torch.int32)), VOCAB, r"fc\.weight is in 8 bits"),
        (in_four_bits, None, VOCAB, "quantization_config"),
        (lambda c: c.update(tie_word_embeddings=False), None, VOCAB, "lm_head"),
        (None, None, 100, "outside"),
    ],
    ids=["a scale too few", "whole scales", "four bits", "no output of its own", "another target"],
)
def test_a_compact_head_that_does_not_fit_is_refused(config, tensors, num_words, match, tmp_path):
    """Codes would be taken for weights, or a head draft with rows that are not its own."""
    plain = save(tmp_path / "plain", *random_head("eagle3"))
    head = build(spec_in(plain, "eagle3"), read_tensors(plain), SIZE, VOCAB)
    embedding = formats_target().model.get_input_embeddings().weight
    head.lend(embedding, torch.nn.Identity())
    head.lm_head.weight.data.copy_(embedding[head.target_ids])
    save_head(head, tmp_path / "whole", "t", 3, compact=True)
    folder = changed(tmp_path / "whole", tmp_path / "changed", config, tensors)
    with pytest.raises(UsageError, match=match):
        spec, read = spec_in(folder, "eagle3"), read_tensors(folder)
        build(spec, with_output(read, spec, embedding[:num_words]), SIZE, VOCAB)
