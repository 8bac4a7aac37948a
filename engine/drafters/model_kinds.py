"""The table's entries for draft models and heads. Standard library only; drafters are imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from ..heads.names import HeadName, parse_name
from . import DrafterContext, Kind

if TYPE_CHECKING:
    from ..core.interfaces import Drafter
    from ..loading.loading import LoadedModel
    from ..progress import Progress


def name_of(argument: str) -> str:
    """The argument, a repository or folder. Raises UsageError if there is none."""
    if not argument:
        raise UsageError(
            "drafter 'draft_model' needs a model after a colon, as in draft_model:owner/name or draft_model:./folder"
        )
    return argument


def difference(ours: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    """Where the ids of a target's tokens and of a draft model's differ first, as a clause; "" if they do not."""
    if not (differ := ours.items() ^ theirs.items()):
        return ""
    at = min(i for _, i in differ)
    words = ({i: repr(token) for token, i in vocabulary.items()}.get(at, "nothing") for vocabulary in (ours, theirs))
    num_same = len(ours.items() & theirs.items())
    return "token {} is {} for the target and {} for the draft model; {:,} of {:,} ids agree".format(
        at, *words, num_same, len(ours)
    )


def _make(name: str, context: DrafterContext) -> Drafter:
    from ..runner.target import StaticTarget, cache_length
    from .device_picks import stays_on_device
    from .draft_model import WIDTH, DeviceDraftModelDrafter, DraftModelDrafter, readable

    target = context.loaded
    draft = target.companion(name, context.progress)
    if says := difference(target.tokenizer.get_vocab(), draft.tokenizer.get_vocab()):
        raise UsageError(f"draft model {name!r} has another tokenizer than {target.info.name!r}: {says}")
    num_prompt, num_new = len(context.prompt.token_ids), context.params.max_new_tokens
    limit = draft.prepared.shape.max_length
    if num_prompt + num_new > limit:
        raise UsageError(
            f"the prompt's {num_prompt} tokens and {num_new} new ones exceed the {limit} positions of draft model "
            f"{name!r}"
        )
    length = cache_length(num_prompt, num_new, WIDTH)
    model = StaticTarget(draft.prepared, length, (WIDTH,), reach=context.k, pool=context.pool)
    model.warm(readable(model, context.prompt.token_ids[:-1]))
    vocab_size = target.prepared.vocab_size
    drafter: DraftModelDrafter
    if stays_on_device(context):
        drafter = DeviceDraftModelDrafter(model, context.sample, vocab_size, context.k)
        drafter.warm()
    else:
        drafter = DraftModelDrafter(model, context.sample, vocab_size, context.keep_logits)
    return drafter


def _cache_bytes(name: str, loaded: LoadedModel, k: int, length: int, progress: Progress) -> int:
    from ..runner.prepared import sequence_bytes
    from .draft_model import WIDTH

    return sequence_bytes(loaded.companion(name, progress).prepared, length, WIDTH + k)


KIND = Kind(name_of, _make, label="draft model", table="any k", cache_bytes=_cache_bytes)


def _make_head(kind: str, name: HeadName, context: DrafterContext) -> Drafter:
    from ..loading.load_head import load_head
    from .device_heads import drafter_of

    return drafter_of(load_head(kind, name, context.loaded, context.progress), context)


def _head_bytes(kind: str, name: HeadName, loaded: LoadedModel, k: int, length: int, progress: Progress) -> int:
    from ..loading.load_head import load_head
    from .head_drafter import buffer_bytes

    return buffer_bytes(load_head(kind, name, loaded, progress), loaded.prepared, length + k + 1)


def _block_drafts(name: HeadName, loaded: LoadedModel, progress: Progress) -> int:
    from ..loading.load_head import load_head
    from .dflash import most_drafts

    return most_drafts(load_head("dflash", name, loaded, progress))


def _kind(kind: str, label: str, **more: Any) -> Kind:
    make, cache_bytes = partial(_make_head, kind), partial(_head_bytes, kind)
    return Kind(partial(parse_name, kind), make, label, cache_bytes=cache_bytes, **more)


EAGLE3 = _kind("eagle3", "EAGLE-3 head", table="any k")
DFLASH = _kind("dflash", "DFlash head", table="one k", most_drafts=_block_drafts)
