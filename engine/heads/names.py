"""The names of heads: `SOURCE[#option[&option]]`. Standard library only."""

import re
from dataclasses import dataclass

from ..core.errors import UsageError


@dataclass(frozen=True)
class HeadName:
    """Which head: `source` is a folder or repository, or "" for the one shipped for the default target; `aux` and
    `causal` override its configuration."""

    source: str = ""
    aux: tuple[int, ...] = ()
    causal: bool | None = None


SHIPPED = HeadName()


def parse_name(kind: str, argument: str) -> HeadName:
    """`SOURCE[#option[&option]]` with options `aux=2,9,15` (which hidden states it reads) and, for DFlash, `causal` or
    `bidirectional` (the mask inside the block; vLLM serves some heads causally that were trained otherwise). Raises
    UsageError."""
    source, _, options = argument.partition("#")
    aux: tuple[int, ...] = ()
    causal: bool | None = None
    for option in filter(None, options.split("&")):
        if match := re.fullmatch(r"aux=(\d{1,4}(?:,\d{1,4})*)", option):
            aux = tuple(int(i) for i in match[1].split(","))
        elif kind == "dflash" and option in ("causal", "bidirectional"):
            causal = option == "causal"
        else:
            known = ["aux=2,9,15", *(["causal", "bidirectional"] if kind == "dflash" else [])]
            raise UsageError(f"unknown option {option!r} of drafter {kind!r}; choose one of: {', '.join(known)}")
    return HeadName(source, aux, causal)
