"""A transformers causal LM made ready for fixed steps, once: the engine's attention, fused layers, whatever linears and
kernels are the fastest here; and compared with the stock model."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..errors import UnsupportedModel, in_a_line
from ..kernels import Kernels
from ..kernels.choose import choose
from ..kernels.torch import TorchKernels
from ..model.attention import NAME, shape_of, windows_of
from ..model.decoder import fuse
from ..model.delta_rule import fix_linear_layers
from ..progress import Progress, silent
from ..quiet import quiet
from .agreement import check_agreement
from .prepared import Prepared
from .target import LENGTH_BUCKET, StaticTarget

log = logging.getLogger(__name__)
FAITHFUL_TOKENS, ROWS = 24, 16
"""Compared, and how many of them at once: no more than any kernels take."""
ROUNDING = {torch.bfloat16: 0.1, torch.float16: 0.1}
INT8_LIMIT = 0.3
"""By how much logits may move on average with weights of 8 bits, as a share of their spread. Measured with the default
model: 0.024; logits that have nothing to do with the model's differ by 1.1."""


@torch.inference_mode()
def prepare(
    model: PreTrainedModel, kernels: Kernels | None = None, int8: bool = False, progress: Progress = silent
) -> Prepared:
    """Switch the model, in place, to the engine's attention and fused layers, and install `kernels` (None: the fastest
    here; int8: with weights of 8 bits). The fixed step is then compared with the stock model on a few tokens. Raises
    UnsupportedModel if they disagree: whatever an architecture does beyond what the fixed step reproduces is refused,
    never ignored."""
    kind = type(model).__name__
    try:
        return _prepare(model, kernels, int8, progress)
    except UnsupportedModel:
        raise
    except Exception as error:  # architectures differ in any way; what does not fit shows as any error of theirs
        raise UnsupportedModel(f"{kind} does not run on the fixed step: {in_a_line(error)}") from error


def _prepare(model: PreTrainedModel, kernels: Kernels | None, int8: bool, progress: Progress) -> Prepared:
    shape = shape_of(model)
    weight = next(model.parameters())
    device, dtype = weight.device, weight.dtype
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(f"{type(model).__name__} has no output embeddings: it is no causal language model")
    vocab_size = int(head.weight.shape[0])
    ids = (torch.arange(FAITHFUL_TOKENS, device=device) * 7919 % min(vocab_size, embeddings.weight.shape[0]))[None]
    with quiet():
        stock = model(input_ids=ids, use_cache=False).logits[0].float()

    model.set_attn_implementation(NAME)
    fix_linear_layers(model)
    kernels = kernels or choose(device, dtype)
    fuse(model, kernels.norms_by_layer_norm)
    tokens = ids[0].tolist()
    fallback = kernels.fallback("")
    plain = Prepared(model, shape, fallback or TorchKernels(device), vocab_size, dtype, device)
    if int8 or fallback is not None:
        _check_faithful(plain, tokens, stock)  # what the fixed step does; below, what the kernels do
    found = replace(plain, kernels=kernels, int8=int8)
    try:
        kernels.install(model, int8)
        _check_faithful(found, tokens, stock)
        if fallback is not None:
            progress("comparing the kernels with torch's", None)
            check_agreement(found)
        return found
    except Exception as error:
        if (fallback := kernels.fallback(in_a_line(error))) is None:
            raise
        log.warning("the %s kernels are not used for %s", kernels.name, type(model).__name__, exc_info=True)
        kernels.remove(model)
        return replace(plain, kernels=fallback)


def _check_faithful(prepared: Prepared, ids: list[int], stock: Tensor) -> None:
    target = StaticTarget(prepared, LENGTH_BUCKET, (ROWS,))
    seen: dict[int, int | None] = {}
    rows = []
    for start in range(0, len(ids), ROWS):
        target.jump(start)
        rows.append(
            target.forward(torch.tensor([ids[start : start + ROWS]], device=prepared.device), seen)[0].float().clone()
        )
    logits = torch.cat(rows)
    if seen != (wanted := windows_of(prepared.model)):
        layer = next(layer for layer in wanted if seen.get(layer, -1) != wanted[layer])
        what = (
            f"is configured for window {wanted[layer]}, and asks for {seen[layer]} in"
            if layer in seen
            else "does not go through"
        )
        raise UnsupportedModel(f"{type(prepared.model).__name__}: layer {layer} {what} the attention interface")
    error, scale = float((logits - stock).abs().mean()), float(stock.std())
    limit, why = (
        (INT8_LIMIT, "int8 weights cost it too much; choose another dtype")
        if prepared.int8
        else (ROUNDING.get(prepared.dtype, 1e-3), "it does something this engine would ignore")
    )
    if not error <= limit * scale:
        raise UnsupportedModel(
            f"{type(prepared.model).__name__}: the fixed step's logits differ from the stock model's by {error:.2g} "
            f"on average (limit {limit * scale:.2g}); {why}"
        )
