"""Targets, heads and contexts for tests of draft heads: the fixtures, and random heads of any shape written as
files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import drafters
from engine.choice.sampler import Sampler
from engine.drafters import DrafterContext
from engine.events import Prompt, Step
from engine.models.loading import LoadedModel, ModelInfo, load
from engine.progress import silent
from engine.spec import SamplingParams
from engine.target.target import StaticTarget
from tests.helpers.tiny import PACKED, TRAINED, lane

FIXTURES = TRAINED.parent.parent
FORMATS = FIXTURES / "formats"
HEADS = {"eagle3": TRAINED.parent / "eagle3", "dflash": TRAINED.parent / "dflash"}
NUM_LAYERS, SIZE, VOCAB = 6, 64, 512
"""Of formats/target."""
LENGTH = 256


@cache
def formats_target(dtype: str = "float32") -> LoadedModel:
    model = (
        AutoModelForCausalLM.from_pretrained(FORMATS / "target", dtype=getattr(torch, dtype))
        .eval()
        .requires_grad_(False)
    )
    return LoadedModel(model, None, ModelInfo("formats/target", "", "", dtype, "cpu", ""))


@cache
def trained_target(dtype: str = "float32") -> LoadedModel:
    return load(str(TRAINED), dtype, "cpu")


@cache
def stock_target() -> Any:
    """formats/target as transformers runs it."""
    return AutoModelForCausalLM.from_pretrained(FORMATS / "target", dtype=torch.float32).eval()


@torch.inference_mode()
def features(tokens: Sequence[int], layers: Sequence[int]) -> Tensor:
    """The stock target's hidden states [len(tokens), len(layers) * SIZE]."""
    states = stock_target()(input_ids=torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states
    return torch.cat([states[i][0] for i in layers], -1)


def context(
    loaded: LoadedModel,
    k: int,
    prompt: Sequence[int] = (1, 2, 3),
    temperature: float = 0.0,
    num_new: int = 48,
    **more: Any,
) -> DrafterContext:
    params = SamplingParams(temperature=temperature, seed=5, max_new_tokens=num_new)
    sample = Sampler(params, loaded.prepared.vocab_size, PACKED)
    return DrafterContext(
        loaded=loaded,
        params=params,
        k=k,
        length=LENGTH,
        sample=sample,
        prompt=Prompt("", tuple(prompt)),
        reference=None,
        progress=silent,
        **more,
    )


def made(text: str, loaded: LoadedModel, k: int, **more: Any) -> Any:
    return drafters.make(text, context(loaded, k, **more))


def raced(
    loaded: LoadedModel,
    drafter: Any,
    prompt: Sequence[int],
    k: int,
    temperature: float = 0.0,
    num_new: int = 48,
    widths: Sequence[int] = (8,),
) -> list[Step]:
    """A whole audited lane: its steps."""
    here = context(loaded, k, prompt, temperature, num_new)
    target = StaticTarget(loaded.prepared, LENGTH, widths, drafter.hidden_layers)
    events = lane(loaded.prepared, drafter, prompt, widths, here.params, k, target=target)
    assert events[-1].reason == "length", events[-1]
    return [e for e in events if isinstance(e, Step)]


def written(steps: Sequence[Step]) -> tuple[list[int], list[int]]:
    """(tokens, checksums of the logit rows) of a lane."""
    return [t for s in steps for t in s.token_ids], [c for s in steps for c in s.checksums]


def tensors_of(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").is_file():
        return load_file(folder / "model.safetensors")
    return torch.load(folder / "pytorch_model.bin", weights_only=True)


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def save(folder: Path, config: Mapping[str, Any] | str, tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    return folder


def changed(
    source: Path,
    folder: Path,
    config: Callable[[dict[str, Any]], Any] | None = None,
    tensors: Callable[[dict[str, Tensor]], Any] | None = None,
) -> Path:
    """A copy of a head with its configuration or tensors changed in place."""
    values, arrays = config_of(source), tensors_of(source)
    for change, what in ((config, values), (tensors, arrays)):
        if change:
            change(what)  # type: ignore[operator]
    return save(folder, values, arrays)


def published(name: str, folder: Path) -> Path:
    """formats/<name>. Of the two that were converted from others only the configuration is kept: their tensors are
    their source's."""
    if (FORMATS / name / "model.safetensors").exists() or (FORMATS / name / "pytorch_model.bin").exists():
        return FORMATS / name
    source = tensors_of(FORMATS / name.removesuffix("_spec"))
    return save(
        folder / name,
        config_of(FORMATS / name),
        {key.replace("midlayer.", "layers.0."): value for key, value in source.items()},
    )


def pickled(source: Path, folder: Path, value: Any) -> Path:
    """A head whose weights are a pickle of `value`."""
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    torch.save(value, folder / "pytorch_model.bin")
    return folder


LAYERS: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": SIZE,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "vocab_size": VOCAB,
    "rope_theta": 10_000.0,
    "attention_bias": False,
}
EAGLE3: dict[str, Any] = {
    "speculators_model_type": "eagle3",
    "eagle_aux_hidden_state_layer_ids": [2, 3, 4],
    "draft_vocab_size": 96,
    "norm_before_residual": True,
}
DFLASH: dict[str, Any] = {
    "speculators_model_type": "dflash",
    "aux_hidden_state_layer_ids": [2, 3, 4],
    "draft_vocab_size": VOCAB,
    "block_size": 8,
    "mask_token_id": 511,
}


def layer_tensors(
    config: Mapping[str, Any], index: int, in_size: int, qk_norm: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    size, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    num_q, num_kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    for name, shape in (
        ("q_proj", (num_q, in_size)),
        ("k_proj", (num_kv, in_size)),
        ("v_proj", (num_kv, in_size)),
        ("o_proj", (size, num_q)),
    ):
        yield f"layers.{index}.self_attn.{name}.weight", shape
        if config["attention_bias"]:
            yield f"layers.{index}.self_attn.{name}.bias", shape[:1]
    if qk_norm:
        yield from ((f"layers.{index}.self_attn.{name}_norm.weight", (dim,)) for name in "qk")
    yield from (
        (f"layers.{index}.mlp.{name}_proj.weight", shape)
        for name, shape in (("gate", (inner, size)), ("up", (inner, size)), ("down", (size, inner)))
    )
    yield from ((f"layers.{index}.{name}_layernorm.weight", (size,)) for name in ("input", "post_attention"))


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    """Random tensors, drawn so that logits spread."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        out[name] = 1 + 0.3 * noise if "norm" in name else noise * (0.3 if len(shape) == 1 else shape[-1] ** -0.5 * 1.5)
    return out


def table(num_rows: int, vocab_size: int = VOCAB, seed: int = 3) -> dict[str, Tensor]:
    """d2t and t2d of a random reduced vocabulary."""
    ids = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(seed))[:num_rows].sort().values
    return {
        "d2t": ids - torch.arange(num_rows),
        "t2d": torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, ids, True),
    }


def eagle3_tensors(
    layers: Mapping[str, Any], config: Mapping[str, Any], *, qk_norm: bool = False, own: int = 0
) -> dict[str, Tensor]:
    """A random EAGLE-3 head; own: rows of an embedding of its own."""
    size, num_aux = layers["hidden_size"], len(config["eagle_aux_hidden_state_layer_ids"])
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (size, num_aux * SIZE),
        "norm.weight": (size,),
        "lm_head.weight": (config["draft_vocab_size"], size),
        "layers.0.hidden_norm.weight": (size,),
    }
    for i in range(layers["num_hidden_layers"]):
        shapes |= dict(layer_tensors(layers, i, size if i else 2 * size, qk_norm))
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (num_aux * SIZE,)
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{i}.weight": (SIZE,) for i in range(num_aux)}
    if own:
        shapes["embed_tokens.weight"] = (own, size)
    return {**drawn(shapes), **(table(config["draft_vocab_size"]) if config["draft_vocab_size"] < VOCAB else {})}


def dflash_tensors(layers: Mapping[str, Any], config: Mapping[str, Any], *, own: int = 0) -> dict[str, Tensor]:
    """A random DFlash head, with an lm_head of its own where its vocabulary is reduced; own: rows of an embedding of
    its own."""
    size, num_aux = (
        layers["hidden_size"],
        len(config.get("aux_hidden_state_layer_ids") or config["dflash_config"]["target_layer_ids"]),
    )
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (size, num_aux * SIZE),
        "norm.weight": (size,),
        "hidden_norm.weight": (size,),
    }
    for i in range(layers["num_hidden_layers"]):
        shapes |= dict(layer_tensors(layers, i, size, True))
    num_rows = config.get("draft_vocab_size", VOCAB)
    if num_rows < VOCAB:
        shapes["lm_head.weight"] = (num_rows, size)
    if own:
        shapes["embed_tokens.weight"] = (own, size)
    return {**drawn(shapes), **(table(num_rows) if num_rows < VOCAB else {})}


SPECULATORS = {
    "eagle3": {**EAGLE3, "transformer_layer_config": LAYERS},
    "dflash": {**DFLASH, "transformer_layer_config": {**LAYERS, "model_type": "qwen3"}},
}
TENSORS = {"eagle3": eagle3_tensors(LAYERS, EAGLE3), "dflash": dflash_tensors(LAYERS, DFLASH)}
"""A random head of each kind for formats/target."""
ORIGINAL = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 128, **LAYERS}
ZLAB = {
    "architectures": ["DFlashDraftModel"],
    **LAYERS,
    "model_type": "qwen3",
    "block_size": 8,
    "dflash_config": {"mask_token_id": 511, "target_layer_ids": [1, 2, 3]},
}


def hidden_rows(drafter: Any, tokens: Sequence[int], size: int) -> Tensor | None:
    """Rows of hidden states that some target of that hidden size might have for `tokens`, if the drafter asks
    for any."""
    if not drafter.hidden_layers:
        return None
    return torch.randn(
        len(tokens), len(drafter.hidden_layers) * size, generator=torch.Generator().manual_seed(sum(tokens))
    )


def spoil(rows: Tensor | None) -> None:
    """What the target's next step may do to the rows that it handed out."""
    if rows is not None:
        rows.fill_(torch.nan)


SLIDING = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4,
    "use_sliding_window": True,
}
ZLAB_CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "block_size": 8,
    "dflash_config": {"mask_token_id": 511, "target_layer_ids": [1, 2, 3]},
}
DFLASH_FORMS = {
    "speculators": {},
    "three layers": {"layers": {"num_hidden_layers": 3}},
    "sliding": {"layers": SLIDING, "causal": (True, False)},
    "sliding, bidirectional": {"layers": SLIDING, "config": {"sliding_window_non_causal": True}},
    "from the anchor": {"config": {"sample_from_anchor": True}},
    "from the anchor, sliding": {"layers": SLIDING, "config": {"sample_from_anchor": True}, "causal": (True, False)},
    "all causal": {"option": "#causal", "causal": (True, True)},
    "sliding, all bidirectional": {"layers": SLIDING, "option": "#bidirectional"},
    "a reduced vocabulary": {"config": {"draft_vocab_size": 96}},
    "its own embedding": {"own": VOCAB},
    "another width": {"layers": {"hidden_size": 48}, "own": VOCAB, "config": {"draft_vocab_size": 96}},
    "biases": {"layers": {"attention_bias": True}},
    "z-lab": {"zlab": {}},
    "z-lab, sliding": {"zlab": {}, "layers": SLIDING, "causal": (True, False)},
    "z-lab, sliding, bidirectional": {"zlab": {"is_causal": False}, "layers": SLIDING},
    "z-lab, causal": {"zlab": {"is_causal": True}, "causal": (True, True)},
    "z-lab, causal inside": {
        "zlab": {"dflash_config": {**ZLAB_CONFIG["dflash_config"], "causal": True}},
        "causal": (True, True),
    },
    "z-lab, by default layers": {
        "zlab": {"dflash_config": {"mask_token_id": 511}},
        "layers": {"num_hidden_layers": 3},
        "aux": [2, 3, 4],
    },
    "z-lab, scaled and capped": {
        "zlab": {"input_embedding_scale": 8.0, "output_multiplier": 0.5, "final_logit_softcapping": 2.0}
    },
}
