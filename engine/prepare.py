"""A transformers causal LM made ready for fixed steps, once: the engine's attention, fused layers, whatever linears and kernels are the fastest here; and
compared with the stock model."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .attention import NAME, shape_of, windows_of
from .errors import UnsupportedModel
from .fused_decoder import fuse
from .gpu.choice import MOST_ROWS, kernels_for
from .int8 import LIMIT, by_kernels, round_weights
from .linear_attention import fix_linear_layers
from .packing import can_pack, pack
from .progress import Progress, silent
from .quiet import quiet
from .target import LENGTH_BUCKET, Prepared, StaticTarget

log = logging.getLogger(__name__)
FAITHFUL_TOKENS = 24
ROUNDING = {torch.bfloat16: 0.1, torch.float16: 0.1}


@torch.inference_mode()
def prepare(model: PreTrainedModel, packed: bool | None = None, int8_from: int | None = None, kernels: bool | None = None, progress: Progress = silent) -> Prepared:
    """Switch the model, in place, to the engine's attention and pack its linears where the CPU gains by it (`packed` None: decide), those of `int8_from`
    weights and more in int8 (None: none), all of them where kernels of our own do that; on CUDA put Triton kernels in where they run (`kernels` None: decide), and measure their configurations.
    The fixed step is then compared with the stock model on a few tokens. Raises UnsupportedModel if they disagree: whatever an architecture does
    beyond what the fixed step reproduces is refused, never ignored."""
    kind = type(model).__name__
    try:
        return _prepare(model, packed, int8_from, kernels, progress)
    except UnsupportedModel:
        raise
    except Exception as error:  # architectures differ in any way; what does not fit shows as any error of theirs
        raise UnsupportedModel(f"{kind} does not run on the fixed step: {type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}") from error


def _prepare(model: PreTrainedModel, packed: bool | None, int8_from: int | None, kernels: bool | None, progress: Progress) -> Prepared:
    shape = shape_of(model)
    weight = next(model.parameters())
    device, dtype = weight.device, weight.dtype
    if device.type == "cuda":  # cuDNN's attention plans anew for every shape in every thread, and each race is a thread
        torch.backends.cuda.enable_cudnn_sdp(False)
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(f"{type(model).__name__} has no output embeddings: it is no causal language model")
    vocab_size = int(head.weight.shape[0])
    ids = (torch.arange(FAITHFUL_TOKENS, device=device) * 7919 % min(vocab_size, embeddings.weight.shape[0]))[None]
    with quiet():
        stock = model(input_ids=ids, use_cache=False).logits[0].float()

    model.set_attn_implementation(NAME)
    fix_linear_layers(model)
    fuse(model)
    if kernels is None:
        kernels = kernels_for(device, dtype)
    if packed is None:
        packed = device.type == "cpu" and can_pack(dtype) and not kernels
    in_bytes = int8_from is not None and packed and dtype == torch.bfloat16 and by_kernels()
    prepared = Prepared(model, shape, packed, vocab_size, dtype, device, 1 if in_bytes else int8_from)
    if int8_from is not None:
        _check_faithful(prepared, ids[0].tolist(), stock)  # what the step does; below, what int8 costs
        if not in_bytes:
            round_weights(model, int8_from)
    if packed:
        pack(model, in_bytes)
    _check_faithful(prepared, ids[0].tolist(), stock, rounded=int8_from is not None)
    return _with_kernels(prepared, ids[0, :MOST_ROWS].tolist(), stock[:MOST_ROWS], progress) if kernels else prepared


def _with_kernels(prepared: Prepared, ids: list[int], stock: Tensor, progress: Progress) -> Prepared:
    """The same with Triton kernels in the model, or, where they do not run or are wrong, as it was: torch's own then do, and the log has why."""
    from .gpu.agree import check_agreement
    from .gpu.put import put_kernels, take_out_kernels

    try:
        put_kernels(prepared.model, progress)
        with_kernels = replace(prepared, kernels=True)
        _check_faithful(with_kernels, ids, stock)
        progress("comparing the kernels with torch's", None)
        check_agreement(with_kernels)
        return with_kernels
    except Exception as error:
        log.warning("the Triton kernels are not used for %s", type(prepared.model).__name__, exc_info=True)
        take_out_kernels(prepared.model)
        said = (str(error).strip() or "-").splitlines()[0][:200]
        return replace(prepared, against_kernels=f"{type(error).__name__}: {said}")


def _check_faithful(prepared: Prepared, ids: list[int], stock: Tensor, rounded: bool = False) -> None:
    target = StaticTarget(prepared, LENGTH_BUCKET, (len(ids),))
    seen: dict[int, int | None] = {}
    logits, _ = target.forward(torch.tensor([ids], device=prepared.device), seen)
    if seen != (wanted := windows_of(prepared.model)):
        layer = next(layer for layer in wanted if seen.get(layer, -1) != wanted[layer])
        what = f"is configured for window {wanted[layer]}, and asks for {seen[layer]} in" if layer in seen else "does not go through"
        raise UnsupportedModel(f"{type(prepared.model).__name__}: layer {layer} {what} the attention interface")
    error, scale = float((logits.float() - stock).abs().mean()), float(stock.std())
    limit, why = (LIMIT, "int8 weights cost it too much; choose another dtype") if rounded else (ROUNDING.get(prepared.dtype, 1e-3), "it does something this engine would ignore")
    if not error <= limit * scale:
        raise UnsupportedModel(f"{type(prepared.model).__name__}: the fixed step's logits differ from the stock model's by {error:.2g} on average (limit {limit * scale:.2g}); {why}")
