"""Heads in 8 bits, without their target's output rows: that they are read as what they were made of, and that nothing
else is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import UsageError
from engine.heads.build import build
from engine.heads.compact import OUTPUT, restored, shrunk, with_output
from engine.heads.formats import read_spec, read_tensors
from engine.training.heads import save_head
from tests.helpers.training_heads import made, stock


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_compact_head_is_the_head(kind, features, tmp_path):
    """What ships would draft otherwise than what was trained: rows of other words, or weights off by more than their 8
    bits."""
    head, _ = made(kind, features)
    save_head(head, tmp_path / "whole", "t", 3)
    save_head(head, tmp_path / "compact", "t", 3, compact=True)
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "compact")}
    spec = read_spec(tmp_path / "compact", kind, 6)
    embedding = stock().model.get_input_embeddings().weight
    tensors = read_tensors(tmp_path / "compact")
    tied = torch.equal(embedding, stock().model.get_output_embeddings().weight)
    assert tied and spec.tied_output and OUTPUT not in tensors and size["compact"] < 0.5 * size["whole"]
    again = build(spec, with_output(tensors, spec, embedding), 128, 2048)
    whole = dict(head.named_parameters())
    assert again.target_ids.tolist() == head.target_ids.tolist()
    assert torch.equal(again.lm_head.weight.bfloat16(), whole.pop(OUTPUT).bfloat16())
    for name, value in whole.items():
        step = value.abs().amax(-1, keepdim=True) / 127
        assert bool(
            ((dict(again.named_parameters())[name].float() - value).abs() <= 0.51 * step + 0.008 * value.abs()).all()
        ), name


def test_output_rows_that_were_trained_are_kept(features, tmp_path):
    """A trained output layer would be replaced by the target's."""
    head, _ = made("eagle3", features)
    head.lm_head.weight.data += 0.1
    save_head(head, tmp_path, "t", 3, compact=True)
    spec, tensors = read_spec(tmp_path, "eagle3", 6), read_tensors(tmp_path)
    assert not spec.tied_output and OUTPUT in with_output(tensors, spec, stock().model.get_input_embeddings().weight)


def test_a_head_that_is_not_tied_borrows_nothing(features, tmp_path):
    """A head whose output rows are missing would draft with rows that nobody said are its."""
    head, _ = made("eagle3", features)
    save_head(head, tmp_path, "t", 3, compact=True)
    spec, tensors = replace(read_spec(tmp_path, "eagle3", 6), tied_output=False), read_tensors(tmp_path)
    with pytest.raises(UsageError, match="lm_head"):
        build(spec, with_output(tensors, spec, stock().model.get_input_embeddings().weight), 128, 2048)


def test_eight_bits_without_a_scale_a_row_are_refused(features, tmp_path):
    """Whole numbers up to 127 would be taken for weights."""
    head, _ = made("eagle3", features)
    save_head(head, tmp_path, "t", 3, compact=True)
    tensors = load_file(tmp_path / "model.safetensors")
    for wrong in (
        {"fc.weight_scale": tensors["fc.weight_scale"][:-1].clone()},
        {"fc.weight_scale": tensors["fc.weight_scale"].to(torch.int32)},
    ):
        save_file({**tensors, **wrong}, tmp_path / "model.safetensors")
        with pytest.raises(UsageError, match=r"fc\.weight is in 8 bits"):
            read_tensors(tmp_path)
    del tensors["fc.weight_scale"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"fc\.weight_scale"):
        read_tensors(tmp_path)


def test_other_quantisations_are_refused(features, tmp_path):
    """Weights of four bits, or in groups, would be read by the rules of eight and rows."""
    head, _ = made("eagle3", features)
    save_head(head, tmp_path, "t", 3, compact=True)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 4
    path.write_text(json.dumps(config))
    with pytest.raises(UsageError, match="quantization_config"):
        read_spec(tmp_path, "eagle3", 6)


def test_words_outside_the_target_are_refused(features, tmp_path):
    """A head for another target would read past its embedding, or end in a traceback."""
    head, _ = made("eagle3", features)
    save_head(head, tmp_path, "t", 3, compact=True)
    spec, tensors = read_spec(tmp_path, "eagle3", 6), read_tensors(tmp_path)
    with pytest.raises(UsageError, match="outside"):
        with_output(tensors, spec, stock().model.get_input_embeddings().weight[:100])


def test_shrinking_touches_matrices_alone():
    """Norms, or the table of words, would lose bits."""
    tensors = {"a": torch.randn(3, 4), "norm": torch.randn(4), "d2t": torch.arange(4), "zero": torch.zeros(2, 2)}
    small = shrunk(tensors)
    assert small["a"].dtype == torch.int8 and small["norm"] is tensors["norm"] and small["d2t"] is tensors["d2t"]
    again = restored(small, torch.float32)
    assert again.keys() == tensors.keys() and torch.equal(again["zero"], tensors["zero"])
    torch.testing.assert_close(again["a"], tensors["a"], atol=float(tensors["a"].abs().max()) / 254 + 1e-6, rtol=0)
