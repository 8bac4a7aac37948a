"""A head's tensors by name, shape and dtype: whether they are those of its configuration, and fit its target. Standard
library only, so that they can be checked before any weights, and without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from .head_spec import HeadSpec
from .vocabulary import TABLES, TensorInfo, draft_ids, is_whole, may_be_padding

if TYPE_CHECKING:
    from torch import Tensor

EMBEDDING, OUTPUT, SCALE = "embed_tokens.weight", "lm_head.weight", "_scale"
RESTORED = "bfloat16"
FLOATS = ("float32", "bfloat16", "float16", "float64")
WHAT = {"eagle3": "the EAGLE-3 head", "dflash": "the DFlash head"}


@dataclass(frozen=True)
class Fitted:
    """A head for one target.

    shapes: of all its parameters, by name.
    target_ids: the target's id of each draft id; None if they are equal, or not known.
    num_words: rows of its output layer; None if it borrows the target's."""

    shapes: Mapping[str, tuple[int, ...]]
    target_ids: list[int] | None
    num_words: int | None
    qk_norm: bool
    fc_bias: bool


def info_of(name: str, tensor: Tensor) -> TensorInfo:
    """Reads the values of tables, unless the tensor is on the meta device."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    is_read = name in TABLES and not tensor.is_meta and not tensor.is_floating_point()
    return TensorInfo(tuple(tensor.shape), dtype, tensor.flatten().tolist() if is_read else None)


def renamed(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors under the names of the speculators format, without the tables of angles that some trainers store."""
    return {
        name.removeprefix("model.").replace("midlayer.", "layers.0."): value
        for name, value in tensors.items()
        if "rotary_emb." not in name
    }


def unpacked(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors after `compact.restored`: 8-bit matrices have numbers again, and no scales. Raises UsageError for
    8-bit numbers without a scale for each row."""
    packed = {name for name, info in tensors.items() if info.dtype == "int8"}
    infos = {}
    for name, info in tensors.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in packed:
            continue
        if name in packed and len(info.shape) == 2:
            scale, num_rows = tensors.get(name + SCALE), info.shape[0]
            if scale is None or scale.dtype not in FLOATS or scale.shape not in ((num_rows, 1), (num_rows,)):
                raise UsageError(
                    f"the head's {name} is in 8 bits, and {name}{SCALE} is no scale for each of its {num_rows} rows"
                )
            info = TensorInfo(info.shape, RESTORED)
        infos[name] = info
    return infos


def fitted(spec: HeadSpec, tensors: Mapping[str, TensorInfo], target_size: int, vocab_size: int) -> Fitted:
    """What these tensors are for a target of that hidden size and vocabulary. Raises UsageError naming what is missing,
    left over, or does not fit."""
    what = WHAT[spec.kind]
    own, output, fc = (_matrix(tensors, name) for name in (EMBEDDING, OUTPUT, "fc.weight"))
    if not is_whole(spec.vocab_size, vocab_size):
        raise UsageError(
            f"the head is for a vocabulary of {spec.vocab_size} words and the target has {vocab_size}: it is for "
            "another target"
        )
    if fc is None:
        there = min((name for name in tensors if name.endswith("fc.weight")), default="")
        raise UsageError(f"{what} lacks fc.weight" + f"; it has {there}" * bool(there))
    if fc.shape[1] != (num_read := len(spec.hidden_layers) * target_size):
        raise UsageError(
            f"{what}'s fc reads {fc.shape[1]} features; {len(spec.hidden_layers)} hidden states of this target have "
            f"{num_read}: it is for another target, or other indices (#aux=)"
        )
    _check_borrowed(spec, own, output, target_size, vocab_size)
    if own is not None and not may_be_padding(own.shape[0], vocab_size):
        raise UsageError(
            f"the head embeds {own.shape[0]} words and the target has {vocab_size}: it is for another target"
        )
    num_rows, stated = (vocab_size, None) if output is None else (output.shape[0], spec.draft_vocab_size)
    ids = draft_ids(tensors.get("d2t"), tensors.get("t2d"), num_rows, vocab_size, stated)
    num_words = None if output is None else min(num_rows, vocab_size if ids is None else len(ids))
    qk_norm = spec.layers.model_type == "qwen3" or "layers.0.self_attn.q_norm.weight" in tensors
    fc_bias = spec.kind == "eagle3" and "fc.bias" in tensors
    shapes = dict(_parameters(spec, target_size, qk_norm, fc_bias))
    size = spec.layers.hidden_size
    if own is not None:
        shapes[EMBEDDING] = max(own.shape[0], vocab_size), size
    if num_words is not None:
        shapes[OUTPUT] = num_words, size
    _check_tensors(what, tensors, shapes)
    return Fitted(shapes, ids, num_words, qk_norm, fc_bias)


def _matrix(tensors: Mapping[str, TensorInfo], name: str) -> TensorInfo | None:
    info = tensors.get(name)
    if info is not None and (len(info.shape) != 2 or 0 in info.shape):
        raise UsageError(f"the head's {name} has shape {list(info.shape)}, which is no matrix")
    return info


def _check_borrowed(
    spec: HeadSpec, own: TensorInfo | None, output: TensorInfo | None, target_size: int, vocab_size: int
) -> None:
    """Raise UsageError unless a head with these of its own can borrow the rest, and DFlash blocks draft anything."""
    size, whole = spec.layers.hidden_size, is_whole(spec.draft_vocab_size, vocab_size)
    if spec.kind == "eagle3":
        if own is None and size != target_size:
            raise UsageError(
                f"the head has hidden size {size} and no embedding of its own, so it needs a target of that size; "
                f"this one has {target_size}"
            )
        if output is None and (size != target_size or own is not None or not whole):
            raise UsageError("the EAGLE-3 head lacks lm_head.weight")
        return
    if size != target_size and (own is None or output is None):
        raise UsageError(
            f"the head has hidden size {size} and borrows its target's embedding or output layer, so it needs a "
            f"target of that size; this one has {target_size}"
        )
    if output is None and not whole:
        raise UsageError(
            f"the DFlash head lacks lm_head.weight, which its draft vocabulary of {spec.draft_vocab_size} words needs"
        )
    if not 0 <= spec.mask_token_id < vocab_size:
        raise UsageError(
            f"the head's mask token {spec.mask_token_id} is outside the target's vocabulary of {vocab_size}"
        )
    if spec.block_size < 2 - spec.sample_from_anchor:
        raise UsageError(f"the head's block of {spec.block_size} drafts nothing")


def _parameters(
    spec: HeadSpec, target_size: int, qk_norm: bool, fc_bias: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of what an Eagle3Head or DFlashHead has, except embedding and output layer."""
    layers, size, num_in = spec.layers, spec.layers.hidden_size, len(spec.hidden_layers)
    yield "fc.weight", (size, num_in * target_size)
    if fc_bias:
        yield "fc.bias", (size,)
    yield "norm.weight", (size,)
    if spec.kind == "eagle3":
        yield "layers.0.hidden_norm.weight", (size,)
        if spec.norm_before_fc:
            yield "input_norm.weight", (num_in * target_size,)
        if spec.fc_norm:
            yield from ((f"fc_norm.{i}.weight", (target_size,)) for i in range(num_in))
    else:
        yield "hidden_norm.weight", (size,)
    queries, keys = layers.num_attention_heads * layers.head_dim, layers.num_key_value_heads * layers.head_dim
    for i in range(layers.num_hidden_layers):
        num_read = 2 * size if spec.kind == "eagle3" and i == 0 else size
        attention = {"q": (queries, num_read), "k": (keys, num_read), "v": (keys, num_read), "o": (size, queries)}
        mlp = {"gate": (layers.intermediate_size, size), "up": (layers.intermediate_size, size)}
        mlp["down"] = size, layers.intermediate_size
        for part, linears, biased in (("self_attn", attention, layers.attention_bias), ("mlp", mlp, layers.mlp_bias)):
            for name, shape in linears.items():
                yield f"layers.{i}.{part}.{name}_proj.weight", shape
                if biased:
                    yield f"layers.{i}.{part}.{name}_proj.bias", shape[:1]
        if qk_norm:
            yield from ((f"layers.{i}.self_attn.{name}_norm.weight", (layers.head_dim,)) for name in "qk")
        yield from ((f"layers.{i}.{name}_layernorm.weight", (size,)) for name in ("input", "post_attention"))


def _check_tensors(what: str, tensors: Mapping[str, TensorInfo], shapes: Mapping[str, tuple[int, ...]]) -> None:
    names = tensors.keys() - set(TABLES)
    if missing := sorted(shapes.keys() - names):
        raise UsageError(f"{what} lacks {len(missing)} of its tensors, such as {missing[0]}")
    if unknown := sorted(names - shapes.keys()):
        raise UsageError(f"{what} has {len(unknown)} tensors that this engine has no use for, such as {unknown[0]}")
    for name, wanted in shapes.items():
        own = tensors[name]
        # rows of both may be padded: `build` cuts or fills them
        same = own.shape[1:] == wanted[1:] if name in (EMBEDDING, OUTPUT) else own.shape == wanted
        if not same:
            raise UsageError(f"{what}: {name} has shape {list(own.shape)}, but its config.json makes it {list(wanted)}")
        if own.dtype not in FLOATS:
            raise UsageError(f"{what}: {name} is {own.dtype}; this engine reads heads of {', '.join(FLOATS[:3])}")
