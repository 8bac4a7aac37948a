"""Gemma 3 from a GGUF file to a transformers folder: bfloat16 safetensors, config, tokenizer. Streams, with a few dozen
MB in memory at a time."""

import hashlib
import json
from collections.abc import Iterator
from math import prod
from pathlib import Path

import torch
from gguf import MODEL_ARCH, get_tensor_name_map
from torch import Tensor
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GemmaTokenizer, GenerationConfig

from ..progress import Progress, quiet, silent
from .gguf_file import GgufFile

WEIGHTS = "model.safetensors"
# Gemma 3's base frequency for sliding layers, which GGUF files lack (llama.cpp has this constant in its code).
SLIDING_ROPE_THETA = 10_000.0


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
    return _write_weights(file, _parameters(file, config), out / WEIGHTS, progress)


def read_config(file: GgufFile) -> Gemma3TextConfig:
    """The model's shape, from the file's metadata."""
    values = file.metadata

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
        tie_word_embeddings="output.weight" not in file.tensors,
        bos_token_id=values["tokenizer.ggml.bos_token_id"],
        eos_token_id=values["tokenizer.ggml.eos_token_id"],
        pad_token_id=values["tokenizer.ggml.padding_token_id"],
    )


def _parameters(file: GgufFile, config: Gemma3TextConfig) -> dict[str, str]:
    """Parameter name -> its name in the file, complete in both directions and checked for shape."""
    with torch.device("meta"):
        model = Gemma3ForCausalLM(config)
    names = get_tensor_name_map(MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    file_names = {}
    for parameter, weight in model.named_parameters():
        entry = file.tensors.get(f"{names.get_name(parameter.removesuffix('.weight'))}.weight")
        if entry is None or entry.shape != tuple(weight.shape):
            raise ValueError(f"the GGUF file has no tensor of shape {tuple(weight.shape)} for {parameter}")
        file_names[parameter] = entry.name
    if unused := sorted(set(file.tensors) - set(file_names.values())):
        raise ValueError(f"the GGUF file has a tensor that the model does not: {unused[0]}")
    return file_names


def _rows(file: GgufFile, name: str) -> Iterator[Tensor]:
    """A tensor's values in bfloat16. llama.cpp stores the weight w of these norms as 1 + w."""
    for values in file.rows(name):
        yield torch.from_numpy(values - 1 if name.endswith("norm.weight") else values).to(torch.bfloat16)


def _write_weights(file: GgufFile, parameters: dict[str, str], path: Path, progress: Progress) -> str:
    """Write a safetensors file: the header's length in eight bytes, the header (JSON), the tensors in its order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    total = 0
    for parameter, name in parameters.items():
        shape = file.tensors[name].shape
        header[parameter] = {"dtype": "BF16", "shape": shape, "data_offsets": [total, total := total + 2 * prod(shape)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest, done = hashlib.sha256(), 0
    with path.open("wb") as out:
        for data in (len(text).to_bytes(8, "little"), text):
            digest.update(data)
            out.write(data)
        for name in parameters.values():
            for rows in _rows(file, name):
                values = rows.view(torch.int16).numpy().data
                digest.update(values)
                out.write(values)
                done += values.nbytes
                progress("first use: converting the weights of Gemma 3 270M", done / total)
    return digest.hexdigest()
