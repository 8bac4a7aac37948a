"""From tensors to a head for one target: every size is checked, and what is missing is borrowed."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import UsageError
from .dflash import DFlashHead
from .eagle3 import Eagle3Head
from .head_spec import HeadSpec
from .shapes import EMBEDDING, OUTPUT, WHAT, fitted, info_of


def build(spec: HeadSpec, tensors: Mapping[str, Tensor], target_size: int, vocab_size: int) -> Eagle3Head | DFlashHead:
    """A head for a target of that hidden size and vocabulary, with these tensors in their dtypes. Raises UsageError
    naming what does not fit."""
    fit = fitted(spec, {name: info_of(name, value) for name, value in tensors.items()}, target_size, vocab_size)
    own = {name: tensors[name] for name in fit.shapes}
    if EMBEDDING in own:  # a row for every token of the target
        own[EMBEDDING] = F.pad(own[EMBEDDING], (0, 0, 0, fit.shapes[EMBEDDING][0] - len(own[EMBEDDING])))
    if OUTPUT in own:
        own[OUTPUT] = own[OUTPUT][: fit.num_words]
    for name, value in own.items():
        if not bool(value.isfinite().all()):
            raise UsageError(f"{WHAT[spec.kind]}: {name} holds values that are not finite numbers")
    head: Eagle3Head | DFlashHead
    with torch.device("meta"):  # nothing is initialised only to be replaced
        if spec.kind == "eagle3":
            head = Eagle3Head(spec, target_size, fit.num_words, fit.qk_norm, fit.fc_bias)
        else:
            head = DFlashHead(spec, target_size, fit.num_words)
        if EMBEDDING in own:
            head.embed_tokens = nn.Embedding(fit.shapes[EMBEDDING][0], fit.shapes[EMBEDDING][1])
    wanted = dict(head.named_parameters())
    head.load_state_dict({name: value.to(wanted[name].dtype) for name, value in own.items()}, assign=True)
    head.target_ids = None if fit.target_ids is None else torch.tensor(fit.target_ids)
    return head.eval().requires_grad_(False)
