"""The table's entries for drafters with a head. Standard library only; drafters are imported on use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..heads.names import HeadName, parse_name
from . import DrafterContext, Kind

if TYPE_CHECKING:
    from ..core.interfaces import Drafter
    from ..loading.loading import LoadedModel
    from ..progress import Progress


def _make(kind: str, name: HeadName, context: DrafterContext) -> Drafter:
    from ..loading.load_head import load_head
    from .device_heads import drafter_of

    return drafter_of(load_head(kind, name, context.loaded, context.progress), context)


def _cache_bytes(kind: str, name: HeadName, loaded: LoadedModel, k: int, length: int, progress: Progress) -> int:
    from ..loading.load_head import load_head
    from .head_drafter import buffer_bytes

    return buffer_bytes(load_head(kind, name, loaded, progress), loaded.prepared, length + k + 1)


def _most_drafts(name: HeadName, loaded: LoadedModel, progress: Progress) -> int:
    from ..loading.load_head import load_head
    from .dflash import most_drafts

    return most_drafts(load_head("dflash", name, loaded, progress))


def _kind(kind: str, label: str, **more: Any) -> Kind:
    make, cache_bytes = partial(_make, kind), partial(_cache_bytes, kind)
    return Kind(partial(parse_name, kind), make, label, cache_bytes=cache_bytes, **more)


EAGLE3 = _kind("eagle3", "EAGLE-3 head", table="any k")
DFLASH = _kind("dflash", "DFlash head", table="one k", most_drafts=_most_drafts)
