"""The tiles of a linear's kernel on a chip.

Bits of a row may depend on the configuration, never on the number of rows: a linear has one for all of them. It is a
function of shape and chip alone, so it is the same after a restart and on another machine with that chip."""

from dataclasses import dataclass, replace

import torch
import triton

LEAST_BLOCK_K = 64
ENOUGH = 0.9  # programs per SM: with fewer, SMs are idle
H100_SMS = 132


@dataclass(frozen=True, slots=True)
class Config:
    """A program takes `block_n` outputs (of a gate, and as many values) and `block_k` inputs at a time, loading
    `num_stages` - 1 such blocks ahead."""

    block_n: int
    block_k: int
    num_warps: int
    num_stages: int

    def num_programs(self, n: int) -> int:
        """For n outputs."""
        return triton.cdiv(n, self.block_n)


# Wide tiles read rows less often, narrow ones are more programs; 40 to 100 kB are in flight, which every chip holds.
PLAIN = Config(32, 256, 4, 5), Config(16, 256, 2, 5)
GATED = Config(32, 128, 4, 5), Config(16, 256, 2, 4)
HEAD = Config(64, 128, 4, 5)
HEAD_PROGRAMS = 8  # from this many programs of a head's tiles per SM on, a linear counts as a head


def num_sms(device: torch.device) -> int:
    """The device's multiprocessors; an H100's if it is not CUDA."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else H100_SMS


def tile_of(n: int, k: int, gated: bool, num_sms: int) -> Config:
    """The tiles for n outputs (of a gated linear: n of each) and k inputs: narrow ones where wide ones would leave SMs
    idle."""
    tile, narrow = GATED if gated else PLAIN
    if not gated and HEAD.num_programs(n) >= HEAD_PROGRAMS * num_sms:
        tile = HEAD
    elif tile.num_programs(n) < ENOUGH * num_sms:
        tile = narrow
    return replace(tile, block_k=_block_k(tile.block_k, k))


def _block_k(most: int, k: int) -> int:
    """Not much more than there are inputs, and half as much if that divides them."""
    block_k = max(LEAST_BLOCK_K, min(most, triton.next_power_of_2(k)))
    return block_k // 2 if k % block_k and k % (block_k // 2) == 0 and block_k >= 4 * LEAST_BLOCK_K else block_k
