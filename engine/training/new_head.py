"""A new head for a target: the words it can draft, its initial weights, and the files it is published in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ..core.errors import UsageError
from ..heads.compact import shrunk
from ..heads.dflash import DFlashHead
from ..heads.eagle3 import Eagle3Head
from ..heads.fields import QUANTIZATION
from ..heads.head_layers import transformers_config
from ..heads.head_spec import FULL, HeadSpec, LayerConfig
from ..heads.shapes import OUTPUT
from ..heads.vocabulary import TABLES
from .features import Features
from .written import MIN_TOKENS

HEAD_DIM = 64
SMALL = 0.2
TEMPERATURE = 0.8
DROPPED = (
    "architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "id2label", "label2id",
    "problem_type", "return_dict", "chunk_size_feed_forward",
)  # fmt: skip
NUM_WINDOWS, NUM_ROWS = 512, 8192  # how much of the training text is used to choose a head's words


@dataclass(frozen=True)
class Design:
    """The design of a head. num_steps: of training-time test, also the k it is published for."""

    intermediate_size: int
    draft_vocab_size: int
    num_steps: int


@dataclass(frozen=True)
class TargetWeights:
    """What a head takes from its target: embedding and output rows, each [vocab, size], and its text configuration."""

    embedding: Tensor
    output: Tensor
    config: Any

    @classmethod
    def of(cls, model: Any) -> TargetWeights:
        """From a model, before its linears are packed."""
        embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        return cls(embedding.detach(), output.detach(), model.config.get_text_config())


@torch.inference_mode()
def likely_words(features: Features, output: Tensor, count: int) -> Tensor:
    """The `count` token ids that the target most likely says, ascending [count]: half by its probabilities at
    TEMPERATURE over NUM_ROWS places of its windows, half by how often the windows contain them. A word that a head
    lacks ends a draft, so the probability mass left out is what counts.

    output [vocab, size]: the target's output rows.

    Raises UsageError if there are fewer than two windows, one to learn from and one held out."""
    if len(features.index) < 2:
        raise UsageError(
            f"the target wrote {len(features.index)} windows of at least {MIN_TOKENS} tokens, and training needs two; "
            "choose more --windows"
        )
    chosen = list(range(0, len(features.index), max(1, len(features.index) // NUM_WINDOWS)))
    mass, seen = torch.zeros(len(output), dtype=torch.float64), torch.zeros(len(output), dtype=torch.float64)
    per_window = max(1, NUM_ROWS // len(chosen))
    for i in chosen:
        batch = features.batch([i])
        ids, rows = batch.ids[0], batch.last[0]
        seen += torch.bincount(ids, minlength=len(output))
        rows = rows[:: max(1, len(rows) // per_window)].to(output)
        mass += ((rows @ output.T).float() / TEMPERATURE).softmax(-1).sum(0).double().cpu()
    score = mass / mass.sum() + 0.5 * seen / seen.sum()
    return score.argsort(descending=True, stable=True)[: min(count, len(output))].sort().values


def begin_from(head: Eagle3Head, folder: Path) -> None:
    """Give `head` the weights of a published head of the same shape, except its words and their output rows. Raises
    UsageError."""
    from ..loading.load_head import read_tensors

    tensors = {name: value for name, value in read_tensors(folder).items() if name not in (OUTPUT, *TABLES)}
    own = {name: value for name, value in head.named_parameters() if name != OUTPUT}
    if tensors.keys() != own.keys() or any(value.shape != tensors[name].shape for name, value in own.items()):
        raise UsageError(
            f"the head in {str(folder)!r} has another shape than the one to be trained, one layer with an MLP of "
            f"{head.spec.layers.intermediate_size}; choose its --intermediate, or a head of one layer"
        )
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])


def default_layers(num_target_layers: int) -> tuple[int, ...]:
    """The target's hidden states that a new head reads: early, middle, late, as in the speculators package."""
    return tuple(sorted({min(2, num_target_layers), num_target_layers // 2, max(0, num_target_layers - 3)}))


def new_spec(intermediate_size: int, target: TargetWeights, hidden_layers: tuple[int, ...]) -> HeadSpec:
    """One layer as wide as the target, with attention heads of HEAD_DIM."""
    vocab_size, size = target.output.shape
    num_heads = max(1, size // HEAD_DIM)
    layers = LayerConfig(
        "llama",
        hidden_size=size,
        intermediate_size=intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads // 2 if num_heads % 2 == 0 else num_heads,
        head_dim=min(HEAD_DIM, size),
        vocab_size=vocab_size,
        layer_types=(FULL,),
        max_position_embeddings=target.config.max_position_embeddings,
    )
    return HeadSpec("eagle3", layers, hidden_layers, norm_before_residual=True, norm_before_fc=True)


def new_head(spec: HeadSpec, target: TargetWeights, words: Tensor, scales: Tensor) -> Eagle3Head:
    """A head that begins near its target: its output rows are the target's, and its layer adds to the latest of the
    hidden states it reads.

    scales [layers * size]: the typical size of each feature read, divided out in `fc`, so that large states do not
    drown the head."""
    vocab_size, size = target.output.shape
    head = Eagle3Head(spec, size, len(words))
    head.lend(target.embedding)
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
    layer: Any = head.layers[0]
    for linear in (layer.self_attn.o_proj, layer.mlp.down_proj):
        linear.weight.data.mul_(SMALL)
    head.fc.weight.data.div_(scales[None]).mul_(SMALL)
    latest = scales[-size:]
    head.fc.weight.data[:, -size:] += torch.eye(size, device=latest.device) / latest.square().mean().sqrt()
    head.lm_head.weight.data.copy_(target.output[words].float())
    head.target_ids = None if len(words) == vocab_size else words
    return head


def save_head(
    head: Eagle3Head | DFlashHead,
    folder: Path,
    target_name: str,
    num_tokens: int,
    dtype: torch.dtype = torch.bfloat16,
    compact: bool = False,
) -> None:
    """Write config.json and model.safetensors in the speculators format, which vLLM serves. compact: 8-bit matrices,
    and no output rows if they are rows of the target's embedding; this engine reads that."""
    folder.mkdir(parents=True, exist_ok=True)
    spec, vocab_size = head.spec, head.spec.layers.vocab_size
    tensors = {name: value.detach().to(dtype).contiguous().cpu() for name, value in head.named_parameters()}
    ids = head.target_ids
    tied = compact and ids is not None and torch.equal(tensors[OUTPUT], head._lent[0][ids].to(dtype).cpu())
    if tied:
        del tensors[OUTPUT]
    if compact:
        tensors = shrunk(tensors)
    draft_vocab_size = head.lm_head.out_features if hasattr(head, "lm_head") else vocab_size
    if ids is not None:
        ids = ids.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, ids, True)
    save_file(tensors, folder / "model.safetensors")
    layers = transformers_config(spec.layers).to_dict()
    proposal = {"proposal_type": "greedy", "speculative_tokens": num_tokens, "accept_tolerance": 0.0}
    config: dict[str, Any] = {
        "speculators_model_type": spec.kind,
        "speculators_version": "0.9.0",
        "architectures": ["Eagle3DraftModel" if spec.kind == "eagle3" else "DFlashDraftModel"],
        "dtype": str(dtype).removeprefix("torch."),
        "draft_vocab_size": draft_vocab_size,
        "target_hidden_size": None,
        "tie_word_embeddings": tied,
        **({"quantization_config": QUANTIZATION} if compact else {}),
        "transformer_layer_config": {key: value for key, value in layers.items() if key not in DROPPED},
        "speculators_config": {
            "algorithm": spec.kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{**proposal, "verifier_accept_k": 1}],
            "verifier": {"name_or_path": target_name, "architectures": []},
        },
    }
    if spec.kind == "eagle3":
        config |= {"eagle_aux_hidden_state_layer_ids": list(spec.hidden_layers), "embed_requires_grad": False}
        names = ["norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"]
    else:
        config |= {"aux_hidden_state_layer_ids": list(spec.hidden_layers), "sample_from_anchor": False}
        config |= {"sliding_window_non_causal": False}
        names = ["block_size", "mask_token_id"]
    config |= {name: getattr(spec, name) for name in names}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
