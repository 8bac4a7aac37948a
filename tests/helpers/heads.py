"""Draft heads of any kind and form for formats/target, in memory, as files and packed; and lanes that they draft in."""

import json
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine import drafters
from engine.core.events import Step
from engine.core.interfaces import Node
from engine.drafters.eagle3 import HostEagle3Drafter
from engine.heads.formats import spec_of
from engine.heads.head_spec import HeadSpec
from engine.heads.names import SHIPPED, HeadName
from engine.heads.shapes import _parameters
from engine.kernels.cpu.packing import pack_head
from engine.loading.loading import LoadedModel, ModelInfo
from engine.loading.random_targets import read_published
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers import FIXTURES
from tests.helpers.tiny import LENGTH, TRAINED, lane
from tests.helpers.trained import NUM_NEW, context

FORMATS = FIXTURES / "formats"
HEADS = {kind: TRAINED.parent / kind for kind in ("eagle3", "dflash")}
NUM_LAYERS, SIZE, VOCAB, MASK = 6, 64, 512, 511  # of formats/target, and its heads' mask token
AUX = [2, 3, 4]  # the hidden states that heads read unless a form says otherwise

# Forms: how a random head differs from a plain one.

LAYERS: dict[str, Any] = {
    "model_type": "llama", "hidden_size": SIZE, "intermediate_size": 96, "num_hidden_layers": 1, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "max_position_embeddings": 512, "vocab_size": VOCAB, "rope_theta": 10_000.0, "attention_bias": False,
}  # fmt: skip
DFLASH_CONFIG = {"mask_token_id": MASK, "target_layer_ids": [1, 2, 3]}
# What each format says besides its layers: those of speculators nest them, the authors' own are flat.
FORMAT_FIELDS: dict[str, dict[str, Any]] = {
    "eagle3": {
        "speculators_model_type": "eagle3", "eagle_aux_hidden_state_layer_ids": AUX, "draft_vocab_size": 96,
        "norm_before_residual": True,
    },
    "dflash": {
        "speculators_model_type": "dflash", "aux_hidden_state_layer_ids": AUX, "draft_vocab_size": VOCAB,
        "block_size": 8, "mask_token_id": MASK,
    },
    "original": {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 128},
    "a model": {"architectures": ["LlamaForCausalLM"]},  # no head at all
    "zlab": {"architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": DFLASH_CONFIG},
}  # fmt: skip
WIDTH_48 = {"hidden_size": 48}
SLIDING = {
    "model_type": "qwen3", "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4, "use_sliding_window": True,
}  # fmt: skip
TYPES_ALONE = {**SLIDING, "use_sliding_window": False}  # which layer_types overrules
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
BY_KIND = {"sliding_attention": {"rope_theta": 500.0}, "full_attention": {"rope_theta": 9e4}}
# The arguments of `random_head`; option: what follows the head's name; causal: which layers must be, by default none.
FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "eagle3": {
        "speculators": {},
        "residual after the norm": {"config": {"norm_before_residual": False}},
        "one norm before fc": {"config": {"norm_before_fc": True}},
        "a norm for each state": {"config": {"fc_norm": True}},
        "fed back after the norm": {"config": {"norm_output": True}},
        "two states": {"config": {"eagle_aux_hidden_state_layer_ids": [1, 5]}},
        "embeddings and the last state": {"config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 6]}},
        "two layers": {"layers": {"num_hidden_layers": 2}},
        "normed queries": {"qk_norm": True},
        "qwen3 layers": {"layers": {"model_type": "qwen3"}, "qk_norm": True},
        "biases": {"layers": {"attention_bias": True}},
        "wide heads": {"layers": {"head_dim": 32}},
        "another theta": {"layers": {"rope_theta": 500.0}},
        "llama3 angles": {"layers": {"rope_scaling": LLAMA3}},
        "mrope, which is plain for text": {"layers": {"rope_scaling": MROPE}},
        "angles by kind of layer": {"layers": {"rope_parameters": BY_KIND}},
        "sliding layers": {"layers": {**SLIDING, "sliding_window": 5}, "qk_norm": True},
        "its own embedding": {"own": VOCAB},
        "another width": {"layers": WIDTH_48, "own": VOCAB},
        "a padded embedding": {"own": VOCAB + 40},
        "the whole vocabulary": {"config": {"draft_vocab_size": VOCAB}},
        "the target's output layer": {"config": {"draft_vocab_size": VOCAB}, "without": ["lm_head.weight"]},
        "no d2t": {"without": ["d2t"]},
        "no t2d": {"without": ["t2d"]},
    },
    "dflash": {
        "speculators": {},
        "three layers": {"layers": {"num_hidden_layers": 3}},
        "sliding": {"layers": SLIDING, "causal": (True, False)},
        "sliding, bidirectional": {"layers": SLIDING, "config": {"sliding_window_non_causal": True}},
        "from the anchor": {"config": {"sample_from_anchor": True}},
        "from the anchor, sliding": {
            "layers": SLIDING, "config": {"sample_from_anchor": True}, "causal": (True, False)
        },
        "all causal": {"option": "#causal", "causal": (True, True)},
        "sliding, all bidirectional": {"layers": SLIDING, "option": "#bidirectional"},
        "a reduced vocabulary": {"config": {"draft_vocab_size": 96}},
        "its own embedding": {"own": VOCAB},
        "another width": {"layers": WIDTH_48, "own": VOCAB, "config": {"draft_vocab_size": 96}},
        "biases": {"layers": {"attention_bias": True}},
        "z-lab": {"format": "zlab"},
        "z-lab, sliding": {"format": "zlab", "layers": TYPES_ALONE, "causal": (True, False)},
        "ModelOpt's windows": {
            "format": "zlab", "config": {"dflash_config": {**DFLASH_CONFIG, "use_swa": True, "swa_window_size": 4}},
            "layers": {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2, "sliding_window": 9},
        },
        "z-lab, sliding, bidirectional": {"format": "zlab", "config": {"is_causal": False}, "layers": SLIDING},
        "z-lab, causal": {"format": "zlab", "config": {"is_causal": True}, "causal": (True, True)},
        "z-lab, causal inside": {
            "format": "zlab", "config": {"dflash_config": {**DFLASH_CONFIG, "causal": True}}, "causal": (True, True)
        },
        "z-lab, from the anchor": {
            "format": "zlab", "config": {"dflash_config": {**DFLASH_CONFIG, "query_zero_predicts_next": True}}
        },
        "z-lab, scaled and capped": {
            "format": "zlab",
            "config": {"input_embedding_scale": 8.0, "output_multiplier": 0.5, "final_logit_softcapping": 2.0},
        },
    },
}  # fmt: skip
# Those that compiled kernels are compared with torch in, all of them of heads 32 wide.
NATIVE_ONLY = {
    "a head of keys for each of queries": {"layers": {"num_key_value_heads": 4}},
    "one head of keys": {"layers": {"num_key_value_heads": 1, "head_dim": 64}},
    "yarn, whose angles are scaled": {"layers": {"rope_scaling": YARN}},
    "words that fill no block": {"config": {"draft_vocab_size": 77}},
}
ALIKE_NATIVELY = {"embeddings and the last state", "qwen3 layers", "wide heads", "llama3 angles", "no d2t", "no t2d"}
ALIKE_NATIVELY |= {"mrope, which is plain for text", "angles by kind of layer", "another width", "a padded embedding"}
ALIKE_NATIVELY |= {"the whole vocabulary"}
NATIVE_FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "eagle3": {
        **{form: case for form, case in FORMS["eagle3"].items() if form not in ALIKE_NATIVELY},
        **NATIVE_ONLY,
        "both norms": {"config": {"fc_norm": True, "norm_before_fc": True}},
        "another width, six heads over two": {"layers": {**WIDTH_48, "num_attention_heads": 6}, "own": VOCAB},
    },
    "dflash": {**FORMS["dflash"], **NATIVE_ONLY},
}


# Heads in memory


class Head(NamedTuple):
    """A head as its files have it."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def layers(self) -> dict[str, Any]:
        return self.config.get("transformer_layer_config", self.config)


def config_for(format: str, config: Mapping[str, Any] = {}, layers: Mapping[str, Any] = {}) -> dict[str, Any]:
    """The configuration of a plain head in that format, with these changes."""
    outer = {**FORMAT_FIELDS[format], **config}
    inner = {**LAYERS, **({"model_type": "qwen3"} if format in ("dflash", "zlab") else {}), **layers}
    return {**outer, "transformer_layer_config": inner} if "speculators_model_type" in outer else {**outer, **inner}


def random_head(
    kind: str,
    *,
    format: str = "",
    config: Mapping[str, Any] = {},
    layers: Mapping[str, Any] = {},
    own: int = 0,
    qk_norm: bool = False,
    without: Sequence[str] = (),
    **expected: Any,
) -> Head:
    """A random head for formats/target, always the same. own: rows of an embedding of its own; without: tensors that
    its file lacks; expected: what a form says to those that use it."""
    made = config_for(format or kind, config, layers)
    head = Head(made, {})
    spec = spec_of(made, "", kind, NUM_LAYERS)
    names = dict(_parameters(spec, SIZE, qk_norm or kind == "dflash", False))
    num_rows, size = made.get("draft_vocab_size", VOCAB), head.layers["hidden_size"]
    names |= {"lm_head.weight": (num_rows, size)} if kind == "eagle3" or num_rows < VOCAB else {}
    head.tensors.update(drawn({**names, **({"embed_tokens.weight": (own, size)} if own else {})}))
    if num_rows < VOCAB:
        ids = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))[:num_rows].sort().values
        marks = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
        head.tensors.update(d2t=ids - torch.arange(num_rows), t2d=marks)
    for name in without:
        head.tensors.pop(name, None)
    return head


def drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Random tensors, drawn so that logits spread."""
    generator, made = torch.Generator().manual_seed(0), {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        spread = 0.3 if len(shape) == 1 else shape[-1] ** -0.5 * 1.5
        made[name] = 1 + 0.3 * noise if "norm" in name else noise * spread
    return made


# Heads as files


def read(folder: Path) -> Head:
    weights = folder / "model.safetensors"
    tensors = load_file(weights) if weights.is_file() else torch.load(folder / "pytorch_model.bin", weights_only=True)
    return Head(json.loads((folder / "config.json").read_text()), tensors)


def save(folder: Path, config: Mapping[str, Any] | str, tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    return folder


def spec_in(folder: Path, kind: str, given: HeadName = SHIPPED) -> HeadSpec:
    """The spec of a head in a folder, for a target of these helpers' size."""
    return spec_of(read_published(folder / "config.json"), str(folder), kind, NUM_LAYERS, given)


def changed(source: Path, folder: Path, config: Any = None, tensors: Any = None) -> Path:
    """A copy of a head with its configuration or tensors changed in place by these functions."""
    head = read(source)
    for change, part in zip((config, tensors), head, strict=True):
        if change:
            change(part)
    return save(folder, *head)


def published(name: str, folder: Path) -> Path:
    """formats/<name>. The two that were converted have only a configuration: their tensors are their source's."""
    if not name.endswith("_spec"):
        return FORMATS / name
    tensors = read(FORMATS / name.removesuffix("_spec")).tensors
    renamed = {key.replace("midlayer.", "layers.0."): value for key, value in tensors.items()}
    return save(folder / name, (FORMATS / name / "config.json").read_text(), renamed)


# Targets and lanes


@cache
def stock_target(dtype: str = "float32") -> Any:
    """formats/target as transformers runs it."""
    return AutoModelForCausalLM.from_pretrained(FORMATS / "target", dtype=getattr(torch, dtype)).eval()


@cache
def formats_target(dtype: str = "float32", kernels: Any = None) -> LoadedModel:
    """The same for the engine; kernels: None for the fastest here."""
    model = stock_target.__wrapped__(dtype).requires_grad_(False)
    loaded = LoadedModel(model, None, ModelInfo("formats/target", "", "", dtype, "cpu", ""))
    if kernels:
        loaded.attached("prepared", lambda: prepare(model, kernels))
    return loaded


def hidden_rows(drafter: Any, tokens: Sequence[int], size: int) -> Tensor | None:
    """Hidden states that some target of that size might have for `tokens`, if the drafter asks for any."""
    if not drafter.hidden_layers:
        return None
    generator = torch.Generator().manual_seed(sum(tokens))
    return torch.randn(len(tokens), len(drafter.hidden_layers) * size, generator=generator)


def made(text: str, loaded: LoadedModel, k: int, **more: Any) -> Any:
    return drafters.make(text, context(loaded, k, **more))


def raced(
    loaded: LoadedModel,
    drafter: Any,
    prompt: Sequence[int],
    k: int,
    temperature: float = 0.0,
    num_new: int = NUM_NEW,
    widths: Sequence[int] = (8,),
) -> list[Step]:
    """A whole audited lane: its steps."""
    params = context(loaded, k, prompt, temperature, num_new).params
    target = StaticTarget(loaded.prepared, LENGTH, widths, drafter.hidden_layers)
    events = lane(loaded.prepared, drafter, prompt, widths, params, k, target=target)
    assert events[-1].reason == "length", events[-1]
    return [e for e in events if isinstance(e, Step)]


# Heads packed for the compiled kernels, and how they draft

K = 5
PROMPT = list(range(7, 60))


def packed(kind: str, form: str = "speculators", rounded: bool = True, kernels: Any = None) -> Any:
    """A random bfloat16 head of that form, as it is loaded for formats/target; rounded: to 8 bits if possible. kernels:
    as in `formats_target`; torch's leave it as it is."""
    case = NATIVE_FORMS[kind][form]
    head = random_head(kind, **{**case, "layers": {"head_dim": 32, **case.get("layers", {})}})
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.kernels.cpu.kernels.pack_head", partial(pack_head, rounded=rounded))
        text = f"{kind}:{save(Path(folder), *head)}{case.get('option', '')}"
        return made(text, formats_target("bfloat16", kernels), K).head


def drafter_with(head: Any, drafter: Any = HostEagle3Drafter, k: int = K) -> Any:
    return drafter(head, context(formats_target("bfloat16"), k, PROMPT, keep_logits=True))


def states(drafter: Any) -> Tensor:
    rows = hidden_rows(drafter, PROMPT, SIZE)
    assert rows is not None
    return rows.bfloat16()


def rows_of(drafter: Any, ends: Sequence[int], chain: Sequence[int]) -> list[Tensor]:
    """Rows of logits: of the last of the prompt, taken in parts that end at `ends`, and of a chain of those tokens."""
    drafter.prefill(PROMPT[: ends[0]], states(drafter)[: ends[0] - 1])
    for before, end in zip(ends, [*ends[1:], len(PROMPT)], strict=True):
        drafter.begin(PROMPT[:end], states(drafter)[before - 1 : end - 1])
    node, rows = Node(), []
    with torch.inference_mode():
        for token in [*chain, -1]:
            rows.append(drafter._rows_of([node])[0].clone())
            node = Node((*node.path, token), parent=node)
    return rows
