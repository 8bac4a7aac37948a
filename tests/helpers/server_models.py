"""The trained fixture in the forms that real servers need: as a GGUF file, and as a model that thinks."""

import json
import shutil
from pathlib import Path

from gguf import GGUFWriter
from safetensors.numpy import load_file

# The checkpoint's names of a layer's tensors, and llama.cpp's.
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"},
    **{f"self_attn.{name}_norm": f"attn_{name}_norm" for name in "qk"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")},
}
TRAINED = Path(__file__).resolve().parents[1] / "fixtures" / "trained"
NORMAL, CONTROL = 1, 3  # llama.cpp's types of tokens


def write_models(folder: Path) -> None:
    """All of them, under the short names that servers are given, so that no answer names a path of this machine."""
    for name, place in (("trained", "target"), ("draft", "draft"), ("eagle3", "eagle3")):
        shutil.copytree(TRAINED / place, folder / name, dirs_exist_ok=True)
    write_thinking(folder / "trained", folder / "thinking")
    for name in ("trained", "draft"):
        write_gguf(folder / name, folder / f"{name}.gguf")


def write_gguf(checkpoint: Path, path: Path) -> None:
    """checkpoint: a folder with float32 weights, tied embeddings and a byte-level tokenizer with GPT-2's pattern."""
    config = json.loads((checkpoint / "config.json").read_text())
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    template = checkpoint / "chat_template.jinja"
    writer = GGUFWriter(path, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])

    vocabulary = tokenizer["model"]["vocab"] | {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(vocabulary, key=vocabulary.__getitem__))
    writer.add_token_types([CONTROL if i in special else NORMAL for i in range(len(vocabulary))])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    if template.exists():
        writer.add_chat_template(template.read_text())

    weights = load_file(checkpoint / "model.safetensors")
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    for layer in range(config["num_hidden_layers"]):
        names |= {f"model.layers.{layer}.{theirs}": f"blk.{layer}.{ours}" for theirs, ours in LAYER.items()}
    for theirs, ours in names.items():
        writer.add_tensor(f"{ours}.weight", weights[f"{theirs}.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_thinking(checkpoint: Path, path: Path) -> None:
    """A copy whose chats begin in the middle of thinking, and whose token ` S`, which it writes often, ends it."""
    shutil.copytree(checkpoint, path, dirs_exist_ok=True)
    tokenizer = json.loads((path / "tokenizer.json").read_text().replace("<|mask|>", "<think>"))
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    end = vocabulary["</think>"] = vocabulary.pop("ĠS")
    tokenizer["model"]["merges"] = [pair for pair in merges if "ĠS" not in (*pair, "".join(pair))]
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][-1], "id": end, "content": "</think>"})
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        text = (path / name).read_text()
        (path / name).write_text(text.replace("<|mask|>", "<think>").replace("assistant\n", "assistant\n<think>\n"))
