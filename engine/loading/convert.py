"""Gemma 3 from a GGUF file to a transformers folder: bfloat16 safetensors, config, tokenizer. Streams, with a few dozen
MB in memory at a time."""

import hashlib
import json
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH, GGUFReader, GGUFValueType, ReaderTensor, dequantize, get_tensor_name_map
from torch import Tensor
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GemmaTokenizer, GenerationConfig

from ..progress import Progress, quiet, silent

CHUNK_VALUES = 1 << 23  # values unpacked at a time: 32 MB of float32
WEIGHTS = "model.safetensors"
# Gemma 3's base frequency for sliding layers, which GGUF files lack (llama.cpp has this constant in its code).
SLIDING_ROPE_THETA = 10_000.0


class GgufFile(GGUFReader):
    """The package's reader, which keeps only the lengths of arrays: with every word of a vocabulary of 262,144 it takes
    ten seconds and 700 MB. The file is whole: its package compares its sha256 first."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        item, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        end, num, whole = orig_offs + 12, int(length[0]), self.data.data
        if item[0] == GGUFValueType.STRING:
            for _ in range(num):
                end += 8 + struct.unpack_from("<Q", whole, end)[0]
        else:
            end += num * np.dtype(self.gguf_scalar_to_np[GGUFValueType(item[0])]).itemsize
        return end - orig_offs, [item, length], [1], [GGUFValueType.UINT64]


def convert(source: Path, out: Path, progress: Progress = silent) -> str:
    """Write config.json, generation_config.json, tokenizer files and model.safetensors into `out`; returns the sha256
    of the weights file.

    The values equal transformers' own reading of GGUF files, bit for bit. Raises ValueError for a file without exactly
    the parameters of its model, OSError if the folder cannot be written."""
    with quiet():
        progress("first use: building the tokenizer of Gemma 3 270M", None)
        GemmaTokenizer.from_pretrained(
            str(source.parent), gguf_file=source.name, local_files_only=True
        ).save_pretrained(out)
        file = GgufFile(source)
        config = read_config(file)
        config.save_pretrained(out)
        GenerationConfig.from_model_config(config).save_pretrained(out)
    return _write_weights(_parameters(file, config), out / WEIGHTS, progress)


def read_config(file: GgufFile) -> Gemma3TextConfig:
    """The model's shape, from the file's metadata."""
    values = {name: field.contents() for name, field in file.fields.items()}

    def of_model(key: str):
        return values[f"gemma3.{key}"]

    rope = {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full_attention", of_model("rope.freq_base")), ("sliding_attention", SLIDING_ROPE_THETA))
    }
    return Gemma3TextConfig(
        architectures=[Gemma3ForCausalLM.__name__],
        dtype=torch.bfloat16,
        vocab_size=values["tokenizer.ggml.tokens"],
        hidden_size=of_model("embedding_length"),
        intermediate_size=of_model("feed_forward_length"),
        num_hidden_layers=of_model("block_count"),
        num_attention_heads=of_model("attention.head_count"),
        num_key_value_heads=of_model("attention.head_count_kv"),
        head_dim=of_model("attention.key_length"),
        query_pre_attn_scalar=of_model("attention.key_length"),
        max_position_embeddings=of_model("context_length"),
        rms_norm_eps=of_model("attention.layer_norm_rms_epsilon"),
        sliding_window=of_model("attention.sliding_window"),
        rope_parameters=rope,
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in file.tensors),
        bos_token_id=values["tokenizer.ggml.bos_token_id"],
        eos_token_id=values["tokenizer.ggml.eos_token_id"],
        pad_token_id=values["tokenizer.ggml.padding_token_id"],
    )


def _parameters(file: GgufFile, config: Gemma3TextConfig) -> dict[str, ReaderTensor]:
    """The file's tensor of each parameter, complete in both directions and checked for shape."""
    with torch.device("meta"):
        model = Gemma3ForCausalLM(config)
    names = get_tensor_name_map(MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    left = {tensor.name: tensor for tensor in file.tensors}
    tensors = {}
    for parameter, weight in model.named_parameters():
        tensor = left.pop(f"{names.get_name(parameter.removesuffix('.weight'))}.weight", None)
        if tensor is None or _shape(tensor) != tuple(weight.shape):
            raise ValueError(f"the GGUF file has no tensor of shape {tuple(weight.shape)} for {parameter}")
        tensors[parameter] = tensor
    if left:
        raise ValueError(f"the GGUF file has a tensor that the model does not: {min(left)}")
    return tensors


def _shape(tensor: ReaderTensor) -> tuple[int, ...]:
    """In torch's order, the last dimension contiguous."""
    return tuple(reversed(tensor.shape.tolist()))


def _rows(tensor: ReaderTensor) -> Iterator[Tensor]:
    """Its values in bfloat16, a few whole rows at a time. llama.cpp stores the weight w of these norms as 1 + w."""
    num_rows = max(1, CHUNK_VALUES // int(tensor.shape[0]))
    raw = tensor.data.reshape(-1, tensor.data.shape[-1])
    for first in range(0, len(raw), num_rows):
        values = dequantize(raw[first : first + num_rows], tensor.tensor_type)
        yield torch.from_numpy(values - 1 if tensor.name.endswith("norm.weight") else values).to(torch.bfloat16)


def _write_weights(tensors: dict[str, ReaderTensor], path: Path, progress: Progress) -> str:
    """Write a safetensors file: the header's length in eight bytes, the header (JSON), the tensors in its order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    total = 0
    for parameter, tensor in tensors.items():
        shape = _shape(tensor)
        header[parameter] = {"dtype": "BF16", "shape": shape, "data_offsets": [total, total := total + 2 * prod(shape)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest, done = hashlib.sha256(), 0
    with path.open("wb") as out:
        for data in (len(text).to_bytes(8, "little"), text):
            digest.update(data)
            out.write(data)
        for tensor in tensors.values():
            for rows in _rows(tensor):
                values = rows.view(torch.int16).numpy().data
                digest.update(values)
                out.write(values)
                done += values.nbytes
                progress("first use: converting the weights of Gemma 3 270M", done / total)
    return digest.hexdigest()
