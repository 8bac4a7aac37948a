"""From tensors to a head for one target: every size is checked, and what is missing is borrowed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..errors import UsageError
from . import dflash, eagle3
from .dflash import DFlashHead
from .eagle3 import Eagle3Head
from .spec import HeadSpec
from .vocabulary import draft_ids, embedding_of, is_whole


def build(spec: HeadSpec, tensors: Mapping[str, Tensor], target_size: int, vocab_size: int) -> Eagle3Head | DFlashHead:
    """A head for a target of that hidden size and vocabulary. Raises UsageError naming what does not fit. Matrices on
    the meta device are checked by their shapes."""
    kind, what = (eagle3, "the EAGLE-3 head") if spec.kind == "eagle3" else (dflash, "the DFlash head")
    tensors = dict(tensors)
    d2t, t2d = tensors.pop("d2t", None), tensors.pop("t2d", None)
    own, output = matrix(tensors, "embed_tokens.weight"), matrix(tensors, "lm_head.weight")
    if not is_whole(spec.vocab_size, vocab_size):
        raise UsageError(
            f"the head is for a vocabulary of {spec.vocab_size} words and the target has {vocab_size}: it is for "
            "another target"
        )
    if (fc := matrix(tensors, "fc.weight")) is None:
        raise UsageError(f"{what} lacks fc.weight")
    if fc.shape[1] != (num_read := len(spec.hidden_layers) * target_size):
        raise UsageError(
            f"{what}'s fc reads {fc.shape[1]} features; {len(spec.hidden_layers)} hidden states of this target have "
            f"{num_read}: it is for another target, or other indices (#aux=)"
        )
    kind.check(spec, own, output, target_size, vocab_size)
    if own is not None:
        tensors["embed_tokens.weight"] = own = embedding_of(own, vocab_size)
    num_rows, stated = (vocab_size, None) if output is None else (len(output), spec.draft_vocab_size)
    target_ids = draft_ids(d2t, t2d, num_rows, vocab_size, stated)
    num_words = None
    if output is not None:
        num_words = min(num_rows, vocab_size if target_ids is None else len(target_ids))
        tensors["lm_head.weight"] = output[:num_words]
    head: Eagle3Head | DFlashHead
    with torch.device("meta"):  # nothing is initialised only to be replaced
        if spec.kind == "eagle3":
            qk_norm = spec.layers.model_type == "qwen3" or "layers.0.self_attn.q_norm.weight" in tensors
            head = Eagle3Head(spec, target_size, num_words, qk_norm, fc_bias="fc.bias" in tensors)
        else:
            head = DFlashHead(spec, target_size, num_words)
        if own is not None:
            head.embed_tokens = nn.Embedding(*own.shape)
    load_into(head, tensors, what)
    head.target_ids = target_ids
    return head.eval().requires_grad_(False)


def matrix(tensors: Mapping[str, Tensor], name: str) -> Tensor | None:
    """The matrix of that name, or None. Raises UsageError if it is not a matrix."""
    value = tensors.get(name)
    if value is not None and (value.dim() != 2 or 0 in value.shape):
        raise UsageError(f"the head's {name} has shape {list(value.shape)}, which is no matrix")
    return value


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Make tensors the parameters of the same names, in their dtype. Raises UsageError naming what is missing, left
    over, of another shape, or not finite."""
    wanted = dict(module.named_parameters())
    if missing := sorted(set(wanted) - set(tensors)):
        raise UsageError(f"{what} lacks {len(missing)} of its tensors, such as {missing[0]}")
    if unknown := sorted(set(tensors) - set(wanted)):
        raise UsageError(f"{what} has {len(unknown)} tensors that this engine has no use for, such as {unknown[0]}")
    for name, parameter in wanted.items():
        value = tensors[name]
        if parameter.shape != value.shape:
            raise UsageError(
                f"{what}: {name} has shape {list(value.shape)}, but its config.json makes it {list(parameter.shape)}"
            )
        if not value.is_floating_point() or value.element_size() < 2:
            raise UsageError(
                f"{what}: {name} is {value.dtype}; this engine reads heads of float32, bfloat16 or float16"
            )
        if not value.is_meta and not bool(value.isfinite().all()):
            raise UsageError(f"{what}: {name} holds values that are not finite numbers")
    module.load_state_dict({name: tensors[name].to(parameter.dtype) for name, parameter in wanted.items()}, assign=True)
