"""Tiles of a linear's kernel: those worth trying on a chip, and the default, for linears that are not in the table
(`table.py`).

Bits of a row may depend on the configuration, never on the number of rows: a linear has one for all of them. The
default is a function of shape and chip alone: it is the same after a restart, and on the next machine of the kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton

from .runtime import MOST_ROWS

LEAST_BLOCK_N = 16
LEAST_BLOCK_K = 64
MOST_SPLIT = 4
HOPPER = (9, 0)
ENOUGH = 0.9
"""Programs an SM: with fewer, SMs stand idle, and the inputs are split."""
MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Config:
    """A program takes `block_n` outputs (of a gate, and as many of its values) and `block_k` inputs at a time,
    `num_stages` - 1 such blocks ahead; `split_k` programs share the inputs of a tile. `weights_first`: they are the
    left factor, which with 64 outputs and 4 warps makes Hopper multiply a whole block straight from shared memory."""

    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    split_k: int = 1
    weights_first: bool = False

    def num_programs(self, n: int) -> int:
        """For n outputs."""
        return triton.cdiv(n, self.block_n) * self.split_k

    def shared_bytes(self, gated: bool, capability: tuple[int, int] = HOPPER) -> int:
        """Of shared memory for weights and rows on their way, 16 bits each. Only Hopper multiplies straight from there,
        which takes a block more."""
        num_blocks = self.num_stages if self.weights_first and capability[0] == HOPPER[0] else self.num_stages - 1
        return 2 * num_blocks * ((2 if gated else 1) * self.block_n + MOST_ROWS) * self.block_k


PLAIN = (
    Config(32, 256, 4, 5),
    Config(64, 128, 4, 5, weights_first=True),
    Config(64, 128, 4, 5),
    Config(32, 256, 2, 5),
    Config(16, 256, 2, 5),
    Config(32, 128, 4, 6),
)
GATED = (
    Config(32, 128, 4, 5),
    Config(64, 64, 4, 6, weights_first=True),
    Config(32, 128, 2, 5),
    Config(64, 128, 4, 4, weights_first=True),
    Config(16, 256, 2, 4),
    Config(16, 128, 2, 6),
)
HEAD = (
    Config(64, 128, 4, 5),
    Config(64, 128, 4, 5, weights_first=True),
    Config(128, 64, 4, 6, weights_first=True),
    Config(64, 256, 4, 4),
    Config(32, 256, 4, 5),
    Config(32, 128, 4, 6),
)
"""The best guess first. Wide tiles read the rows less often, narrow ones are more programs; all have some 40 to 100 kB
of weights on their way in an SM."""
DEFAULT = "default"
"""The source of tiles that no table gave."""
HEAD_PROGRAMS = 8
"""An SM has so many programs of 64 outputs or more: a head."""


@dataclass(frozen=True, slots=True)
class Chip:
    """What of a device decides its tiles: its name as torch gives it, its compute capability, the number of its
    multiprocessors, and the shared memory that a program may take there, in bytes."""

    name: str
    capability: tuple[int, int]
    num_sms: int
    shared_bytes: int

    @staticmethod
    def on(device: torch.device) -> Chip:
        """A device's own; of one that is not CUDA an H100's under the device's name."""
        if device.type != "cuda":
            return replace(H100, name=device.type)
        about: Any = torch.cuda.get_device_properties(device)
        name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
        return Chip(name, capability, about.multi_processor_count, about.shared_memory_per_block_optin)

    def holds(self, config: Config, gated: bool) -> bool:
        return config.shared_bytes(gated, self.capability) <= self.shared_bytes


H100 = Chip("an H100", HOPPER, 132, 227 << 10)


def candidates(n: int, k: int, gated: bool, chip: Chip = H100) -> list[Config]:
    """Configurations worth trying for n outputs (of a gated linear: n of each) and k inputs, the best guess first.
    Tiles that leave SMs idle are split over the inputs, in as few parts as it takes; then come those with half as many.
    Those that the chip does not hold are left out: consumer chips have 99 kB."""

    def leaves_idle(config: Config) -> bool:
        return config.num_programs(n) < ENOUGH * chip.num_sms

    split: list[Config] = []
    for tile in GATED if gated else HEAD if n >= 64 * HEAD_PROGRAMS * chip.num_sms else PLAIN:
        config = replace(tile, block_k=_block_k(tile.block_k, k))
        while leaves_idle(config) and config.split_k < MOST_SPLIT and k >= 4 * config.split_k * config.block_k:
            config = replace(config, split_k=2 * config.split_k)
        split.append(config)
    split.sort(key=lambda config: (leaves_idle(config), config.split_k))
    halved = [replace(config, split_k=config.split_k // 2) for config in split if config.split_k > 1]
    return [config for config in dict.fromkeys(split + halved) if chip.holds(config, gated)][:MOST_CANDIDATES]


def _block_k(most: int, k: int) -> int:
    """Not much more than there are inputs, and half as much where that divides them."""
    block_k = max(LEAST_BLOCK_K, min(most, triton.next_power_of_2(k)))
    return block_k // 2 if k % block_k and k % (block_k // 2) == 0 and block_k >= 4 * LEAST_BLOCK_K else block_k


def default(n: int, k: int, gated: bool, chip: Chip = H100) -> Config:
    """The first of the candidates."""
    return candidates(n, k, gated, chip)[0]
