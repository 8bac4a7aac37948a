"""The table's entries for drafters with a head. Standard library only; what they make is imported on use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..heads.names import HeadName, parse_name
from . import DrafterContext, Kind

if TYPE_CHECKING:
    from ..interfaces import Drafter


def _eagle3(name: HeadName, context: DrafterContext) -> Drafter:
    from ..heads.loading import load_head
    from .device_heads import eagle3_drafter

    return eagle3_drafter(load_head("eagle3", name, context.loaded, context.progress), context)


def _dflash(name: HeadName, context: DrafterContext) -> Drafter:
    from ..heads.loading import load_head
    from .device_heads import dflash_drafter

    return dflash_drafter(load_head("dflash", name, context.loaded, context.progress), context)


EAGLE3 = Kind(partial(parse_name, "eagle3"), _eagle3, label="a head, token by token")
DFLASH = Kind(partial(parse_name, "dflash"), _dflash, label="a head, a block at once")
