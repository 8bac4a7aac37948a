"""The table's entries for drafters with a head. Standard library only; what they make is imported on use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..heads.names import HeadName, parse_name
from . import DrafterContext, Kind

if TYPE_CHECKING:
    from ..interfaces import Drafter


def _make(kind: str, name: HeadName, context: DrafterContext) -> Drafter:
    from ..heads.loading import load_head
    from .device_heads import drafter_of

    return drafter_of(load_head(kind, name, context.loaded, context.progress), context)


EAGLE3 = Kind(
    partial(parse_name, "eagle3"), partial(_make, "eagle3"), "an extra network, token by token", table="any k"
)
DFLASH = Kind(
    partial(parse_name, "dflash"), partial(_make, "dflash"), "an extra network, a block at once", table="one k"
)
