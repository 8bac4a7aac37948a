"""The tiles of a linear's kernel on a chip.

Bits of a row may depend on the configuration, never on the number of rows: a linear has one for all of them. It is a
function of shape and chip alone, so it is the same after a restart and on another machine with that chip."""

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
ENOUGH = 0.9  # programs per SM: with fewer, SMs are idle, and the inputs are split


@dataclass(frozen=True, slots=True)
class Config:
    """A program takes `block_n` outputs (of a gate, and as many values) and `block_k` inputs at a time, loading
    `num_stages` - 1 such blocks ahead; `split_k` programs share the inputs of a tile."""

    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    split_k: int = 1

    def num_programs(self, n: int) -> int:
        """For n outputs."""
        return triton.cdiv(n, self.block_n) * self.split_k

    def shared_bytes(self, gated: bool) -> int:
        """Shared memory for weights and rows being loaded, 16 bits each."""
        return 2 * (self.num_stages - 1) * ((2 if gated else 1) * self.block_n + MOST_ROWS) * self.block_k


# The best guess first. Wide tiles read rows less often, narrow ones are more programs; 40 to 100 kB are in flight.
PLAIN, GATED, HEAD = (
    [Config(*sizes) for sizes in group]
    for group in (
        ((32, 256, 4, 5), (64, 128, 4, 5), (32, 256, 2, 5), (16, 256, 2, 5), (32, 128, 4, 6)),
        ((32, 128, 4, 5), (64, 64, 4, 6), (32, 128, 2, 5), (16, 256, 2, 4), (16, 128, 2, 6)),
        ((64, 128, 4, 5), (128, 64, 4, 6), (64, 256, 4, 4), (32, 256, 4, 5), (32, 128, 4, 6)),
    )
)
HEAD_PROGRAMS = 8  # from this many programs of 64 outputs per SM on, a linear counts as a head


@dataclass(frozen=True, slots=True)
class Chip:
    """The properties of a device that decide its tiles: torch's name for it, its compute capability, its number of
    multiprocessors, and the shared memory available to a program, in bytes."""

    name: str
    capability: tuple[int, int]
    num_sms: int
    shared_bytes: int

    @staticmethod
    def on(device: torch.device) -> Chip:
        """The device's properties; an H100's, under the device's name, if it is not CUDA."""
        if device.type != "cuda":
            return replace(H100, name=device.type)
        about: Any = torch.cuda.get_device_properties(device)
        name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
        return Chip(name, capability, about.multi_processor_count, about.shared_memory_per_block_optin)

    def holds(self, config: Config, gated: bool) -> bool:
        return config.shared_bytes(gated) <= self.shared_bytes


H100 = Chip("an H100", HOPPER, 132, 227 << 10)


def tile_of(n: int, k: int, gated: bool, chip: Chip = H100) -> Config:
    """The tiles for n outputs (of a gated linear: n of each) and k inputs: the first guess that the chip holds
    (consumer chips have 99 kB), but those that leave SMs idle come last. Such are split over the inputs, in as few
    parts as possible."""

    def leaves_idle(config: Config) -> bool:
        return config.num_programs(n) < ENOUGH * chip.num_sms

    split: list[Config] = []
    for tile in GATED if gated else HEAD if n >= 64 * HEAD_PROGRAMS * chip.num_sms else PLAIN:
        config = replace(tile, block_k=_block_k(tile.block_k, k))
        while leaves_idle(config) and config.split_k < MOST_SPLIT and k >= 4 * config.split_k * config.block_k:
            config = replace(config, split_k=2 * config.split_k)
        if chip.holds(config, gated):
            split.append(config)
    return min(split, key=lambda config: (leaves_idle(config), config.split_k))


def _block_k(most: int, k: int) -> int:
    """Not much more than there are inputs, and half as much if that divides them."""
    block_k = max(LEAST_BLOCK_K, min(most, triton.next_power_of_2(k)))
    return block_k // 2 if k % block_k and k % (block_k // 2) == 0 and block_k >= 4 * LEAST_BLOCK_K else block_k
