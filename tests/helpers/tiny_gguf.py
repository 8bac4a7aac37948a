"""A tiny random Gemma 3 as a GGUF file, written as llama.cpp's converter writes them."""

from pathlib import Path

import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

SHAPE = {"embedding_length": 64, "feed_forward_length": 96, "block_count": 7, "context_length": 512}
HEADS, HEAD_DIM = 4, 256
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]"]
WORDS = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdent,.\n", "  ", "   ", "an", "and", "▁and"]


def write_gguf(path: Path) -> None:
    """A random Gemma 3 of seven layers, with float and quantised tensors, as llama.cpp's converter writes them."""
    generator = torch.Generator().manual_seed(0)
    writer = GGUFWriter(path, "gemma3")
    writer.add_name("tiny")
    for key, value in SHAPE.items():
        writer.add_uint32(f"gemma3.{key}", value)
    attention = {"head_count": HEADS, "head_count_kv": 1, "key_length": HEAD_DIM, "value_length": HEAD_DIM}
    for key, value in {**attention, "sliding_window": 16}.items():
        writer.add_uint32(f"gemma3.attention.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(WORDS)
    writer.add_token_scores([-float(i) for i in range(len(WORDS))])
    writer.add_token_types([3] * 5 + [4] + [6] * 256 + [1] * (len(WORDS) - 262))
    for name, token in {"padding": 0, "eos": 1, "bos": 2, "unknown": 3}.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    writer.add_add_bos_token(True)

    hidden, inner = SHAPE["embedding_length"], SHAPE["feed_forward_length"]
    plain, quantised = GGMLQuantizationType.F32, GGMLQuantizationType.Q5_0
    tensors = {"token_embd": (GGMLQuantizationType.Q8_0, len(WORDS), hidden), "output_norm": (plain, hidden)}
    for layer in range(SHAPE["block_count"]):
        block = {"attn_q": (quantised, HEADS * HEAD_DIM, hidden), "attn_k": (quantised, HEAD_DIM, hidden)}
        block |= {"attn_v": (GGMLQuantizationType.Q8_0, HEAD_DIM, hidden)}
        block |= {"attn_output": (GGMLQuantizationType.F16, hidden, HEADS * HEAD_DIM)}
        block |= {"attn_q_norm": (plain, HEAD_DIM), "attn_k_norm": (plain, HEAD_DIM)}
        block |= dict.fromkeys(("ffn_gate", "ffn_up"), (quantised, inner, hidden))
        block |= {"ffn_down": (quantised, hidden, inner)}
        block |= dict.fromkeys(("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"), (plain, hidden))
        tensors |= {f"blk.{layer}.{name}": value for name, value in block.items()}
    for name, (kind, *shape) in tensors.items():
        values = (torch.randn(shape, generator=generator) * 0.2 + name.endswith("norm")).numpy()
        writer.add_tensor(f"{name}.weight", quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
