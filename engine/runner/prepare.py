"""Prepares a transformers causal LM for fixed steps: the engine's attention, fused layers and the fastest linears and
kernels here; then compares it with the stock model."""

import logging
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..core.errors import NAN, PhotofinishError, RaceError, UnsupportedModel, in_a_line, is_out_of_memory
from ..kernels.choose import choose
from ..kernels.torch import Kernels
from ..layers.attention import NAME, shape_of, windows_of
from ..layers.decoder import fuse
from ..layers.delta_rule import fix_linear_layers
from ..progress import Progress, quiet, silent
from .agreement import check_agreement
from .kernel_trial import condemn, end_begun, tried
from .prepared import Prepared
from .target import LENGTH_BUCKET, StaticTarget

log = logging.getLogger(__name__)
FAITHFUL_TOKENS, ROWS = 24, 16  # how many tokens are compared, and how many at once: no more than any kernels take
ROUNDING = {torch.bfloat16: 0.1, torch.float16: 0.1}


@torch.inference_mode()
def prepare(model: PreTrainedModel, kernels: Kernels | None = None, progress: Progress = silent) -> Prepared:
    """Switch the model, in place, to the engine's attention and fused layers, and install kernels. Then compare the
    fixed step with the stock model on a few tokens: anything an architecture does beyond what the fixed step reproduces
    is refused, never ignored.

    model: on its device, in its dtype.
    kernels: None for the fastest here.

    Raises UnsupportedModel if the two disagree, RaceError for a dtype that does not hold what the model computes, and
    if memory runs out."""
    kind = type(model).__name__
    try:
        return _prepare(model, kernels, progress)
    except Exception as error:  # an architecture that does not fit may raise anything
        if is_out_of_memory(error):
            raise RaceError(
                f"not enough memory to prepare {kind}; choose a smaller model, or dtype bfloat16"
            ) from error
        if isinstance(error, PhotofinishError):
            raise
        raise UnsupportedModel(f"{kind} does not run on the fixed step: {in_a_line(error)}") from error
    finally:
        end_begun()


def _prepare(model: PreTrainedModel, kernels: Kernels | None, progress: Progress) -> Prepared:
    shape = shape_of(model)
    weight = next(model.parameters())
    device, dtype = weight.device, weight.dtype
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(f"{type(model).__name__} has no output embeddings: it is no causal language model")
    if head is model.get_decoder():
        raise UnsupportedModel(f"{type(model).__name__} has its output layer where its decoder should be")
    vocab_size = int(head.weight.shape[0])
    num_words = min(vocab_size, embeddings.weight.shape[0])
    ids = (torch.arange(FAITHFUL_TOKENS, device=device) * 7919 % num_words)[None]
    begin = getattr(model.config.get_text_config(), "bos_token_id", None)
    if isinstance(begin, int) and 0 <= begin < num_words:
        ids[0, 0] = begin  # many models' largest numbers come of it: more than float16 holds
    kernels = kernels or choose(device, dtype)
    kernels.get_ready(silent)
    with quiet():
        stock = model(input_ids=ids, use_cache=False).logits[0].float()
    _check_numbers(stock, model, "its weights are damaged")

    model.set_attn_implementation(NAME)
    fix_linear_layers(model)
    fuse(model, kernels.on_host)
    tokens = ids[0].tolist()
    plain = Prepared(model, shape, Kernels(device), vocab_size, dtype, device)
    if kernels.compares_with_torch:
        _check_faithful(plain, tokens, stock)  # checks the fixed step; the kernels are checked below
    if kernels.must_be_tried and (why := _reason_against(plain, kernels, tokens, progress)):
        kernels = kernels.lower(why) or kernels
    while True:
        prepared = replace(plain, kernels=kernels)
        try:
            kernels.install(model)
            _check_faithful(prepared, tokens, stock)
            if kernels.compares_with_torch:
                progress("comparing the kernels with torch's", None)
                check_agreement(prepared)
            _check_graph(prepared, tokens)
            return prepared
        except Exception as error:
            kernels.remove(model)
            if is_out_of_memory(error) or (lower := _lower(model, kernels, in_a_line(error))) is None:
                raise
            log.warning("%s goes down a rung", type(model).__name__, exc_info=True)
            kernels = lower


def _reason_against(plain: Prepared, kernels: Kernels, ids: list[int], progress: Progress) -> str:
    """Why these kernels do not run here; "" if they do."""
    try:
        _check_graph(replace(plain, kernels=kernels.lower("not tried yet") or kernels), ids)
        return tried(plain.model, kernels, progress)
    except RaceError as error:
        if is_out_of_memory(error):
            raise
        return str(error)


@torch.inference_mode()
def lowered(prepared: Prepared, why: str) -> Prepared | None:
    """The same model, in place, one rung down from its kernels, which failed because of `why`; None on the lowest rung.
    Sequences and graphs made over `prepared` must not be used any more. Raises RaceError if the device is lost (see
    `Kernels.lower`)."""
    prepared.kernels.remove(prepared.model)
    if (kernels := _lower(prepared.model, prepared.kernels, why)) is None:
        return None
    kernels.install(prepared.model)
    return replace(prepared, kernels=kernels)


def _lower(model: PreTrainedModel, kernels: Kernels, why: str) -> Kernels | None:
    """`Kernels.lower`, for a model without them. If the device is lost, kernels that had to be tried stay off."""
    try:
        return kernels.lower(why)
    except RaceError:
        if kernels.must_be_tried:
            condemn(model, f"the GPU's context was lost while it ran: {why}")
        raise


def _check_graph(prepared: Prepared, ids: list[int]) -> None:
    """Raises RaceError if a step replayed from a graph computes something else than the same step run directly. Rows
    that only round differently are counted for `Kernels.runs`: a library may choose another kernel on the stream of a
    capture, and nothing rests on the bits of a direct step, since probe and lanes replay."""
    if prepared.kernels.graph_pool() is None:
        return
    target = StaticTarget(prepared, LENGTH_BUCKET, (ROWS,))
    target.extend(ids[:1], 1)  # captured over other tokens, so that none of them can have been kept
    target.jump(0)
    replayed = target.extend(ids[:ROWS], ROWS)[0].clone()
    target.jump(0)
    direct = target.forward(torch.tensor([ids[:ROWS]], device=prepared.device), {})[0]
    error, limit = _apart(replayed.float(), direct.float(), prepared.dtype)
    if not error <= limit:
        raise RaceError(
            f"a step replayed from a CUDA graph has logits that differ from those of the same step run directly by "
            f"{error:.2g} on average (limit {limit:.2g})"
        )
    prepared.kernels.num_rounded = int((replayed != direct).any(-1).sum())


def _check_faithful(prepared: Prepared, ids: list[int], stock: Tensor) -> None:
    target = StaticTarget(prepared, LENGTH_BUCKET, (ROWS,))
    seen: dict[int, int | None] = {}
    rows = []
    for start in range(0, len(ids), ROWS):
        target.jump(start)
        block = torch.tensor([ids[start : start + ROWS]], device=prepared.device)
        rows.append(target.forward(block, seen)[0].float().clone())
    logits = torch.cat(rows)
    if seen != (wanted := windows_of(prepared.model)):
        layer = next(layer for layer in wanted if seen.get(layer, -1) != wanted[layer])
        what = "does not go through"
        if layer in seen:
            what = f"is configured for window {wanted[layer]}, and asks for {seen[layer]} in"
        raise UnsupportedModel(f"{type(prepared.model).__name__}: layer {layer} {what} the attention interface")
    _check_numbers(logits, prepared.model, "those of the stock model are")
    error, limit = _apart(logits, stock, prepared.dtype)
    if not error <= limit:
        raise UnsupportedModel(
            f"{type(prepared.model).__name__}: the fixed step's logits differ from the stock model's by {error:.2g} "
            f"on average (limit {limit:.2g}); it does something this engine would ignore"
        )


def _apart(logits: Tensor, others: Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """How far logits are from others on average, and the most that rounding in that dtype explains."""
    gap = (logits - others).abs().masked_fill_(logits == others, 0)  # -inf too, of words that are left out
    return float(gap.mean()), ROUNDING.get(dtype, 1e-3) * float(others[others.isfinite()].std())


def _check_numbers(logits: Tensor, model: PreTrainedModel, otherwise: str) -> None:
    """Raises RaceError, with the dtypes to choose, for logits that are not numbers; otherwise: why, in float32."""
    if not logits.amax(-1).isfinite().all():  # some may be -inf: words that are left out
        dtype, choose_another = str(model.dtype).removeprefix("torch."), "choose dtype float32"
        advice = {"float16": f"{choose_another} or bfloat16", "float32": otherwise}.get(dtype, choose_another)
        raise RaceError(f"{type(model).__name__} in {dtype}: {NAN}; {advice}")
