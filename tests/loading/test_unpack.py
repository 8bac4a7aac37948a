"""Checkpoints of quantised weights load as what their codes and scales say."""

import json
import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.core.errors import UsageError
from engine.hardware.environment import circumstances
from engine.loading.loading import load
from tests.helpers.families import of_family
from tests.helpers.tiny import TRAINED, random_ids

FP8 = {"quant_method": "compressed-tensors", "format": "float-quantized"}
KINDS: dict[str, dict[str, Any]] = {
    "MXFP4": {"quant_method": "mxfp4"},
    "blocks": {"quant_method": "fp8", "weight_block_size": [24, 40]},  # no matrix here is a whole number of them
    "rows": FP8,
    "rows of FBGEMM": {"quant_method": "fbgemm_fp8"},
    "tensors": FP8,
    "tensors of ModelOpt": {"quant_method": "modelopt", "quant_algo": "FP8"},
    "tensors, said elsewhere": {},
}


def four_bits(name: str, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Random codes for experts [experts, in, out], and what they say: a sign, two bits of exponent, one of mantissa."""
    codes = torch.randint(16, weight.mT.shape)
    scales = torch.randint(118, 126, (*codes.shape[:2], codes.shape[2] // 32))
    exponent, mantissa = codes >> 1 & 3, codes & 1
    size = torch.where(exponent == 0, mantissa / 2, (1 + mantissa / 2) * 2.0 ** (exponent - 1))
    values = torch.where(codes > 7, -size, size) * 2.0 ** (scales.repeat_interleave(32, -1) - 127)
    halves = (codes[..., ::2] | codes[..., 1::2] << 4).unflatten(-1, (-1, 16))
    return {f"{name}_blocks": halves.byte(), f"{name}_scales": scales.byte()}, values.mT.contiguous()


def eight_bits(kind: str, name: str, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """A weight in FP8, and what its codes stand for."""
    shared = {"blocks": (24, 40), "rows": (1, weight.shape[1])}.get(kind.split()[0], weight.shape)
    row, column = (torch.arange(num) // size for num, size in zip(weight.shape, shared, strict=True))
    scales = torch.rand(int(row[-1]) + 1, int(column[-1]) + 1) / 50 + 0.01
    codes, whole = (weight / scales[row][:, column]).to(torch.float8_e4m3fn), scales[row][:, column]
    own = f"{name}_scale_inv" if kind == "blocks" else f"{name}_scale"
    return {name: codes, own: scales.flatten() if shared == weight.shape else scales}, codes.float() * whole


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_what_codes_and_scales_say(kind, tmp_path):
    """Halves of a byte exchanged, a block's scale on its neighbour, a matrix turned: text that is nearly right. Without
    a scale, codes would be taken for weights. A recording would not say that a server's weights are others."""
    plain, quantised = tmp_path / "plain", tmp_path / "quantised"
    of_family("gpt-oss" if kind == "MXFP4" else "mixtral", vocab_size=2048).save_pretrained(plain)
    for path in TRAINED.glob("tokenizer*"):
        shutil.copy(path, plain)
    shutil.copytree(plain, quantised)
    stored, meant = {}, load_file(plain / "model.safetensors")
    for name, weight in meant.items():
        codes = {name: weight}
        if "layers" in name and weight.ndim == (3 if kind == "MXFP4" else 2):
            codes, meant[name] = four_bits(name, weight) if kind == "MXFP4" else eight_bits(kind, name, weight)
        stored |= codes
    save_file(meant, plain / "model.safetensors", {"format": "pt"})
    save_file(stored, quantised / "model.safetensors")
    described = {**json.loads((plain / "config.json").read_text()), "quantization_config": KINDS[kind]}
    (quantised / "config.json").write_text(json.dumps(described))
    for dtype in ("bfloat16", "float32"):
        model, right = (load(str(folder), dtype, "cpu").model for folder in (quantised, plain))
        ids = torch.tensor([random_ids(24, 2048)])
        assert torch.equal(model(input_ids=ids).logits, right(input_ids=ids).logits)
        assert model.generation_config.to_dict() == right.generation_config.to_dict()
    assert "unpacked here" in circumstances(load(str(quantised), "bfloat16", "cpu").prepared)["runs"]["sentence"]
    lost = next(name for name in stored if "_scale" in name)
    save_file({name: tensor for name, tensor in stored.items() if name != lost}, quantised / "model.safetensors")
    with pytest.raises(UsageError, match="scale"):
        load(str(quantised), "float32", "cpu")
