"""The table of tiles: which configuration a linear of a shape takes on a chip, as it was measured there (`tuning.py`).

The table is a JSON list. One ships: `tiles.json`. The environment variable PHOTOFINISH_TILES names a file that is read
instead of it. An entry is

    {"chip": "NVIDIA H100 80GB HBM3", "capability": [9, 0], "num_sms": 132,
     "dtype": "bfloat16", "n": 6144, "k": 4096, "gated": false, "bias": false,
     "config": {"block_n": 32, "block_k": 256, "num_warps": 4, "num_stages": 5, "split_k": 1, "weights_first": false}}

for a chip as torch names it, and a linear of n outputs (of a gated one: n gates and n values) and k inputs. Other keys
of an entry are for readers. A linear that has no entry takes the default tiles.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...strict_json import COUNT, FLAG, NAME, OBJECT, Shape, fits, parse
from .linear import GpuLinear
from .tiles import DEFAULT, Chip, Config, candidates, default

log = logging.getLogger(__name__)
SHIPPED = Path(__file__).with_name("tiles.json")
VARIABLE = "PHOTOFINISH_TILES"
"""Environment: a file that is read instead of the shipped table."""
MAX_BYTES = 4 << 20
LIST = Shape("a list", lambda value: isinstance(value, list))
SHAPE = {"dtype": NAME, "n": COUNT, "k": COUNT, "gated": FLAG, "bias": FLAG}
ENTRY = {"chip": NAME, "capability": [COUNT], "num_sms": COUNT, **SHAPE, "config": OBJECT}


@dataclass(frozen=True, slots=True)
class Key:
    """What an entry of the table is for."""

    chip: str
    capability: tuple[int, ...]
    num_sms: int
    dtype: str
    n: int
    k: int
    gated: bool
    bias: bool

    @staticmethod
    def of(linear: GpuLinear) -> Key:
        chip, dtype = Chip.on(linear.weight.device), str(linear.weight.dtype).removeprefix("torch.")
        n, k, gated, bias = linear.out_features, linear.in_features, linear.act is not None, linear.bias is not None
        return Key(chip.name, chip.capability, chip.num_sms, dtype, n, k, gated, bias)

    @property
    def shape(self) -> str:
        return f"{'gated ' * self.gated}{self.n} x {self.k}{' with bias' * self.bias} in {self.dtype}"

    def __str__(self) -> str:
        return f"a linear of {self.shape} on {self.chip} ({self.num_sms} SMs)"


def named() -> str | None:
    """The file that is to be read instead of the shipped table; None where none is named."""
    return os.environ.get(VARIABLE) or None


def put_tiles(linears: Sequence[GpuLinear]) -> None:
    """Give every linear the table's tiles for its shape on its chip, else the default ones, and note where they come
    from. Call it before anything is captured or probed: bits change with the tiles. Nothing is measured.

    The table is not trusted. An entry that is damaged, or whose tiles are not among the `candidates` of its shape on
    this chip, is ignored with a warning; so is a file that cannot be read."""
    source, table = _read()
    chosen: dict[Key, tuple[Config, str]] = {}
    for linear in linears:
        key = Key.of(linear)
        if key not in chosen:
            chosen[key] = _choose(key, Chip.on(linear.weight.device), table, source)
        linear.config, linear.tiles_from = chosen[key]
    if named() and chosen and not any(origin == source for _, origin in chosen.values()):
        chip = next(iter(chosen)).chip
        log.warning("no tiles of %s are for a linear of this model on %s: all take the default tiles", named(), chip)


def _choose(key: Key, chip: Chip, table: dict[Key, Any], source: str) -> tuple[Config, str]:
    if (wanted := table.get(key)) is not None:
        for config in candidates(key.n, key.k, key.gated, chip):
            if asdict(config) == wanted:
                return config, source
        log.warning("ignoring an entry of the %s: %s cannot take the tiles %.300s", source, key, wanted)
    return default(key.n, key.k, key.gated, chip), DEFAULT


def _read() -> tuple[str, dict[Key, Any]]:
    """Where tiles come from, in words for a recording; and the entries that can be read."""
    path = named() or SHIPPED
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        entries = parse(data, MAX_BYTES)
        fits(entries, LIST)
    except (OSError, UsageError) as error:
        log.warning("the table of tiles %s cannot be read: %s", path, error)
        return "no table", {}
    source = f"table file {hashlib.sha256(data).hexdigest()[:8]}" if named() else "shipped table"
    table: dict[Key, Any] = {}
    for i, entry in enumerate(entries):
        try:
            fits(entry, ENTRY)
            shape = {name: entry[name] for name in SHAPE}
            key = Key(entry["chip"], tuple(entry["capability"]), entry["num_sms"], **shape)
            if key in table:
                raise UsageError(f"{key} has an entry before it")
            table[key] = entry["config"]
        except UsageError as error:
            log.warning("ignoring entry %d of the %s: %s", i, source, error)
    return source, table
