"""Random EAGLE-3 and DFlash heads for the compiled kernels, and how they draft."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.core.interfaces import Node
from engine.drafters.dflash import DFlashDrafter, HostDFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter, HostEagle3Drafter
from engine.heads.build_head import build
from engine.heads.compact import with_output
from engine.kernels.cpu.head_rows import pack_head
from engine.layers.layers import fuse_layers
from engine.loading.load_head import read_spec
from tests.helpers.head_files import save
from tests.helpers.head_fixtures import VOCAB, context, formats_target, hidden_rows, made
from tests.helpers.random_heads import (
    DFLASH,
    DFLASH_FORMS,
    EAGLE3,
    EAGLE3_FORMS,
    LAYERS,
    ZLAB_CONFIG,
    dflash_tensors,
    eagle3_tensors,
)

K = 5
PROMPT = list(range(7, 60))
WIDE = {"head_dim": 32}
LEFT_OUT = ("embeddings and the last state", "qwen3 layers", "wide heads", "llama3 angles", "no d2t", "no t2d")
LEFT_OUT += ("mrope, which is plain for text", "angles by kind of layer", "another width", "a padded embedding")
FORMS: dict[str, Any] = {
    **{form: case for form, case in EAGLE3_FORMS.items() if form not in (*LEFT_OUT, "the whole vocabulary")},
    "both norms": {"config": {"fc_norm": True, "norm_before_fc": True}},
    "a head of keys for each of queries": {"layers": {"num_key_value_heads": 4}},
    "one head of keys": {"layers": {"num_key_value_heads": 1, "head_dim": 64}},
    "yarn, whose angles are scaled": {
        "layers": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}
    },
    "another width, six heads over two": {"layers": {"hidden_size": 48, "num_attention_heads": 6}, "own": VOCAB},
    "words that fill no block": {"config": {"draft_vocab_size": 77}},
}
DFLASH_MORE: dict[str, Any] = {
    **DFLASH_FORMS,
    "one head of keys": {"layers": {"num_key_value_heads": 1, "head_dim": 64}},
    "a head of keys for each of queries": {"layers": {"num_key_value_heads": 4}},
    "yarn, whose angles are scaled": FORMS["yarn, whose angles are scaled"],
    "words that fill no block": {"config": {"draft_vocab_size": 77}},
}
DFLASH_SOME = ("speculators", "sliding", "z-lab, sliding, bidirectional", "from the anchor")


def head_of(folder: Any, form: str, rounded: bool) -> Any:
    """A packed random bfloat16 head of that form for formats/target."""
    case = FORMS[form]
    layers, config = {**LAYERS, **WIDE, **case.get("layers", {})}, {**EAGLE3, **case.get("config", {})}
    tensors = eagle3_tensors(layers, config, qk_norm=case.get("qk_norm", False), own=case.get("own", 0))
    source = save(
        folder / "head",
        {**config, "transformer_layer_config": layers},
        {name: value for name, value in tensors.items() if name not in case.get("without", ())},
    )
    if not rounded:
        target, spec = formats_target("bfloat16"), read_spec(source, "eagle3", 6)
        head: Any = build(
            spec,
            with_output(
                {n: t for n, t in tensors.items() if n not in case.get("without", ())},
                spec,
                target.model.get_input_embeddings().weight,
            ),
            64,
            VOCAB,
        )
        head.lend(target.model.get_input_embeddings().weight, target.prepared.model.get_output_embeddings())
        head.to(torch.bfloat16)
        fuse_layers(head, True)
        for layer in head.layers:
            layer.self_attn.join(with_queries=True)
        pack_head(head, rounded=False)
        return head
    return made(f"eagle3:{source}", formats_target("bfloat16"), K).head


def drafter(head: Any, natively: bool, k: int = K) -> Any:
    here = context(formats_target("bfloat16"), k, PROMPT, keep_logits=True)
    return (HostEagle3Drafter if natively else Eagle3Drafter)(head, here)


def states(head_drafter: Any) -> Tensor:
    rows = hidden_rows(head_drafter, PROMPT, 64)
    assert rows is not None
    return rows.bfloat16()


def rows_of(one: Any, cuts: list[int], chain: list[int]) -> list[Tensor]:
    """Rows of logits: of the last of the prompt, which is taken in parts that end at `cuts`, and of a chain that is
    given those tokens."""
    one.prefill(PROMPT[: cuts[0]], states(one)[: cuts[0] - 1])
    for before, end in zip(cuts, [*cuts[1:], len(PROMPT)], strict=True):
        one.begin(PROMPT[:end], states(one)[before - 1 : end - 1])
    node, rows = Node(), []
    with torch.inference_mode():
        for token in [*chain, -1]:
            rows.append(one._rows_of([node])[0].clone())
            node = Node((*node.path, token), parent=node)
    return rows


def dflash_of(folder: Any, form: str) -> Any:
    """A packed random bfloat16 DFlash head of that form for formats/target."""
    case = DFLASH_MORE[form]
    layers = {**LAYERS, "model_type": "qwen3", **WIDE, **case.get("layers", {})}
    config = {**ZLAB_CONFIG, **case["zlab"]} if "zlab" in case else {**DFLASH, **case.get("config", {})}
    tensors = dflash_tensors(layers, {"aux_hidden_state_layer_ids": [2, 3, 4], **config}, own=case.get("own", 0))
    settings = {**config, **layers} if "zlab" in case else {**config, "transformer_layer_config": layers}
    source = save(folder / "head", settings, tensors)
    return made(f"dflash:{source}{case.get('option', '')}", formats_target("bfloat16"), K).head


def dflash_drafter(head: Any, natively: bool = True, k: int = K, **more: Any) -> Any:
    here = context(formats_target("bfloat16"), k, PROMPT, **more)
    return (HostDFlashDrafter if natively else DFlashDrafter)(head, here)


def drafts(one: Any, ends: list[int], k: int = K) -> Any:
    """The draft after the prompt, which is taken in parts that end at `ends`, with a draft after each but the first."""
    hidden = torch.randn(len(PROMPT), 3 * 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    one.prefill(PROMPT[: ends[0]], hidden[: ends[0] - 1])
    for before, end in zip(ends, [*ends[1:], len(PROMPT)], strict=True):
        draft = one.propose(PROMPT[:end], hidden[before - 1 : end - 1], k)
    return draft


def logits_of(draft: Any) -> Tensor:
    return draft.logits[:, draft.logits[0].isfinite()]
