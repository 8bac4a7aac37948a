"""The input of training: windows, token sequences that the target wrote, with its hidden states, in files of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True)
class Batch:
    """ids [B, T] (padded with 0), lengths [B], hidden [B, T, layers * size]: the states that the head reads, last [B,
    T, size]: the input of the target's output layer."""

    ids: Tensor
    lengths: Tensor
    hidden: Tensor
    last: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on another device, hidden states as float32."""
        hidden, last = (states.to(device).float() for states in (self.hidden, self.last))
        return Batch(self.ids.to(device), self.lengths.to(device), hidden, last)

    @property
    def valid(self) -> Tensor:
        """Bool [B, T]: true at the windows' own tokens."""
        return torch.arange(self.ids.shape[1], device=self.ids.device)[None] < self.lengths[:, None]


class Features:
    """Files of windows in a folder (`write_features`), read by slices."""

    def __init__(self, folder: Path) -> None:
        self.index: list[tuple[Path, int, int]] = []
        for path in sorted(folder.glob("features-*.safetensors")):
            with safe_open(path, "pt") as file:
                lengths = file.get_tensor("lengths").tolist()
            self.index += [(path, i, int(length)) for i, length in enumerate(lengths)]

    @property
    def num_tokens(self) -> int:
        return sum(length for _, _, length in self.index)

    def batch(self, which: Sequence[int]) -> Batch:
        """Windows by their numbers, padded to the longest of them."""
        parts: dict[str, list[Tensor]] = {"ids": [], "hidden": [], "last": []}
        for i in which:
            path, row, length = self.index[i]
            with safe_open(path, "pt") as file:
                for name, part in parts.items():
                    part.append(file.get_slice(name)[row : row + 1, :length][0])
        ids, hidden, last = (pad_sequence(part, batch_first=True) for part in parts.values())
        return Batch(ids, torch.tensor([self.index[i][2] for i in which]), hidden, last)
